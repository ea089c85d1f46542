//! Ladders: failures that make the next attempt wait, and what a success clears.

use std::sync::Arc;

use tollgate_core::store::Refunded;
use tollgate_core::{Fate, Plan, Span, Timestamp, When};

use crate::contract::bench::{Ask, Bench, START, at, plan, remaining};

const LOGIN: &str = "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m";

/// Fails at a key. Returns whether the attempt was allowed.
fn fail(bench: &dyn Bench, plan: &Arc<Plan>, key: &str, ticket: u64, now: Timestamp) -> bool {
    bench.set_time(now);
    Ask::one(plan, key, ticket).at(now).take(bench).allowed
}

/// The number of counted failures.
fn failures(bench: &dyn Bench, plan: &Arc<Plan>, key: &str, now: Timestamp) -> u64 {
    let reading = Ask::one(plan, key, 0).at(now).cost(0).peek(bench).readings[0];
    reading.capacity - reading.remaining
}

pub(crate) fn failures_climb_the_steps_and_are_forgotten_after_the_last(bench: &dyn Bench) {
    let login = plan("login", LOGIN);
    let mut now = START;
    for (number, pause) in (1..=11).zip([0, 0, 0, 2, 2, 5, 5, 5, 5, 5, 900]) {
        assert!(fail(bench, &login, "ada", number, now), "failure {number}");
        assert_eq!(failures(bench, &login, "ada", now), number);
        let next = now + Span::from_secs(pause);
        if pause > 0 {
            let early = next - Span::from_micros(1);
            bench.set_time(early);
            let refused = Ask::one(&login, "ada", 100 + number).at(early).take(bench);
            assert_eq!(refused.readings[0].when, When::After(Span::from_micros(1)), "failure {number}");
        }
        now = next;
    }
    bench.set_time(now);
    assert_eq!(failures(bench, &login, "ada", now), 0, "fifteen minutes after the last");
    assert!(fail(bench, &login, "ada", 12, now));
    assert_eq!(remaining(bench, &login, "ada", now), 10);
}

pub(crate) fn attempts_that_come_too_early_count_nothing(bench: &dyn Bench) {
    let login = plan("login", "ladder 2 lock 1m forget 1h");
    for ticket in [1, 2] {
        assert!(fail(bench, &login, "ada", ticket, START));
    }
    for secs in 1..60 {
        assert!(!fail(bench, &login, "ada", 10 + secs, at(secs)));
    }
    assert_eq!(failures(bench, &login, "ada", at(59)), 2);
    assert!(fail(bench, &login, "ada", 3, at(60)), "a minute after the last that counted");
    assert!(!fail(bench, &login, "ada", 4, at(119)), "and then it is locked again");
    assert!(fail(bench, &login, "ada", 5, at(120)));
}

pub(crate) fn parallel_guesses_are_counted_before_their_outcomes_are_known(bench: &dyn Bench) {
    let login = plan("login", LOGIN);
    let admitted = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u64)
            .map(|thread| {
                let login = &login;
                scope.spawn(move || {
                    (1..=10).filter(|n| Ask::one(login, "ada", thread * 10 + n).take(bench).allowed).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(admitted, 4, "the fifth has to wait, on whichever thread");
}

pub(crate) fn a_success_clears_what_came_before_it_and_nothing_after(bench: &dyn Bench) {
    let login = plan("login", LOGIN);
    // Three at one time, of which the second succeeds, and one later.
    for ticket in 1..=3 {
        assert!(fail(bench, &login, "ada", ticket, START));
    }
    assert!(fail(bench, &login, "ada", 4, at(1)));
    bench.set_time(at(2));
    assert_eq!(Ask::one(&login, "ada", 2).finish(bench, START, &[Fate::Clear]), Refunded::Done);
    assert_eq!(failures(bench, &login, "ada", at(2)), 2, "the third and the fourth were begun after it");
    assert!(fail(bench, &login, "ada", 5, at(2)), "no step is reached any more");
    assert_eq!(Ask::one(&login, "ada", 2).finish(bench, START, &[Fate::Clear]), Refunded::Already);
    assert_eq!(Ask::one(&login, "ada", 5).finish(bench, at(2), &[Fate::Clear]), Refunded::Done);
    assert_eq!(failures(bench, &login, "ada", at(2)), 0);
    // If the attempt's own failure is gone, the time decides.
    assert!(fail(bench, &login, "bob", 6, at(2)) && fail(bench, &login, "bob", 7, at(3)));
    assert_eq!(Ask::one(&login, "bob", 99).finish(bench, at(2), &[Fate::Clear]), Refunded::Done);
    assert_eq!(failures(bench, &login, "bob", at(3)), 1);
}

pub(crate) fn a_failure_that_is_known_ends_its_ticket(bench: &dyn Bench) {
    let login = plan("login", LOGIN);
    assert!(fail(bench, &login, "ada", 1, START));
    let asked = Ask::one(&login, "ada", 1);
    assert_eq!(asked.finish(bench, START, &[Fate::Keep]), Refunded::Done);
    assert_eq!(failures(bench, &login, "ada", START), 1, "it stays");
    assert_eq!(asked.finish(bench, START, &[Fate::Clear]), Refunded::Already);
    assert_eq!(asked.refund(bench, START), Refunded::Already);
    assert_eq!(failures(bench, &login, "ada", START), 1, "a later call does not change the end");
}

pub(crate) fn a_failure_that_is_known_ends_what_it_held(bench: &dyn Bench) {
    let (login, busy) = (plan("login", LOGIN), plan("busy", "1 at once"));
    let ask = |ticket| Ask::one(&login, "ada", ticket).and(&busy, "ada");
    assert!(ask(1).take(bench).allowed);
    assert!(!ask(2).take(bench).allowed, "one is under way");
    assert_eq!(ask(1).finish(bench, START, &[Fate::Keep, Fate::Keep]), Refunded::Done);
    assert_eq!(failures(bench, &login, "ada", START), 1, "it stays counted");
    assert!(ask(2).take(bench).allowed, "and nothing is under way");
    let both = plan("both", "ladder 4 +2s forget 15m, 1 at once for 1m");
    assert!(Ask::one(&both, "ada", 3).take(bench).allowed);
    assert_eq!(Ask::one(&both, "ada", 3).finish(bench, START, &[Fate::Keep]), Refunded::Done);
    assert!(Ask::one(&both, "ada", 4).take(bench).allowed, "the same where one rule has both");
    assert_eq!(failures(bench, &both, "ada", START), 2);
}

pub(crate) fn a_ticket_is_too_old_once_nothing_of_it_counts(bench: &dyn Bench) {
    let login = plan("login", "ladder 3 +2s forget 1m");
    let hour = plan("hour", "100/hour");
    let ask = |ticket| Ask::one(&login, "ada", ticket);
    assert!(fail(bench, &login, "ada", 1, START) && fail(bench, &login, "ada", 2, START));
    assert!(Ask::one(&login, "bob", 3).and(&hour, "bob").at(START).take(bench).allowed);
    assert_eq!(ask(1).finish(bench, START, &[Fate::Keep]), Refunded::Done);
    assert!(fail(bench, &login, "ada", 4, at(40)), "which keeps the others alive");
    bench.set_time(at(59));
    assert_eq!(ask(1).finish(bench, START, &[Fate::Keep]), Refunded::Already);
    for seconds in [60, 64, 95, 130] {
        bench.set_time(at(seconds));
        for ticket in [1, 2] {
            let ended = ask(ticket).finish(bench, START, &[Fate::Keep]);
            assert_eq!(ended, Refunded::TooOld, "ticket {ticket} after {seconds} s");
        }
    }
    let beside = Ask::one(&login, "bob", 3).and(&hour, "bob");
    assert_eq!(beside.finish(bench, START, &[Fate::Keep, Fate::Keep]), Refunded::Done, "an hour is not over");
    assert_eq!(beside.finish(bench, START, &[Fate::Keep, Fate::Keep]), Refunded::Already);
    bench.set_time(at(3_600));
    assert_eq!(beside.finish(bench, START, &[Fate::Keep, Fate::Keep]), Refunded::TooOld);
}

pub(crate) fn each_charge_has_a_fate_of_its_own_and_all_are_settled_at_once(bench: &dyn Bench) {
    let (own, account, address) = (plan("own", LOGIN), plan("account", LOGIN), plan("address", LOGIN));
    let ask = |ticket| Ask::one(&own, "ada,::1", ticket).and(&account, "ada").and(&address, "::1");
    for ticket in 1..=3 {
        assert!(ask(ticket).take(bench).allowed);
    }
    assert_eq!(ask(3).finish(bench, START, &[Fate::Clear, Fate::Back, Fate::Keep]), Refunded::Done);
    let left = [(&own, "ada,::1"), (&account, "ada"), (&address, "::1")];
    let left = left.map(|(plan, key)| failures(bench, plan, key, START));
    assert_eq!(left, [0, 2, 3]);
}

pub(crate) fn a_failure_older_than_its_own_memory_is_not_refunded(bench: &dyn Bench) {
    for (number, fate) in (0..).zip([Fate::Back, Fate::Clear]) {
        let login = plan(&format!("login {number}"), "ladder 3 +2s forget 1m");
        let first = number * 10 + 1;
        assert!(fail(bench, &login, "ada", first, START));
        assert!(fail(bench, &login, "ada", first + 1, at(40)));
        bench.set_time(at(60));
        let _ = Ask::one(&login, "ada", first).finish(bench, START, &[fate]);
        assert_eq!(failures(bench, &login, "ada", at(60)), 2, "{fate:?}");
        bench.set_time(at(99));
        assert_eq!(Ask::one(&login, "ada", first + 1).finish(bench, at(40), &[fate]), Refunded::Done);
        assert_eq!(failures(bench, &login, "ada", at(99)), 0, "{fate:?}: the last renewed the first");
    }
}

pub(crate) fn failures_beyond_the_last_step_are_counted_and_the_latest_given_back(bench: &dyn Bench) {
    let login = plan("login", "ladder 2 +1s forget 1h");
    for number in 1..=9 {
        assert!(fail(bench, &login, "ada", number, at(number)));
    }
    assert_eq!(failures(bench, &login, "ada", at(9)), 9);
    for (ticket, left) in [(9, 8), (8, 7), (2, 7)] {
        assert_eq!(Ask::one(&login, "ada", ticket).refund(bench, at(ticket)), Refunded::Done);
        assert_eq!(failures(bench, &login, "ada", at(9)), left, "ticket {ticket}");
    }
    assert!(fail(bench, &login, "ada", 10, at(9)), "the last that is left was two seconds ago");
    assert_eq!(Ask::one(&login, "ada", 10).finish(bench, at(9), &[Fate::Clear]), Refunded::Done);
    assert_eq!(failures(bench, &login, "ada", at(9)), 0);
}

pub(crate) fn other_steps_keep_the_failures(bench: &dyn Bench) {
    let (long, short) = (plan("login", LOGIN), plan("login", "ladder 2 lock 10m forget 15m"));
    for ticket in 1..=3 {
        assert!(fail(bench, &long, "ada", ticket, START));
    }
    assert!(!fail(bench, &short, "ada", 4, at(1)), "three failures are more than two");
    let asked = Ask::one(&short, "ada", 3);
    assert_eq!(asked.refund(bench, START), Refunded::Done);
    assert_eq!(failures(bench, &long, "ada", at(1)), 2, "and they are still known by name");
}

pub(crate) fn failures_that_a_success_cleared_do_not_come_back(bench: &mut dyn Bench) {
    let login = plan("login", LOGIN);
    for ticket in 1..=3 {
        assert!(fail(bench, &login, "ada", ticket, START));
    }
    bench.disturb();
    assert_eq!(failures(bench, &login, "ada", START), 3, "each failure is still there");
    assert_eq!(Ask::one(&login, "ada", 2).finish(bench, START, &[Fate::Clear]), Refunded::Done);
    bench.disturb();
    assert_eq!(failures(bench, &login, "ada", START), 1);
    assert_eq!(Ask::one(&login, "ada", 3).finish(bench, START, &[Fate::Keep]), Refunded::Done);
    bench.disturb();
    assert_eq!(Ask::one(&login, "ada", 3).refund(bench, START), Refunded::Already);
    assert_eq!(failures(bench, &login, "ada", START), 1);
}
