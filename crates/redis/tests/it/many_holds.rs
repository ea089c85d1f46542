//! An operation on one hold costs the same however many there are, so it does not delay other clients of the
//! server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{Ask, Node, plan, wait};
use tollgate_core::store::{Counter, HoldsOrder, Refunded};
use tollgate_core::{Store, Ticket};
use tollgate_testbed::Server;

/// How often the server ran a command since its statistics were reset.
fn calls(server: &Server, command: &str) -> u64 {
    let told = server.command(&["INFO", "commandstats"]).text();
    let name = format!("cmdstat_{command}:calls=");
    let line = told.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn nothing_that_is_done_to_one_hold_reads_the_others() {
    let server = Server::redis().start();
    let node = Node::patient(&server.url(), "many");
    let ids: Vec<String> = (0..3_000).map(|number| format!("deal-{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for limits in ["20000 at once", "20000 at once for 10m"] {
        let plan = plan(limits, limits);
        let counter = Counter { plan: &plan, key: "k" };
        let order = |order| wait(node.store.holds(&counter, order)).unwrap();
        order(HoldsOrder::Replace(&ids, Ticket(1)));
        server.command(&["CONFIG", "RESETSTAT"]);
        assert!(order(HoldsOrder::Release("deal-5")).found);
        assert!(!order(HoldsOrder::Release("deal-5")).found);
        assert!(order(HoldsOrder::Renew("deal-6")).found);
        assert!(!order(HoldsOrder::ReleaseMany(&["deal-7", "deal-5"])).found);
        let taken = Ask::one(&plan, "k");
        let at = node.take(&taken).unwrap().now;
        assert_eq!(node.refund(&taken, at), Ok(Refunded::Done));
        let lost = Ask::one(&plan, "k").id("lost");
        node.take(&lost).unwrap();
        node.retract(&lost).unwrap();
        assert_eq!(node.used(&plan, "k"), 2_998, "{limits}");
        assert_eq!(calls(&server, "hgetall"), 0, "{limits}");
        let listed = order(HoldsOrder::List);
        assert_eq!(listed.holds.len(), 2_998, "{limits}");
        assert!(listed.holds.is_sorted_by(|a, b| a.0 < b.0));
        assert!(calls(&server, "hscan") > 1, "{limits}: a few at a time");
        assert_eq!(calls(&server, "hgetall"), 0, "{limits}");
        assert_eq!(order(HoldsOrder::Replace(&["deal-8"], Ticket(2))).holds.len(), 1);
        assert_eq!(calls(&server, "hgetall"), 0, "{limits}: nor does who replaces them all");
    }
}
