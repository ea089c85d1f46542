//! Fixed windows: at most the limit in each, and an end that never moves.

use crate::support::{Ask, Bench, CALENDAR_MICROS, START, any_trace, at};
use proptest::prelude::*;
use tollgate_core::Timestamp;

/// What is taken in the half-open interval of this length from `start`.
fn inside(taken: &[(u64, u64)], start: u64, length: u64) -> u64 {
    taken.iter().filter(|(at, _)| (start..start + length).contains(at)).map(|(_, cost)| cost).sum()
}

/// The most that any interval of this length holds.
fn most_inside(taken: &[(u64, u64)], length: u64) -> u64 {
    taken.iter().map(|(start, _)| inside(taken, *start, length)).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn a_window_from_the_first_attempt_admits_its_limit_and_two_in_a_row_less_than_twice_that(
        max in 1..7_u64, period in 1..50_u64, trace in any_trace(),
    ) {
        let mut bench = Bench::one(&format!("{max}/{period}us"));
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut window: Option<(u64, u64)> = None;
        let mut now = 0;
        for (wait, cost) in trace {
            now += wait;
            window = window.filter(|(start, _)| now < start + period);
            let count = window.map_or(0, |(_, count)| count);
            let outcome = bench.settle(Ask::of(cost), at(now));
            prop_assert_eq!(outcome.allowed, cost == 0 || count + cost <= max);
            if outcome.allowed && cost > 0 {
                taken.push((now, cost));
                window = Some((window.map_or(now, |(start, _)| start), count + cost));
            }
            let end = window.map_or(at(now), |(start, _)| at(start + period));
            prop_assert_eq!(outcome.readings[0].reset, Some(end), "the end never moves");
        }
        prop_assert!(most_inside(&taken, period) < 2 * max);
    }

    #[test]
    fn a_calendar_period_admits_its_limit_and_two_in_a_row_at_most_twice_that(
        max in 1..7_u64, trace in any_trace(),
    ) {
        let mut bench = Bench::one(&format!("{max}/min calendar"));
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (wait, cost) in trace {
            now += wait;
            let start = (START + now) / CALENDAR_MICROS * CALENDAR_MICROS;
            let earlier: u64 = taken.iter().filter(|(at, _)| START + at >= start).map(|(_, cost)| cost).sum();
            let outcome = bench.settle(Ask::of(cost), at(now));
            prop_assert_eq!(outcome.allowed, cost == 0 || earlier + cost <= max);
            prop_assert_eq!(outcome.readings[0].reset, Some(Timestamp::from_micros(start + CALENDAR_MICROS)));
            if outcome.allowed && cost > 0 {
                taken.push((now, cost));
            }
        }
        prop_assert!(most_inside(&taken, CALENDAR_MICROS) <= 2 * max);
    }
}

#[test]
fn a_denied_attempt_never_starts_or_prolongs_a_window() {
    let mut bench = Bench::one("2/10us");
    assert!(!bench.settle(Ask::of(3), at(0)).allowed);
    assert!(bench.settle(Ask::of(2), at(5)).allowed);
    assert!((6..15).all(|now| !bench.settle(Ask::of(1), at(now)).allowed));
    assert!(bench.settle(Ask::of(2), at(15)).allowed);
}

#[test]
fn two_windows_in_a_row_can_come_within_one_of_twice_the_limit() {
    let mut bench = Bench::one("5/10us");
    assert!(bench.settle(Ask::of(1), at(0)).allowed);
    assert!(bench.settle(Ask::of(4), at(9)).allowed);
    assert!(bench.settle(Ask::of(5), at(10)).allowed);
}
