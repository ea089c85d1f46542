//! New numbers for existing counters: limits of the same kind and period go on counting, all others start
//! afresh.

use std::sync::Arc;

use crate::support::{Ask, Bench, any_limit, any_trace, at, plan, quota};
use proptest::prelude::*;
use tollgate_core::limit::Limit;
use tollgate_core::{Plan, State, When};

/// The same counters under other limits.
fn adopted(bench: &Bench, new: &Arc<Plan>, now: u64) -> Bench {
    let old = &bench.plans[0].0;
    let states = new.adopt(old, bench.states.clone(), at(now));
    Bench { plans: vec![(new.clone(), true)], states }
}

/// The same kind and period with another number.
fn with_number(text: &str, number: u64) -> String {
    format!("{number}{}", text.trim_start_matches(|c: char| c.is_ascii_digit()))
}

proptest! {
    #[test]
    fn another_number_keeps_the_count(
        text in quota().prop_filter("buckets below", |text| !text.contains("burst")),
        number in 1..40_u64, trace in any_trace(), wait in 0..30_u64,
    ) {
        let mut bench = Bench::one(&text);
        let now = bench.run(&trace, 0) + wait;
        let old = bench.look(Ask::of(0), at(now)).readings[0];
        let new = plan("rule", &[&with_number(&text, number)]);
        let moved = adopted(&bench, &new, now);
        let reading = moved.look(Ask::of(0), at(now)).readings[0];
        prop_assert_eq!(reading.capacity, number);
        prop_assert_eq!(reading.remaining, number.saturating_sub(old.capacity - old.remaining));
        prop_assert_eq!(reading.reset, old.reset);
        // Readings under the new number are true, even if more is used than it allows.
        if let When::After(span) = moved.look(Ask::of(1), at(now)).readings[0].when {
            prop_assert!(!moved.look(Ask::of(1), at(now + span.as_micros() - 1)).allowed);
            prop_assert!(moved.look(Ask::of(1), at(now + span.as_micros())).allowed);
        }
    }

    #[test]
    fn a_bucket_with_another_rate_keeps_the_tokens_that_are_used_up_to_its_burst(
        period in 1..60_u64, old in (1..12_u64, 1..9_u64), new in (1..12_u64, 1..9_u64),
        trace in prop::collection::vec((0..10_u64, 1..4_u64), 1..20), wait in 0..20_u64,
    ) {
        let ((old_rate, old_burst), (new_rate, new_burst)) = (old, new);
        let mut bench = Bench::one(&format!("{old_rate}/{period}us burst {old_burst}"));
        // What is in use, in units of one token over the period.
        let (mut used, mut now) = (0, 0);
        for (step, cost) in trace {
            now += step;
            used = u64::saturating_sub(used, step * old_rate);
            if bench.settle(Ask::of(cost), at(now)).allowed {
                used += cost * period;
            }
        }
        now += wait;
        used = used.saturating_sub(wait * old_rate);
        let new = plan("rule", &[&format!("{new_rate}/{period}us burst {new_burst}")]);
        let moved = adopted(&bench, &new, now);
        let left = (new_burst * period).saturating_sub(used);
        prop_assert_eq!(moved.look(Ask::of(0), at(now)).readings[0].remaining, left / period);
        // From there on it fills at the new rate.
        let missing = (new_burst * period - left).div_ceil(new_rate);
        prop_assert!(moved.look(Ask::of(new_burst), at(now + missing + 1)).allowed);
        if missing > 1 {
            prop_assert!(!moved.look(Ask::of(new_burst), at(now + missing - 1)).allowed);
        }
    }

    #[test]
    fn the_same_limit_made_anew_changes_nothing_whatever_the_clock_says(
        text in any_limit(), trace in any_trace(), jump in 0..2_000_u64,
    ) {
        let mut bench = Bench::one(&text);
        let now = bench.run(&trace, 100_000) - jump;
        prop_assert_eq!(adopted(&bench, &plan("rule", &[&text]), now).states, bench.states);
    }

    #[test]
    fn another_kind_or_period_starts_afresh(old in any_limit(), new in any_limit(), trace in any_trace()) {
        let mut bench = Bench::one(&old);
        prop_assume!(bench.limit(0).identity() != crate::support::limit(&new).identity());
        let now = bench.run(&trace, 0);
        let moved = adopted(&bench, &plan("rule", &[&new]), now);
        prop_assert_eq!(moved.states, Bench::one(&new).states);
    }
}

#[test]
fn each_limit_finds_its_own_count_wherever_it_stands() {
    let old = plan("rule", &["5/hour", "50/day", "9 in total", "3 at once"]);
    let mut bench = Bench::new(vec![(old, true)]);
    assert!(bench.settle(Ask::of(2), at(0)).allowed);
    let new = plan("rule", &["10 in total", "7/min", "60/day", "3/hour"]);
    let moved = adopted(&bench, &new, 0);
    let remaining: Vec<_> =
        moved.look(Ask::of(0), at(0)).readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!(remaining, [8, 7, 58, 1]);
}

#[test]
fn a_lease_given_later_ends_every_hold_even_after_the_clock_went_back() {
    let mut bench = Bench::one("5 at once");
    assert!(bench.settle(Ask::by(1, 1), at(100)).allowed);
    assert!(bench.settle(Ask::by(1, 2), at(10)).allowed);
    let moved = adopted(&bench, &plan("rule", &["5 at once for 30us"]), 101);
    assert_eq!(moved.look(Ask::of(0), at(101)).readings[0].remaining, 4);
}

#[test]
fn limits_are_one_counter_by_kind_and_period_and_never_by_number() {
    let same = [
        ("1/hour", "2/60m"),
        ("1/day calendar", "2/day calendar in UTC"),
        ("1/hour sliding", "2/hour sliding"),
        ("1/hour sliding by 1m", "2/hour sliding by 60s"),
        ("1/s burst 5", "9/s burst 2"),
        ("1 at once", "2 at once for 5s"),
        ("ladder 1 +5s", "ladder 2 +1s captcha then 9 lock 15m notify"),
        ("1 in total", "2 in total"),
        ("1 a per attempt", "2 a per attempt"),
    ];
    for (left, right) in same {
        assert_eq!(crate::support::limit(left).identity(), crate::support::limit(right).identity());
        let twice: Vec<Limit> = vec![crate::support::limit(left), crate::support::limit(right)];
        assert!(Plan::new("rule".into(), twice).is_err(), "{left} and {right}");
    }
    let different = [
        "1/hour",
        "1/day",
        "1/hour calendar",
        "1/hour calendar in Europe/Berlin",
        "1/day calendar",
        "1/hour sliding",
        "1/day sliding",
        "1/hour sliding by 1m",
        "1/hour sliding by 2m",
        "1/hour burst 1",
        "1/s burst 1",
        "1 at once",
        "ladder 1 +5s forget 15m",
        "ladder 1 +5s forget 16m",
        "1 in total",
        "1 a per attempt",
        "1 b per attempt",
    ];
    for (index, left) in different.iter().enumerate() {
        for right in &different[..index] {
            assert_ne!(crate::support::limit(left).identity(), crate::support::limit(right).identity());
        }
    }
}

#[test]
fn other_steps_keep_the_failures() {
    let mut bench = Bench::one("ladder 2 +5us forget 1h");
    for ticket in 1..=2 {
        assert!(bench.settle(Ask::by(1, ticket), at(0)).allowed);
    }
    let moved = adopted(&bench, &plan("rule", &["ladder 1 +9us then 9 lock 1m forget 1h"]), 1);
    let reading = moved.look(Ask::of(1), at(1)).readings[0];
    let wait = When::After(tollgate_core::Span::from_micros(8));
    assert_eq!((reading.capacity, reading.remaining, reading.when), (9, 7, wait));
}

#[test]
fn a_state_of_another_kind_counts_as_fresh() {
    let texts = [
        "5/hour",
        "5/min calendar",
        "5/hour sliding",
        "5/hour sliding by 1m",
        "5/hour burst 5",
        "5 at once",
        "5 at once for 1m",
        "ladder 5 lock 1m forget 1h",
        "5 in total",
        "5 recipients per attempt",
    ];
    let states = texts.map(|text| {
        let mut bench = Bench::one(text);
        assert!(bench.settle(Ask::by(1, 1), at(0)).allowed, "{text}");
        bench.states.remove(0)
    });
    for (text, own) in texts.iter().zip(&states) {
        let foreign = |state: &&State| std::mem::discriminant(*state) != std::mem::discriminant(own);
        for (state, cost) in states.iter().filter(foreign).flat_map(|state| [(state, 0), (state, 2)]) {
            let (mut fresh, mut other) = (Bench::one(text), Bench::one(text));
            other.states[0] = state.clone();
            let ask = Ask::by(cost, 2);
            assert_eq!(other.settle(ask, at(5)), fresh.settle(ask, at(5)), "{text} from {state:?}");
            assert_eq!(other.states, fresh.states, "{text} from {state:?}");
        }
    }
}
