//! A key lives exactly as long as its content matters: nothing is forgotten early, nothing that ages is kept
//! for ever, and an idle store ends empty.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::stage::{Ask, Node, page, plan, shared, wait};
use tollgate_core::store::HoldsOrder;
use tollgate_core::store::{Counter, Forget, Refunded};
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Limit, Records, Span, Store, Timestamp};
use tollgate_testbed::{Server, wait_until};

/// When a key expires, by the server's clock; `None` for never. The key must exist.
fn goes_at(server: &Server, key: &str) -> Option<Timestamp> {
    match server.command(&["PEXPIRETIME", key]).number() {
        -1 => None,
        -2 => panic!("there is no {key}: {:?}", server.command(&["KEYS", "*"])),
        millis => Some(Timestamp::from_micros(millis as u64 * 1_000)),
    }
}

/// Checks that a key expires when it is no longer needed, within a few milliseconds.
#[track_caller]
fn goes(server: &Server, key: &str, needed: Timestamp) {
    let at = goes_at(server, key).unwrap_or_else(|| panic!("{key} stays for ever"));
    // The script's time and the start of the expiry differ by as long as the server is descheduled between
    // them.
    let early = needed.as_micros().saturating_sub(at.as_micros());
    let late = at.as_micros().saturating_sub(needed.as_micros());
    assert!(early <= 15_000 && late <= 15_000, "{key} goes {early} us too early or {late} us too late");
}

fn exists(server: &Server, key: &str) -> bool {
    server.command(&["EXISTS", key]).number() == 1
}

#[test]
fn every_kind_has_its_own_end() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "ends"));
    for (limits, beside, lasts) in [
        ("10/7s", "", 7_000),
        ("10/7s, 20/9s", "", 9_000),
        ("10/9s, 20/7s", "", 9_000),
        ("1/s burst 5", "", 2_000),
        ("1/s burst 5, 10/s", "", 2_000),
        ("3/s burst 5", "", 667),
        ("10/7s sliding", ":log:7s", 7_000),
        ("10 at once for 7s", ":holds", 7_000),
        ("ladder 3 +1s then 5 lock 6s forget 7s", ":failures:7s", 7_000),
        ("10/5s sliding, 10 at once for 7s, 3/s burst 9", ":holds", 7_000),
    ] {
        let plan = plan(limits, limits);
        let now = node.take(&Ask::one(&plan, "k").cost(2)).unwrap().now;
        let key = format!("ends:{{{}:k}}", limits.replace(' ', "%20"));
        goes(server, &key, now + Span::from_millis(lasts));
        if !beside.is_empty() {
            goes(server, &format!("{key}{beside}"), now + Span::from_millis(lasts));
        }
    }
}

#[test]
fn slots_end_with_the_last_of_them_and_periods_of_the_calendar_at_their_boundary() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "turns"));
    let slots = plan("slots", "10/7s sliding by 500ms");
    let now = node.take(&Ask::one(&slots, "k")).unwrap().now;
    let end = now.as_micros() / 500_000 * 500_000 + 500_000 + 7_000_000;
    for key in ["turns:{slots:k}", "turns:{slots:k}:slots:7s:500ms"] {
        goes(server, key, Timestamp::from_micros(end));
    }
    let calendar = plan("calendar", "10/hour calendar");
    let Limit::Calendar(limit) = &calendar.limits()[0] else { panic!("it is one") };
    let now = node.take(&Ask::one(&calendar, "k")).unwrap().now;
    goes(server, "turns:{calendar:k}", page(limit.period(), now).edges[1]);
}

#[test]
fn a_later_charge_extends_an_expiry_only_where_it_counts_longer() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "moves"));
    let (window, sliding, holds) =
        (plan("window", "10/7s"), plan("sliding", "10/7s sliding"), plan("holds", "10 at once for 7s"));
    let ladder = plan("ladder", "ladder 3 +1s forget 7s");
    let mut first = Vec::new();
    for plan in [&window, &sliding, &holds, &ladder] {
        first.push(node.take(&Ask::one(plan, "k").id("one")).unwrap().now);
    }
    tollgate_testbed::pause(Duration::from_millis(50));
    let week = Span::from_secs(7);
    node.take(&Ask::one(&window, "k")).unwrap();
    goes(server, "moves:{window:k}", first[0] + week);
    let again = Ask::one(&sliding, "k");
    let now = node.take(&again).unwrap().now;
    goes(server, "moves:{sliding:k}", now + week);
    goes(server, "moves:{sliding:k}:log:7s", now + week);
    assert_eq!(node.refund(&again, now), Ok(Refunded::Done));
    goes(server, "moves:{sliding:k}", first[1] + week);
    goes(server, "moves:{sliding:k}:log:7s", first[1] + week);
    let failure = Ask::one(&ladder, "k");
    let now = node.take(&failure).unwrap().now;
    goes(server, "moves:{ladder:k}", now + week);
    goes(server, "moves:{ladder:k}:failures:7s", now + week);
    assert_eq!(node.refund(&failure, now), Ok(Refunded::Done));
    goes(server, "moves:{ladder:k}", first[3] + week);
    goes(server, "moves:{ladder:k}:failures:7s", first[3] + week);
    let other = Ask::one(&holds, "k").id("two");
    let now = node.take(&other).unwrap().now;
    assert_eq!(node.refund(&other, now), Ok(Refunded::Done));
    goes(server, "moves:{holds:k}", first[2] + week);
    goes(server, "moves:{holds:k}:holds", first[2] + week);
    let counter = Counter { plan: &holds, key: "k" };
    let renewed = wait(node.store.holds(&counter, HoldsOrder::Renew("one"))).unwrap().now;
    goes(server, "moves:{holds:k}", renewed + week);
    goes(server, "moves:{holds:k}:holds", renewed + week);
}

#[test]
fn a_key_that_lost_its_expiry_gets_it_back_from_the_attempts_that_follow() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "lost"));
    let kinds = ["9000/hour", "9000/min, 9000/hour", "9000/2h sliding", "9000/hour sliding by 6m"];
    let plans = kinds.map(|limits| plan(limits, limits));
    let key = |limits: &str| format!("lost:{{{}:k}}", limits.replace(' ', "%20"));
    let take = |asks: &[usize]| {
        let ask = asks.iter().fold(None, |ask: Option<Ask<'_>>, number| {
            Some(match ask {
                None => Ask::one(&plans[*number], "k"),
                Some(ask) => ask.and(&plans[*number], "k"),
            })
        });
        assert!(node.take(&ask.unwrap()).unwrap().allowed);
    };
    // Each alone, and several in one attempt: the short script and the general one.
    for asks in [&[0][..], &[1], &[2], &[3], &[0, 1], &[0, 2, 3]] {
        take(asks);
        let expiries = asks.iter().map(|number| goes_at(server, &key(kinds[*number])).unwrap());
        let expiries: Vec<Timestamp> = expiries.collect();
        for number in asks {
            assert_eq!(server.command(&["PERSIST", &key(kinds[*number])]).number(), 1);
        }
        // An attempt at several keys looks at one of them.
        for _ in 0..200 {
            take(asks);
        }
        for (number, expiry) in asks.iter().zip(expiries) {
            let (limits, again) = (kinds[*number], goes_at(server, &key(kinds[*number])));
            // Both are read from a time to live, a moment after it was set.
            let read_late = Span::from_millis(500);
            let lives = again.is_some_and(|again| again + read_late >= expiry);
            assert!(lives, "{limits} of {asks:?}: {again:?}, before {expiry:?}");
        }
    }
    let total = plan("total", "9000 in total");
    (0..3).for_each(|_| assert!(node.take(&Ask::one(&total, "k")).unwrap().allowed));
    assert_eq!(goes_at(server, "lost:{total:k}"), None, "it never ends");
}

#[test]
fn refusals_looks_and_bounds_of_one_attempt_leave_no_key() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "nothing"));
    for limits in [
        "10/7s",
        "10/7s sliding",
        "10/7s sliding by 1s",
        "10/s burst 10",
        "10 at once",
        "10 in total",
        "ladder 10 +7s",
    ] {
        let plan = plan(limits, limits);
        node.peek(&Ask::one(&plan, "k"));
        node.take(&Ask::one(&plan, "k").cost(0)).unwrap();
        assert!(!node.take(&Ask::one(&plan, "k").cost(11)).unwrap().allowed);
    }
    let amount = plan("amount", "10 recipients per attempt");
    node.take(&Ask::one(&amount, "k")).unwrap();
    assert!(server.command(&["KEYS", "nothing:*"]).parts().is_empty());
}

#[test]
fn a_refund_is_remembered_for_as_long_as_it_could_be_repeated() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "given"));
    for (limits, lasts) in [
        ("10/7s", Span::from_secs(7)),
        ("10/7s sliding", Span::from_secs(7)),
        ("10/7s sliding by 1s", Span::from_secs(8)),
        ("1/s burst 5", Span::from_secs(5)),
        ("10 at once for 7s", Span::from_secs(7)),
        ("ladder 10 +1s forget 7s", Span::from_secs(7)),
        ("10/min calendar", Span::from_secs(120)),
        ("10 in total", Span::from_secs(32 * 86_400)),
    ] {
        let plan = plan(limits, limits);
        let ask = Ask::one(&plan, "k");
        let taken_at = node.take(&ask).unwrap().now;
        assert_eq!(node.refund(&ask, taken_at), Ok(Refunded::Done), "{limits}");
        let rule = limits.replace(' ', "%20");
        let pattern = format!("given:{{{rule}:k}}:given:*");
        let found = server.command(&["KEYS", &pattern]);
        let [mark] = found.parts() else { panic!("{found:?}") };
        let (at, needed) = (goes_at(server, &mark.text()).unwrap(), taken_at + lasts);
        assert!(at >= needed, "{limits}");
        assert!(at.since(needed) < Span::from_secs(5), "{limits}: it was given back a moment after");
        assert_eq!(node.refund(&ask, taken_at), Ok(Refunded::Already), "{limits}");
    }
}

#[test]
fn an_idle_store_ends_empty_except_for_keys_that_never_expire() {
    let server = Server::redis().start();
    let node = Node::patient(&server.url(), "idle");
    for limits in [
        "10/1s",
        "10/1s sliding",
        "10/1s sliding by 200ms",
        "10/1s burst 1",
        "10 at once for 1s",
        "ladder 9 +500ms forget 1s",
        "10/1s, 20/s burst 20, 10/500ms sliding, 3 at once for 1s",
        "10 at once",
        "10 in total",
    ] {
        let plan = plan(limits, limits);
        for _ in 0..3 {
            node.take(&Ask::one(&plan, "k")).unwrap();
        }
        let ask = Ask::one(&plan, "k");
        let taken_at = node.take(&ask).unwrap().now;
        if plan.limits().iter().all(Limit::has_share) {
            node.refund(&ask, taken_at).unwrap();
        }
    }
    wait(node.store.change(Namespace::Config, &[Edit::put("limits/a", "x")])).unwrap();
    let ages = |key: &str| server.command(&["PTTL", key]).number() != -1;
    let keys: Vec<String> = server.command(&["KEYS", "*"]).parts().iter().map(|key| key.text()).collect();
    let mut for_ever: Vec<&String> = keys.iter().filter(|key| !ages(key)).collect();
    for_ever.sort();
    let expected = [
        "idle/{config}",
        "idle:{10%20at%20once:k}",
        "idle:{10%20at%20once:k}:holds",
        "idle:{10%20in%20total:k}",
    ];
    assert_eq!(for_ever, expected);
    wait_until("everything that ages is gone", || server.command(&["DBSIZE"]).number() == 4);
    // Refunded and forgotten counters expire too; only the memory of that stays.
    for limits in ["10 at once", "10 in total"] {
        let plan = plan(limits, limits);
        wait(node.store.forget(Forget::Key(Counter { plan: &plan, key: "k" }))).unwrap();
    }
    wait(node.store.change(Namespace::Config, &[Edit::remove("limits/a")])).unwrap();
    let left = server.command(&["KEYS", "*"]);
    let left: Vec<String> = left.parts().iter().map(|key| key.text()).collect();
    assert!(left.iter().all(|key| key == "idle/{config}" || key == "idle/forgotten"), "{left:?}");
    let month = Span::from_secs(32 * 86_400);
    let forgotten = server.command(&["PTTL", "idle/forgotten"]).number();
    assert!((1..=month.as_micros() as i64 / 1_000).contains(&forgotten), "{forgotten}");
}

#[test]
fn reports_of_nodes_are_gone_an_hour_after_the_last_one() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "reports"));
    let until = wait(node.store.now()).unwrap() + Span::from_secs(15);
    wait(node.store.change(Namespace::Nodes, &[Edit::put("one", "report").until(Some(until))])).unwrap();
    for key in ["reports/{nodes}", "reports/{nodes}:ends"] {
        let left = server.command(&["PTTL", key]).number();
        assert!((3_500_000..=3_600_000).contains(&left), "{key}: {left}");
    }
}

#[test]
fn a_window_that_has_ended_left_no_key() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "ended"));
    let plan = plan("window", "10/300ms");
    node.take(&Ask::one(&plan, "k")).unwrap();
    tollgate_testbed::pause(Duration::from_millis(310));
    assert!(!exists(server, "ended:{window:k}"));
}
