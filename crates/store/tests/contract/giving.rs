//! Giving back.

use tollgate_core::store::{Forget, Given};

use crate::bench::{Ask, Bench, KINDS, START, at, plan, remaining, wait};

pub(crate) fn what_was_given_back_can_be_taken_again(bench: &dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let plan = plan(kind, kind);
        Ask::one(&plan, "ada", number * 10 + 1).cost(4).take(bench);
        let asked = Ask::one(&plan, "ada", number * 10 + 2).cost(6);
        asked.take(bench);
        assert_eq!(remaining(bench, &plan, "ada", START), 0, "{kind}");
        assert_eq!(asked.give(bench, START), Given::Back, "{kind}");
        assert_eq!(remaining(bench, &plan, "ada", START), 6, "{kind}: the other four stay");
        assert!(Ask::one(&plan, "ada", number * 10 + 3).cost(6).take(bench).allowed, "{kind}");
    }
}

pub(crate) fn a_receipt_is_given_back_once(bench: &dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let plan = plan(kind, kind);
        for ticket in 1..=5 {
            Ask::one(&plan, "ada", number * 10 + ticket).take(bench);
        }
        let asked = Ask::one(&plan, "ada", number * 10 + 2);
        assert_eq!(asked.give(bench, START), Given::Back);
        for _ in 0..3 {
            assert_eq!(asked.give(bench, START), Given::Already);
        }
        assert_eq!(remaining(bench, &plan, "ada", START), 6, "{kind}");
    }
}

pub(crate) fn a_give_after_the_reset_gives_nothing(bench: &dyn Bench) {
    let kinds = ["10/min", "10/min calendar", "10/min sliding", "10/min sliding by 10s", "10/min burst 10"];
    for (number, kind) in (0..).zip(kinds) {
        let plan = plan(kind, kind);
        bench.set_time(START);
        let early = Ask::one(&plan, kind, number * 10 + 1).cost(5);
        early.take(bench);
        let later = at(120);
        bench.set_time(later);
        Ask::one(&plan, kind, number * 10 + 2).at(later).cost(5).take(bench);
        assert_eq!(early.give(bench, START), Given::Back, "{kind}");
        assert_eq!(remaining(bench, &plan, kind, later), 5, "{kind}: that was another window");
    }
}

pub(crate) fn a_give_to_a_forgotten_key_creates_nothing(bench: &dyn Bench) {
    for (ticket, kind) in (1..).zip(KINDS) {
        let plan = plan(kind, kind);
        let asked = Ask::one(&plan, "ada", ticket).cost(5);
        asked.take(bench);
        wait(bench.store().forget(Forget::All)).unwrap();
        assert_eq!(asked.give(bench, START), Given::Back);
        assert_eq!(remaining(bench, &plan, "ada", START), 10, "{kind}");
    }
}

pub(crate) fn tickets_of_one_moment_are_told_apart(bench: &dyn Bench) {
    let plan = plan("client", "10/min");
    for ticket in 1..=3 {
        Ask::one(&plan, "ada", ticket).take(bench);
    }
    for ticket in 1..=3 {
        assert_eq!(Ask::one(&plan, "ada", ticket).give(bench, START), Given::Back);
    }
    assert_eq!(remaining(bench, &plan, "ada", START), 10);
}
