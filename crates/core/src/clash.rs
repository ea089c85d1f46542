//! Limits that no attempt could meet, because they conflict with a key.

use alloc::sync::Arc;
use core::fmt;

use crate::limit::Limit;
use crate::policy::Policy;

/// A limit bounds a number in a field that is also part of a key. A key is text, so every attempt would be a
/// mistake. The fault of the limit's author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The limit.
    pub limit: Limit,
    /// The field that it bounds.
    pub field: Arc<str>,
    /// The rule whose key the field is part of.
    pub rule: Arc<str>,
    /// A policy that has both.
    pub policy: Arc<str>,
}

impl Clash {
    /// The first of a rule's limits that clashes with a key in some policy of that rule.
    pub fn find<'p>(
        rule: &str,
        limits: &[Limit],
        mut policies: impl Iterator<Item = &'p Policy>,
    ) -> Option<Self> {
        let bounds: alloc::vec::Vec<(&Limit, &Arc<str>)> = limits
            .iter()
            .filter_map(|limit| limit.per_attempt().map(|bound| (limit, bound.field())))
            .collect();
        if bounds.is_empty() {
            return None;
        }
        policies.find_map(|policy| {
            policy.rules.iter().find(|own| *own.name == *rule)?;
            let keys = policy.rules.iter().flat_map(|rule| rule.by.iter().map(move |field| (rule, field)));
            keys.into_iter().find_map(|(rule, key)| {
                let (limit, field) = bounds.iter().find(|(_, field)| **field == key.name)?;
                let (rule, policy) = (Arc::clone(&rule.name), Arc::clone(&policy.name));
                Some(Self { limit: (*limit).clone(), field: Arc::clone(field), rule, policy })
            })
        })
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, field, rule, policy } = self;
        write!(
            f,
            "`{limit}` bounds `{field}`, which is part of the key of rule `{rule}` in policy `{policy}`: a number that is bounded needs a field of its own"
        )
    }
}

impl core::error::Error for Clash {}
