//! Rules and policies for tests.

use std::sync::Arc;

use tollgate_core::key::FieldKind;
use tollgate_core::{Field, Limit, OnExceed, OnOutage, Plan, Policies, Policy, Rule};

/// A rule that denies.
pub(crate) fn rule(name: &str, by: &[&str], limits: &[&str]) -> Rule {
    let limits: Vec<Limit> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    let plan = Plan::new(name.into(), limits).unwrap();
    let field = |name: &&str| Field { name: (*name).into(), kind: FieldKind::of_name(name) };
    Rule {
        name: name.into(),
        by: by.iter().map(field).collect(),
        on_outage: OnOutage::of(&plan),
        plan: Arc::new(plan),
        overrides: Default::default(),
        on_exceed: OnExceed::Reject,
        code: None,
        count: None,
        count_when: None,
        rows: None,
        ban: None,
        enabled: true,
        secret: false,
    }
}

/// A policy for each rule, with the rule's name.
pub(crate) fn alone(rules: Vec<Rule>) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policy = |rule: &Arc<Rule>| Policy::new(rule.name.clone(), vec![Arc::clone(rule)], false);
    Policies::new(true, rules.clone(), rules.iter().map(policy).collect())
}

/// One policy of several rules.
pub(crate) fn together(name: &str, rules: Vec<Rule>) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policy = Policy::new(name.into(), rules.clone(), false);
    Policies::new(true, rules, vec![policy])
}
