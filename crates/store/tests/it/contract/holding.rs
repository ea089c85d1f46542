//! Holds on what is in flight, by id.

use tollgate_core::store::HoldsOrder;
use tollgate_core::{Span, Ticket};

use crate::contract::bench::{Ask, Bench, START, at, ids, order, plan, remaining};

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

pub(crate) fn an_id_that_is_held_at_one_of_two_rules_is_decided_by_all_limits(bench: &dyn Bench) {
    let (free, used) = (plan("free", "2 at once"), plan("used", "2 at once, 1/min"));
    for (ticket, key) in (1..).step_by(2).zip(["ada", "bob", "cleo", "dan"]) {
        assert!(Ask::one(&used, key, ticket).id("job").take(bench).allowed);
        let both = Ask::one(&free, key, ticket + 1).and(&used, key).id("job");
        for outcome in [both.peek(bench), both.take(bench)] {
            assert_eq!((outcome.allowed, outcome.repeated, outcome.taken), (false, false, 0));
        }
    }
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

pub(crate) fn reconciling_replaces_all_holds_by_the_callers_list(bench: &dyn Bench) {
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
        HoldsOrder::RenewMany(&["job"]),
        HoldsOrder::ReleaseMany(&["job"]),
        HoldsOrder::Claim(&[("job", 1)], Ticket(2)),
        HoldsOrder::Replace(&["job"], Ticket(2)),
    ] {
        let report = order(bench, &window, "ada", wrong);
        assert!(!report.found && report.holds.is_empty());
    }
    assert_eq!(remaining(bench, &window, "ada", START), 6);
}

pub(crate) fn many_are_renewed_at_once_and_none_is_revived(bench: &dyn Bench) {
    let plan = plan("holds", "5 at once for 1m");
    for (ticket, id) in (1..).zip(["kept", "lost", "other"]) {
        Ask::one(&plan, "ada", ticket).id(id).take(bench);
    }
    bench.set_time(at(40));
    let report = order(bench, &plan, "ada", HoldsOrder::RenewMany(&["other", "kept", "unknown", "kept"]));
    assert_eq!((ids(&report), report.found), (vec!["kept", "other"], false), "only those that were named");
    assert_eq!((report.holds[0].1.since, report.holds[0].1.renewed), (START, at(40)));
    bench.set_time(at(60));
    assert_eq!(ids(&order(bench, &plan, "ada", HoldsOrder::List)), ["kept", "other"]);
    let report = order(bench, &plan, "ada", HoldsOrder::RenewMany(&["lost"]));
    assert!(!report.found && report.holds.is_empty(), "it has run out");
    assert!(order(bench, &plan, "ada", HoldsOrder::RenewMany(&["kept", "other"])).found);
    bench.set_time(at(119));
    assert_eq!(remaining(bench, &plan, "ada", at(119)), 3);
    bench.set_time(at(120));
    assert_eq!(remaining(bench, &plan, "ada", at(120)), 5);
    assert!(order(bench, &plan, "ada", HoldsOrder::List).holds.is_empty());
}

pub(crate) fn many_are_released_at_once(bench: &dyn Bench) {
    for kind in ["5 at once", "5 at once for 1m"] {
        let plan = plan(kind, kind);
        for (ticket, id) in (1..).zip(["one", "two", "three"]) {
            Ask::one(&plan, "ada", ticket).id(id).take(bench);
        }
        let report = order(bench, &plan, "ada", HoldsOrder::ReleaseMany(&["three", "one", "unknown"]));
        assert_eq!((ids(&report), report.found), (vec!["one", "three"], false), "{kind}");
        assert_eq!(ids(&order(bench, &plan, "ada", HoldsOrder::List)), ["two"], "{kind}");
        assert_eq!(remaining(bench, &plan, "ada", START), 4, "{kind}");
        assert!(order(bench, &plan, "ada", HoldsOrder::ReleaseMany(&["two"])).found, "{kind}");
        assert_eq!(remaining(bench, &plan, "ada", START), 5, "{kind}");
        let report = order(bench, &plan, "bob", HoldsOrder::ReleaseMany(&["one"]));
        assert!(!report.found && report.holds.is_empty(), "{kind}: nothing was held there");
    }
}

pub(crate) fn many_leases_that_lie_ahead_of_the_clock_end_one_lease_from_now(bench: &mut dyn Bench) {
    let plan = plan("holds", "100 at once for 1m");
    let all: Vec<String> = (0..40).map(|number| format!("id {number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bench.set_time(at(600));
    order(bench, &plan, "ada", HoldsOrder::Replace(&all, Ticket(1)));
    bench.set_time(START);
    assert!(Ask::one(&plan, "ada", 2).id("new").take(bench).allowed);
    bench.disturb();
    let last = at(60) - Span::from_micros(1);
    bench.set_time(last);
    assert_eq!(remaining(bench, &plan, "ada", last), 59, "each lease begins anew");
    bench.set_time(at(60));
    assert_eq!(remaining(bench, &plan, "ada", at(60)), 100);
    assert!(order(bench, &plan, "ada", HoldsOrder::List).holds.is_empty());
}

pub(crate) fn holds_without_a_lease_keep_their_times_when_the_clock_goes_back(bench: &mut dyn Bench) {
    let plan = plan("holds", "100 at once");
    let all: Vec<String> = (0..40).map(|number| format!("id {number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bench.set_time(at(600));
    let before = order(bench, &plan, "ada", HoldsOrder::Replace(&all, Ticket(1))).holds;
    bench.set_time(START);
    assert!(Ask::one(&plan, "ada", 2).id("new").take(bench).allowed);
    bench.disturb();
    assert!(order(bench, &plan, "ada", HoldsOrder::Release("new")).found);
    assert_eq!(order(bench, &plan, "ada", HoldsOrder::List).holds, before);
}

pub(crate) fn a_key_that_is_held_and_released_again_and_again_holds_nothing(bench: &dyn Bench) {
    for kind in ["10 at once", "10 at once for 1m"] {
        let plan = plan(kind, kind);
        for ticket in 1..=40 {
            assert!(Ask::one(&plan, "ada", ticket).id("job").take(bench).allowed, "{kind}");
            assert!(order(bench, &plan, "ada", HoldsOrder::Release("job")).found, "{kind}");
        }
        let look = |key| Ask::one(&plan, key, 0).peek(bench);
        assert_eq!(look("ada"), look("a key that was never held"), "{kind}");
        assert!(order(bench, &plan, "ada", HoldsOrder::List).holds.is_empty(), "{kind}");
    }
}

pub(crate) fn many_holds_end_with_their_limit(bench: &mut dyn Bench) {
    let (holds, window) = (plan("rule", "100 at once"), plan("rule", "10/min"));
    let all: Vec<String> = (0..40).map(|number| format!("id {number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    order(bench, &holds, "ada", HoldsOrder::Replace(&all, Ticket(1)));
    assert!(Ask::one(&window, "ada", 2).take(bench).allowed);
    assert!(Ask::one(&holds, "ada", 3).id("new").take(bench).allowed);
    bench.disturb();
    assert_eq!(remaining(bench, &holds, "ada", START), 99);
    assert_eq!(ids(&order(bench, &holds, "ada", HoldsOrder::List)), ["new"]);
}

pub(crate) fn claimed_holds_are_held_as_far_as_there_is_room(bench: &mut dyn Bench) {
    for kind in ["5 at once", "5 at once for 1m", "5 at once for 1m, 100/hour"] {
        let plan = plan(kind, kind);
        bench.set_time(START);
        Ask::one(&plan, "ada", 1).id("held").take(bench);
        bench.set_time(at(30));
        let claims = [("held", 4), ("first", 3), ("large", 2), ("last", 1), ("none", 1)];
        let report = order(bench, &plan, "ada", HoldsOrder::Claim(&claims, Ticket(7)));
        assert_eq!((ids(&report), report.found), (vec!["first", "held", "last"], false), "{kind}");
        let told: Vec<_> = report.holds.iter().map(|(_, hold)| (hold.ticket.0, hold.weight)).collect();
        assert_eq!(told, [(7, 3), (1, 1), (7, 1)], "{kind}: what is held stays as it is");
        assert!(!Ask::one(&plan, "ada", 2).at(at(30)).take(bench).allowed, "{kind}");
        let look = Ask::one(&plan, "ada", 0).at(at(30)).peek(bench);
        assert_eq!(look.readings[0].remaining, 0, "{kind}");
        assert!(
            look.readings.iter().skip(1).all(|reading| reading.remaining == 99),
            "{kind}: no other limit"
        );
        bench.disturb();
        bench.set_time(at(60));
        let held = ids(&order(bench, &plan, "ada", HoldsOrder::List)).len();
        assert_eq!(held, 3, "{kind}: what was held is renewed");
        let report = order(bench, &plan, "eve", HoldsOrder::Claim(&[("job", 6), ("job", 5)], Ticket(8)));
        assert_eq!(ids(&report), ["job"], "{kind}: also where nothing was held");
        assert_eq!(remaining(bench, &plan, "eve", at(60)), 0, "{kind}");
        if kind.contains("for") {
            bench.set_time(at(120));
            let again = order(bench, &plan, "ada", HoldsOrder::Claim(&[("held", 5)], Ticket(9)));
            assert_eq!(again.holds[0].1.ticket, Ticket(9), "{kind}: the old ones have run out");
            assert!(again.found);
        }
    }
}

pub(crate) fn thousands_are_renewed_and_released_in_one_order(bench: &dyn Bench) {
    let plan = plan("holds", "20000 at once for 1m");
    let all: Vec<String> = (0..10_000).map(|number| format!("id {number}")).collect();
    let claims: Vec<(&str, u64)> = all.iter().map(|id| (id.as_str(), 1)).collect();
    assert!(order(bench, &plan, "ada", HoldsOrder::Claim(&claims, Ticket(1))).found);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bench.set_time(at(59));
    let report = order(bench, &plan, "ada", HoldsOrder::RenewMany(&all));
    assert!(report.found && report.holds.len() == HoldsOrder::MOST_IDS);
    bench.set_time(at(118));
    assert_eq!(remaining(bench, &plan, "ada", at(118)), 10_000);
    assert!(order(bench, &plan, "ada", HoldsOrder::ReleaseMany(&all[..9_999])).found);
    assert_eq!(ids(&order(bench, &plan, "ada", HoldsOrder::List)), ["id 9999"]);
}

/// When the hold with the latest expiry ends, the store scans the others for the new reset time if there are
/// few. With many it keeps the old time, which is never too early.
pub(crate) fn one_of_many_ends_without_a_look_at_the_others(bench: &dyn Bench) {
    let all: Vec<String> = (0..65).map(|number| format!("id {number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for (many, resets) in [(64, at(60)), (65, at(90))] {
        for way in ["released", "given", "given by its ticket"] {
            let name = format!("{way} of {many}");
            let plan = plan(&name, "100 at once for 1m");
            let look = |now| Ask::one(&plan, "ada", 0).at(now).peek(bench).readings[0];
            bench.set_time(START);
            order(bench, &plan, "ada", HoldsOrder::Replace(&all[..many], Ticket(1)));
            bench.set_time(at(30));
            let last = Ask::one(&plan, "ada", 2).at(at(30));
            let last = if way == "given by its ticket" { last } else { last.id("last") };
            let taken_at = last.take(bench).now;
            assert_eq!(look(at(30)).reset, Some(at(90)));
            if way == "released" {
                let report = order(bench, &plan, "ada", HoldsOrder::Release("last"));
                assert_eq!((report.found, ids(&report)), (true, vec!["last"]), "{name}");
            } else {
                last.refund(bench, taken_at);
            }
            let reading = look(at(30));
            assert_eq!((reading.remaining, reading.reset), (100 - many as u64, Some(resets)), "{name}");
            bench.set_time(at(59));
            assert_eq!(ids(&order(bench, &plan, "ada", HoldsOrder::List)).len(), many, "{name}");
            bench.set_time(at(60));
            let reading = look(at(60));
            assert_eq!((reading.remaining, reading.reset), (100, Some(at(60))), "{name}: all have run out");
        }
    }
}
