//! What a policy needs to charge a rule, stored side by side for all of its rules.
//!
//! An attempt passes many rules, and fetching each from another place in memory would take longer than
//! charging it.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::MAX_EXACT;
use crate::charge::{Charges, Key};
use crate::key::{self, FieldKind, Presence, ValueError};
use crate::mistake::Mistake;
use crate::rule::{Field, Rule};

/// One rule of a policy.
#[derive(Clone, Debug)]
pub(crate) struct RuleStep {
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

impl RuleStep {
    /// The step of a rule. Missing fields are added to the policy's.
    pub(crate) fn new(rule: &Arc<Rule>, fields: &mut Vec<Arc<str>>) -> Self {
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
    pub(crate) fn applies(&self, values: &[Option<&str>]) -> bool {
        self.parts.iter().all(|part| values[usize::from(part.index)].is_some())
    }

    /// Charges its rule for these values of the policy's fields, unless it is switched off or a field of its
    /// key is absent.
    #[inline]
    pub(crate) fn charge<'a>(
        &'a self,
        values: &[Option<&'a str>],
        charges: &mut Charges<'a>,
    ) -> Result<(), Mistake> {
        if !self.enabled {
            return Ok(());
        }
        let rule = &*self.rule;
        let Some(key) = self.key(values, charges)? else { return Ok(()) };
        let plan = if self.overridden { rule.plan_at(charges.key_text(&key)) } else { &rule.plan };
        // Mostly the plan need not be read.
        if self.limited && !self.overridden || !plan.limits().is_empty() {
            let cost =
                if let Some(field) = &rule.count { count(rule, field, charges)? } else { charges.cost };
            charges.push_at(plan, key, self.enforced, cost);
        }
        Ok(())
    }

    /// The rule's key for these values; `None` if one is absent. A single value in its comparable form is not
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

    /// As [`RuleStep::key`], written.
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
