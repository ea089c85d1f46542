//! Errors of servers: callers see an outage or a correct answer, limits are never exceeded, and the store
//! recovers soon after the cause has ended.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::stage::{self, Ask, Node, is_outage, plan};
use tollgate_core::{Plan, StoreError};
use tollgate_testbed::{Cluster, Server, pause, slot_of, wait_until};

/// Traffic during trouble, and its results.
struct Traffic {
    stop: AtomicBool,
    admitted: AtomicUsize,
    refused: AtomicUsize,
    outages: AtomicUsize,
}

impl Traffic {
    /// Sends takes at two limits of fifty without pause, during `trouble`.
    fn during<T>(node: &Node, plans: &[&Arc<Plan>], trouble: impl FnOnce(&Self) -> T) -> (Self, T) {
        let traffic = Self {
            stop: AtomicBool::new(false),
            admitted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            outages: AtomicUsize::new(0),
        };
        let made = thread::scope(|scope| {
            for plan in plans {
                scope.spawn(|| traffic.ask(node, plan));
            }
            let stops = StopsWhenDropped(&traffic);
            let made = trouble(&traffic);
            drop(stops);
            made
        });
        (traffic, made)
    }

    fn ask(&self, node: &Node, plan: &Arc<Plan>) {
        while !self.stop.load(Ordering::Relaxed) {
            match node.take(&Ask::one(plan, "k")) {
                Ok(outcome) if outcome.allowed => self.admitted.fetch_add(1, Ordering::Relaxed),
                Ok(_) => self.refused.fetch_add(1, Ordering::Relaxed),
                Err(error) if is_outage(&error) => {
                    pause(Duration::from_millis(2));
                    self.outages.fetch_add(1, Ordering::Relaxed)
                }
                Err(error) => panic!("callers see {error:?}"),
            };
        }
    }

    fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }

    /// Waits until a counter has grown by `more`.
    fn wait_for(&self, counter: impl Fn(&Self) -> &AtomicUsize, more: usize) {
        let before = Self::count(counter(self));
        wait_until("traffic goes on", || Self::count(counter(self)) >= before + more);
    }
}

struct StopsWhenDropped<'t>(&'t Traffic);

impl Drop for StopsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn outages(traffic: &Traffic) -> &AtomicUsize {
    &traffic.outages
}

fn refused(traffic: &Traffic) -> &AtomicUsize {
    &traffic.refused
}

/// Causes trouble under traffic, ends it, and checks that the store recovers by itself and that no limit was
/// exceeded.
fn survives(
    server: &Server,
    node: &Node,
    begin: impl FnOnce(&Server),
    end: impl FnOnce(&Server),
) -> Duration {
    let (sliding, total) = (plan("sliding", "50/day sliding"), plan("total", "50 in total"));
    let (traffic, recovered) = Traffic::during(node, &[&sliding, &total], |traffic| {
        traffic.wait_for(|traffic| &traffic.admitted, 10);
        begin(server);
        traffic.wait_for(outages, 3);
        end(server);
        let recovered = node.recovers();
        traffic.wait_for(refused, 10);
        recovered
    });
    // A lost reply may have been counted, so it may be fewer.
    let admitted = Traffic::count(&traffic.admitted);
    assert!(admitted <= 100, "{admitted} were admitted");
    for plan in [&sliding, &total] {
        assert!(node.used(plan, "k") <= 50);
    }
    recovered
}

#[test]
fn scripts_that_the_server_forgot_are_brought_along() {
    let server = Server::redis().start();
    let node = Node::patient(&server.url(), "flushed");
    let (sliding, total) = (plan("sliding", "50/day sliding"), plan("total", "50 in total"));
    let (traffic, ()) = Traffic::during(&node, &[&sliding, &total], |traffic| {
        for _ in 0..30 {
            let _ = server.command(&["SCRIPT", "FLUSH"]).ok();
            traffic.wait_for(refused, 1);
        }
    });
    assert_eq!((Traffic::count(&traffic.admitted), Traffic::count(&traffic.outages)), (100, 0));
}

#[test]
fn a_master_that_becomes_a_replica_is_an_outage_until_it_is_master_again() {
    let server = Server::redis().start();
    let node = Node::hasty(&server.url(), "replica");
    survives(
        &server,
        &node,
        |server| drop(server.command(&["REPLICAOF", "127.0.0.1", "1"]).ok()),
        |server| drop(server.command(&["REPLICAOF", "NO", "ONE"]).ok()),
    );
}

#[test]
fn a_server_without_memory_is_an_outage_until_it_has_some() {
    let server = Server::redis().max_memory("0", "noeviction").start();
    let node = Node::hasty(&server.url(), "memory");
    survives(
        &server,
        &node,
        |server| drop(server.command(&["CONFIG", "SET", "maxmemory", "1mb"]).ok()),
        |server| drop(server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok()),
    );
}

#[test]
fn a_server_that_is_busy_with_a_script_is_an_outage_until_it_is_killed() {
    let server = Server::redis().args(["--busy-reply-threshold", "50"]).start();
    let node = Node::hasty(&server.url(), "busy");
    let mut wire = server.wire();
    survives(
        &server,
        &node,
        |_| wire.send(&["EVAL", "while true do end", "0"]).expect("the server listens"),
        |server| {
            wait_until("the script is killed", || server.command(&["SCRIPT", "KILL"]).text() == "OK");
        },
    );
}

#[test]
fn a_server_that_loads_its_data_is_an_outage_until_it_has() {
    let server = Server::redis().append_only().args(["--key-load-delay", "2000"]).start();
    let node = Node::hasty(&server.url(), "loading");
    let mut wire = server.wire();
    let _ = server.command(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]).ok();
    let _ = server.command(&["DEBUG", "POPULATE", "400", "other", "400"]).ok();
    let _ = server.command(&["BGREWRITEAOF"]).ok();
    wait_until("the log is rewritten", || {
        server.command(&["INFO", "persistence"]).text().contains("aof_rewrite_in_progress:0")
    });
    survives(
        &server,
        &node,
        |_| {
            wire.send(&["DEBUG", "LOADAOF"]).expect("the server listens");
        },
        |server| {
            wait_until("all is loaded", || {
                server.command(&["INFO", "persistence"]).text().contains("loading:0")
            });
        },
    );
}

#[test]
fn a_password_that_is_asked_for_from_now_on_is_an_outage_until_it_is_not() {
    let server = Server::redis().start();
    let node = Node::hasty(&server.url(), "password");
    survives(
        &server,
        &node,
        |server| {
            let mut wire = server.wire();
            let set = wire.command(&["CONFIG", "SET", "requirepass", "secret"]);
            assert!(!set.expect("the server answers").is_error());
            // Connections stay logged in; only new ones must log in.
            let _ = wire.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            std::mem::forget(wire);
        },
        |server| {
            let mut wire =
                tollgate_testbed::Wire::unix(&server.socket(), stage::PATIENT).expect("it listens");
            let _ = wire.command(&["AUTH", "secret"]);
            let reset = wire.command(&["CONFIG", "SET", "requirepass", ""]).expect("the server answers");
            assert!(!reset.is_error());
        },
    );
}

#[test]
fn a_revoked_right_is_an_outage_until_it_is_granted_again() {
    let server = Server::redis().users("user default off\nuser limiter on >secret ~* &* +@all").start();
    let node = Node::hasty(&server.url_as("limiter", "secret"), "user");
    survives(
        &server,
        &node,
        |server| drop(server.command(&["ACL", "SETUSER", "limiter", "-evalsha", "-eval"]).ok()),
        |server| drop(server.command(&["ACL", "SETUSER", "limiter", "+@all"]).ok()),
    );
    let node = Node::hasty(&server.url_as("limiter", "secret"), "nobody");
    survives(
        &server,
        &node,
        |server| {
            let _ = server.command(&["ACL", "SETUSER", "limiter", "off"]).ok();
            let _ = server.command(&["CLIENT", "KILL", "USER", "limiter"]);
        },
        |server| drop(server.command(&["ACL", "SETUSER", "limiter", "on"]).ok()),
    );
}

#[test]
fn a_server_that_is_restarted_is_found_again() {
    let mut server = Server::redis().append_only().start();
    let node = Node::patient(&server.url(), "restarted");
    let total = plan("total", "50 in total");
    for _ in 0..20 {
        assert!(node.take(&Ask::one(&total, "k")).unwrap().allowed);
    }
    server.kill9();
    let answer = node.take(&Ask::one(&total, "k"));
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    server.start();
    let took = node.recovers();
    println!("found again after {took:?}");
    assert_eq!(node.used(&total, "k"), 20);
}

#[test]
fn slots_that_move_between_nodes_admit_what_the_limit_says() {
    let cluster = Cluster::start(3);
    let node = Node::patient(&cluster.url(), "moving");
    let (window, total) = (plan("window", "50/day"), plan("total", "50 in total"));
    let slots = ["moving:{window:k}", "moving:{total:k}"].map(slot_of);
    for plan in [&window, &total] {
        for _ in 0..10 {
            assert!(node.take(&Ask::one(plan, "k")).unwrap().allowed);
        }
    }
    let (traffic, ()) = Traffic::during(&node, &[&window, &total], |traffic| {
        for slot in slots {
            let to = (cluster.owner_of_slot(slot) + 1) % 3;
            let migration = cluster.migrate(slot, to);
            pause(Duration::from_millis(20));
            migration.move_keys();
            pause(Duration::from_millis(20));
            migration.finish();
        }
        wait_until("both limits are met", || Traffic::count(&traffic.admitted) >= 80);
        traffic.wait_for(refused, 10);
    });
    assert_eq!(Traffic::count(&traffic.admitted), 80);
    assert_eq!(Traffic::count(&traffic.outages), 0, "ASK and MOVED say where to go");
}

#[test]
fn a_counter_of_several_keys_in_a_migrating_slot_is_an_outage_at_worst() {
    let cluster = Cluster::start(3);
    let node = Node::hasty(&cluster.url(), "several");
    let (sliding, other) = (plan("sliding", "50/day sliding"), plan("other", "50/day sliding"));
    assert!(node.take(&Ask::one(&sliding, "k")).unwrap().allowed);
    let slot = slot_of("several:{sliding:k}");
    let migration = cluster.migrate(slot, (cluster.owner_of_slot(slot) + 1) % 3);
    let (traffic, ()) = Traffic::during(&node, &[&sliding, &other], |_| {
        pause(Duration::from_millis(100));
        migration.move_keys();
        pause(Duration::from_millis(100));
        migration.finish();
        node.recovers();
    });
    let (admitted, outages) = (Traffic::count(&traffic.admitted), Traffic::count(&traffic.outages));
    println!("{admitted} admitted, {outages} without the store");
    assert!(admitted <= 99);
    assert!(node.used(&sliding, "k") <= 50);
    // A key that does not exist yet, in a slot that migrates, is on neither side.
    let fresh = (0..)
        .map(|number| format!("k{number}"))
        .find(|key| slot_of(&format!("several:{{fresh:{key}}}")) == slot);
    let fresh = fresh.expect("some key is there");
    let plan = plan("fresh", "50/day sliding");
    let migration = cluster.migrate(slot, (cluster.owner_of_slot(slot) + 1) % 3);
    let answer = node.take(&Ask::one(&plan, &fresh));
    // One migrating slot is not an outage.
    let Err(StoreError::PartUnavailable { reason }) = &answer else { panic!("{answer:?}") };
    assert!(reason.contains("being moved") && reason.contains("TRYAGAIN"), "{reason}");
    migration.finish();
    node.recovers();
    assert!(node.take(&Ask::one(&plan, &fresh)).unwrap().allowed);
}
