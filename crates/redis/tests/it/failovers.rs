//! Failovers: what was not replicated is lost. So each failover may admit the limit once more, and never
//! twice.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::stage::{self, Ask, Node, plan};
use tollgate_core::Plan;
use tollgate_testbed::{Cluster, ClusterOptions, Flavour, Sentinel, Server, wait_until};

const LIMIT: usize = 20;

/// How many takes pass until one is refused. A failed one is repeated as another attempt.
fn admitted(node: &Node, plan: &Arc<Plan>) -> usize {
    let mut admitted = 0;
    node.recovers();
    loop {
        match node.take(&Ask::one(plan, "k")) {
            Ok(outcome) if outcome.allowed => admitted += 1,
            Ok(_) => return admitted,
            Err(error) => {
                assert!(stage::is_outage(&error), "{error:?}");
                node.recovers();
            }
        }
    }
}

/// Stops replication: replicas can no longer log in.
fn cut_off(master: &Server) {
    let mut wire = master.wire();
    for order in
        [&["CONFIG", "SET", "requirepass", "nobody knows"][..], &["CLIENT", "KILL", "TYPE", "replica"]]
    {
        let reply = wire.command(order).expect("the server answers");
        assert!(!reply.is_error(), "{reply:?}");
    }
}

#[test]
fn each_failover_under_sentinels_lets_a_sliding_limit_pass_at_most_once_more() {
    let mut sentinel = Sentinel::start();
    let node = Node::patient(&sentinel.url(), "sentinel");
    let plan = plan("sliding", &format!("{LIMIT}/day sliding"));
    let mut all = 0;
    node.recovers();
    for failovers in 1..=2 {
        let master = sentinel.master_port();
        if failovers == 1 {
            // The node's own connections stay; what it counts from here on is lost.
            cut_off(sentinel.master());
        }
        let before = admitted(&node, &plan);
        all += before;
        if failovers == 2 {
            wait_until("the last replica has heard of it", || {
                sentinel.master().command(&["WAIT", "1", "1000"]).number() >= 1
            });
        }
        sentinel.kill_master();
        let _ = sentinel.wait_for_failover(master);
        println!("{before} before failover {failovers}");
        assert!(all <= failovers * LIMIT, "{all} after {failovers} failovers");
    }
    all += admitted(&node, &plan);
    println!("{all} with two failovers, of which one lost what was counted");
    assert_eq!(all, 2 * LIMIT, "only what was lost may pass again");
}

#[test]
fn each_failover_in_a_cluster_lets_a_sliding_limit_pass_at_most_once_more() {
    let mut cluster = ClusterOptions::masters(3, Flavour::Redis).replicas().start();
    let node = Node::patient(&cluster.url(), "cluster");
    let plan = plan("sliding", &format!("{LIMIT}/day sliding"));
    node.recovers();
    let owner = owner(&cluster);
    let mut all = admitted(&node, &plan);
    assert_eq!(all, LIMIT);
    // Both servers run, so nothing is lost.
    cluster.fail_over(owner);
    all += admitted(&node, &plan);
    assert_eq!(all, LIMIT, "a failover that loses nothing lets nothing pass again");
    let replica = owner + 3;
    wait_until("the old master follows", || {
        cluster.nodes()[owner]
            .server
            .command(&["INFO", "replication"])
            .text()
            .contains("master_link_status:up")
    });
    cluster.kill(replica);
    wait_until("the old master is one again", || {
        cluster.nodes()[owner].server.command(&["INFO", "replication"]).text().contains("role:master")
    });
    all += admitted(&node, &plan);
    assert!(all <= 3 * LIMIT, "{all}");
    println!("{all} with two failovers");
}

fn owner(cluster: &Cluster) -> usize {
    cluster.owner_of("cluster:{sliding:k}")
}
