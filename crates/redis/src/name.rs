//! The names of keys in Redis.
//!
//! A counter's key is `prefix:{rule:key}`, readable and escaped. The braces make a cluster keep everything
//! about a counter in one slot. Records are under `prefix/…`, so that deleting `prefix:*` deletes only
//! counters. A key that is too long is hashed. A secret key is hashed with a secret; otherwise a reader of
//! the names could guess keys and compare.

mod meaning;

use std::collections::HashMap;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Limit, Plan, StoreError, Ticket};

use crate::settings::Settings;
pub use meaning::{CounterPart, NameMeaning};
use tollgate_remote::KeyHash;

/// Makes the names of keys.
pub(crate) struct Names {
    prefix: String,
    tags: HashMap<String, String>,
    /// Hashes secret keys.
    pub(crate) key_hash: KeyHash,
}

/// A secret key that cannot be named, because the secret for its hash is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unnamed;

/// The longest key that is kept readable, in bytes.
const MOST_READABLE: usize = 128;

impl From<Unnamed> for StoreError {
    fn from(_: Unnamed) -> Self {
        Self::Unavailable { reason: "what secret keys are hashed with is not known yet".into() }
    }
}

impl Names {
    /// The names for these settings: they have its prefix, and keys of tagged rules share a slot.
    pub(crate) fn new(settings: &Settings) -> Self {
        let key_hash = KeyHash::new(settings.key_secret.as_ref());
        Self { prefix: escaped(&settings.prefix), tags: settings.tags.clone(), key_hash }
    }

    /// The name of a counter.
    pub(crate) fn counter(&self, plan: &Plan, key: &str) -> Result<String, Unnamed> {
        if !plan.is_secret() {
            return Ok(self.plain(plan.rule(), key));
        }
        let digest = self.key_hash.digest(plan.rule(), key).ok_or(Unnamed)?;
        Ok(self.hashed(plan.rule(), &digest))
    }

    /// As [`Names::counter`], for a rule whose keys are not secret.
    pub(crate) fn plain(&self, rule: &str, key: &str) -> String {
        if key.len() > MOST_READABLE {
            return self.hashed(rule, &Sha256::digest(key.as_bytes()));
        }
        let mut name = self.rule(rule);
        escape(key, &mut name);
        name.push('}');
        name
    }

    fn hashed(&self, rule: &str, digest: &[u8]) -> String {
        let mut name = self.rule(rule);
        name.push('#');
        HEXLOWER.encode_append(&digest[..16], &mut name);
        name.push('}');
        name
    }

    /// The start of the names of a rule's counters.
    fn rule(&self, rule: &str) -> String {
        let mut name = String::with_capacity(96);
        name.push_str(&self.prefix);
        name.push(':');
        if let Some(tag) = self.tags.get(rule) {
            name.push('{');
            escape(tag, &mut name);
            name.push('}');
        }
        name.push('{');
        escape(rule, &mut name);
        name.push(':');
        name
    }

    /// A pattern that matches all counters of a rule, or of all rules.
    pub(crate) fn pattern(&self, rule: Option<&str>) -> String {
        // Escaped text has no character that is special in a pattern.
        match rule {
            Some(rule) => format!("{}*", self.rule(rule)),
            None => format!("{}:{{*", self.prefix),
        }
    }

    /// The name of the times until which rules were forgotten.
    pub(crate) fn forgotten(&self) -> String {
        format!("{}/forgotten", self.prefix)
    }

    /// The name of the hash with the secret.
    pub(crate) fn records(&self) -> String {
        format!("{}/records", self.prefix)
    }

    /// The names of a namespace: its entries and latest changes, and the expiry of its entries. The braces
    /// make a cluster keep both in one slot.
    pub(crate) fn map(&self, space: Namespace) -> [String; 2] {
        let hash = format!("{}/{{{}}}", self.prefix, space.name());
        let ends = format!("{hash}:ends");
        [hash, ends]
    }

    /// The name under which the first layout kept lists and locks.
    pub(crate) fn old_ledger(&self) -> String {
        format!("{}/ledger", self.prefix)
    }

    /// A key that probes write to, with an immediate expiry. Different numbers are in different slots.
    pub(crate) fn probe(&self, number: usize) -> String {
        format!("{}/probe:{number}", self.prefix)
    }
}

/// The further key of a limit that keeps more than numbers, in the slot of its counter.
pub(crate) fn beside(counter: &str, limit: &Limit) -> Option<String> {
    match limit {
        Limit::Sliding(limit) => Some(format!("{counter}:log:{}", limit.period())),
        Limit::Slotted(limit) => Some(format!("{counter}:slots:{}:{}", limit.period(), limit.slot())),
        Limit::InFlight(_) => Some(format!("{counter}:holds")),
        Limit::Ladder(limit) => Some(format!("{counter}:failures:{}", limit.forget())),
        Limit::Window(_) | Limit::Calendar(_) | Limit::Bucket(_) | Limit::Total(_) | Limit::PerAttempt(_) => {
            None
        }
    }
}

/// The marker that a ticket's charge at a counter was refunded, in the slot of the counter.
pub(crate) fn spent(counter: &str, ticket: Ticket) -> String {
    format!("{counter}:given:{ticket}")
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    escape(text, &mut out);
    out
}

/// Appends a text, with every special character as `%` and two digits.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'%' | b'{' | b'}' | b'#' | b'*' | b'?' | b'[' | b']' | b'\\' | b'"' => escape_byte(byte, out),
            0x21..=0x7e => out.push(char::from(byte)),
            _ => escape_byte(byte, out),
        }
    }
}

fn escape_byte(byte: u8, out: &mut String) {
    out.push('%');
    HEXLOWER.encode_append(&[byte], out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Password;

    fn settings() -> Settings {
        let tags = HashMap::from([("mail".into(), "m".into())]);
        Settings { tags, ..Settings::parse("redis://localhost").unwrap() }
    }

    fn plan(rule: &str) -> Plan {
        Plan::new(rule.into(), vec!["10/min".parse().unwrap()]).unwrap()
    }

    #[test]
    fn keys_are_readable_and_no_two_share_a_name() {
        let names = Names::new(&settings());
        let name = |rule: &str, key: &str| names.counter(&plan(rule), key).unwrap();
        assert_eq!(name("ip", "2001:db8::/64"), "tollgate:{ip:2001:db8::/64}");
        assert_eq!(name("mail", "a b"), "tollgate:{m}{mail:a%20b}");
        let keys = ["a", "a}", "{a", "a%7d", "#a", "ä", "", "*", "a:log:1h"];
        let mut seen: Vec<_> = keys.iter().map(|key| name("ip", key)).collect();
        seen.push(name("ip", &"a".repeat(200)));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), keys.len() + 1);
    }

    fn counter(rule: &str, key: Option<&str>, part: CounterPart) -> Option<NameMeaning> {
        Some(NameMeaning::Counter { rule: rule.into(), key: key.map(Into::into), part })
    }

    #[test]
    fn a_name_says_its_rule_and_its_key() {
        let mut settings = settings();
        settings.prefix = "elemta:ratelimit".into();
        let names = Names::new(&settings);
        for rule in ["ip", "mail"] {
            for key in
                ["a", "a}", "{a", "a%7d", "#a", "ä", "", "*", "a:log:1h", "2001:db8::/64", "a b", "\\,\""]
            {
                let name = names.plain(rule, key);
                assert_eq!(NameMeaning::of(&name), counter(rule, Some(key), CounterPart::Numbers), "{name}");
            }
        }
        let hashed = names.plain("ip", &"a".repeat(200));
        assert_eq!(NameMeaning::of(&hashed), counter("ip", None, CounterPart::Numbers), "{hashed}");
    }

    #[test]
    fn a_name_says_what_is_kept_beside_a_counter() {
        let name = Names::new(&settings()).plain("ip", "a");
        let limit = |text: &str| -> Limit { text.parse().unwrap() };
        for (text, part) in [
            ("100/hour sliding", CounterPart::Log("1h".into())),
            ("100/hour sliding by 5m", CounterPart::Slots("1h by 5m".into())),
            ("10 at once", CounterPart::Holds),
            ("ladder 4 +2s forget 15m", CounterPart::Failures("15m".into())),
        ] {
            let name = beside(&name, &limit(text)).unwrap();
            assert_eq!(NameMeaning::of(&name), counter("ip", Some("a"), part), "{name}");
        }
        let name = spent(&name, Ticket(7));
        assert_eq!(NameMeaning::of(&name), counter("ip", Some("a"), CounterPart::Refunded), "{name}");
    }

    #[test]
    fn every_record_has_a_meaning_and_other_names_have_none() {
        let names = Names::new(&settings());
        let maps = Namespace::ALL.into_iter().flat_map(|space| names.map(space));
        let records = [names.records(), names.forgotten(), names.old_ledger(), names.probe(1)];
        for name in maps.chain(records) {
            assert!(matches!(NameMeaning::of(&name), Some(NameMeaning::Records(_))), "{name}");
        }
        for name in [
            "",
            "ratelimit:550e8400-e29b-41d4-a716-446655440000:192.168.1.100",
            "elemta:ratelimit:ip:172.20.0.1",
            "rl:auth:fail:7",
            "tollgate:{ip",
            "tollgate:{ip:a",
            "tollgate:{ip}",
            "tollgate:{ip:a}x",
            "tollgate:{ip:a}:other",
            "tollgate:{ip:a%}",
            "tollgate:{ip:a%+1}",
            "tollgate:{ip:%ff}",
            "tollgate/{other}",
        ] {
            assert_eq!(NameMeaning::of(name), None, "{name}");
        }
    }

    #[test]
    fn a_pattern_of_all_counters_matches_no_record() {
        let names = Names::new(&settings());
        assert!(names.counter(&plan("ip"), "k").unwrap().starts_with("tollgate:"));
        let [entries, ends] = names.map(Namespace::Lists);
        for record in [names.records(), entries, ends, names.forgotten(), names.probe(1)] {
            assert!(record.starts_with("tollgate/"), "{record}");
        }
    }

    #[test]
    fn a_secret_key_has_no_name_until_the_hash_secret_is_known() {
        let names = Names::new(&settings());
        let plan = plan("api_key").with_secret_keys();
        assert_eq!(names.counter(&plan, "sk-123"), Err(Unnamed));
        names.key_hash.learn([7; 32]);
        let name = names.counter(&plan, "sk-123").unwrap();
        let plain = HEXLOWER.encode(&Sha256::digest(b"sk-123"));
        assert!(name.starts_with("tollgate:{api_key:#"), "{name}");
        assert!(!name.contains("123") && !name.contains(&plain[..32]), "{name}");
    }

    #[test]
    fn a_secret_key_is_named_by_the_secret_and_by_its_rule() {
        let names = Names::new(&settings());
        let hidden = |rule: &str| {
            let name = names.counter(&plan(rule).with_secret_keys(), "sk-123").unwrap();
            name.split('#').nth(1).unwrap().to_owned()
        };
        names.key_hash.learn([7; 32]);
        let (one, other) = (hidden("api_key"), hidden("user"));
        assert_ne!(one, other, "names of two rules do not show that it is the same key");
        names.key_hash.learn([8; 32]);
        assert_ne!(hidden("api_key"), one);
        names.key_hash.learn([7; 32]);
        assert_eq!(hidden("api_key"), one);
    }

    #[test]
    fn a_configured_secret_goes_before_that_of_the_store() {
        let key_secret = Some(Password("long enough to be one".into()));
        let names = Names::new(&Settings { key_secret, ..settings() });
        let plan = plan("api_key").with_secret_keys();
        let name = names.counter(&plan, "sk-123").unwrap();
        names.key_hash.learn([7; 32]);
        assert_eq!(names.counter(&plan, "sk-123").unwrap(), name);
    }
}
