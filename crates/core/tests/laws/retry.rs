//! Retry times are exact: waiting exactly that long passes, a microsecond less does not.

use crate::support::{Ask, Bench, any_bench, any_trace, at};
use proptest::prelude::*;
use tollgate_core::{Limit, Span, When};

/// Checks an attempt's retry time against the results at that time, without other traffic.
fn is_true(bench: &Bench, cost: u64, now: u64) -> Result<(), TestCaseError> {
    let allowed_at = |then: u64| bench.look(Ask::of(cost), at(then)).allowed;
    match bench.retry(&bench.look(Ask::of(cost), at(now))) {
        When::Now => prop_assert!(allowed_at(now)),
        When::After(span) => {
            prop_assert!(span > Span::ZERO);
            prop_assert!(!allowed_at(now));
            prop_assert!(!allowed_at(now + span.as_micros() - 1), "sooner than {span} after {now}");
            prop_assert!(allowed_at(now + span.as_micros()), "not yet {span} after {now}");
        }
        When::OnRelease | When::Never => {
            for later in [0, 1, 50, 1_000, 1_000_000] {
                prop_assert!(!allowed_at(now + later));
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn waited_out_alone_an_attempt_passes_and_a_microsecond_earlier_it_does_not(
        bench in any_bench(), trace in any_trace(), cost in 0..8_u64, wait in 0..60_u64,
    ) {
        let mut bench = bench;
        let now = bench.run(&trace, 0) + wait;
        is_true(&bench, cost, now)?;
        for index in 0..bench.plans.len() {
            is_true(&bench.alone(index), cost, now)?;
        }
    }

    #[test]
    fn never_and_on_release_are_answered_only_where_no_time_helps(
        bench in any_bench(), trace in any_trace(), cost in 0..32_u64,
    ) {
        let mut bench = bench;
        let now = bench.run(&trace, 0);
        for (index, reading) in bench.look(Ask::of(cost), at(now)).readings.iter().enumerate() {
            let limit = bench.limit(index);
            let used_up = matches!(limit, Limit::Total { .. }) && cost > reading.remaining;
            let never = cost > limit.capacity() || used_up;
            prop_assert_eq!(reading.when == When::Never, never);
            let no_lease = matches!(limit, Limit::InFlight(holds) if holds.lease().is_none());
            prop_assert_eq!(reading.when == When::OnRelease, !never && no_lease && cost > reading.remaining);
        }
    }

    #[test]
    fn waiting_out_every_answer_in_turn_never_waits_in_vain(
        bench in any_bench(), costs in prop::collection::vec(1..5_u64, 1..40),
    ) {
        let mut bench = bench;
        let mut now = 0;
        for (ticket, cost) in (0..).zip(costs) {
            let outcome = bench.settle(Ask::by(cost, ticket), at(now));
            if let When::After(span) = bench.retry(&outcome) {
                now += span.as_micros();
                prop_assert!(bench.settle(Ask::by(cost, ticket), at(now)).allowed);
            }
        }
    }
}

#[test]
fn the_answer_over_several_rules_is_the_longest() {
    let mut bench = Bench::new(vec![
        (crate::support::plan("short", &["1/10us"]), true),
        (crate::support::plan("long", &["1/30us sliding"]), true),
        (crate::support::plan("seen", &["1/90us"]), false),
    ]);
    assert!(bench.settle(Ask::of(1), at(0)).allowed);
    let outcome = bench.settle(Ask::of(1), at(4));
    assert_eq!(bench.retry(&outcome), When::After(Span::from_micros(26)));
    assert!(bench.settle(Ask::of(1), at(30)).allowed);
}
