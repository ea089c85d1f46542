//! Readings: `remaining` can be taken, a limit is unused at its `reset`, and reading changes nothing.

use crate::support::{Ask, Bench, any_bench, any_limit, any_trace, at, quota};
use proptest::prelude::*;
use tollgate_core::Limit;

proptest! {
    #[test]
    fn remaining_is_within_the_capacity_and_exactly_the_largest_cost_allowed(
        text in quota(), trace in any_trace(),
    ) {
        let mut bench = Bench::one(&text);
        let mut now = 0;
        for (ticket, (wait, cost)) in (0..).zip(trace) {
            now += wait;
            let reading = bench.settle(Ask::by(cost, ticket), at(now)).readings[0];
            prop_assert_eq!(reading.capacity, bench.limit(0).capacity());
            prop_assert!(reading.remaining <= reading.capacity);
            prop_assert!(bench.look(Ask::of(reading.remaining), at(now)).allowed);
            prop_assert!(!bench.look(Ask::of(reading.remaining + 1), at(now)).allowed);
        }
    }

    #[test]
    fn at_its_reset_a_limit_is_whole_and_a_microsecond_before_it_is_not(
        text in quota(), trace in any_trace(),
    ) {
        let mut bench = Bench::one(&text);
        let now = at(bench.run(&trace, 0));
        let reading = bench.look(Ask::of(0), now).readings[0];
        let by_itself = match bench.limit(0) {
            Limit::Total { .. } => false,
            Limit::InFlight(limit) => limit.lease().is_some(),
            _ => true,
        };
        prop_assert_eq!(reading.reset.is_some(), by_itself);
        let Some(reset) = reading.reset else { return Ok(()) };
        prop_assert!(reset >= now);
        let whole = |then| bench.look(Ask::of(reading.capacity), then).allowed;
        prop_assert!(whole(reset));
        let before = tollgate_core::Timestamp::from_micros(reset.as_micros() - 1);
        if before >= now && !whole(now) {
            prop_assert!(!whole(before));
        }
    }

    #[test]
    fn looking_changes_nothing_and_predicts_the_decision(
        bench in any_bench(), trace in any_trace(), looks in prop::collection::vec((0..9_u64, 0..30_u64), 1..6),
    ) {
        let mut bench = bench;
        let mut now = bench.run(&trace, 0);
        for (cost, wait) in looks {
            now += wait;
            let before = bench.clone();
            let foretold = bench.survey(Ask::by(cost, 1), at(now));
            prop_assert!(bench.behaves_as(&before, now));
            prop_assert_eq!(foretold.taken, 0);

            let mut settled = before.clone();
            let outcome = settled.settle(Ask::by(cost, 1), at(now));
            prop_assert_eq!(outcome.allowed, foretold.allowed);
            prop_assert_eq!(outcome.repeated, foretold.repeated);
            prop_assert_eq!(outcome.now, foretold.now);
            for (after, told) in outcome.readings.iter().zip(&foretold.readings) {
                prop_assert_eq!(after.when, told.when);
                prop_assert!(after.remaining <= told.remaining);
            }
            if !outcome.allowed || cost == 0 {
                prop_assert_eq!(outcome, foretold);
            }
        }
    }

    #[test]
    fn an_attempt_that_costs_nothing_passes_and_leaves_no_trace(text in any_limit(), now in 0..1_000_u64) {
        let mut bench = Bench::one(&text);
        let fresh = bench.states.clone();
        prop_assert!(bench.settle(Ask::of(0), at(now)).allowed);
        prop_assert_eq!(bench.states, fresh);
    }
}
