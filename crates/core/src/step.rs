//! A rule as a policy passes it: what charging it takes, side by side with the other rules.
//!
//! An attempt passes many rules, and looking for each of them elsewhere in memory takes longer than all
//! that is done with it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::charge::Charges;
use crate::key::{self, FieldKind, Presence, ValueError};
use crate::plan::Plan;
use crate::rule::{Field, Rule};

/// One rule of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    parts: SmallVec<[Part; Rule::MOST_FIELDS]>,
    pub(crate) enabled: bool,
    enforced: bool,
    /// Whether there is any limit, for all keys that have none of their own.
    limited: bool,
    /// Whether some keys have limits of their own.
    overridden: bool,
}

/// One field of its key.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Which of the policy's fields it is.
    index: u8,
    kind: FieldKind,
}

impl Step {
    /// The step of a rule. Its fields are entered among those of the policy, as far as they are not there.
    pub(crate) fn new(rule: &Rule, fields: &mut Vec<Arc<str>>) -> Self {
        let part = |field: &Field| Part { index: position(fields, &field.name), kind: field.kind };
        Self {
            parts: rule.by.iter().map(part).collect(),
            enabled: rule.enabled,
            enforced: !rule.observes(),
            limited: !rule.plan.limits().is_empty(),
            overridden: !rule.overrides.is_empty(),
        }
    }

    /// What its field holds, if it is by one, with the same limits for all its values.
    pub(crate) fn plain(&self) -> Option<FieldKind> {
        let [part] = &*self.parts else { return None };
        (self.enabled && self.limited && !self.overridden).then_some(part.kind)
    }

    /// Whether all its fields are there.
    pub(crate) fn applies(&self, values: &[Option<&str>]) -> bool {
        self.parts.iter().all(|part| values[usize::from(part.index)].is_some())
    }

    /// Charges its rule for these values of the policy's fields, unless one that it needs is absent. An error
    /// says which of the rule's fields it is about.
    #[inline]
    pub(crate) fn charge<'a>(
        &self,
        rule: &'a Rule,
        values: &[Option<&'a str>],
        charges: &mut Charges<'a>,
    ) -> Result<(), (usize, ValueError)> {
        let first = self.parts.first().and_then(|part| values[usize::from(part.index)]);
        if self.charge_plain(rule, first, charges) {
            Ok(())
        } else {
            self.charge_written(rule, values, charges)
        }
    }

    /// Charges its rule if the key needs no writing, given the value of its first field: there is no other,
    /// and the value is in its comparable form already. Answers whether that was so.
    #[inline(always)]
    fn charge_plain<'a>(&self, rule: &'a Rule, first: Option<&'a str>, charges: &mut Charges<'a>) -> bool {
        let key = match (&*self.parts, first) {
            ([], _) => &*rule.name,
            ([part], Some(value)) if part.kind.is_plain(value) => value,
            _ => return false,
        };
        let plan = if self.overridden { rule.plan_at(key) } else { &rule.plan };
        if self.is_limited_by(plan) {
            charges.push(plan, key, self.enforced);
        }
        true
    }

    /// Whether a plan of its rule has any limit: in most cases there is no need to look at it.
    #[inline(always)]
    fn is_limited_by(&self, plan: &Plan) -> bool {
        self.limited && !self.overridden || !plan.limits().is_empty()
    }

    /// As [`Step::charge`], at a key that has to be written first.
    #[inline(never)]
    fn charge_written<'a>(
        &self,
        rule: &'a Rule,
        values: &[Option<&'a str>],
        charges: &mut Charges<'a>,
    ) -> Result<(), (usize, ValueError)> {
        let start = charges.text.len();
        let parts = self.parts.iter().map(|part| (part.kind, values[usize::from(part.index)]));
        if key::write_all(parts, &mut charges.text)? == Presence::Absent {
            charges.text.truncate(start);
            return Ok(());
        }
        let plan = if self.overridden {
            rule.plan_at(core::str::from_utf8(&charges.text[start..]).expect("keys are written as text"))
        } else {
            &rule.plan
        };
        if self.is_limited_by(plan) {
            charges.push_written(plan, start, self.enforced);
        }
        Ok(())
    }
}

fn position(names: &mut Vec<Arc<str>>, name: &Arc<str>) -> u8 {
    let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(Arc::clone(name));
        names.len() - 1
    });
    u8::try_from(index).expect("a policy has at most 16 rules of 4 fields")
}
