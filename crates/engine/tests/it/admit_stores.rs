//! Attempts are admitted alike by a store that answers at once and by one that has to be waited for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{START, admissions, policies, rule};
use futures_lite::future::{block_on, yield_now};
use proptest::prelude::*;
use tollgate_core::{
    Attempt, Clock, Decision, OnExceed, Origin, Outcome, Policies, Records, Span, Store, Verdict, When,
};
use tollgate_engine::admit::Look;
use tollgate_engine::{Admissions, Admit, Engine, Parts, Terms};
use tollgate_store::faulty::{Call, Faults, FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};

/// A store in memory whose answers have to be waited for.
struct Slow(Arc<MemoryStore>);

impl Faults for Slow {
    fn store(&self) -> &dyn Store {
        &*self.0
    }

    fn meet(&self, _: Call<'_>) -> Meeting<'_> {
        Meeting::after(yield_now())
    }
}

/// Two servers with the same policies and clock, and counters of their own.
struct Servers {
    clock: Arc<ManualClock>,
    at_once: Admissions,
    waited_for: Admissions,
}

impl Servers {
    fn new(max_keys: usize) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let memory = || Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, max_keys));
        let start = |store: Arc<dyn Store>, records: Arc<dyn Records>| {
            let parts = Parts { store, records, fallback: None };
            admissions(&Arc::new(block_on(Engine::start(levels(), parts)).unwrap()))
        };
        let (one, other) = (memory(), memory());
        Self {
            clock,
            at_once: start(Arc::clone(&one) as Arc<dyn Store>, one),
            waited_for: start(Arc::new(FaultyStore(Slow(Arc::clone(&other)))), other),
        }
    }

    fn admit(&self, step: &Step) -> [Result<Admitted, String>; 2] {
        [&self.at_once, &self.waited_for].map(|admissions| {
            let user = ["ada", "bob", "eve"][step.user];
            let fields = [("user", user), ("ip", "192.0.2.1")];
            let attempt = Attempt { policy: step.policy, fields: &fields, cost: step.cost, id: step.id };
            let terms = Terms { look: step.look, ..Terms::default() };
            let admit = admissions.pin().admit(&attempt, terms, |_, decision| Admitted::of(decision));
            assert_eq!(matches!(admit, Admit::Ready(_)), std::ptr::eq(admissions, &self.at_once));
            block_on(admit).map(|admission| admission.seen).map_err(|error| format!("{error:?}"))
        })
    }
}

/// All that a decision says.
#[derive(Debug, PartialEq)]
struct Admitted {
    verdict: Verdict,
    retry: When,
    origin: Origin,
    outcome: Outcome,
    named: Option<String>,
}

impl Admitted {
    fn of(decision: &Decision<'_>) -> Self {
        Self {
            verdict: decision.verdict,
            retry: decision.retry,
            origin: decision.origin,
            outcome: decision.outcome.clone(),
            named: decision.named_rule().map(|rule| rule.name.to_string()),
        }
    }
}

#[derive(Clone, Debug)]
struct Step {
    /// How far the clock moves before it, in microseconds.
    moved: i64,
    policy: &'static str,
    user: usize,
    cost: u64,
    id: Option<&'static str>,
    look: Look,
}

fn levels() -> Policies {
    let rules = vec![
        rule::rejecting("user", &["user"], &["5/10s burst 4", "9/min"]),
        rule::rejecting("daily", &["user"], &["12/day calendar", "7/hour calendar"]),
        rule::rejecting("ip", &["ip"], &["20/min sliding", "30/hour sliding by 5m"]),
        rule::rejecting("jobs", &["user"], &["3 at once for 1m", "40 in total"]),
        rule::observed("shadow", &["user"], &["3/min"]),
        rule::with("later", &["ip"], &["8/min"], OnExceed::Defer(Default::default())),
    ];
    let all = ["user", "daily", "ip", "jobs", "shadow", "later"];
    policies(rules, &[("bucket", &["user"]), ("dates", &["daily"]), ("defer", &["later"]), ("all", &all)])
}

fn step() -> impl Strategy<Value = Step> {
    let moved = prop_oneof![
        6 => 0..3_000_000_i64,
        2 => 0..90_000_000_000_i64,
        1 => -5_000_000_000..0_i64,
    ];
    let policy = prop_oneof![Just("bucket"), Just("dates"), Just("defer"), Just("all"), Just("unknown")];
    let id = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    let look = prop_oneof![4 => Just(Look::Take), 1 => Just(Look::Peek)];
    (moved, policy, 0..3_usize, 0..6_u64, id, look).prop_map(|(moved, policy, user, cost, id, look)| Step {
        moved,
        policy,
        user,
        cost,
        id,
        look,
    })
}

proptest! {
    #[test]
    fn a_store_that_answers_at_once_admits_as_one_that_has_to_be_waited_for(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let servers = Servers::new(100_000);
        let mut now = START;
        for step in steps {
            let moved = Span::from_micros(step.moved.unsigned_abs());
            now = if step.moved < 0 { now - moved } else { now + moved };
            servers.clock.set(now);
            let [at_once, waited_for] = servers.admit(&step);
            prop_assert_eq!(at_once, waited_for, "{:?}", step);
        }
    }
}

#[test]
fn a_full_store_fails_alike_whether_it_is_waited_for_or_not() {
    let servers = Servers::new(0);
    let step = Step { moved: 0, policy: "all", user: 0, cost: 1, id: Some("a"), look: Look::Take };
    let [at_once, waited_for] = servers.admit(&step);
    assert!(at_once.as_ref().unwrap_err().contains("Full"), "{at_once:?}");
    assert_eq!(at_once, waited_for);
}
