//! Calendar periods, with pages made by hand: days that are an hour short or long, and pages that do not
//! cover the present.

use std::sync::Arc;

use crate::support::{limit, plan};
use tollgate_core::limit::{Page, Period};
use tollgate_core::{Charges, Limit, Outcome, Plan, Span, State, Ticket, Timestamp, When};

const HOUR: u64 = 3_600_000_000;
const MIDNIGHT: u64 = 1_774_738_800_000_000;

fn period_of(limit: &Limit) -> Period {
    limit.calendar().expect("a calendar limit").clone()
}

/// A page with a first period of this many hours and a second of 24.
fn page_of_hours(hours: u64) -> Page {
    let edges = [0, hours, hours + 24].map(|hour| Timestamp::from_micros(MIDNIGHT + hour * HOUR));
    Page { period: period_of(&limit("3/day calendar in Europe/Berlin")), edges }
}

fn charges<'a>(plan: &'a Arc<Plan>, page: &Page, cost: u64) -> Charges<'a> {
    let mut charges = Charges::new(Ticket(1), cost, None);
    charges.push(plan, "key", true);
    charges.calendar.push(page.clone());
    charges
}

fn settle(plan: &Arc<Plan>, page: &Page, states: &mut [State], cost: u64, micros: u64) -> Outcome {
    charges(plan, page, cost).settle(states, Timestamp::from_micros(micros)).expect("covered")
}

#[test]
fn a_day_lasts_as_long_as_its_page_says() {
    for hours in [23, 24, 25] {
        let (plan, page) = (plan("rule", &["3/day calendar in Europe/Berlin"]), page_of_hours(hours));
        let mut states = [State::Fresh];
        assert!(settle(&plan, &page, &mut states, 3, MIDNIGHT).allowed);
        let denied = settle(&plan, &page, &mut states, 1, MIDNIGHT + HOUR);
        assert_eq!(denied.readings[0].when, When::After(Span::from_micros((hours - 1) * HOUR)));
        assert!(!settle(&plan, &page, &mut states, 1, MIDNIGHT + hours * HOUR - 1).allowed);
        assert!(settle(&plan, &page, &mut states, 3, MIDNIGHT + hours * HOUR).allowed);
        // The second day of the page is a period of its own.
        let denied = settle(&plan, &page, &mut states, 1, MIDNIGHT + hours * HOUR);
        assert_eq!(denied.readings[0].when, When::After(Span::from_micros(24 * HOUR)));
        let reset = Timestamp::from_micros(MIDNIGHT + (hours + 24) * HOUR);
        assert_eq!(denied.readings[0].reset, Some(reset));
    }
}

#[test]
fn outside_of_its_page_a_calendar_is_stale_and_nothing_is_changed() {
    let plan = plan("rule", &["3/day calendar in Europe/Berlin", "5/hour", "9 in total"]);
    let page = page_of_hours(23);
    let mut states = vec![State::Fresh; 3];
    assert!(settle(&plan, &page, &mut states, 2, MIDNIGHT + HOUR).allowed);
    for micros in [MIDNIGHT - 1, MIDNIGHT + 47 * HOUR, MIDNIGHT + 1_000 * HOUR] {
        let (before, now) = (states.clone(), Timestamp::from_micros(micros));
        let charges = charges(&plan, &page, 1);
        assert_eq!(charges.settle(&mut states, now).map_err(|stale| stale.now), Err(now));
        assert_eq!(charges.survey(&mut states, now).map_err(|stale| stale.now), Err(now));
        assert_eq!(states, before);
    }
    for micros in [MIDNIGHT, MIDNIGHT + 47 * HOUR - 1] {
        assert!(charges(&plan, &page, 1).survey(&mut states.clone(), Timestamp::from_micros(micros)).is_ok());
    }
}

#[test]
fn the_page_of_another_zone_or_unit_covers_nothing() {
    let plan = plan("rule", &["3/day calendar in Europe/Berlin"]);
    let mut page = page_of_hours(24);
    for text in ["3/day calendar", "3/day calendar in Europe/Paris", "3/hour calendar in Europe/Berlin"] {
        page.period = period_of(&limit(text));
        let now = Timestamp::from_micros(MIDNIGHT);
        assert!(charges(&plan, &page, 1).settle(&mut [State::Fresh], now).is_err(), "{text}");
    }
}

#[test]
fn an_attempt_without_calendar_limits_needs_no_page() {
    let plan = plan("rule", &["3/day"]);
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(&plan, "key", true);
    assert!(charges.settle(&mut [State::Fresh], Timestamp::from_micros(MIDNIGHT)).is_ok());
}

#[test]
fn a_refund_credits_only_the_period_that_was_charged() {
    let (plan, page) = (plan("rule", &["3/day calendar in Europe/Berlin"]), page_of_hours(25));
    let (taken_at, next_day) = (MIDNIGHT + HOUR, MIDNIGHT + 25 * HOUR);
    let mut states = [State::Fresh];
    assert!(settle(&plan, &page, &mut states, 2, taken_at).allowed);
    let give = |states: &mut [State], now: u64| {
        let [taken_at, now] = [taken_at, now].map(Timestamp::from_micros);
        charges(&plan, &page, 2).refund(states, taken_at, now);
    };

    let mut same_day = states.clone();
    give(&mut same_day, next_day - 1);
    assert_eq!(settle(&plan, &page, &mut same_day, 0, next_day - 1).readings[0].remaining, 3);

    let mut later = states.clone();
    assert!(settle(&plan, &page, &mut later, 2, next_day).allowed);
    give(&mut later, next_day);
    assert_eq!(settle(&plan, &page, &mut later, 0, next_day).readings[0].remaining, 1);
}
