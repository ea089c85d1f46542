//! Takes, peeks, and forgetting.

use tollgate_core::store::{Counter, Forget};
use tollgate_core::{Charges, Outcome, Span, StoreError, Ticket, When};

use crate::contract::bench::{Ask, Bench, KINDS, START, at, plan, remaining, wait};

pub(crate) fn admits_up_to_the_limit_and_no_more(bench: &dyn Bench) {
    for kind in KINDS {
        let plan = plan(kind, kind);
        for ticket in 1..=10 {
            let outcome = Ask::one(&plan, "ada", ticket).take(bench);
            assert!(outcome.allowed && outcome.taken == 1, "{kind}, number {ticket}");
            assert_eq!(outcome.readings[0].remaining, 10 - ticket, "{kind}");
        }
        let refused = Ask::one(&plan, "ada", 11).take(bench);
        assert!(!refused.allowed && refused.taken == 0, "{kind} admits an eleventh");
        assert!(Ask::one(&plan, "bob", 12).take(bench).allowed, "{kind}: another key is another count");
    }
}

pub(crate) fn a_retry_time_waited_out_admits_and_a_microsecond_less_does_not(bench: &dyn Bench) {
    for kind in KINDS {
        let plan = plan(kind, kind);
        bench.set_time(START);
        Ask::one(&plan, "ada", 1).take(bench);
        bench.set_time(at(1));
        Ask::one(&plan, "ada", 2).cost(9).take(bench);
        let refused = Ask::one(&plan, "ada", 3).at(at(1)).cost(2).take(bench);
        let longest = refused.readings.iter().map(|reading| reading.when).max();
        let Some(When::After(span)) = longest else { continue };
        let free = at(1) + span;
        bench.set_time(free - Span::from_micros(1));
        assert!(!Ask::one(&plan, "ada", 4).at(at(1)).cost(2).take(bench).allowed, "{kind}: too early");
        bench.set_time(free);
        assert!(Ask::one(&plan, "ada", 5).at(at(1)).cost(2).take(bench).allowed, "{kind}: waited {span}");
    }
}

pub(crate) fn a_peek_says_what_a_take_would_and_takes_nothing(bench: &dyn Bench) {
    for kind in KINDS {
        let plan = plan(kind, kind);
        Ask::one(&plan, "ada", 1).cost(4).take(bench);
        for cost in [1, 6, 7, 11] {
            let look = Ask::one(&plan, "ada", 2).cost(cost).peek(bench);
            assert_eq!(look.allowed, cost <= 6, "{kind}, {cost}");
            assert_eq!(look.taken, 0);
            assert_eq!(look.readings[0].remaining, 6, "{kind}");
        }
        let asked = Ask::one(&plan, "ada", 3).cost(7);
        assert_eq!(asked.peek(bench), asked.take(bench), "{kind}: both refuse alike");
    }
}

pub(crate) fn no_charges_conform_and_tell_the_time(bench: &dyn Bench) {
    let nothing = Charges::new(Ticket(1), 1, None);
    for now in [at(1), at(2), START] {
        bench.set_time(now);
        assert_eq!(wait(bench.store().now()), Ok(now));
        // An earlier outcome leaves nothing behind.
        let mut outcome = Ask::one(&plan("old", "10/min"), "ada", 1).at(now).peek(bench);
        wait(bench.store().peek(&nothing, &mut outcome)).unwrap();
        assert_eq!(outcome, Outcome { now, allowed: true, ..Outcome::default() });
        let mut outcome = Ask::one(&plan("old", "10/min"), "ada", 1).at(now).peek(bench);
        wait(bench.store().take(&nothing, &mut outcome)).unwrap();
        assert_eq!(outcome, Outcome { now, allowed: true, ..Outcome::default() });
    }
}

pub(crate) fn a_cost_of_nothing_never_creates_state(bench: &dyn Bench) {
    for kind in KINDS {
        let plan = plan(kind, kind);
        let before = Ask::one(&plan, "ada", 1).at(at(1)).cost(0);
        bench.set_time(at(1));
        let fresh = before.take(bench);
        assert!(fresh.allowed && fresh.taken == 0, "{kind}");
        bench.set_time(at(2));
        // A window that had already started would keep its end.
        let taken = Ask::one(&plan, "ada", 2).at(at(2)).take(bench);
        bench.set_time(at(2));
        let other = Ask::one(&plan, "bob", 3).at(at(2)).take(bench);
        assert_eq!(taken.readings, other.readings, "{kind}");
    }
}

pub(crate) fn a_cost_above_the_capacity_never_passes(bench: &dyn Bench) {
    for kind in KINDS {
        let plan = plan(kind, kind);
        let outcome = Ask::one(&plan, "ada", 1).cost(11).take(bench);
        assert!(!outcome.allowed, "{kind}");
        assert_eq!(outcome.readings[0].when, When::Never, "{kind}");
    }
}

pub(crate) fn refused_client_leaves_the_shared_limit_untouched(bench: &dyn Bench) {
    for kind in KINDS {
        let shared = plan(&format!("shared {kind}"), kind);
        let client = plan("client", "1/hour");
        for ticket in 1..=5 {
            let asked = Ask::one(&shared, kind, ticket).and(&client, kind);
            assert_eq!(asked.take(bench).allowed, ticket == 1, "{kind}");
            let turned = Ask::one(&client, kind, 10 + ticket).and(&shared, kind);
            assert!(!turned.take(bench).allowed, "{kind}: in whichever order");
        }
        assert_eq!(remaining(bench, &shared, kind, START), 9, "{kind}");
    }
}

pub(crate) fn an_observed_charge_never_refuses(bench: &dyn Bench) {
    let (watched, counted) = (plan("watched", "1/min"), plan("counted", "5/min"));
    for ticket in 1..=6 {
        let mut charges = Ask::one(&counted, "ada", ticket).charges();
        charges.push(&watched, "ada", false);
        let mut outcome = Outcome::default();
        wait(bench.store().take(&charges, &mut outcome)).unwrap();
        assert_eq!(outcome.allowed, ticket <= 5);
        assert_eq!(outcome.taken, [0, 0b11, 1, 1, 1, 1, 0][ticket as usize]);
    }
}

pub(crate) fn a_number_in_the_attempt_is_bounded_and_uses_nothing_up(bench: &dyn Bench) {
    let (bounded, counted) = (plan("bounded", "4 recipients per attempt"), plan("counted", "9/min"));
    let take = |ticket, recipients: Option<u64>| {
        let mut charges = Ask::one(&bounded, "ada", ticket).and(&counted, "ada").charges();
        if let Some(recipients) = recipients {
            charges.push_amount("recipients", recipients);
        }
        charges.push_amount("parts", 100);
        let mut outcome = Outcome::default();
        wait(bench.store().take(&charges, &mut outcome)).unwrap();
        outcome
    };
    for (ticket, recipients) in (1..).zip([Some(4), None, Some(0), Some(4), Some(3)]) {
        let outcome = take(ticket, recipients);
        assert!(outcome.allowed && outcome.taken == 0b11, "{recipients:?}");
        assert_eq!(outcome.readings[0].remaining, 4 - recipients.unwrap_or(0), "of this attempt alone");
    }
    let refused = take(9, Some(5));
    assert!(!refused.allowed && refused.taken == 0);
    assert_eq!((refused.readings[0].when, refused.readings[0].remaining), (When::Never, 0));
    assert_eq!(remaining(bench, &counted, "ada", START), 4, "the refused one took nothing elsewhere");
}

pub(crate) fn equal_keys_of_two_rules_count_apart(bench: &dyn Bench) {
    let (one, other) = (plan("one", "1/min"), plan("other", "1/min"));
    assert!(Ask::one(&one, "ada", 1).take(bench).allowed);
    assert!(Ask::one(&other, "ada", 2).take(bench).allowed);
    assert!(!Ask::one(&one, "ada", 3).take(bench).allowed);
}

pub(crate) fn a_calendar_that_does_not_cover_the_time_is_stale(bench: &dyn Bench) {
    let (daily, other) = (plan("daily", "10/day calendar"), plan("other", "10/min"));
    Ask::one(&daily, "ada", 1).take(bench);
    let later = at(3 * 86_400);
    bench.set_time(later);
    let stale = Err(StoreError::Stale { now: later });
    assert_eq!(Ask::one(&daily, "ada", 2).try_take(bench), stale);
    assert_eq!(Ask::one(&other, "ada", 3).and(&daily, "ada").try_take(bench), stale);
    assert_eq!(remaining(bench, &other, "ada", later), 10, "nothing was done");
    assert!(Ask::one(&daily, "ada", 4).at(later).take(bench).allowed);
    // Two whole periods are covered: the one around the caller's time and the next.
    bench.set_time(later + Span::from_secs(86_400));
    assert!(Ask::one(&daily, "ada", 5).at(later).take(bench).allowed);
}

pub(crate) fn a_calendar_period_ends_at_its_boundary(bench: &dyn Bench) {
    let minute = plan("minute", "10/min calendar");
    Ask::one(&minute, "ada", 1).cost(10).take(bench);
    // The start is five seconds into a minute.
    bench.set_time(at(55) - Span::from_micros(1));
    assert!(!Ask::one(&minute, "ada", 2).at(START).take(bench).allowed);
    bench.set_time(at(55));
    let outcome = Ask::one(&minute, "ada", 3).at(START).take(bench);
    assert!(outcome.allowed);
    assert_eq!(outcome.readings[0].reset, Some(at(115)));
}

pub(crate) fn a_forgotten_key_starts_afresh(bench: &dyn Bench) {
    for kind in KINDS {
        let plan = plan(kind, kind);
        for key in ["ada", "bob"] {
            Ask::one(&plan, key, 1).cost(10).take(bench);
        }
        wait(bench.store().forget(Forget::Key(Counter { plan: &plan, key: "ada" }))).unwrap();
        assert_eq!(remaining(bench, &plan, "ada", START), 10, "{kind}");
        assert_eq!(remaining(bench, &plan, "bob", START), 0, "{kind}");
        assert!(Ask::one(&plan, "ada", 2).cost(10).take(bench).allowed, "{kind}");
    }
}

pub(crate) fn forgetting_a_rule_leaves_the_others(bench: &dyn Bench) {
    let plans = KINDS.map(|kind| plan(kind, kind));
    for (ticket, plan) in (1..).zip(&plans) {
        for key in ["ada", "bob"] {
            Ask::one(plan, key, ticket).cost(10).take(bench);
        }
    }
    wait(bench.store().forget(Forget::Rule(plans[0].rule()))).unwrap();
    for plan in &plans {
        let expected = if plan.rule() == plans[0].rule() { 10 } else { 0 };
        assert_eq!(remaining(bench, plan, "ada", START), expected, "{plan}");
        assert_eq!(remaining(bench, plan, "bob", START), expected, "{plan}");
    }
    wait(bench.store().forget(Forget::All)).unwrap();
    assert!(plans.iter().all(|plan| remaining(bench, plan, "ada", START) == 10));
}

pub(crate) fn a_clock_that_goes_back_denies_no_key_for_longer_than_the_period(bench: &dyn Bench) {
    for kind in ["10/min", "10/min calendar", "10/min sliding", "10/min sliding by 10s", "10/min burst 10"] {
        let plan = plan(kind, kind);
        let ahead = at(86_400);
        bench.set_time(ahead);
        Ask::one(&plan, "ada", 1).at(ahead).cost(10).take(bench);
        bench.set_time(START);
        assert!(!Ask::one(&plan, "ada", 2).take(bench).allowed, "{kind}: the count is kept");
        // A slot is freed late, by up to its own length.
        let free = at(70);
        bench.set_time(free);
        assert!(Ask::one(&plan, "ada", 3).at(free).cost(10).take(bench).allowed, "{kind}");
    }
}

pub(crate) fn many_takes_that_lie_ahead_of_the_clock_count_from_now(bench: &mut dyn Bench) {
    for (kind, free) in
        [("50/min sliding", 60), ("50/min sliding by 1s", 62), ("ladder 50 lock 1m forget 1m", 60)]
    {
        let plan = plan(kind, kind);
        for ticket in 1..=30 {
            bench.set_time(at(600 + ticket));
            assert!(Ask::one(&plan, "ada", ticket).at(at(600 + ticket)).take(bench).allowed, "{kind}");
        }
        bench.set_time(START);
        assert!(Ask::one(&plan, "ada", 31).take(bench).allowed, "{kind}");
        bench.disturb();
        assert_eq!(remaining(bench, &plan, "ada", START), 19, "{kind}");
        bench.set_time(at(59));
        assert_eq!(remaining(bench, &plan, "ada", at(59)), 19, "{kind}");
        bench.set_time(at(free));
        assert_eq!(remaining(bench, &plan, "ada", at(free)), 50, "{kind}");
    }
}

pub(crate) fn a_clock_that_jumps_forward_frees_everything_that_ages(bench: &dyn Bench) {
    for kind in KINDS {
        let plan = plan(kind, kind);
        bench.set_time(START);
        Ask::one(&plan, "ada", 1).cost(10).take(bench);
        let ahead = at(400 * 86_400);
        bench.set_time(ahead);
        let ages = !matches!(kind, "10 at once" | "10 in total");
        assert_eq!(remaining(bench, &plan, "ada", ahead), if ages { 10 } else { 0 }, "{kind}");
    }
}
