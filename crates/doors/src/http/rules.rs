//! The rules in force, and how hard each is pressed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::Rule;
use tollgate_engine::rates::RuleRate;

use super::App;
use super::auth::Role;
use super::counters;
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::shown::{self, Moment, json};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RulesPressed")]
struct RulesShown<'p> {
    /// Whether limits are enforced at all.
    enabled: bool,
    /// The rules in their order.
    rules: Vec<RulePressed<'p>>,
}

/// A rule, and what it did in the last fifteen minutes on this node.
#[derive(Serialize, JsonSchema)]
struct RulePressed<'p> {
    rule: &'p str,
    /// The policies that it is in.
    policies: Vec<&'p str>,
    /// The fields that make its key.
    by: Vec<&'p str>,
    /// Its limits, as text.
    limits: Vec<String>,
    /// How many keys have limits of their own.
    overrides: usize,
    /// What happens when it is exceeded.
    on_exceed: String,
    /// Whether it is only observed.
    observed: bool,
    /// Whether it is enabled.
    enabled: bool,
    /// The attempts at its policies; null if one of them was created at run time beyond the 1,000 that have
    /// counters of their own.
    attempts: Option<u64>,
    /// How often it stopped one of them, or would have, at policies with counters of their own.
    recent: RecentShown,
    /// The same as a share of the attempts, from 0 to 1; null if the attempts are not known.
    pressure: Option<f64>,
    /// When it last denied, to the second (RFC 3339); null if it has not since the start.
    #[schemars(with = "Option<String>")]
    last_denied: Option<Moment>,
    /// When it was last exceeded but only observed, to the second (RFC 3339).
    #[schemars(with = "Option<String>")]
    last_observed: Option<Moment>,
    /// The used share of its fullest limit, from 0 to 1; null if it has keys, or while the store is down.
    used: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RuleOutcomes")]
struct RecentShown {
    deny: u64,
    wait: u64,
    defer: u64,
    observe: u64,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let list = Operation::new(
        "/api/v1/rules",
        "Show the share of attempts that each rule denied, deferred or delayed",
    )
    .answers::<RulesShown<'_>>();
    vec![Endpoint::new(Method::GET, "/api/v1/rules", Some(Role::Read), show).does(list)]
}

async fn show(app: Arc<App>, _: Ask) -> Answered {
    let pinned = app.engine.pin();
    let policies = &pinned.policies;
    let observer = &app.engine.observer;
    let (rates, attempts) = (observer.rates.rules(), observer.rates.attempts());
    let used: BTreeMap<Arc<str>, f64> =
        app.engine.counters.usage(&pinned).await.unwrap_or_default().into_iter().collect();
    let rules = counters::shown_rules(&pinned).map(|rule| {
        let of = policies.iter().filter(|policy| policy.rules.iter().any(|own| own.name == rule.name));
        let names: Vec<&str> = of.map(|policy| &*policy.name).collect();
        // A new policy has counters of its own, but no sample yet.
        let of_policy = |name: &&str| match attempts.get(*name) {
            Some(attempts) => Some(*attempts),
            None => observer.meters.counts_policy(name).then_some(0),
        };
        let attempts = names.iter().map(of_policy).sum();
        let rate = rates.get(&rule.name).copied().unwrap_or_default();
        pressed(rule, names, attempts, rate, used.get(&rule.name).copied())
    });
    Ok(json(&RulesShown { enabled: policies.enabled, rules: rules.collect() }))
}

fn pressed<'p>(
    rule: &'p Rule,
    policies: Vec<&'p str>,
    attempts: Option<u64>,
    rate: RuleRate,
    used: Option<f64>,
) -> RulePressed<'p> {
    let [deny, wait, defer, observe] = rate.recent;
    let stopped = rate.recent.iter().sum::<u64>();
    let share = |attempts: u64| if attempts == 0 { 0.0 } else { (stopped as f64 / attempts as f64).min(1.0) };
    RulePressed {
        rule: &rule.name,
        policies,
        by: rule.by.iter().map(|field| &*field.name).collect(),
        limits: shown::limits(&rule.plan),
        overrides: rule.overrides.len(),
        on_exceed: rule.on_exceed.to_string(),
        observed: rule.observes(),
        enabled: rule.enabled,
        attempts,
        recent: RecentShown { deny, wait, defer, observe },
        pressure: attempts.map(share),
        last_denied: rate.last_denied.map(Moment),
        last_observed: rate.last_observed.map(Moment),
        used,
    }
}
