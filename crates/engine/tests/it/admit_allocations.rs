//! An admission that is ready at once allocates nothing: counters in memory, a key that is known, and no
//! entry in the journal.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Stand, admissions, policies, rule};
use tollgate_core::Attempt;
use tollgate_engine::{Admit, Terms};

const ATTEMPTS: u64 = 2_000;

/// How many of the admissions allocated something. Every one is ready and allowed.
fn allocating(limits: &[&str]) -> u64 {
    let rules = vec![rule::rejecting("ip", &["ip"], limits), rule::rejecting("user", &["user"], limits)];
    let stand = Stand::new(policies(rules, &[("web", &["ip", "user"])]));
    let admissions = admissions(&stand.engine);
    let fields = [("ip", "192.0.2.1"), ("user", "ada")];
    let attempt = Attempt { policy: "web", fields: &fields, cost: 1, id: None };
    let admit = || {
        let pinned = admissions.pin();
        let admit = pinned.admit(&attempt, Terms::default(), |_, decision| decision.allowed());
        let Admit::Ready(Some(Ok(admission))) = admit else { panic!("it is ready") };
        assert!(admission.seen);
    };
    // The first of each key makes room for it.
    for _ in 0..10 {
        admit();
    }
    (0..ATTEMPTS).filter(|_| allocation_counter::measure(admit).count_total > 0).count() as u64
}

#[test]
fn an_admission_that_is_ready_allocates_nothing() {
    for limits in [&["1000000/s burst 1000000"][..], &["1000000/hour", "9000000/day"]] {
        let allocating = allocating(limits);
        // The journal takes one allowed attempt in many down, and that entry has texts of its own.
        assert!(allocating <= ATTEMPTS / 16, "{allocating} of {ATTEMPTS} allocate under {limits:?}");
    }
}
