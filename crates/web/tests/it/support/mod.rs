//! Shared by tests of decisions: rules, policies and an engine with a manual clock.

#![allow(dead_code, unreachable_pub, reason = "not every test needs everything")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use futures_lite::future::block_on;
use tollgate_core::key::FieldKind;
use tollgate_core::{
    Attempt, Decision, Field, OnExceed, OnOutage, Plan, Policies, Policy, Rule, Span, Timestamp,
};
use tollgate_engine::{Engine, Parts};
use tollgate_store::{ManualClock, MemoryStore};

/// 2026-01-15T10:00:00Z: the start of every test.
pub const START: u64 = 1_768_471_200;

/// An engine and its clock.
pub struct Bench {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
}

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_micros(START * 1_000_000)))
}

impl Bench {
    /// One policy, `api`, of these rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        let clock = clock();
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, 10_000));
        let parts = Parts { store: Arc::clone(&store) as _, records: store, fallback: None };
        let engine = block_on(Engine::start(policies(rules), parts)).unwrap();
        Self { engine, clock }
    }

    pub fn advance(&self, secs: u64) {
        self.clock.advance(Span::from_secs(secs));
    }

    /// Decides one attempt.
    pub fn decide<T>(&self, fields: &[(&str, &str)], then: impl FnOnce(&Decision<'_>) -> T) -> T {
        self.decide_costing(1, fields, then)
    }

    pub fn decide_costing<T>(
        &self,
        cost: u64,
        fields: &[(&str, &str)],
        then: impl FnOnce(&Decision<'_>) -> T,
    ) -> T {
        let pinned = self.engine.pin();
        let attempt = Attempt { policy: "api", fields, cost, id: None };
        then(&block_on(self.engine.decide(&pinned, &attempt)).unwrap())
    }

    /// Decides until an attempt is refused.
    pub fn exhaust(&self, fields: &[(&str, &str)]) {
        while self.decide(fields, |decision| decision.allowed()) {}
    }
}

pub fn policies(rules: Vec<Rule>) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policy = Policy::new("api".into(), rules.clone(), true);
    Policies::new(true, rules, vec![policy])
}

/// A policy by these fields, one rule for each.
pub fn policy(by: &[&str]) -> Policy {
    let rules = by.iter().map(|field| Arc::new(rule(field, &[field], &["1/min"])));
    Policy::new("api".into(), rules.collect(), false)
}

/// A rule by these fields, with these limits.
pub fn rule(name: &str, by: &[&str], limits: &[&str]) -> Rule {
    let by = by.iter().map(|field| Field { name: (*field).into(), kind: FieldKind::of_name(field) });
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    let plan = Arc::new(Plan::new(name.into(), limits).unwrap());
    Rule {
        name: name.into(),
        by: by.collect(),
        overrides: Default::default(),
        on_exceed: OnExceed::Reject,
        code: None,
        count: None,
        count_when: None,
        rows: None,
        ban: None,
        on_outage: OnOutage::of(&plan),
        plan,
        enabled: true,
        secret: false,
    }
}
