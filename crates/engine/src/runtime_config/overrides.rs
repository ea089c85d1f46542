//! Limits of single keys, set at run time: they replace the configured limits until they are removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::{Clash, Limit, Plan, Policies, Rule, grammar};

use super::{LeftOut, Subject};

/// The overrides, by rule and key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    by_rule: BTreeMap<String, BTreeMap<String, Arc<Plan>>>,
    count: usize,
}

/// The recorded form of an override: one limit a line.
pub(crate) fn write(plan: &Plan) -> Vec<u8> {
    let lines: Vec<String> = plan.limits().iter().map(ToString::to_string).collect();
    lines.join("\n").into_bytes()
}

/// Reads a record. An unchanged plan is kept: stores identify plans by their address.
pub(super) fn read(rule: &Arc<str>, record: &[u8], before: Option<&Arc<Plan>>) -> Option<Arc<Plan>> {
    let text = std::str::from_utf8(record).ok()?;
    let limits: Vec<Limit> = text.lines().map(|line| grammar::parse(line).ok()?).collect::<Option<_>>()?;
    if let Some(before) = before.filter(|before| before.limits() == limits) {
        return Some(Arc::clone(before));
    }
    Plan::new(Arc::clone(rule), limits).ok().map(Arc::new)
}

impl Overrides {
    pub(crate) fn set(&mut self, rule: &str, key: &str, plan: Arc<Plan>) {
        let replaced = self.by_rule.entry(rule.to_owned()).or_default().insert(key.to_owned(), plan);
        self.count += usize::from(replaced.is_none());
    }

    pub(crate) fn remove(&mut self, rule: &str, key: &str) {
        let removed = self.by_rule.get_mut(rule).and_then(|keys| keys.remove(key));
        self.count -= usize::from(removed.is_some());
    }

    /// The override of a key.
    pub(crate) fn at(&self, rule: &str, key: &str) -> Option<&Arc<Plan>> {
        self.by_rule.get(rule)?.get(key)
    }

    /// The override of one of a rule's keys.
    pub(super) fn first(&self, rule: &str) -> Option<&Arc<Plan>> {
        self.by_rule.get(rule)?.values().next()
    }

    /// Every key of a rule that has an override.
    pub(crate) fn keys_of(&self, rule: &str) -> impl Iterator<Item = &str> {
        self.by_rule.get(rule).into_iter().flatten().map(|(key, _)| key.as_str())
    }

    /// Every rule that has an override.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &str> {
        self.by_rule.iter().filter(|(_, keys)| !keys.is_empty()).map(|(rule, _)| rule.as_str())
    }

    /// How many keys have limits of their own.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A rule with its overrides applied. Overrides that do not fit the policies are left out for as long as
    /// they do not.
    pub(crate) fn over(&self, rule: &Arc<Rule>, policies: &Policies, left_out: &mut LeftOut) -> Arc<Rule> {
        let Some(keys) = self.by_rule.get(&*rule.name).filter(|keys| !keys.is_empty()) else {
            return Arc::clone(rule);
        };
        let mut rule = Rule::clone(rule);
        rule.overrides.reserve(keys.len());
        for (key, plan) in keys {
            match Clash::find(&rule.name, plan.limits(), policies.iter()) {
                Some(clash) => left_out.note(Subject::Override { rule: &rule.name, key }, clash),
                None => drop(rule.overrides.insert(key.as_str().into(), Arc::clone(plan))),
            }
        }
        Arc::new(if rule.secret { rule.with_secret_keys() } else { rule })
    }
}
