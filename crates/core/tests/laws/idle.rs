//! Forgetting: once a state is idle, nothing distinguishes it from a fresh one; a microsecond earlier
//! something does.

use crate::support::{Ask, Bench, START, any_limit, any_trace, at, quota};
use proptest::prelude::*;
use tollgate_core::limit::Idle;
use tollgate_core::{Limit, State};

fn idle(bench: &Bench) -> Idle {
    bench.plans[0].0.idle(&bench.states)
}

fn forgotten(bench: &Bench) -> Bench {
    Bench { states: vec![State::Fresh; bench.states.len()], ..bench.clone() }
}

/// Microseconds after the start; an earlier time counts as the start.
fn micros(moment: tollgate_core::Timestamp) -> u64 {
    moment.as_micros().saturating_sub(START)
}

proptest! {
    #[test]
    fn an_idle_state_is_as_good_as_fresh_for_every_later_attempt(
        text in any_limit(), trace in any_trace(), refunds in prop::collection::vec(any::<bool>(), 60),
        wait in prop_oneof![Just(0), 0..90_u64], later in any_trace(),
    ) {
        let mut bench = Bench::one(&text);
        let mut now = 0;
        for (ticket, ((step, cost), refund)) in (0..).zip(trace.into_iter().zip(refunds)) {
            now += step;
            let ask = Ask::by(cost, ticket);
            if bench.settle(ask, at(now)).allowed && refund {
                bench.refund(ask, at(now), at(now + 1));
                now += 1;
            }
        }
        let Idle::At(moment) = idle(&bench) else { return Ok(()) };
        let mut then = now.max(micros(moment)) + wait;
        let mut fresh = forgotten(&bench);
        prop_assert!(bench.behaves_as(&fresh, then));
        for (ticket, (step, cost)) in (1_000..).zip(later) {
            then += step;
            let ask = Ask::by(cost, ticket);
            prop_assert_eq!(bench.settle(ask, at(then)), fresh.settle(ask, at(then)));
        }
    }

    #[test]
    fn a_microsecond_before_it_is_idle_some_attempt_tells_the_difference(
        text in quota(), trace in any_trace(),
    ) {
        let mut bench = Bench::one(&text);
        let now = bench.run(&trace, 0);
        let capacity = Ask::of(bench.limit(0).capacity());
        let fresh = forgotten(&bench);
        let tells = |then| bench.look(capacity, at(then)).allowed != fresh.look(capacity, at(then)).allowed;
        match idle(&bench) {
            Idle::At(moment) if micros(moment) > now => prop_assert!(tells(micros(moment) - 1)),
            Idle::At(_) => prop_assert!(!tells(now)),
            Idle::Never => {
                prop_assert!([0, 100, 1_000_000_000_000].iter().all(|wait| tells(now + wait)));
            }
        }
    }

    #[test]
    fn only_totals_and_holds_without_lease_are_never_idle(text in any_limit(), trace in any_trace()) {
        let mut bench = Bench::one(&text);
        let now = bench.run(&trace, 0);
        let reading = bench.look(Ask::of(0), at(now)).readings[0];
        let lasting = match bench.limit(0) {
            Limit::Total { .. } => true,
            Limit::InFlight(limit) => limit.lease().is_none(),
            _ => false,
        };
        prop_assert_eq!(idle(&bench) == Idle::Never, lasting && reading.remaining < reading.capacity);
    }
}

#[test]
fn a_rule_is_idle_when_the_last_of_its_limits_is() {
    let mut bench = Bench::new(vec![(
        crate::support::plan("rule", &["5/10us", "5/70us sliding", "5/20us burst 5"]),
        true,
    )]);
    assert_eq!(idle(&bench), Idle::At(tollgate_core::Timestamp::ZERO));
    assert!(bench.settle(Ask::of(1), at(0)).allowed);
    assert_eq!(idle(&bench), Idle::At(at(70)));
    let mut bench = Bench::new(vec![(crate::support::plan("rule", &["5/10us", "5 in total"]), true)]);
    assert!(bench.settle(Ask::of(1), at(0)).allowed);
    assert_eq!(idle(&bench), Idle::Never);
}

#[test]
fn a_total_is_idle_as_long_as_it_counts_nothing() {
    let mut bench = Bench::one("5 in total");
    let at_once = Idle::At(tollgate_core::Timestamp::ZERO);
    assert_eq!(idle(&bench), at_once);
    assert!(bench.settle(Ask::by(2, 1), at(0)).allowed);
    assert_eq!(idle(&bench), Idle::Never);
    bench.refund(Ask::by(2, 1), at(0), at(1));
    assert_eq!(idle(&bench), at_once, "everything was refunded");
}
