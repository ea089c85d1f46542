//! All or nothing: an attempt is charged at every rule or at none, and observed rules do not affect it.

use crate::support::{Ask, Bench, any_bench, at};
use proptest::prelude::*;
use tollgate_core::When;

/// Only the enforced rules, with their states.
fn enforced_only(bench: &Bench) -> Bench {
    let pairs = bench.plans.iter().zip(&bench.states).filter(|((_, enforced), _)| *enforced);
    let (plans, states) = pairs.map(|(plan, state)| (plan.clone(), state.clone())).unzip();
    Bench { plans, states }
}

/// Whether only the rule at this index changed its state, by a take.
fn took(before: &Bench, after: &Bench, index: usize, ask: Ask<'_>, now: u64) -> bool {
    let mut alone = before.alone(index);
    alone.settle(ask, at(now)).allowed && alone.behaves_as(&after.alone(index), now)
}

fn trace() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((prop_oneof![4 => 0..8_u64, 1 => 0..80_u64], 1..4_u64), 1..30)
}

proptest! {
    #[test]
    fn a_denied_attempt_leaves_every_rule_untouched_and_an_allowed_one_is_charged_at_all(
        bench in any_bench(), trace in trace(),
    ) {
        let mut bench = bench;
        let mut now = 0;
        for (ticket, (wait, cost)) in (0..).zip(trace) {
            now += wait;
            let (before, ask) = (bench.clone(), Ask::by(cost, ticket));
            let outcome = bench.settle(ask, at(now));
            let taken = |index: usize| outcome.taken & (1 << index) != 0;
            for (index, (_, enforced)) in before.plans.iter().enumerate() {
                let conforms = before.alone(index).look(ask, at(now)).allowed;
                prop_assert_eq!(taken(index), outcome.allowed && conforms);
                if taken(index) {
                    prop_assert!(took(&before, &bench, index, ask, now));
                } else {
                    prop_assert!(before.alone(index).behaves_as(&bench.alone(index), now));
                    prop_assert!(!(outcome.allowed && *enforced), "allowed, and yet not charged");
                }
            }
        }
    }

    #[test]
    fn an_observed_rule_changes_neither_verdict_nor_retry(bench in any_bench(), trace in trace()) {
        let mut bench = bench;
        let mut without = enforced_only(&bench);
        let mut now = 0;
        for (ticket, (wait, cost)) in (0..).zip(trace) {
            now += wait;
            let ask = Ask::by(cost, ticket);
            let (seen, alone) = (bench.settle(ask, at(now)), without.settle(ask, at(now)));
            prop_assert_eq!(seen.allowed, alone.allowed);
            prop_assert_eq!(seen.repeated, alone.repeated);
            let after = without.retry(&alone);
            prop_assert_eq!(bench.retry(&seen), after);
            prop_assert_eq!(seen.allowed, after == When::Now);
        }
        prop_assert_eq!(enforced_only(&bench).states, without.states);
    }
}

#[test]
fn a_refused_client_leaves_the_shared_limit_untouched() {
    let shared = crate::support::plan("shared", &["10/hour", "100/day sliding"]);
    let own = crate::support::plan("own", &["1/hour"]);
    let mut bench = Bench::new(vec![(shared, true), (own, true)]);
    assert!(bench.settle(Ask::of(1), at(0)).allowed);
    for now in 1..50 {
        let outcome = bench.settle(Ask::of(1), at(now));
        assert!(!outcome.allowed);
        assert_eq!([outcome.readings[0].remaining, outcome.readings[1].remaining], [9, 99]);
    }
}

#[test]
fn a_rule_of_several_limits_is_charged_at_all_or_none_of_them() {
    let mut bench =
        Bench::new(vec![(crate::support::plan("rule", &["1/10us", "3/100us sliding", "2 in total"]), true)]);
    let mut remaining = |now| {
        let outcome = bench.settle(Ask::by(1, now), at(now));
        (outcome.taken, outcome.readings.iter().map(|reading| reading.remaining).collect::<Vec<_>>())
    };
    assert_eq!(remaining(0), (1, vec![0, 2, 1]));
    assert_eq!(remaining(9), (0, vec![0, 2, 1]));
    assert_eq!(remaining(10), (1, vec![0, 1, 0]));
    assert_eq!(remaining(20), (0, vec![1, 1, 0]));
}
