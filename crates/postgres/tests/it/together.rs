//! Many callers at once, on one node and on several: exactly the limit is admitted, and no two callers
//! wait for each other for ever.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::stage::{Node, PATIENT, charges, now, plan, runtime, shared, ticket};
use tollgate_core::Plan;
use tollgate_testbed::{PATIENCE, Pgbouncer, Postgres, pause};

/// How long callers press on.
fn time() -> Duration {
    Duration::from_secs(if std::env::var_os("TOLLGATE_LONG").is_some() { 60 } else { 10 })
}

/// What was admitted under the limit that is exact, and in all.
struct Admitted {
    exact: u64,
    all: u64,
}

/// Admits as much as it can at all keys in turn, with this many callers, every second one in the opposite
/// order. Every third attempt passes the first plan, whose limit is exact; the others have no key in common. It
/// goes on for some time, and on a busy machine until at least so much was admitted.
fn press(nodes: &[Node], plans: &[Arc<Plan>], callers: usize, least: &Admitted, time: Duration) -> Admitted {
    let (exact, all, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (first, others) = plans.split_first().unwrap();
    std::thread::scope(|scope| {
        for caller in 0..callers {
            let (exact, all, over) = (&exact, &all, &over);
            scope.spawn(move || {
                let node = &nodes[caller % nodes.len()];
                let mut turn = caller;
                while !over.load(Ordering::Relaxed) {
                    turn += 1;
                    let mut parts: Vec<_> = (0..3)
                        .map(|step| {
                            (Arc::clone(&others[(turn + step) % others.len()]), format!("k{}", turn % 2))
                        })
                        .collect();
                    if caller % 2 == 0 {
                        parts.reverse();
                    }
                    parts.dedup_by(|one, other| one.0.rule() == other.0.rule());
                    let is_exact = turn % 3 == 0;
                    if is_exact {
                        parts.insert(turn % 2, (Arc::clone(first), "all".to_owned()));
                    }
                    let outcome = runtime().block_on(node.take_all(&charges(ticket(), &parts))).unwrap();
                    all.fetch_add(u64::from(outcome.allowed), Ordering::Relaxed);
                    exact.fetch_add(u64::from(outcome.allowed && is_exact), Ordering::Relaxed);
                }
            });
        }
        pause(time);
        let is_enough =
            || exact.load(Ordering::Relaxed) >= least.exact && all.load(Ordering::Relaxed) >= least.all;
        let start = now();
        while !is_enough() && start.elapsed() < PATIENCE {
            pause(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
    });
    Admitted { exact: exact.into_inner(), all: all.into_inner() }
}

#[test]
fn callers_with_opposite_orders_never_deadlock_and_admit_exactly_the_limit() {
    let nodes: Vec<Node> = (0..4).map(|_| Node::new(&shared().url(), "opposite", PATIENT)).collect();
    let mut plans: Vec<_> =
        (1..7).map(|n| plan(&format!("rule{n}"), "1000000/day, 100000/hour sliding")).collect();
    plans.insert(0, plan("all", "300/day"));
    let admitted = press(&nodes, &plans, 32, &Admitted { exact: 300, all: 1_000 }, time());
    assert_eq!(admitted.exact, 300);
    assert_eq!(nodes[0].used(&plans[0], "all"), 300);
    // Each was counted at every key that it passed.
    let used: u64 = plans[1..].iter().map(|plan| nodes[1].used(plan, "k0") + nodes[1].used(plan, "k1")).sum();
    assert_eq!(used, 3 * admitted.all);
    let log = shared().log();
    assert!(!log.contains("deadlock detected"), "{log}");
    assert_eq!(shared().sql("SELECT sum(deadlocks) FROM pg_stat_database"), "0");
}

#[test]
fn three_nodes_behind_pgbouncer_admit_exactly_the_limit() {
    let pooler = Pgbouncer::start(shared(), 6);
    let nodes: Vec<Node> = (0..3).map(|_| Node::new(&pooler.url(), "pooled", PATIENT)).collect();
    let plans = [
        plan("all", "200/day sliding"),
        plan("a", "1000000/hour"),
        plan("b", "1000000/s burst 1000000"),
        plan("c", "1000000 in total"),
    ];
    let least = Admitted { exact: 200, all: 600 };
    assert_eq!(press(&nodes, &plans, 24, &least, Duration::from_secs(3)).exact, 200);
    assert_eq!(nodes[1].used(&plans[0], "all"), 200);
}

/// How many transactions have written anything on a server so far.
fn writes(server: &Postgres) -> u64 {
    server.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())").parse().unwrap()
}

#[test]
fn callers_of_one_node_settle_together_and_denials_write_nothing() {
    let server = Postgres::start_with("autovacuum = off");
    let node = Node::new(&server.url(), "grouped", PATIENT);
    let plan = plan("hot", "1001/day, 5000/day sliding");
    assert!(node.take(&plan, "k").unwrap().allowed);
    let before = writes(&server);
    let take_1000 = || {
        runtime().block_on(async {
            let parts = [(Arc::clone(&plan), "k".to_owned())];
            let takes = (0..1_000).map(|_| async {
                let charges = charges(ticket(), &parts);
                node.take_all(&charges).await.unwrap().allowed
            });
            let allowed = futures_util::future::join_all(takes).await;
            allowed.into_iter().filter(|allowed| *allowed).count()
        })
    };
    assert_eq!(take_1000(), 1_000);
    assert_eq!(node.used(&plan, "k"), 1_001);
    let after = writes(&server);
    assert!((1..50).contains(&(after - before)), "1000 takes in {} writing transactions", after - before);
    assert_eq!(take_1000(), 0);
    assert_eq!(writes(&server), after, "a denial wrote something");
}
