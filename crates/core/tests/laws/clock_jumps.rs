//! Clock jumps: a jump back locks out no key for longer than the limit's period, a jump forward admits at
//! most one more limit, and no jump breaks anything.

use crate::support::{Ask, Bench, CALENDAR_MICROS, any_limit, any_trace, at, bucket};
use proptest::prelude::*;
use tollgate_core::Limit;

/// Far enough from the start that every jump back stays after it.
const LATER: u64 = 100_000;

/// The longest time after which a self-healing limit is unused again, whatever was taken.
fn heals_within(limit: &Limit) -> Option<u64> {
    match limit {
        Limit::Window(limit) => Some(limit.period().as_micros()),
        Limit::Sliding(limit) => Some(limit.period().as_micros()),
        Limit::Slotted(limit) => Some(limit.period().as_micros() + limit.slot().as_micros()),
        Limit::Bucket(limit) => Some((limit.burst() * limit.period().as_micros()).div_ceil(limit.rate())),
        Limit::InFlight(limit) => limit.lease().map(|lease| lease.as_micros()),
        Limit::Calendar(_) => Some(CALENDAR_MICROS),
        Limit::Ladder(limit) => Some(limit.forget().as_micros()),
        Limit::Total { .. } | Limit::PerAttempt { .. } => None,
    }
}

/// An interval, and the most that the limit admits in it if the clock jumps forward once.
fn promise(limit: &Limit) -> Option<(u64, u64)> {
    if let Limit::Ladder(_) = limit {
        // What it admits depends on the pauses, which have laws of their own.
        return None;
    }
    let (heals, capacity) = (heals_within(limit)?, limit.capacity());
    Some(match limit {
        Limit::Slotted(limit) => (limit.period().as_micros(), 2 * capacity),
        Limit::Sliding(_) | Limit::InFlight(_) => (heals, 2 * capacity),
        Limit::Window(_) => (heals, 3 * capacity - 1),
        // A burst, what refills in the time of another, and the extra one.
        Limit::Bucket(_) => (heals, 3 * capacity),
        // The clock may cross a calendar boundary both before and after it jumps.
        _ => (heals, 4 * capacity),
    })
}

proptest! {
    #[test]
    fn a_jump_back_locks_out_for_no_longer_than_the_limits_own_time(
        text in any_limit(), trace in any_trace(), jump in 0..2_000_u64,
        looks in prop::collection::vec(0..20_u64, 0..6),
    ) {
        let mut bench = Bench::one(&text);
        let Some(heals) = heals_within(bench.limit(0)) else { return Ok(()) };
        let jumped = bench.run(&trace, LATER) - jump;
        bench.survey(Ask::of(1), at(jumped));
        let mut now = jumped;
        for wait in looks {
            now = (now + wait).min(jumped + heals);
            bench.survey(Ask::of(1), at(now));
        }
        let capacity = bench.limit(0).capacity();
        prop_assert!(bench.look(Ask::of(capacity), at(jumped + heals)).allowed);
    }

    #[test]
    fn a_jump_back_forgets_nothing(text in any_limit(), trace in any_trace(), jump in 0..2_000_u64) {
        let mut bench = Bench::one(&text);
        let now = bench.run(&trace, LATER);
        let before = bench.look(Ask::of(0), at(now)).readings[0].remaining;
        let after = bench.look(Ask::of(0), at(now - jump)).readings[0].remaining;
        prop_assert!(after <= before);
    }

    #[test]
    fn a_jump_forward_admits_at_most_one_more_limit(
        text in any_limit(), trace in any_trace(), jump in 1..3_000_u64, jumps_at in 0..60_usize,
    ) {
        let mut bench = Bench::one(&text);
        let limit = bench.limit(0).clone();
        let Some((stretch, most)) = promise(&limit) else { return Ok(()) };
        let (mut now, mut ahead) = (0, 0);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (index, (wait, cost)) in trace.into_iter().enumerate() {
            now += wait;
            if index == jumps_at {
                ahead = jump;
            }
            if bench.settle(Ask::by(cost, index as u64), at(now + ahead)).allowed {
                taken.push((now, cost));
            }
        }
        for (start, _) in &taken {
            let inside = taken.iter().filter(|(at, _)| (*start..start + stretch).contains(at));
            let sum: u64 = inside.map(|(_, cost)| cost).sum();
            prop_assert!(sum <= most, "{} in {} of {}", sum, stretch, limit);
        }
    }

    #[test]
    fn no_jump_shows_more_than_the_capacity(
        text in prop_oneof![any_limit(), bucket()],
        trace in prop::collection::vec((-60..60_i64, 0..8_u64), 1..80),
    ) {
        let mut bench = Bench::one(&text);
        let mut now = LATER;
        for (ticket, (step, cost)) in (0..).zip(trace) {
            now = now.saturating_add_signed(step);
            let outcome = bench.settle(Ask::by(cost, ticket), at(now));
            prop_assert!(outcome.readings[0].remaining <= outcome.readings[0].capacity);
            let reset = outcome.readings[0].reset;
            prop_assert!(reset.is_none_or(|reset| reset >= at(now)));
        }
    }
}

#[test]
fn a_bucket_whose_clock_goes_back_is_at_most_empty_to_the_last_fraction() {
    // After six takes of a seventh of a second each, the level has six sevenths of a microsecond. Going back
    // to where an empty bucket would have three must not count the rest.
    let mut bench = Bench::one("7/s burst 3");
    let mut now = LATER;
    for taken in 0..6 {
        assert!(bench.settle(Ask::of(1), at(now)).allowed);
        now += if taken < 2 { 0 } else { 142_858 };
    }
    let full_at =
        bench.look(Ask::of(0), at(now)).readings[0].reset.unwrap().as_micros() - crate::support::START;
    for back in 428_560..428_580 {
        let outcome = bench.clone().settle(Ask::of(1), at(full_at - back));
        assert!(outcome.readings[0].remaining <= 3);
    }
}

#[test]
fn a_charge_from_before_a_clock_jump_counts_once() {
    for limit in ["5/hour sliding by 6m", "5/hour sliding", "5/hour"] {
        let mut bench = Bench::one(limit);
        let mut take = |cost, minute: u64| bench.settle(Ask::by(cost, minute), at(minute * 60_000_000));
        assert!(take(3, 60).allowed);
        let back = take(1, 30);
        assert_eq!((back.allowed, back.readings[0].remaining), (true, 1), "{limit}, half an hour earlier");
        assert!(take(1, 31).allowed && !take(1, 32).allowed, "{limit}");
    }
}

#[test]
fn a_calendar_count_from_the_future_counts_until_the_period_ends_in_which_it_is_met() {
    let mut bench = Bench::one("2/min calendar");
    assert!(bench.settle(Ask::by(2, 1), at(3 * CALENDAR_MICROS)).allowed);
    assert!(!bench.settle(Ask::by(1, 2), at(CALENDAR_MICROS)).allowed);
    assert!(!bench.settle(Ask::by(1, 3), at(2 * CALENDAR_MICROS - 1)).allowed);
    assert!(bench.settle(Ask::by(2, 4), at(2 * CALENDAR_MICROS)).allowed);
}
