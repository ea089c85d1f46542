//! What becomes of a charge that is refunded, kept or undone, kind by kind.

use crate::support::{Ask, Bench, any_limit, any_trace, at, limit, page, plan};
use proptest::prelude::*;
use tollgate_core::limit::Draft;
use tollgate_core::{Charges, Fate, Limit, OutcomeClass, OutcomeClasses, Reading, State, Ticket, When};

/// Kinds of limits, and whether a state keeps the ticket of each take, and whether takes are known or never
/// evicted.
const KINDS: [(&str, bool, bool); 9] = [
    ("10/min", false, false),
    ("10/min calendar", false, false),
    ("10/min sliding", true, true),
    ("10/min sliding by 10s", false, false),
    ("10/min burst 10", false, false),
    ("10 at once", true, true),
    ("ladder 10 lock 1m forget 1m", true, true),
    ("10 in total", false, true),
    ("10 recipients per attempt", false, true),
];

/// How much is left after a take of 4 by ticket 1 that is ended like this.
fn left_after(text: &str, end: impl FnOnce(&mut Charges<'_>, &mut Bench)) -> u64 {
    let mut bench = Bench::one(text);
    bench.settle(Ask::by(4, 1), at(0));
    let plan = plan("rule", &[text]);
    let mut charges = Charges::new(Ticket(1), 4, None);
    charges.push_taken(&plan, "key", 4, Fate::Back);
    charges.calendar = charges.periods().map(|period| page(period, at(0))).collect();
    end(&mut charges, &mut bench);
    bench.look(Ask::of(0), at(0)).readings[0].remaining
}

fn ended(text: &str, fate: Fate) -> u64 {
    left_after(text, |charges, bench| {
        let plan = plan("rule", &[text]);
        let mut taken = Charges::new(Ticket(1), 4, None);
        taken.push_taken(&plan, "key", 4, fate);
        taken.calendar = charges.calendar.clone();
        taken.refund(&mut bench.states, at(0), at(0));
    })
}

#[test]
fn kinds_say_what_their_states_know() {
    for (text, keeps_tickets, names_takes) in KINDS {
        let limit = limit(text);
        assert_eq!((limit.keeps_tickets(), limit.names_takes()), (keeps_tickets, names_takes), "{text}");
        assert_eq!(limit.consumes(), !text.contains("per attempt"), "{text}");
    }
}

#[test]
fn a_failure_that_is_kept_stays_counted_and_ends_only_holds() {
    for (text, ..) in KINDS.into_iter().filter(|(text, ..)| !text.contains("per attempt")) {
        let left = if text.contains("at once") { 10 } else { 6 };
        assert_eq!(ended(text, Fate::Keep), left, "{text}");
        assert_eq!(ended(text, Fate::Back), 10, "{text}");
        assert_eq!(ended(text, Fate::Clear), 10, "{text}");
        assert_eq!(ended(text, Fate::Part(1)), 7, "{text}");
        assert_eq!(ended(text, Fate::Part(9)), 10, "{text}: no more than was taken");
    }
}

#[test]
fn a_charge_frees_something_unless_it_is_kept_whole() {
    for (text, fate, frees) in [
        ("10/min", Fate::Back, true),
        ("10/min", Fate::Clear, true),
        ("10/min", Fate::Keep, false),
        ("10/min", Fate::Part(0), false),
        ("10/min", Fate::Part(1), true),
        ("10 at once", Fate::Keep, true),
    ] {
        let plan = plan("rule", &[text]);
        let mut charges = Charges::new(Ticket(1), 4, None);
        charges.push_taken(&plan, "key", 4, fate);
        assert_eq!(charges.iter().next().map(|charge| charge.frees()), Some(frees), "{text} {fate:?}");
    }
}

#[test]
fn a_take_without_an_answer_is_undone_where_its_ticket_is_kept() {
    for (text, keeps_tickets, _) in KINDS.into_iter().filter(|(text, ..)| !text.contains("per attempt")) {
        let left = left_after(text, |charges, bench| charges.retract(&mut bench.states, at(0)));
        assert_eq!(left, if keeps_tickets { 10 } else { 6 }, "{text}");
        let left = left_after(text, |charges, bench| {
            charges.ticket = Ticket(2);
            charges.retract(&mut bench.states, at(0));
        });
        assert_eq!(left, 6, "{text}: another ticket's");
    }
}

#[test]
fn a_key_is_blocked_until_the_very_moment_it_conforms() {
    for (text, until) in [
        ("1/50us", 50),
        ("1/50us sliding", 50),
        ("1/50us burst 1", 50),
        ("ladder 1 lock 50us forget 70us", 50),
        ("1 at once for 50us", 50),
        ("1/min calendar", crate::support::CALENDAR_MICROS),
    ] {
        let mut bench = Bench::one(text);
        assert!(bench.settle(Ask::by(1, 1), at(0)).allowed);
        let (limit, state) = (bench.limit(0), &bench.states[0]);
        assert!(limit.denies(state, at(until - 1)), "{text}");
        assert!(!limit.denies(state, at(until)), "{text}");
    }
}

#[test]
fn an_entry_that_has_aged_out_blocks_nothing_beside_one_that_counts() {
    let mut bench = Bench::one("2/50us sliding");
    for (ticket, moment) in [(1, 0), (2, 10)] {
        assert!(bench.settle(Ask::by(1, ticket), at(moment)).allowed);
    }
    let (limit, state) = (bench.limit(0), &bench.states[0]);
    assert!(limit.denies(state, at(49)));
    assert!(!limit.denies(state, at(50)), "the state is not fresh, but the first entry counts no more");
}

#[test]
fn a_set_of_outcomes_has_what_was_put_in_and_all_that_no_set_can_name() {
    let some: OutcomeClasses =
        [0, 63, 64, 200, OutcomeClasses::END - 1].map(OutcomeClass).into_iter().collect();
    for class in [0, 63, 64, 200, OutcomeClasses::END - 1, OutcomeClasses::END, u16::MAX] {
        assert!(some.contains(OutcomeClass(class)), "{class}");
    }
    for class in [1, 62, 65, 199, 201, OutcomeClasses::END - 2] {
        assert!(!some.contains(OutcomeClass(class)), "{class}");
    }
    assert!(OutcomeClasses::default().contains(OutcomeClass::UNKNOWN));
}

proptest! {
    #[test]
    fn a_limit_that_is_made_anew_keeps_its_state(text in any_limit(), cost in 1..4_u64, later in 0..30_u64) {
        let mut bench = Bench::one(&text);
        bench.settle(Ask::by(cost, 1), at(0));
        let (limit, state) = (bench.limit(0).clone(), bench.states[0].clone());
        prop_assert_eq!(limit.adopt(&limit.clone(), state.clone(), at(later)), state);
    }
}

#[test]
fn a_key_with_room_for_one_more_is_not_blocked_and_a_fresh_one_never_is() {
    for text in [
        "2/50us",
        "2/min calendar",
        "2/50us sliding",
        "2/50us sliding by 10us",
        "2/50us burst 2",
        "2 at once for 50us",
        "2 at once",
        "ladder 2 lock 50us forget 70us",
        "2 in total",
    ] {
        let mut bench = Bench::one(text);
        assert!(!bench.limit(0).denies(&bench.states[0], at(0)), "{text}: it is fresh");
        for (ticket, blocked) in [(1, false), (2, true)] {
            assert!(bench.settle(Ask::by(1, ticket), at(0)).allowed, "{text}");
            assert_eq!(bench.limit(0).denies(&bench.states[0], at(1)), blocked, "{text} after {ticket}");
        }
    }
    let bound = limit("2 recipients per attempt");
    assert!(!bound.denies(&State::Fresh, at(0)), "each attempt is bounded by itself");
}

/// Each step of a settlement by itself: a store that keeps its states elsewhere takes them one by one.
fn step_by_step(limit: &Limit, state: &mut State, draft: &Draft<'_>) -> Reading {
    limit.freshen(state, draft);
    let when = limit.when(state, draft);
    if when == When::Now {
        limit.take(state, draft);
    }
    limit.read(state, when, draft)
}

proptest! {
    #[test]
    fn a_limit_that_is_settled_step_by_step_ends_as_when_it_is_settled_at_once(
        text in any_limit(), trace in any_trace(),
    ) {
        let mut bench = Bench::one(&text);
        let (limit, mut state) = (bench.limit(0).clone(), State::Fresh);
        let plan = bench.plans[0].0.clone();
        let mut now = 0;
        for (ticket, (wait, cost)) in (1..).zip(trace) {
            now += wait;
            let mut charges = Charges::new(Ticket(ticket), cost, None);
            charges.push(&plan, "key", true);
            charges.calendar = charges.periods().map(|period| page(period, at(now))).collect();
            let draft = charges.draft(at(now)).expect("the pages cover now");
            let reading = step_by_step(&limit, &mut state, &draft);
            prop_assert_eq!(reading, bench.settle(Ask::by(cost, ticket), at(now)).readings[0]);
            prop_assert_eq!(&state, &bench.states[0]);
        }
    }

    #[test]
    fn a_state_that_is_written_out_and_collected_again_is_the_same(
        text in any_limit(), trace in any_trace(),
    ) {
        let mut bench = Bench::one(&text);
        bench.run(&trace, 0);
        let collected = match &bench.states[0] {
            State::Tally(tally) => Some(*tally).into(),
            State::Level(level) => Some(*level).into(),
            State::Log(log) => State::Log(Box::new(log.entries().collect())),
            State::Slots(slots) => State::Slots(Box::new(slots.counts().collect())),
            State::Failures(failures) => State::Failures(Box::new(failures.iter().collect())),
            State::Holds(holds) => {
                State::Holds(Box::new(holds.iter().map(|(id, hold)| (id.into(), hold)).collect()))
            }
            other => other.clone(),
        };
        prop_assert_eq!(&collected, &bench.states[0]);
    }
}
