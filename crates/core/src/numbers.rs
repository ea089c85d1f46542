//! The numbers that limits bound or rules count, and the holds of attempts, rule by rule.
//!
//! A rule may have limits for a hundred thousand keys, and ten thousand policies may share it. So each rule
//! is scanned once.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};

use crate::limit::{Holding, Limit};
use crate::rule::Rule;

/// Caches the numeric fields and the kind of hold of each rule, while a set of policies is built.
#[derive(Debug, Default)]
pub struct Numbers {
    /// By the rule's address. An entry keeps its rule alive, so the address is unique.
    by_rule: HashMap<usize, Found>,
}

#[derive(Debug)]
struct Found {
    _rule: Arc<Rule>,
    numbers: Box<[Arc<str>]>,
    holding: Holding,
}

impl Numbers {
    /// The fields whose numbers this rule counts or any limit of it bounds, each once.
    pub fn of(&mut self, rule: &Arc<Rule>) -> &[Arc<str>] {
        &self.found(rule).numbers
    }

    /// The kind of hold that attempts take at this rule, over all its limits and overrides: one that expires, if any
    /// does.
    pub fn holding(&mut self, rule: &Arc<Rule>) -> Holding {
        self.found(rule).holding
    }

    fn found(&mut self, rule: &Arc<Rule>) -> &Found {
        let entry = self.by_rule.entry(Arc::as_ptr(rule) as usize);
        entry.or_insert_with(|| Found {
            _rule: Arc::clone(rule),
            numbers: bounded(rule),
            holding: limits(rule).map(Limit::holding).max().unwrap_or_default(),
        })
    }
}

/// All limits of a rule, at any key.
fn limits(rule: &Rule) -> impl Iterator<Item = &Limit> {
    core::iter::once(&rule.plan).chain(rule.overrides.values()).flat_map(|plan| plan.limits())
}

fn bounded(rule: &Rule) -> Box<[Arc<str>]> {
    let mut known = HashSet::new();
    let mut numbers = Vec::new();
    for limit in limits(rule) {
        if let Some(bound) = limit.per_attempt()
            && known.insert(bound.field())
        {
            numbers.push(Arc::clone(bound.field()));
        }
    }
    if let Some(field) = &rule.count
        && known.insert(field)
    {
        numbers.push(Arc::clone(field));
    }
    numbers.into()
}
