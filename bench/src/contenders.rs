//! tollgate and its peers, set up to answer the same question.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tollgate_core::key::FieldKind;
use tollgate_core::store::Answer;
use tollgate_core::versioned_map::{Changes, Edit, Namespace, Scope};
use tollgate_core::{
    Attempt, Charges, Decision, Field, Limit, Outcome, Plan, Policies, Policy, Records, Rule, Store, Ticket,
    Timestamp,
};
use tollgate_engine::{Admissions, Engine, Leases, Parts, Pinned, Snapshot, Terms};
use tollgate_store::{MemoryStore, SystemClock};

pub type Governor = RateLimiter<String, DashMapStateStore<String>, DefaultClock>;

/// A hundred million a second, and as many at once: what is measured is the allowed path.
pub const RATE: u32 = 100_000_000;

pub fn governor() -> Governor {
    let rate = NonZeroU32::new(RATE).unwrap();
    RateLimiter::keyed(Quota::per_second(rate).allow_burst(rate))
}

pub fn store() -> MemoryStore {
    MemoryStore::new(Arc::new(SystemClock::new()), 8_000_000)
}

pub fn bucket_plan() -> Arc<Plan> {
    let limit: Limit = format!("{RATE}/s burst {RATE}").parse().unwrap();
    Arc::new(Plan::new("api".into(), vec![limit]).unwrap())
}

/// Takes one bucket's worth straight from the store.
#[inline]
pub fn take(store: &MemoryStore, plan: &Arc<Plan>, key: &str) -> bool {
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(plan, key, true);
    settle(store, &charges)
}

#[inline]
pub fn settle(store: &MemoryStore, charges: &Charges<'_>) -> bool {
    let mut outcome = Outcome::default();
    assert!(matches!(store.take(charges, &mut outcome), Answer::Ready(Some(Ok(())))));
    outcome.allowed
}

/// An engine over the memory store.
pub fn engine() -> Engine {
    let parts = Parts { store: Arc::new(store()), records: Arc::new(Nothing), fallback: None };
    ready(Engine::start(policies(), parts)).unwrap()
}

/// What a door without a pacer admits with.
pub fn admissions(engine: &Arc<Engine>) -> Admissions {
    let leases = Leases::new(Arc::clone(engine), Arc::new(SystemClock::new()));
    Admissions { engine: Arc::clone(engine), pacer: None, leases: Arc::new(leases) }
}

/// Policy `api` has one rule, `mail` has five, `narrow` refuses nearly everybody.
pub fn policies() -> Policies {
    let rule = |name: &str, by: Option<&str>, limits: &[&str]| {
        let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let mut rule = Rule::new(name, &[], limits).unwrap();
        rule.by = by.iter().map(|name| Field { name: (*name).into(), kind: FieldKind::Text }).collect();
        Arc::new(rule)
    };
    let bucket = format!("{RATE}/s burst {RATE}");
    let windows = ["1000000000/hour", "4000000000/day"];
    let api = rule("api", Some("user"), &[&bucket]);
    let levels = [
        rule("global", None, &windows),
        rule("domain", Some("domain"), &windows),
        rule("sender", Some("sender"), &windows),
        rule("ip", Some("ip"), &windows),
        rule("api_key", Some("api_key"), &windows),
    ];
    let narrow = rule("narrow", Some("user"), &["1/day"]);
    let policies = vec![
        Policy::new("api".into(), vec![Arc::clone(&api)], false),
        Policy::new("mail".into(), levels.to_vec(), false),
        Policy::new("narrow".into(), vec![Arc::clone(&narrow)], false),
    ];
    let rules = [api, narrow].into_iter().chain(levels).collect();
    Policies::new(true, rules, policies)
}

#[inline]
pub fn decide(engine: &Engine, pinned: &Snapshot, policy: &str, fields: &[(&str, &str)]) -> bool {
    let attempt = Attempt { policy, fields, cost: 1, id: None };
    let mut decision = Decision::blank();
    ready(engine.decide_into(pinned, &attempt, &mut decision)).unwrap();
    decision.allowed()
}

/// Admits an attempt as a door does.
#[inline]
pub fn admit(pinned: &Pinned<'_>, policy: &str, fields: &[(&str, &str)]) -> bool {
    let attempt = Attempt { policy, fields, cost: 1, id: None };
    ready(pinned.admit(&attempt, Terms::default(), |_, decision| decision.allowed())).unwrap().seen
}

/// The value of a future that is ready at once.
#[inline]
pub fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory answers at once"),
    }
}

/// Records that are never written.
pub struct Nothing;

impl Records for Nothing {
    fn change<'a>(&'a self, _: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        Answer::ready(Ok(vec![true; edits.len()]))
    }

    fn changes(&self, _: Namespace, _: Option<u64>) -> Answer<'_, Changes> {
        let (now, scope) = (Timestamp::ZERO, Scope::All);
        Answer::ready(Ok(Changes { now, version: 0, size: 0, scope, entries: Vec::new(), secret_was_missing: false }))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::ready(Ok([7; 32]))
    }
}
