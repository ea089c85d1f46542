//! From an attempt to charges: finds the values of its fields, and charges each rule of a policy.
//!
//! A policy stores the data for charging its rules in adjacent memory. Fetching each rule from elsewhere would take
//! longer than charging it.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::{SmallVec, smallvec};

use super::{Attempt, Policy, same};
use crate::charge::{Charges, Key};
use crate::key::{self, FieldKind, Presence, ValueError};
use crate::lists::Roster;
use crate::mistake::{Mistake, nearest, shown};
use crate::rule::{Field, Rule};
use crate::{MAX_EXACT, Ticket, derived};

/// One rule of a policy.
#[derive(Clone, Debug)]
pub(super) struct RuleStep {
    rule: Arc<Rule>,
    parts: SmallVec<[KeyPart; Rule::MOST_FIELDS]>,
    enabled: bool,
    enforced: bool,
    /// Whether there is any limit for keys without an override.
    limited: bool,
    /// Whether there are overrides.
    overridden: bool,
}

/// One field of the key.
#[derive(Clone, Copy, Debug)]
struct KeyPart {
    /// Its index in the policy's fields.
    index: u8,
    kind: FieldKind,
}

impl Policy {
    /// Turns an attempt into charges: one for each rule that applies.
    pub fn charges<'a>(&'a self, attempt: &Attempt<'a>, ticket: Ticket) -> Result<Charges<'a>, Mistake> {
        let mut charges = Charges::new(ticket, attempt.cost, attempt.id);
        self.charge(attempt, &mut charges)?;
        Ok(charges)
    }

    /// As [`Policy::charges`], but adds to empty charges, which are too large to move from call to call.
    pub fn charge<'a>(&'a self, attempt: &Attempt<'a>, charges: &mut Charges<'a>) -> Result<(), Mistake> {
        self.charge_listed(attempt, &Roster::default(), charges)
    }

    /// As [`Policy::charge`], but the attempt may also have fields for the lists.
    #[inline]
    pub fn charge_listed<'a>(
        &'a self,
        attempt: &Attempt<'a>,
        roster: &Roster,
        charges: &mut Charges<'a>,
    ) -> Result<(), Mistake> {
        if attempt.cost > MAX_EXACT {
            return Err(Mistake::CostTooBig { cost: attempt.cost });
        }
        if let Some(id) = attempt.id {
            Attempt::check_id(id)?;
        }
        let mut values: SmallVec<[Option<&'a str>; 8]> = smallvec![None; self.fields.len()];
        let values = &mut *values;
        self.find_values(attempt, roster, charges, values)?;
        if !self.derived.is_empty() {
            derived::fill(&self.derived, &self.fields, values)?;
        }
        for step in &self.steps {
            step.charge(values, charges)?;
        }
        if charges.is_empty() && !self.allow_unmatched && !self.applies(values) {
            return Err(self.unmatched());
        }
        Ok(())
    }

    #[cold]
    fn unmatched(&self) -> Mistake {
        let fields = self.fields.iter().map(ToString::to_string).collect();
        Mistake::NoRuleApplies { policy: self.name.to_string(), fields }
    }

    /// Whether the attempt has all fields of some rule. If nothing was charged, that rule is unlimited or switched off.
    fn applies(&self, values: &[Option<&str>]) -> bool {
        self.rules.is_empty() || self.steps.iter().any(|step| step.applies(values))
    }

    #[inline]
    fn find_values<'a>(
        &'a self,
        attempt: &Attempt<'a>,
        roster: &Roster,
        charges: &mut Charges<'a>,
        values: &mut [Option<&'a str>],
    ) -> Result<(), Mistake> {
        let mut next = 0;
        for (index, (name, value)) in attempt.fields.iter().enumerate() {
            let number = !self.numbers.is_empty() && self.note_number(name, value, charges)?;
            match self.position_of(name, next) {
                Some(index) if values[index].is_some() => return Err(repeated(name)),
                Some(index) => {
                    values[index] = Some(value);
                    next = index + 1;
                }
                None if number => {}
                None => self.check_listed(roster, (name, value), &attempt.fields[..index])?,
            }
        }
        Ok(())
    }

    /// The index of the field with this name. Callers mostly use the order of the rules, so the search starts
    /// where the last one ended.
    #[inline]
    fn position_of(&self, name: &str, next: usize) -> Option<usize> {
        let is = |known: &Arc<str>| same(known, name);
        match self.fields.get(next) {
            Some(known) if is(known) => Some(next),
            _ => self.fields.iter().position(is),
        }
    }

    /// Records the value of a field that a limit bounds or a rule counts. Returns whether the field is one of these.
    #[inline(never)]
    fn note_number<'a>(
        &'a self,
        name: &str,
        value: &str,
        charges: &mut Charges<'a>,
    ) -> Result<bool, Mistake> {
        let Some(known) = self.numbers.iter().find(|known| same(known, name)) else { return Ok(false) };
        if charges.amounts.iter().any(|(earlier, _)| *earlier == name) {
            return Err(repeated(name));
        }
        let amount = value
            .parse()
            .map_err(|_| Mistake::BadValue { field: shown(name), error: ValueError::NotANumber })?;
        charges.amounts.push((known, amount));
        Ok(true)
    }

    /// Checks a field that no rule uses: an entry of the lists may use it; otherwise it is a mistake.
    #[cold]
    fn check_listed(
        &self,
        roster: &Roster,
        (name, value): (&str, &str),
        before: &[(&str, &str)],
    ) -> Result<(), Mistake> {
        let kind = roster.knows(name).ok_or_else(|| self.unknown(name))?;
        if before.iter().any(|(earlier, _)| same(earlier, name)) {
            return Err(repeated(name));
        }
        kind.check(value).map_err(|error| Mistake::BadValue { field: shown(name), error })
    }

    #[cold]
    fn unknown(&self, name: &str) -> Mistake {
        Mistake::UnknownField {
            policy: self.name.to_string(),
            field: shown(name),
            near: nearest(name, self.fields()),
        }
    }
}

impl RuleStep {
    /// The step of a rule. Missing fields are added to the policy's.
    pub(super) fn new(rule: &Arc<Rule>, fields: &mut Vec<Arc<str>>) -> Self {
        let part = |field: &Field| KeyPart { index: position(fields, &field.name), kind: field.kind };
        Self {
            rule: Arc::clone(rule),
            parts: rule.by.iter().map(part).collect(),
            enabled: rule.enabled,
            enforced: !rule.observes(),
            limited: !rule.plan.limits().is_empty(),
            overridden: !rule.overrides.is_empty(),
        }
    }

    /// Whether all its fields are present.
    fn applies(&self, values: &[Option<&str>]) -> bool {
        self.parts.iter().all(|part| values[usize::from(part.index)].is_some())
    }

    /// Charges its rule for these values of the policy's fields, unless it is switched off or a field of its
    /// key is absent.
    #[inline]
    fn charge<'a>(&'a self, values: &[Option<&'a str>], charges: &mut Charges<'a>) -> Result<(), Mistake> {
        if !self.enabled {
            return Ok(());
        }
        let rule = &*self.rule;
        let Some(key) = self.key(values, charges)? else { return Ok(()) };
        let plan = if self.overridden { rule.plan_at(charges.key_text(&key)) } else { &rule.plan };
        // In most cases this avoids reading the plan.
        if self.limited && !self.overridden || !plan.limits().is_empty() {
            let cost =
                if let Some(field) = &rule.count { count(rule, field, charges)? } else { charges.cost };
            charges.push_at(plan, key, self.enforced, cost);
        }
        Ok(())
    }

    /// The rule's key for these values; `None` if one is absent. A single value in its normalized form is not
    /// copied.
    #[inline]
    fn key<'a>(
        &'a self,
        values: &[Option<&'a str>],
        charges: &mut Charges<'a>,
    ) -> Result<Option<Key<'a>>, Mistake> {
        let value = |part: &KeyPart| values[usize::from(part.index)];
        match &*self.parts {
            [] => return Ok(Some(Key::Borrowed(&self.rule.name))),
            [part] => match value(part) {
                None => return Ok(None),
                Some(value) if part.kind.is_plain(value) => return Ok(Some(Key::Borrowed(value))),
                Some(_) => {}
            },
            _ => {}
        }
        self.write_key(values, charges)
    }

    /// As [`RuleStep::key`], but always writes the key into `charges`.
    #[inline(never)]
    fn write_key<'a>(
        &self,
        values: &[Option<&'a str>],
        charges: &mut Charges<'a>,
    ) -> Result<Option<Key<'a>>, Mistake> {
        let value = |part: &KeyPart| values[usize::from(part.index)];
        let start = charges.text.len();
        let written =
            key::write_all(self.parts.iter().map(|part| (part.kind, value(part))), &mut charges.text);
        let bad = |(index, error): (usize, ValueError)| {
            let field = self.rule.by[index].name.to_string();
            Mistake::BadValue { field, error }
        };
        if written.map_err(bad)? == Presence::Absent {
            charges.text.truncate(start);
            return Ok(None);
        }
        Ok(Some(charges.written_from(start)))
    }
}

/// The cost of an attempt at a rule that counts a field.
#[inline(never)]
fn count(rule: &Rule, field: &Arc<str>, charges: &Charges<'_>) -> Result<u64, Mistake> {
    if charges.cost == 0 {
        return Ok(0);
    }
    match charges.amount(field) {
        Some(amount) if amount > MAX_EXACT => Err(Mistake::CostTooBig { cost: amount }),
        Some(amount) => Ok(amount),
        None => Err(Mistake::MissingNumber { rule: rule.name.to_string(), field: field.to_string() }),
    }
}

fn position(names: &mut Vec<Arc<str>>, name: &Arc<str>) -> u8 {
    let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(Arc::clone(name));
        names.len() - 1
    });
    u8::try_from(index).expect("a policy has at most 16 rules of 4 fields")
}

#[cold]
fn repeated(name: &str) -> Mistake {
    Mistake::RepeatedField { field: shown(name) }
}
