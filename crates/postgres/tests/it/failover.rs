//! Other servers, and parts of a server that stand still: decisions are made again within three seconds,
//! wherever they can be.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::stage::{
    HASTY, Node, PATIENT, RECOVERY, charges, client, lock_of, now, plan, runtime, shared, ticket,
};
use tollgate_core::{Store, StoreError};
use tollgate_testbed::{Postgres, wait_until};

fn url_of(servers: &[&Postgres]) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("postgres://postgres@{}/postgres", hosts.join(","))
}

#[test]
fn a_failover_loses_no_count_that_a_replica_has_confirmed() {
    let mut primary = Postgres::start_with("");
    let replica = primary.replica();
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let node = Node::new(&url_of(&[&primary, &replica]), "tollgate", PATIENT);
    let plan = plan("a", "10/hour sliding");
    for _ in 0..7 {
        assert!(node.take(&plan, "k").unwrap().allowed);
    }
    primary.stop_immediately();
    assert!(node.take(&plan, "k").unwrap_err().is_outage(), "the replica cannot be written to");
    replica.promote();
    node.recovers();
    assert_eq!(node.used(&plan, "k"), 7);
    let admitted = (0..10).filter(|_| node.take(&plan, "k").unwrap().allowed).count();
    assert_eq!(admitted, 3);
}

#[test]
fn a_primary_that_became_read_only_is_left_for_the_new_one() {
    let primary = Postgres::start_with("");
    let replica = primary.replica();
    let node = Node::new(&url_of(&[&primary, &replica]), "tollgate", HASTY);
    let plan = plan("a", "10/hour sliding");
    assert!(node.take(&plan, "k").unwrap().allowed);
    // It lives on, and keeps its connections.
    primary.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    primary.sql("SELECT pg_reload_conf()");
    wait_until("it is read-only", || node.take(&plan, "k").is_err());
    assert!(node.probe().unwrap_err().is_outage());
    let before = primary.sql("SELECT sum(cost) FROM tollgate.send_log");
    wait_until("the replica has all", || replica.sql("SELECT sum(cost) FROM tollgate.send_log") == before);
    replica.promote();
    node.recovers();
    assert_eq!(node.used(&plan, "k").to_string(), before);
    assert!(node.take(&plan, "k").unwrap().allowed);
    assert_eq!(primary.sql("SELECT sum(cost) FROM tollgate.send_log"), before, "the old one is not asked");
}

#[test]
fn a_silent_host_takes_no_time_from_the_others() {
    let (silent, well) = (Postgres::start(), Postgres::start());
    silent.pause();
    let start = now();
    let node = Node::new(&url_of(&[&silent, &well]), "tollgate", HASTY);
    node.recovers();
    assert!(start.elapsed() < RECOVERY, "{:?}", start.elapsed());
    assert_eq!(well.sql("SELECT count(*) FROM tollgate.counter"), "1");
    // A host that falls silent later is left as well.
    silent.resume();
    well.pause();
    node.recovers();
}

#[test]
fn all_connections_to_suspended_processes_are_dropped_together() {
    let server = Postgres::start();
    let node = Node::new(&server.url(), "tollgate", HASTY);
    let plan = plan("a", "1000/min");
    runtime().block_on(async {
        let keys: Vec<String> = (0..40).map(|key| key.to_string()).collect();
        let parts: Vec<_> = keys.iter().map(|key| [(Arc::clone(&plan), key.clone())]).collect();
        // Refunds share no transaction, so that each needs a connection.
        let at = node.store.now().await.unwrap();
        let refunds =
            parts.iter().map(|parts| async { node.store.refund(&charges(ticket(), parts), at).await });
        futures_util::future::join_all(refunds).await;
    });
    let backends = server.backends("tollgate");
    assert!(backends.len() >= 4, "{backends:?}");
    server.pause_only(&backends);
    assert!(node.take(&plan, "k").unwrap_err().is_outage());
    // All of them would have been tried one after the other.
    node.probe().unwrap();
    node.recovers();
    server.resume();
}

#[test]
fn a_process_that_stands_still_with_a_lock_keeps_only_its_key_busy() {
    // On a busy machine, what is left of a short time-out after the wait for the lock is too little.
    let node = Node::new(&shared().url(), "held", Duration::from_secs(2));
    let plan = plan("a", "1000/min");
    node.take(&plan, "held").unwrap();
    let url = format!("{}?application_name=holder", shared().url());
    let holder = client(&url);
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({})", lock_of("held", "held"));
    runtime().block_on(holder.batch_execute(&lock)).unwrap();
    let backends = shared().backends("holder");
    shared().pause_only(&backends);
    for _ in 0..2 {
        assert_eq!(node.take(&plan, "held").unwrap_err(), StoreError::Busy);
        assert!(node.take(&plan, "free").unwrap().allowed);
    }
    drop(holder);
    shared().resume();
    let start = now();
    wait_until("the key is free", || node.take(&plan, "held").is_ok());
    assert!(start.elapsed() < RECOVERY);
}

#[test]
fn a_server_without_new_connections_still_serves_open_ones() {
    let server = Postgres::start();
    let node = Node::new(&server.url(), "tollgate", HASTY);
    let plan = plan("a", "1000/min");
    assert!(node.take(&plan, "k").unwrap().allowed);
    server.pause_only(&[server.pid()]);
    for _ in 0..20 {
        assert!(node.take(&plan, "k").unwrap().allowed);
    }
    let late = Node::new(&server.url(), "tollgate", HASTY);
    assert!(late.take(&plan, "k").unwrap_err().is_outage());
    server.resume();
    late.recovers();
    assert_eq!(late.used(&plan, "k"), 21);
}

#[test]
fn a_schema_that_was_dropped_is_made_again_and_a_newer_one_is_not_used() {
    let node = Node::new(&shared().url(), "dropped", HASTY);
    let plan = plan("a", "1000/min");
    assert!(node.take(&plan, "k").unwrap().allowed);
    shared().sql("DROP SCHEMA dropped CASCADE");
    node.recovers();
    assert_eq!(node.used(&plan, "k"), 0);
    shared().sql(
        "ALTER SCHEMA dropped RENAME TO kept; CREATE SCHEMA dropped; \
        CREATE TABLE dropped.version (number int); INSERT INTO dropped.version VALUES (99)",
    );
    wait_until(
        "it is noticed",
        || matches!(node.take(&plan, "k"), Err(StoreError::Refused { reason }) if reason.contains("version 99")),
    );
    shared().sql("DROP SCHEMA dropped CASCADE; ALTER SCHEMA kept RENAME TO dropped");
    node.recovers();
}
