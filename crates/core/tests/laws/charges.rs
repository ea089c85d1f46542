//! What charges tell about themselves before and after they settle.

use std::sync::Arc;

use crate::support::{Ask, Bench, at, page, plan, policy, rule};
use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::limit::Page;
use tollgate_core::{
    Attempt, Author, Charges, Decision, Fate, Listing, Origin, Outcome, Plan, Reason, Span, Stance, State,
    Target, Ticket, When,
};

/// How many there are, whether they take something, and whether they need a calendar.
fn said(charges: &Charges<'_>) -> (usize, bool, bool) {
    (charges.len(), charges.takes(), charges.by_calendar())
}

#[test]
fn charges_take_something_or_need_a_calendar_if_one_of_them_does() {
    let (window, daily) = (plan("window", &["9/s"]), plan("daily", &["9/day calendar"]));
    let mut charges = Charges::new(Ticket(1), 0, None);
    assert_eq!(said(&charges), (0, false, false));
    charges.push(&window, "key", true);
    assert_eq!(said(&charges), (1, false, false), "it only reads");
    charges.push_costing(&window, "key", true, 2);
    assert_eq!(said(&charges), (2, true, false));
    charges.push(&daily, "key", true);
    charges.push(&window, "key", true);
    charges.push_amount("recipients", 7);
    assert_eq!(said(&charges), (4, true, true));
    assert_eq!(charges.amounts(), [("recipients", 7)]);
    assert_eq!((charges.amount("recipients"), charges.amount("bytes")), (Some(7), None));
    charges.clear();
    assert_eq!(said(&charges), (0, false, false));
    assert!(charges.is_empty() && charges.amounts().is_empty());
}

#[test]
fn the_key_of_a_charge_is_the_same_as_text_and_as_bytes() {
    let by = [("tenant", FieldKind::Text), ("user", FieldKind::Text)];
    let policy = policy(vec![rule("tenant", &by[..1], &["9/s"]), rule("both", &by, &["9/s"])]);
    let fields = [("tenant", "acme"), ("user", "ada")];
    let attempt = Attempt { policy: "policy", fields: &fields, cost: 1, id: None };
    let charges = policy.charges(&attempt, Ticket(1)).expect("both fields are there");
    let keys: Vec<&str> = charges.iter().map(|charge| charges.key(charge)).collect();
    assert_eq!(keys[0], "acme");
    assert!(keys[1].contains("acme") && keys[1].contains("ada"), "{keys:?}");
    let bytes: Vec<&[u8]> = charges.iter().map(|charge| charges.key_bytes(charge)).collect();
    assert_eq!(bytes, [keys[0].as_bytes(), keys[1].as_bytes()]);
}

#[test]
fn an_outcome_has_the_readings_of_each_charge_in_order() {
    let plans =
        [plan("first", &["1/s", "2/min"]), plan("second", &["3/s"]), plan("third", &["4/s", "5/min"])];
    let mut charges = Charges::new(Ticket(1), 0, None);
    plans.iter().for_each(|plan| charges.push(plan, "key", true));
    let outcome = charges.settle(&mut [const { State::Fresh }; 5], at(0)).expect("no calendar is needed");
    let capacities = |index| outcome.of(&charges, index).iter().map(|reading| reading.capacity).collect();
    let all: [Vec<u64>; 3] = [0, 1, 2].map(capacities);
    assert_eq!(all, [vec![1, 2], vec![3], vec![4, 5]]);
    let unread = Outcome::default();
    assert!(unread.of(&charges, 1).is_empty(), "no counter was read");
}

#[test]
fn only_with_a_ladder_charges_age_out_and_then_with_the_limit_that_matters_longest() {
    let ladder = plan("guard", &["ladder 3 lock 1m forget 1h"]);
    let (short, long) = (plan("short", &["9/s"]), plan("long", &["9/day"]));
    let ages_out = |plans: &[&Arc<Plan>]| {
        let mut charges = Charges::new(Ticket(1), 1, None);
        for plan in plans {
            charges.push_taken(plan, "key", 1, Fate::Keep);
        }
        charges.ages_out()
    };
    assert_eq!(ages_out(&[&short, &long]), None);
    assert_eq!(ages_out(&[&short, &ladder]), Some(Span::from_secs(3_600)));
    assert_eq!(ages_out(&[&long, &ladder, &short]), Some(Span::from_secs(86_400)));
}

#[test]
fn an_observed_hold_neither_repeats_an_attempt_nor_keeps_one_from_being_repeated() {
    let (held, seen) = (plan("held", &["2 at once"]), plan("seen", &["2 at once"]));
    let ask = Ask { cost: 1, ticket: Ticket(1), id: Some("job") };
    let mut observed = Bench::new(vec![(seen.clone(), false)]);
    assert!(observed.settle(ask, at(0)).allowed);
    let again = observed.settle(ask, at(1));
    assert!(again.allowed && !again.repeated, "no enforced rule holds it");

    let mut enforced = Bench::new(vec![(held.clone(), true)]);
    assert!(enforced.settle(ask, at(0)).allowed);
    let mut both = Bench::new(vec![(held, true), (seen, false)]);
    both.states[0] = enforced.states[0].clone();
    let again = both.settle(ask, at(1));
    assert!(again.allowed && again.repeated && again.taken == 0);
}

#[test]
fn every_calendar_limit_needs_a_page_of_its_own_period_around_now() {
    let plan = plan("rule", &["9/min calendar", "9/hour calendar"]);
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(&plan, "key", true);
    let pages: Vec<Page> = charges.periods().map(|period| page(period, at(0))).collect();
    assert_eq!(pages.len(), 2);
    for only in &pages {
        charges.calendar = [only.clone()].into_iter().collect();
        assert!(charges.draft(at(0)).is_err(), "the other page is missing");
    }
    charges.calendar = pages.into_iter().collect();
    let draft = charges.draft(at(0)).expect("both pages cover it");
    assert_eq!((draft.now, draft.cost, draft.ticket), (at(0), 1, Ticket(1)));
    assert!(charges.draft(at(1_000_000)).is_err(), "neither page covers it");
}

#[test]
fn a_decision_without_counters_tells_when_it_was_made_and_for_which_call() {
    let policy = policy(vec![rule("global", &[], &["9/s"])]);
    let attempt = Attempt { policy: "policy", fields: &[], cost: 1, id: None };
    let mut decision = Decision::for_caller(Some("call-7"));
    assert_eq!(decision.correlation, Some("call-7"));
    decision.open(&policy, Ticket(1), 1, None);
    policy.charge(&attempt, &mut decision.charges).expect("no field is needed");
    decision.refuse(0, Reason::Timeout, at(5));
    assert_eq!((decision.outcome.now, decision.wait()), (at(5), Some(Span::from_secs(1))));
    assert!(decision.blocked().is_none());

    let listing = |until| Listing {
        target: Target::parse("192.0.2.1", &Kinds::default()).expect("it is an address"),
        stance: Stance::Block,
        since: at(0),
        until,
        reason: "".into(),
        show_reason: false,
        author: Author::Configuration,
        times: 0,
    };
    for (until, retry) in [(None, When::Never), (Some(at(30)), When::After(Span::from_micros(20)))] {
        decision.block(Arc::new(listing(until)), at(10));
        assert_eq!((decision.outcome.now, decision.retry, decision.origin), (at(10), retry, Origin::Blocked));
        assert_eq!(decision.blocked().and_then(|listing| listing.until), until);
    }
}
