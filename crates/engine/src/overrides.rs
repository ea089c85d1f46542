//! Limits of single keys, set while running: they beat the configuration until they are removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::{Clash, Limit, Plan, Policies, Policy, Rule, grammar};

/// What was set at run time, by rule and key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    by_rule: BTreeMap<String, BTreeMap<String, Arc<[Limit]>>>,
}

/// The start of the names under which overrides are recorded.
const PREFIX: &str = "override/";

/// The name of an override's record. Rule names hold no slash, so the first one ends them.
pub(crate) fn record_name(rule: &str, key: &str) -> String {
    format!("{PREFIX}{rule}/{key}")
}

/// An override as it is recorded: one limit a line, as written.
pub(crate) fn record_value(limits: &[Limit]) -> Vec<u8> {
    let lines: Vec<String> = limits.iter().map(ToString::to_string).collect();
    lines.join("\n").into_bytes()
}

/// Tells the log of records that cannot be read.
pub(crate) fn tell_broken(names: Vec<String>) {
    for record in names {
        tracing::warn!(component = "engine", record, "a recorded override cannot be read and is left out");
    }
}

impl Overrides {
    /// Reads the records. What cannot be read is left out and named.
    pub(crate) fn read(records: &[(String, Vec<u8>)]) -> (Self, Vec<String>) {
        let mut overrides = Self::default();
        let mut broken = Vec::new();
        for (name, value) in records {
            let Some((rule, key)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('/')) else {
                continue;
            };
            let limits: Option<Vec<Limit>> = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.lines().map(|line| grammar::parse(line).ok()?).collect());
            match limits {
                Some(limits) => overrides.set(rule, key, limits),
                None => broken.push(name.clone()),
            }
        }
        (overrides, broken)
    }

    pub(crate) fn set(&mut self, rule: &str, key: &str, limits: Vec<Limit>) {
        self.by_rule.entry(rule.to_owned()).or_default().insert(key.to_owned(), limits.into());
    }

    pub(crate) fn remove(&mut self, rule: &str, key: &str) -> bool {
        self.by_rule.get_mut(rule).is_some_and(|keys| keys.remove(key).is_some())
    }

    /// Whether this key's limits were set at run time.
    pub(crate) fn has(&self, rule: &str, key: &str) -> bool {
        self.by_rule.get(rule).is_some_and(|keys| keys.contains_key(key))
    }

    /// The configured policies with everything set at run time laid over them.
    pub(crate) fn over(&self, base: &Policies) -> Policies {
        let rules: Vec<Arc<Rule>> = base.rules().iter().map(|rule| self.over_rule(rule, base)).collect();
        let find = |name: &str| rules.iter().find(|rule| *rule.name == *name).cloned();
        let policies = base.iter().map(|policy| {
            let own = policy.rules.iter().filter_map(|rule| find(&rule.name)).collect();
            Policy::new(Arc::clone(&policy.name), own, policy.allow_unmatched)
        });
        Policies::new(base.enabled, rules.clone(), policies.collect()).with_roster(Arc::clone(base.roster()))
    }

    /// A configured rule with what was set for its keys laid over it. What no longer goes with the
    /// configured policies is left out for as long as it does not.
    pub(crate) fn over_rule(&self, rule: &Arc<Rule>, base: &Policies) -> Arc<Rule> {
        let Some(keys) = self.by_rule.get(&*rule.name).filter(|keys| !keys.is_empty()) else {
            return Arc::clone(rule);
        };
        let mut rule = Rule::clone(rule);
        for (key, limits) in keys {
            if let Some(clash) = Clash::find(&rule.name, limits, base.iter()) {
                tracing::warn!(
                    component = "engine",
                    rule = &*rule.name,
                    %clash,
                    "limits of a key that were set at run time are left out"
                );
                continue;
            }
            if let Ok(plan) = Plan::new(Arc::clone(&rule.name), limits.to_vec()) {
                rule.overrides.insert(key.as_str().into(), Arc::new(plan));
            }
        }
        Arc::new(if rule.secret { rule.with_secret_keys() } else { rule })
    }
}
