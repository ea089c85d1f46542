//! An engine over a store in memory, whose clock the test moves.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

pub(crate) mod cluster;
pub(crate) mod pacing;

use std::sync::Arc;

use futures_lite::future::block_on;
use tollgate_core::key::FieldKind;
use tollgate_core::{
    Attempt, Clock, Decision, Field, Limit, OnExceed, OnOutage, Origin, OutcomeClass, OutcomeClasses, Plan,
    Policies, Policy, Reason, Records, Rule, Span, Store, Timestamp,
};
use tollgate_engine::admit::Login;
use tollgate_engine::guard::Advice;
use tollgate_engine::{Admissions, Engine, Fault, Leases, Parts, Snapshot, Taken, Terms};
use tollgate_store::{ManualClock, MemoryStore};

/// A Sunday in November 2026, half past eight in the evening.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_794_774_600_000_000);

pub(crate) struct Stand {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) engine: Arc<Engine>,
}

impl Stand {
    pub(crate) fn new(policies: Policies) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 100_000));
        let engine = Arc::new(start(policies, &store));
        Self { clock, store, engine }
    }

    pub(crate) fn pin(&self) -> impl std::ops::Deref<Target = Arc<Snapshot>> {
        self.engine.pin()
    }
}

pub(crate) fn start(policies: Policies, store: &Arc<MemoryStore>) -> Engine {
    let parts = Parts {
        store: Arc::clone(store) as Arc<dyn Store>,
        records: Arc::clone(store) as Arc<dyn Records>,
        fallback: None,
    };
    block_on(Engine::start(policies, parts)).unwrap()
}

pub(crate) fn decide<'a>(
    engine: &Engine,
    pinned: &'a Snapshot,
    policy: &'a str,
    fields: &'a [(&'a str, &'a str)],
) -> Result<Decision<'a>, Fault> {
    block_on(engine.decide(pinned, &Attempt { policy, fields, cost: 1, id: None }))
}

/// Admissions for a door without waiting.
pub(crate) fn admissions(engine: &Arc<Engine>) -> Admissions {
    let leases = Leases::new(Arc::clone(engine), Arc::new(ManualClock::at(START)));
    Admissions { engine: Arc::clone(engine), pacer: None, leases: Arc::new(leases) }
}

/// What an attempt took that a door admitted.
pub(crate) fn taken(engine: &Arc<Engine>, policy: &str, fields: &[(&str, &str)]) -> Taken {
    let attempt = Attempt { policy, fields, cost: 1, id: None };
    let admit = admissions(engine).pin().admit(&attempt, Terms::default(), |_, decision| decision.allowed());
    let admission = block_on(admit).unwrap();
    assert!(admission.seen);
    admission.taken
}

/// A login that began or was refused.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) allowed: bool,
    pub(crate) origin: Origin,
    pub(crate) ticket: Option<String>,
    pub(crate) advice: Advice,
    pub(crate) if_failed: Advice,
}

/// Begins a login that does not wait.
pub(crate) fn begin(engine: &Arc<Engine>, guard: &str, fields: &[(&str, &str)]) -> Begun {
    let admissions = admissions(engine);
    let pinned = admissions.pin();
    let guard = pinned.policies.guard(guard).unwrap();
    let attempt = Attempt { policy: &guard.policy, fields, cost: 1, id: None };
    let login = Some(Login { guard, max_delay: Span::ZERO });
    let admit = pinned.admit(&attempt, Terms { login, ..Terms::default() }, |_, decision| {
        let (advice, if_failed) = (Advice::of(decision), Advice::if_failed(decision));
        Begun { allowed: decision.allowed(), origin: decision.origin, ticket: None, advice, if_failed }
    });
    let admission = block_on(admit).unwrap();
    Begun { ticket: admission.taken.ticket().map(str::to_owned), ..admission.seen }
}

/// Rules, by what they do when exceeded.
pub(crate) mod rule {
    use super::*;

    pub(crate) fn rejecting(name: &str, by: &[&str], limits: &[&str]) -> Rule {
        with(name, by, limits, OnExceed::Reject)
    }

    pub(crate) fn observed(name: &str, by: &[&str], limits: &[&str]) -> Rule {
        with(name, by, limits, OnExceed::Observe)
    }

    /// A rule that counts only these outcomes.
    pub(crate) fn counting(name: &str, limits: &[&str], count_when: &str) -> Rule {
        Rule { count_when: Some(classes(count_when)), ..rejecting(name, &[name], limits) }
    }

    /// The classes of answers such as `[401, 403]` or `not 5xx`.
    fn classes(written: &str) -> OutcomeClasses {
        let others = written.starts_with("not ");
        let words = written.trim_start_matches("not ").split(|c: char| !c.is_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let is_named = |class: &u16| {
            let text = class.to_string();
            words.iter().any(|word| text.starts_with(word.trim_end_matches("xx")))
        };
        (100..600).filter(|class| is_named(class) != others).map(OutcomeClass).collect()
    }

    /// A rule with this `on_outage`.
    pub(crate) fn without_store(name: &str, limits: &[&str], on_outage: &str) -> Rule {
        Rule { on_outage: on_outage.parse().unwrap(), ..rejecting(name, &[name], limits) }
    }

    pub(crate) fn with(name: &str, by: &[&str], limits: &[&str], on_exceed: OnExceed) -> Rule {
        let limits: Vec<Limit> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let plan = Plan::new(name.into(), limits).unwrap();
        Rule {
            name: name.into(),
            by: by
                .iter()
                .map(|name| Field { name: (*name).into(), kind: FieldKind::of_name(name) })
                .collect(),
            on_outage: OnOutage::of(&plan),
            plan: Arc::new(plan),
            overrides: Default::default(),
            on_exceed,
            ban: None,
            code: None,
            count: None,
            count_when: None,
            rows: None,
            enabled: true,
            secret: false,
        }
    }
}

/// Policies, each given by its name and the names of its rules.
pub(crate) fn policies(rules: Vec<Rule>, policies: &[(&str, &[&str])]) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let find = |name: &&str| Arc::clone(rules.iter().find(|rule| *rule.name == **name).unwrap());
    let policies = policies
        .iter()
        .map(|(name, own)| Policy::new((*name).into(), own.iter().map(find).collect(), false))
        .collect();
    Policies::new(true, rules.clone(), policies)
}
