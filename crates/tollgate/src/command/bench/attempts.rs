//! The attempts of the load. Their fields are fixed or chosen at random.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use serde_json::{Map, Value, json};
use tollgate_core::key::FieldKind;

use crate::command::check;

/// The source of a field's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldValues {
    /// Always the same value.
    Fixed(String),
    /// One of this many values.
    AnyOf(u32),
}

/// Makes the bodies of requests.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    policy: String,
    fields: Vec<(String, FieldKind, FieldValues)>,
    batch: u8,
    /// Makes the values of two runs differ.
    seed: u64,
}

/// A random number generator for each connection.
pub(super) struct Dice(u64);

/// As many values as there are addresses in 10.0.0.0/8.
const MOST_VALUES: u32 = 1 << 24;

/// Parses a value of `--field`.
pub(super) fn source(text: &str) -> Result<(String, FieldValues), String> {
    let (name, value) = check::field(text)?;
    let Some(count) = value.strip_prefix('@') else { return Ok((name, FieldValues::Fixed(value))) };
    match count.replace('_', "").parse() {
        Ok(count @ 1..=MOST_VALUES) => Ok((name, FieldValues::AnyOf(count))),
        _ => Err(format!("after @ comes how many values there are, 1 to {MOST_VALUES}")),
    }
}

impl Attempts {
    pub(super) fn new(policy: &str, fields: &[(String, FieldValues)], batch: u8) -> Self {
        let kind =
            |(name, source): &(String, FieldValues)| (name.clone(), FieldKind::of_name(name), source.clone());
        Self {
            policy: policy.to_owned(),
            fields: fields.iter().map(kind).collect(),
            batch,
            seed: RandomState::new().build_hasher().finish(),
        }
    }

    /// How many attempts to send in one request.
    pub(super) fn batch(&self) -> u8 {
        self.batch
    }

    /// An attempt that takes nothing.
    pub(super) fn rehearsal(&self) -> Value {
        let mut attempt = self.attempt(&mut Dice::new(0));
        attempt["dry_run"] = Value::from(true);
        attempt
    }

    /// The body of the next request.
    pub(super) fn body(&self, dice: &mut Dice) -> String {
        if self.batch == 1 {
            return self.attempt(dice).to_string();
        }
        let attempts: Vec<Value> = (0..self.batch).map(|_| self.attempt(dice)).collect();
        json!({ "attempts": attempts }).to_string()
    }

    fn attempt(&self, dice: &mut Dice) -> Value {
        let mut fields = Map::new();
        for (name, kind, source) in &self.fields {
            let value = match source {
                FieldValues::Fixed(value) => value.clone(),
                FieldValues::AnyOf(count) => self.value(*kind, dice.below(*count)),
            };
            fields.insert(name.clone(), Value::from(value));
        }
        json!({ "policy": self.policy, "fields": fields })
    }

    /// The value with this number. Different numbers have different values: an odd factor and a shift permute
    /// the 24 bits.
    fn value(&self, kind: FieldKind, number: u32) -> String {
        let shift = u32::try_from(self.seed % u64::from(MOST_VALUES)).expect("below 2^24");
        let mixed = number.wrapping_mul(0x9E_3779).wrapping_add(shift) % MOST_VALUES;
        let [_, a, b, c] = mixed.to_be_bytes();
        match kind {
            FieldKind::Ip { .. } => format!("10.{a}.{b}.{c}"),
            FieldKind::Address => format!("bench-{mixed:06x}@bench.example"),
            FieldKind::Domain => format!("bench-{mixed:06x}.example"),
            FieldKind::Text => format!("bench-{mixed:06x}"),
        }
    }
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `count`, by SplitMix64.
    fn below(&mut self, count: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        u32::try_from(mixed % u64::from(count)).expect("below a number of 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_have_values_of_their_own_that_fit_the_field() {
        let attempts = Attempts::new("p", &[], 1);
        for (kind, start) in [("ip", "10."), ("sender", "bench-"), ("domain", "bench-"), ("user", "bench-")] {
            let kind = FieldKind::of_name(kind);
            let values: HashSet<String> = (0..20_000).map(|number| attempts.value(kind, number)).collect();
            assert_eq!(values.len(), 20_000);
            assert!(values.iter().all(|value| value.starts_with(start)));
        }
    }

    #[test]
    fn dice_reach_every_number_and_nothing_beyond() {
        let mut dice = Dice::new(7);
        let seen: HashSet<u32> = (0..1_000).map(|_| dice.below(10)).collect();
        assert_eq!(seen, (0..10).collect());
    }

    #[test]
    fn a_batch_carries_that_many_attempts() {
        let fields =
            [("ip".to_owned(), FieldValues::AnyOf(5)), ("user".to_owned(), FieldValues::Fixed("ada".into()))];
        let body = Attempts::new("login", &fields, 3).body(&mut Dice::new(1));
        let body: Value = serde_json::from_str(&body).unwrap();
        let attempts = body["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 3);
        assert_eq!(
            (&attempts[2]["policy"], &attempts[2]["fields"]["user"]),
            (&json!("login"), &json!("ada"))
        );
    }
}
