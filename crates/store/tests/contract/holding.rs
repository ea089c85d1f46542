//! Holds: what is in flight, by id.

use tollgate_core::Ticket;
use tollgate_core::store::HoldsOrder;

use crate::bench::{Ask, Bench, START, at, ids, order, plan, remaining};

pub(crate) fn a_hold_is_listed_until_it_is_released(bench: &dyn Bench) {
    for kind in ["2 at once", "2 at once for 1m"] {
        let plan = plan(kind, kind);
        assert!(Ask::one(&plan, "ada", 1).id("first").take(bench).allowed);
        assert!(Ask::one(&plan, "ada", 2).id("second").take(bench).allowed);
        assert!(!Ask::one(&plan, "ada", 3).id("third").take(bench).allowed);
        let report = order(bench, &plan, "ada", HoldsOrder::List);
        assert_eq!(ids(&report), ["first", "second"]);
        assert_eq!((report.holds[0].1.ticket, report.holds[0].1.since), (Ticket(1), START));
        assert!(order(bench, &plan, "ada", HoldsOrder::Release("first")).found);
        assert!(!order(bench, &plan, "ada", HoldsOrder::Release("first")).found);
        assert_eq!(ids(&order(bench, &plan, "ada", HoldsOrder::List)), ["second"]);
        assert!(Ask::one(&plan, "ada", 4).id("third").take(bench).allowed);
    }
}

pub(crate) fn an_id_that_is_held_charges_nothing_anywhere(bench: &dyn Bench) {
    let (holds, window) = (plan("holds", "2 at once"), plan("window", "10/min"));
    let asked = Ask::one(&holds, "ada", 1).and(&window, "ada").id("job");
    assert!(asked.take(bench).allowed);
    for ticket in 2..=20 {
        let again = Ask { ticket, ..asked.clone() }.take(bench);
        assert!(again.allowed && again.repeated && again.taken == 0);
    }
    assert_eq!(remaining(bench, &window, "ada", START), 9);
    assert_eq!(ids(&order(bench, &holds, "ada", HoldsOrder::List)), ["job"]);
}

pub(crate) fn a_lease_runs_out_unless_it_is_renewed(bench: &dyn Bench) {
    let plan = plan("holds", "2 at once for 1m");
    Ask::one(&plan, "ada", 1).id("kept").take(bench);
    Ask::one(&plan, "ada", 2).id("lost").take(bench);
    bench.set_time(at(40));
    assert!(order(bench, &plan, "ada", HoldsOrder::Renew("kept")).found);
    bench.set_time(at(59));
    assert!(!Ask::one(&plan, "ada", 3).at(at(59)).take(bench).allowed);
    bench.set_time(at(60));
    assert_eq!(ids(&order(bench, &plan, "ada", HoldsOrder::List)), ["kept"]);
    assert!(Ask::one(&plan, "ada", 4).at(at(60)).take(bench).allowed);
    bench.set_time(at(100));
    assert!(!ids(&order(bench, &plan, "ada", HoldsOrder::List)).contains(&"kept"));
}

pub(crate) fn renewing_an_expired_hold_does_not_revive_it(bench: &dyn Bench) {
    let plan = plan("holds", "1 at once for 1m");
    Ask::one(&plan, "ada", 1).id("job").take(bench);
    bench.set_time(at(60));
    let report = order(bench, &plan, "ada", HoldsOrder::Renew("job"));
    assert!(!report.found && report.holds.is_empty());
    assert!(Ask::one(&plan, "ada", 2).id("other").at(at(60)).take(bench).allowed);
}

pub(crate) fn the_callers_books_replace_all_holds(bench: &dyn Bench) {
    for kind in ["2 at once", "2 at once for 1m"] {
        let plan = plan(kind, kind);
        Ask::one(&plan, "ada", 1).id("stays").take(bench);
        Ask::one(&plan, "ada", 2).id("ends").take(bench);
        let books = ["new", "stays", "too many"];
        let report = order(bench, &plan, "ada", HoldsOrder::Replace(&books, Ticket(3)));
        assert_eq!(ids(&report), books, "whatever the limit says");
        assert_eq!(report.holds[1].1.ticket, Ticket(1));
        assert!(!Ask::one(&plan, "ada", 4).take(bench).allowed);
        let emptied = order(bench, &plan, "ada", HoldsOrder::Replace(&[], Ticket(5)));
        assert!(emptied.holds.is_empty());
        assert_eq!(remaining(bench, &plan, "ada", START), 2);
        let begun = order(bench, &plan, "bob", HoldsOrder::Replace(&["job"], Ticket(6)));
        assert_eq!(ids(&begun), ["job"], "also where nothing was held");
        assert_eq!(remaining(bench, &plan, "bob", START), 1);
    }
}

pub(crate) fn orders_about_holds_elsewhere_change_nothing(bench: &dyn Bench) {
    let window = plan("window", "10/min");
    Ask::one(&window, "ada", 1).cost(4).take(bench);
    for wrong in [
        HoldsOrder::List,
        HoldsOrder::Renew("job"),
        HoldsOrder::Release("job"),
        HoldsOrder::Replace(&["job"], Ticket(2)),
    ] {
        let report = order(bench, &window, "ada", wrong);
        assert!(!report.found && report.holds.is_empty());
    }
    assert_eq!(remaining(bench, &window, "ada", START), 6);
}
