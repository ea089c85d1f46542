//! Secret keys: all nodes hash them with the same secret, and never before they know it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::stage::{Ask, Node, PATIENT, is_outage, plan, settings, shared, wait};
use tollgate_core::store::{Counter, Forget, HoldsOrder, Refunded};
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Plan, Records, Store, StoreError};
use tollgate_redis::{Password, Settings};
use tollgate_testbed::{Cluster, Server};

fn hidden(rule: &str, limits: &str) -> Arc<Plan> {
    Arc::new(Plan::clone(&plan(rule, limits)).with_secret_keys())
}

fn names(server: &Server, prefix: &str) -> Vec<String> {
    let keys = server.command(&["KEYS", &format!("{prefix}:{{*")]);
    keys.parts().iter().map(tollgate_testbed::Reply::text).collect()
}

/// A node with this secret.
fn with_secret(prefix: &str, secret: &str) -> Node {
    let key_secret = Some(Password(secret.to_owned()));
    Node::with(Settings { key_secret, ..settings(&shared().url(), prefix, PATIENT) })
}

#[test]
fn nodes_that_were_never_told_a_secret_agree_on_one() {
    let plan = hidden("user", "5/day");
    let nodes = [(); 3].map(|()| Node::patient(&shared().url(), "agreed"));
    let allowed = |turn: usize| nodes[turn % 3].take(&Ask::one(&plan, "ada@example.org")).unwrap().allowed;
    assert_eq!((0..9).filter(|turn| allowed(*turn)).count(), 5);
    let names = names(shared(), "agreed");
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].starts_with("agreed:{user:#") && !names[0].contains("ada"), "{names:?}");
}

#[test]
fn whatever_is_done_with_a_secret_key_finds_it() {
    let held = hidden("deals", "3 at once");
    let counted = hidden("user", "5/day, 9/week sliding");
    // Each call is made by a node that has not named a key before.
    let node = || Node::patient(&shared().url(), "found");
    let ask = Ask::one(&held, "ada").and(&counted, "ada").id("deal");
    let taken = node().take(&ask).unwrap();
    assert!(taken.allowed);
    let counter = Counter { plan: &held, key: "ada" };
    assert_eq!(wait(node().store.holds(&counter, HoldsOrder::List)).unwrap().holds.len(), 1);
    assert_eq!(node().used(&counted, "ada"), 1);
    assert_eq!(node().refund(&ask, taken.now), Ok(Refunded::Done));
    assert_eq!(node().used(&counted, "ada"), 0);
    node().take(&ask).unwrap();
    node().retract(&ask).unwrap();
    node().take(&Ask::one(&counted, "ada")).unwrap();
    let counter = Counter { plan: &counted, key: "ada" };
    wait(node().store.forget(Forget::Key(counter))).unwrap();
    assert_eq!(node().used(&counted, "ada"), 0);
}

#[test]
fn a_configured_secret_is_the_one_that_counts() {
    let plan = hidden("user", "5/day");
    let take = |node: &Node| node.take(&Ask::one(&plan, "ada")).unwrap().readings[0].remaining;
    let [one, same] = [(); 2].map(|()| with_secret("told", "the same for all nodes"));
    assert_eq!((take(&one), take(&same)), (4, 3));
    assert_eq!(take(&with_secret("told", "something else entirely")), 4, "another secret, another count");
    assert_eq!(take(&Node::patient(&shared().url(), "told")), 4);
    assert_eq!(shared().command(&["HEXISTS", "told/records", "secret"]).number(), 1);
    assert_eq!(take(&one), 2, "the store's own secret changes nothing");
}

#[test]
fn without_the_secret_no_secret_key_is_named_and_others_are() {
    let server = shared();
    let (plain, hidden) = (plan("ip", "5/day"), hidden("user", "5/day"));
    let _ = server.command(&["HSET", "short/records", "secret", "too short"]).ok();
    let node = Node::patient(&server.url(), "short");
    let error = node.take(&Ask::one(&hidden, "ada")).unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { key, .. } if key == "short/records"), "{error}");
    assert!(node.take(&Ask::one(&plain, "192.0.2.1")).unwrap().allowed);
    assert_eq!(names(server, "short"), ["short:{ip:192.0.2.1}"]);
}

#[test]
fn a_node_that_starts_without_the_server_learns_the_secret_when_it_comes() {
    let mut server = Server::redis().append_only().start();
    let plan = hidden("user", "5/day");
    let first = Node::patient(&server.url(), "later");
    first.take(&Ask::one(&plan, "ada")).unwrap();
    server.stop();
    let late = Node::hasty(&server.url(), "later");
    let error = late.take(&Ask::one(&plan, "ada")).unwrap_err();
    assert!(is_outage(&error), "{error}");
    server.start();
    late.recovers();
    assert_eq!(late.peek(&Ask::one(&plan, "ada").cost(0)).readings[0].remaining, 4);
}

#[test]
fn nodes_agree_on_the_secret_after_the_server_was_wiped() {
    let server = Server::redis().start();
    let plan = hidden("user", "5/day");
    let take = |node: &Node| node.take(&Ask::one(&plan, "ada")).unwrap().readings[0].remaining;
    let node = || Node::patient(&server.url(), "wiped");
    let (old, older) = (node(), node());
    assert_eq!((take(&old), take(&older)), (4, 3));
    let secret = wait(old.store.secret()).unwrap();
    let _ = server.command(&["FLUSHALL"]).ok();
    assert_eq!(take(&old), 4);
    // The first node that follows the records restores the secret before another is created.
    wait(old.store.changes(Namespace::Config, None)).unwrap();
    let new = node();
    assert_eq!((wait(new.store.secret()).unwrap(), take(&new)), (secret, 3));
    let _ = server.command(&["FLUSHALL"]).ok();
    // Here a new node was faster, and the others follow.
    let newest = node();
    let other = wait(newest.store.secret()).unwrap();
    assert_ne!(other, secret);
    wait(old.store.changes(Namespace::Config, None)).unwrap();
    wait(older.store.changes(Namespace::Config, None)).unwrap();
    assert_eq!((take(&newest), take(&old), take(&older)), (4, 3, 2));
}

#[test]
fn a_cluster_keeps_secret_keys_wherever_their_hashes_lead() {
    let cluster = Cluster::start(3);
    let plan = hidden("user", "2/day");
    let nodes = [(); 2].map(|()| Node::patient(&cluster.url(), "apart"));
    for number in 0..20 {
        let key = format!("user-{number}@example.org");
        let allowed = |turn: usize| nodes[turn % 2].take(&Ask::one(&plan, &key)).unwrap().allowed;
        assert_eq!((0..4).filter(|turn| allowed(*turn)).count(), 2, "{key}");
    }
    let on = cluster.nodes().iter().map(|node| names(&node.server, "apart"));
    let on: Vec<Vec<String>> = on.collect();
    assert_eq!(on.iter().flatten().count(), 20, "{on:?}");
    assert!(on.iter().filter(|names| !names.is_empty()).count() > 1, "{on:?}");
    assert!(on.iter().flatten().all(|name| name.starts_with("apart:{user:#")), "{on:?}");
}
