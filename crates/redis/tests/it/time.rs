//! Only the server's clock counts, whatever a node's own clock shows and however the server's jumps.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::stage::{self, Ask, Node, plan};
use tollgate_core::{Outcome, Plan};
use tollgate_testbed::Server;

/// How many of `attempts` pass.
fn admitted(node: &Node, plan: &Arc<Plan>, attempts: usize) -> usize {
    (0..attempts).filter(|_| node.take(&Ask::one(plan, "k")).unwrap().allowed).count()
}

/// Every kind that ages; a jump forward frees it.
const KINDS: [&str; 6] = [
    "10/hour",
    "10/hour calendar",
    "10/hour sliding",
    "10/hour sliding by 10m",
    "10/hour burst 10",
    "ladder 10 lock 1h",
];

#[test]
fn a_server_clock_that_jumps_forward_frees_each_expired_count_once() {
    let server = Server::redis().faketime(0).start();
    // A deadline by the old clock is far in the past.
    let node = Node::patient(&server.url(), "forward");
    let plans = KINDS.map(|limits| plan(limits, limits));
    let holds = plan("holds", "10 at once for 1h");
    let total = plan("total", "10 in total");
    for plan in plans.iter().chain([&holds, &total]) {
        assert_eq!(admitted(&node, plan, 15), 10);
    }
    server.shift_clock(7_201);
    for plan in plans.iter().chain([&holds]) {
        assert_eq!(admitted(&node, plan, 15), 10, "{:?}: one more of each, not two", plan.limits());
    }
    assert_eq!(admitted(&node, &total, 15), 0);
}

#[test]
fn a_server_clock_that_jumps_back_denies_no_key_for_longer_than_the_period() {
    let server = Server::redis().faketime(86_400).start();
    let node = Node::patient(&server.url(), "back");
    let kinds = [
        "10/2s",
        "10/2s sliding",
        "10/2s sliding by 1s",
        "5/s burst 10",
        "10 at once for 2s",
        "ladder 10 lock 2s forget 2s",
    ];
    let plans = kinds.map(|limits| plan(limits, limits));
    for plan in &plans {
        assert_eq!(admitted(&node, plan, 10), 10);
    }
    server.shift_clock(0);
    // Nothing was forgotten, as far as the machine was fast enough to see.
    let soon: Vec<(usize, Outcome)> =
        plans.iter().enumerate().map(|(number, plan)| (number, node.peek(&Ask::one(plan, "k")))).collect();
    for (number, outcome) in soon {
        let wait = outcome.readings[0].when;
        assert!(!outcome.allowed, "{}", kinds[number]);
        assert!(
            format!("{wait:?}").starts_with("After"),
            "{}: it says when to come again: {wait:?}",
            kinds[number]
        );
    }
    tollgate_testbed::pause(Duration::from_millis(3_050));
    for (plan, limits) in plans.iter().zip(kinds) {
        assert!(node.take(&Ask::one(plan, "k")).unwrap().allowed, "{limits}");
    }
}

#[test]
fn nodes_that_met_the_server_before_and_after_a_jump_agree() {
    let server = Server::redis().faketime(0).start();
    let hasty = stage::settings(&server.url(), "met", Duration::from_millis(500));
    let before = Node::with(hasty.clone());
    let plan = plan("sliding", "100/min sliding");
    assert!(before.take(&Ask::one(&plan, "k")).unwrap().allowed);
    for ahead in [3_600, -3_600, 86_400, 0] {
        server.shift_clock(ahead);
        let after = Node::with(hasty.clone());
        let [old, new] = [&before, &after].map(|node| node.take(&Ask::one(&plan, "k")).unwrap());
        assert!(old.allowed && new.allowed);
        let apart = new.now.since(old.now).as_micros();
        assert!(apart < 30_000_000, "{apart} us apart");
    }
}

#[test]
fn a_jump_costs_one_more_round_trip_and_no_decision() {
    let server = Server::redis().faketime(0).start();
    let node = Node::patient(&server.url(), "jump");
    let calls = || {
        let stats = server.command(&["INFO", "commandstats"]).text();
        let count = |name: &str| -> u64 {
            let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |line| line.split(['=', ',']).nth(1).unwrap().parse().unwrap())
        };
        count("evalsha")
    };
    let plan = plan("window", "1000000/hour");
    node.take(&Ask::one(&plan, "k")).unwrap();
    let before = calls();
    server.shift_clock(100);
    // The server refuses the first call as too late; the store learns the time from that and repeats it.
    node.take(&Ask::one(&plan, "k")).unwrap();
    assert_eq!(calls() - before, 2);
    for _ in 0..10 {
        node.take(&Ask::one(&plan, "k")).unwrap();
    }
    assert_eq!(calls() - before, 12);
    assert_eq!(node.used(&plan, "k"), 12);
}
