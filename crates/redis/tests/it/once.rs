//! A call takes effect at most once: whatever happens to the reply, nothing is sent again, and a call whose
//! caller gave up is not counted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{self, Ask, HASTY, Node, is_outage, plan, shared};
use tollgate_core::store::Counter;
use tollgate_core::store::HoldsOrder;
use tollgate_core::{Store, StoreError};
use tollgate_testbed::{Proxy, Server, pause, wait_until};

/// Kinds whose takes stay counted, in three different scripts.
const KINDS: [&str; 4] = ["1000/hour", "1/hour burst 1000", "1000/hour sliding", "1000 in total"];

#[test]
fn swallowed_replies_are_counted_once_each() {
    let (direct, proxy) = (Node::patient(&shared().url(), "swallowed"), Proxy::to(shared().port()));
    let node = Node::behind(&proxy, "swallowed");
    for limits in KINDS {
        let plan = plan(limits, limits);
        for count in 1..=3 {
            proxy.swallow_replies();
            assert!(is_outage(&node.take(&Ask::one(&plan, "k")).unwrap_err()));
            proxy.heal();
            node.recovers();
            let used = direct.used(&plan, "k");
            assert!(used <= count, "{limits}: {count} attempts counted as {used}");
        }
        let used = direct.used(&plan, "k");
        assert!(used > 0, "{limits}: none has reached the server");
        assert!(node.take(&Ask::one(&plan, "k")).unwrap().allowed);
        assert_eq!(direct.used(&plan, "k"), used + 1, "{limits}: something was sent again");
    }
}

#[test]
fn a_connection_cut_after_the_request_was_delivered_is_not_asked_again() {
    let (direct, proxy) = (Node::patient(&shared().url(), "cut"), Proxy::to(shared().port()));
    // A long time-out, so that the cut ends the call.
    let patient = stage::settings(&proxy.url(), "cut", stage::PATIENT);
    let node = Node::with(patient);
    for limits in KINDS {
        let plan = plan(limits, limits);
        assert!(node.take(&Ask::one(&plan, "k")).unwrap().allowed);
        proxy.swallow_replies();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| node.take(&Ask::one(&plan, "k")));
            wait_until("the request has come", || direct.used(&plan, "k") == 2);
            proxy.close_all();
            // A retry would now succeed.
            proxy.heal();
            let answer = asked.join().unwrap();
            assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{limits}: {answer:?}");
        });
        node.recovers();
        assert_eq!(direct.used(&plan, "k"), 2, "{limits}");
    }
}

#[test]
fn a_reply_torn_at_any_byte_is_counted_once() {
    let (direct, proxy) = (Node::patient(&shared().url(), "torn"), Proxy::to(shared().port()));
    let node = Node::behind(&proxy, "torn");
    let plan = plan("window", "1000/hour");
    let mut admitted = 0;
    node.recovers();
    for bytes in 0..45 {
        proxy.cut_after(bytes);
        admitted += u64::from(node.take(&Ask::one(&plan, "k")).is_ok_and(|outcome| outcome.allowed));
        proxy.heal();
        node.recovers();
    }
    let used = direct.used(&plan, "k");
    assert!((admitted..=45).contains(&used), "{admitted} admitted, {used} counted");
    assert!(admitted < 45, "some replies were torn");
}

/// Pauses a server during takes of two nodes, one of which has only logged in. Then resumes it and returns
/// the counts of four kinds.
fn counted_after_a_pause(server: &Server) -> Vec<u64> {
    let direct = Node::patient(&server.url(), "paused");
    let nodes = [Node::hasty(&server.url(), "paused"), Node::hasty(&server.url(), "paused")];
    nodes[0].recovers();
    let plans = KINDS.map(|limits| plan(limits, limits));
    for plan in &plans {
        // The server must know the scripts; otherwise it would not run them anyway.
        direct.take(&Ask::one(plan, "other")).unwrap();
    }
    server.pause();
    for node in &nodes {
        for plan in &plans {
            let answer = node.take(&Ask::one(plan, "k"));
            assert!(is_outage(&answer.unwrap_err()));
        }
    }
    // A late call may count for twice its time-out.
    pause(HASTY * 3);
    server.resume();
    for node in &nodes {
        node.recovers();
    }
    plans.iter().map(|plan| direct.used(plan, "k")).collect()
}

#[test]
fn a_charge_that_reaches_a_paused_server_after_its_time_out_does_not_count() {
    let server = Server::redis().start();
    assert_eq!(counted_after_a_pause(&server), [0; 4]);
}

#[test]
fn a_take_whose_reply_was_lost_can_be_retracted_and_leaves_no_trace() {
    let (direct, proxy) = (Node::patient(&shared().url(), "retracted"), Proxy::to(shared().port()));
    let node = Node::behind(&proxy, "retracted");
    let (log, holds, both) = (
        plan("log", "10/hour sliding"),
        plan("holds", "10 at once"),
        plan("both", "10/hour sliding, 10 at once for 1h, 10/hour"),
    );
    let ladder = plan("ladder", "ladder 10 lock 15m");
    let asks = [
        Ask::one(&log, "k"),
        Ask::one(&holds, "k").id("job"),
        Ask::one(&both, "k").id("job").cost(2),
        Ask::one(&log, "k").and(&holds, "k").id("other"),
        Ask::one(&ladder, "k"),
    ];
    let before =
        [&log, &holds, &ladder].map(|plan| node.take(&Ask::one(plan, "k").id("before")).unwrap().allowed);
    assert_eq!(before, [true; 3]);
    proxy.swallow_replies();
    for ask in &asks {
        assert!(is_outage(&node.take(ask).unwrap_err()));
    }
    proxy.heal();
    node.recovers();
    assert_eq!([&log, &holds, &both, &ladder].map(|plan| direct.used(plan, "k")), [3, 3, 2, 2]);
    for ask in &asks {
        node.retract(ask).unwrap();
        node.retract(ask).unwrap();
    }
    assert_eq!([&log, &holds, &both, &ladder].map(|plan| direct.used(plan, "k")), [1, 1, 0, 1]);
    let counter = Counter { plan: &holds, key: "k" };
    let held = stage::wait(direct.store.holds(&counter, HoldsOrder::List)).unwrap();
    assert_eq!(held.holds.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["before"]);
    let length = shared().command(&["LLEN", "retracted:{log:k}:log:1h"]).number();
    assert_eq!(length, 1, "only what was taken before");
}
