//! Refunds.

use tollgate_core::store::{Counter, Forget, Refunded};
use tollgate_core::{Charges, Outcome, Span, Ticket};

use crate::contract::bench::{Ask, Bench, KINDS, START, at, page, plan, remaining, wait};

pub(crate) fn a_refunded_cost_can_be_taken_again(bench: &dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let plan = plan(kind, kind);
        Ask::one(&plan, "ada", number * 10 + 1).cost(4).take(bench);
        let asked = Ask::one(&plan, "ada", number * 10 + 2).cost(6);
        asked.take(bench);
        assert_eq!(remaining(bench, &plan, "ada", START), 0, "{kind}");
        assert_eq!(asked.refund(bench, START), Refunded::Done, "{kind}");
        assert_eq!(remaining(bench, &plan, "ada", START), 6, "{kind}: the other four stay");
        assert!(Ask::one(&plan, "ada", number * 10 + 3).cost(6).take(bench).allowed, "{kind}");
    }
}

pub(crate) fn a_refund_returns_the_units_of_an_observed_charge(bench: &dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let plan = plan(kind, kind);
        let mut charges = Charges::new(Ticket(number), 4, None);
        charges.push(&plan, "ada", false);
        charges.calendar = charges.periods().map(|period| page(period, START)).collect();
        wait(bench.store().take(&charges, &mut Outcome::default())).unwrap();
        assert_eq!(remaining(bench, &plan, "ada", START), 6, "{kind}");
        assert_eq!(wait(bench.store().refund(&charges, START)), Ok(Refunded::Done), "{kind}");
        assert_eq!(remaining(bench, &plan, "ada", START), 10, "{kind}");
    }
}

pub(crate) fn a_receipt_is_given_back_once(bench: &dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let plan = plan(kind, kind);
        for ticket in 1..=5 {
            Ask::one(&plan, "ada", number * 10 + ticket).take(bench);
        }
        let asked = Ask::one(&plan, "ada", number * 10 + 2);
        assert_eq!(asked.refund(bench, START), Refunded::Done);
        for _ in 0..3 {
            assert_eq!(asked.refund(bench, START), Refunded::Already);
        }
        assert_eq!(remaining(bench, &plan, "ada", START), 6, "{kind}");
    }
}

pub(crate) fn a_take_without_an_answer_is_undone_where_its_ticket_is_kept(bench: &dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let plan = plan(kind, kind);
        let kept = plan.limits().iter().all(|limit| limit.keeps_tickets());
        Ask::one(&plan, "ada", number * 10 + 1).cost(4).take(bench);
        let lost = Ask::one(&plan, "ada", number * 10 + 2).cost(6);
        // A ticket that took nothing takes nothing away.
        lost.retract(bench);
        assert_eq!(remaining(bench, &plan, "ada", START), 6, "{kind}");
        lost.take(bench);
        for _ in 0..2 {
            lost.retract(bench);
            let left = if kept { 6 } else { 0 };
            assert_eq!(remaining(bench, &plan, "ada", START), left, "{kind}");
        }
    }
    assert_eq!(wait(bench.store().retract(&Charges::new(Ticket(1), 1, None))), Ok(()), "no charges");
}

pub(crate) fn a_refund_after_the_reset_refunds_nothing(bench: &dyn Bench) {
    let kinds = ["10/min", "10/min calendar", "10/min sliding", "10/min sliding by 10s", "10/min burst 10"];
    for (number, kind) in (0..).zip(kinds) {
        let plan = plan(kind, kind);
        bench.set_time(START);
        let early = Ask::one(&plan, kind, number * 10 + 1).cost(5);
        early.take(bench);
        let later = at(120);
        bench.set_time(later);
        Ask::one(&plan, kind, number * 10 + 2).at(later).cost(5).take(bench);
        assert_eq!(early.refund(bench, START), Refunded::Done, "{kind}");
        assert_eq!(remaining(bench, &plan, kind, later), 5, "{kind}: that was another window");
    }
}

pub(crate) fn a_refund_to_a_reset_key_takes_nothing_from_later_charges(bench: &dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let plan = plan(kind, kind);
        let other = self::plan(&format!("other {kind}"), kind);
        let counter = Counter { plan: &plan, key: "ada" };
        for (way, forget) in (0..).zip([Forget::Key(counter), Forget::Rule(kind), Forget::All]) {
            let start = at(number * 10_000 + way * 1_000);
            bench.set_time(start);
            let early = Ask::one(&plan, "ada", number * 10 + way * 2 + 1).at(start).cost(4);
            let elsewhere = Ask::one(&other, "ada", 1_000 + number * 10 + way * 2 + 1).at(start).cost(4);
            assert!(early.take(bench).allowed && elsewhere.take(bench).allowed);
            wait(bench.store().forget(forget)).unwrap();
            let later = start + Span::from_micros(1);
            bench.set_time(later);
            assert!(Ask::one(&plan, "ada", number * 10 + way * 2 + 2).at(later).cost(6).take(bench).allowed);
            assert_eq!(early.refund(bench, start), Refunded::TooOld, "{kind}");
            assert_eq!(remaining(bench, &plan, "ada", later), 4, "{kind}");
            if way < 2 {
                assert_eq!(
                    elsewhere.refund(bench, start),
                    Refunded::Done,
                    "{kind}: nothing was forgotten there"
                );
            }
            wait(bench.store().forget(Forget::All)).unwrap();
        }
    }
}

pub(crate) fn tickets_of_one_moment_are_told_apart(bench: &dyn Bench) {
    let plan = plan("client", "10/min");
    for ticket in 1..=3 {
        Ask::one(&plan, "ada", ticket).take(bench);
    }
    for ticket in 1..=3 {
        assert_eq!(Ask::one(&plan, "ada", ticket).refund(bench, START), Refunded::Done);
    }
    assert_eq!(remaining(bench, &plan, "ada", START), 10);
}

pub(crate) fn parts_of_a_ticket_are_given_back_once_each(bench: &mut dyn Bench) {
    for (number, kind) in (0..).zip(KINDS) {
        let names = ["one", "two", "three"].map(|name| format!("{name} {kind}"));
        let [one, two, three] = names.map(|name| plan(&name, kind));
        let left = |bench: &dyn Bench| [&one, &two, &three].map(|plan| remaining(bench, plan, "ada", START));
        let ticket = 500 + number;
        let whole = Ask::one(&one, "ada", ticket).and(&two, "ada").and(&three, "ada").cost(4);
        assert!(whole.take(bench).allowed);
        let middle = Ask::one(&two, "ada", ticket).cost(4);
        assert_eq!(middle.refund(bench, START), Refunded::Done, "{kind}");
        assert_eq!(left(bench), [6, 10, 6], "{kind}: nothing else came back");
        assert_eq!(middle.refund(bench, START), Refunded::Already, "{kind}");
        bench.disturb();
        assert_eq!(middle.refund(bench, START), Refunded::Already, "{kind}: after that, too");
        let other = Ask::one(&two, "ada", 600 + number).cost(3);
        assert!(other.take(bench).allowed);
        let first = Ask::one(&one, "ada", ticket).and(&two, "ada").cost(4);
        assert_eq!(first.refund(bench, START), Refunded::Done, "{kind}: one of the two was not yet");
        assert_eq!(left(bench), [10, 7, 6], "{kind}: the other is not given twice");
        assert_eq!(whole.refund(bench, START), Refunded::Done, "{kind}: the last");
        assert_eq!(left(bench), [10, 7, 10], "{kind}");
        for again in [&whole, &first, &middle] {
            assert_eq!(again.refund(bench, START), Refunded::Already, "{kind}");
        }
        assert_eq!(left(bench), [10, 7, 10], "{kind}");
    }
}

pub(crate) fn without_charges_there_is_nothing_to_refund(bench: &dyn Bench) {
    let none = Charges::new(Ticket(1), 1, None);
    for _ in 0..2 {
        assert_eq!(wait(bench.store().refund(&none, START)), Ok(Refunded::TooOld));
    }
}
