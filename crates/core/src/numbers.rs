//! The numbers in attempts that limits bound, by the rules that bound them.
//!
//! A rule may have limits for a hundred thousand keys, and ten thousand policies may share it: it is
//! gone through once.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};

use crate::limit::Limit;
use crate::rule::Rule;

/// What was found out about rules, for as long as a set of policies is put together.
#[derive(Debug, Default)]
pub struct Numbers {
    /// By the rule's address: an entry keeps its rule alive, so the address is its own.
    by_rule: HashMap<usize, Found>,
}

#[derive(Debug)]
struct Found {
    _rule: Arc<Rule>,
    numbers: Box<[Arc<str>]>,
}

impl Numbers {
    /// The fields whose numbers some limit of this rule bounds, each once.
    pub fn of(&mut self, rule: &Arc<Rule>) -> &[Arc<str>] {
        let entry = self.by_rule.entry(Arc::as_ptr(rule) as usize);
        &entry.or_insert_with(|| Found { _rule: Arc::clone(rule), numbers: bounded(rule) }).numbers
    }
}

fn bounded(rule: &Rule) -> Box<[Arc<str>]> {
    let plans = core::iter::once(&rule.plan).chain(rule.overrides.values());
    let mut known = HashSet::new();
    let mut numbers = Vec::new();
    for limit in plans.flat_map(|plan| plan.limits()) {
        if let Limit::PerAttempt { field, .. } = limit
            && known.insert(field)
        {
            numbers.push(Arc::clone(field));
        }
    }
    numbers.into()
}
