//! What goes wrong with a server, and with what is in it: a clear error, nothing counted twice, and all is
//! well again by itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use stage::{HASTY, Node, PATIENT, plan, runtime, settings, shared, ticket};
use tollgate_core::store::{ImpairmentKind, Refunded};
use tollgate_core::{Store, StoreError};
use tollgate_postgres::{PostgresStore, Settings, Tls};
use tollgate_testbed::{Postgres, Proxy, wait_until};

fn refusal(settings: Settings) -> String {
    runtime().block_on(PostgresStore::start(settings)).err().unwrap()
}

#[test]
fn limits_are_shared_and_outlive_every_restart() {
    let mut server = Postgres::start_with("");
    let plans =
        [plan("minute", "100/min"), plan("hour", "100/hour sliding"), plan("day", "100/day burst 50")];
    let one = Node::new(&server.url(), "tollgate", PATIENT);
    let two = Node::new(&server.url(), "tollgate", PATIENT);
    for plan in &plans {
        for node in [&one, &two] {
            assert!(node.take(plan, "k").unwrap().allowed);
        }
    }
    drop(one);
    let one = Node::new(&server.url(), "tollgate", PATIENT);
    server.stop_immediately();
    assert!(one.take(&plans[0], "k").unwrap_err().is_outage());
    server.restart();
    for node in [&one, &two] {
        node.recovers();
        for plan in &plans {
            assert_eq!(node.used(plan, "k"), 2, "{}", plan.rule());
        }
    }
}

#[test]
fn a_store_starts_without_its_server_and_uses_it_when_it_comes() {
    let mut server = Postgres::start();
    server.stop();
    let node = Node::new(&server.url(), "late", HASTY);
    assert!(node.take(&plan("a", "5/min"), "k").unwrap_err().is_outage());
    server.restart();
    node.recovers();
}

#[test]
fn a_frozen_server_is_not_waited_for_longer_than_the_time_out() {
    let server = Postgres::start();
    let node = Node::new(&server.url(), "frozen", HASTY);
    let plan = plan("a", "1000/min");
    assert!(node.take(&plan, "k").unwrap().allowed);
    server.pause();
    #[expect(clippy::disallowed_methods, reason = "how long a call takes is what is tested")]
    let start = Instant::now();
    let error = node.take(&plan, "k").unwrap_err();
    assert!(error.is_outage() && start.elapsed() < HASTY + Duration::from_secs(2), "{error:?}");
    server.resume();
    node.recovers();
    assert_eq!(node.used(&plan, "k"), 1, "what was asked while it was frozen never took effect");
}

#[test]
fn a_node_that_stops_within_a_transaction_is_cut_off() {
    let node = Node::new(&shared().url(), "paused", HASTY);
    let plan = plan("a", "1000/min");
    let proxy = Proxy::to(shared().port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let other = Node::new(&url, "paused", Duration::from_secs(3));
    // It has the lock, and never learns that it has.
    proxy.swallow_replies();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| other.take(&plan, "k"));
        wait_until("the lock is taken", || {
            shared().sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") != "0"
        });
        assert_eq!(node.take(&plan, "k").unwrap_err(), StoreError::Busy, "the store is well");
        assert!(asking.join().unwrap().is_err());
    });
    proxy.heal();
    node.recovers();
    wait_until("the lock is free", || node.take(&plan, "k").is_ok());
}

#[test]
fn a_lost_reply_counts_at_most_once_and_is_retracted_by_its_ticket() {
    let (direct, proxy) = (Node::new(&shared().url(), "lost", PATIENT), Proxy::to(shared().port()));
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let node = Node::new(&url, "lost", Duration::from_secs(1));
    for limits in ["1000/hour sliding", "1000 at once", "ladder 500 lock 1m forget 1h"] {
        let plan = plan(limits, limits);
        assert!(node.take(&plan, "k").unwrap().allowed);
        let (lost, mut made) = (ticket(), false);
        // The commit is sent once the first half was answered.
        let before = proxy.bytes_received();
        node.take(&plan, "k").unwrap();
        let whole = proxy.bytes_received() - before;
        proxy.cut_after(usize::try_from(whole).unwrap() - 20);
        made |= node.take_by(&plan, "k", lost).is_ok();
        proxy.heal();
        node.recovers();
        let used = direct.used(&plan, "k");
        assert!(used == 2 || used == 3, "{limits}: {used}");
        direct.retract(&plan, "k", lost).unwrap();
        assert_eq!(direct.used(&plan, "k"), 2, "{limits}, answered: {made}");
    }
}

#[test]
fn a_refund_is_made_once() {
    let node = Node::new(&shared().url(), "refunded", PATIENT);
    for limits in
        ["1000/hour", "1000/hour sliding", "1000/hour sliding by 1m", "1000 at once", "1000 in total"]
    {
        let (plan, ticket) = (plan(limits, limits), ticket());
        let at = node.take_by(&plan, "k", ticket).unwrap().now;
        node.take(&plan, "k").unwrap();
        assert_eq!(node.refund(&plan, "k", ticket, at).unwrap(), Refunded::Done, "{limits}");
        assert_eq!(node.refund(&plan, "k", ticket, at).unwrap(), Refunded::Already, "{limits}");
        assert_eq!(node.used(&plan, "k"), 1, "{limits}");
    }
}

#[test]
fn a_newer_schema_is_refused() {
    drop(Node::new(&shared().url(), "newer", PATIENT));
    shared().sql("UPDATE newer.version SET number = 99");
    let error = refusal(settings(&shared().url(), "newer", PATIENT));
    assert!(error.contains("version 99") && error.contains("newer"), "{error}");
}

#[test]
fn nodes_that_start_at_once_make_the_tables_once() {
    std::thread::scope(|scope| {
        let starting: Vec<_> =
            (0..8).map(|_| scope.spawn(|| Node::new(&shared().url(), "at_once", PATIENT))).collect();
        for node in starting {
            assert!(node.join().unwrap().take(&plan("a", "100/min"), "k").unwrap().allowed);
        }
    });
    assert_eq!(shared().sql("SELECT count(*), max(number) FROM at_once.version"), "1|1");
}

#[test]
fn another_isolation_level_of_the_role_changes_nothing() {
    shared().sql("CREATE ROLE strict SUPERUSER LOGIN");
    shared().sql("ALTER ROLE strict SET default_transaction_isolation = 'serializable'");
    let url = shared().url().replace("postgres@", "strict@");
    let nodes: Vec<Node> = (0..2).map(|_| Node::new(&url, "strict", PATIENT)).collect();
    let plan = plan("a", "50/min");
    let admitted = std::thread::scope(|scope| {
        let takes = (0..8).map(|caller| {
            let (node, plan) = (&nodes[caller % 2], &plan);
            scope.spawn(move || (0..20).filter(|_| node.take(plan, "k").unwrap().allowed).count())
        });
        takes.collect::<Vec<_>>().into_iter().map(|take| take.join().unwrap()).sum::<usize>()
    });
    assert_eq!(admitted, 50);
}

#[test]
fn what_the_role_may_not_do_is_told() {
    drop(Node::new(&shared().url(), "guarded", PATIENT));
    shared().sql("CREATE ROLE reader LOGIN");
    let url = shared().url().replace("postgres@", "reader@");
    let error = refusal(settings(&url, "guarded", PATIENT));
    assert!(error.contains("permission denied"), "{error}");
    shared().sql(
        "GRANT USAGE ON SCHEMA guarded TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA guarded TO reader",
    );
    let node = Node::new(&url, "guarded", PATIENT);
    let error = node.take(&plan("a", "5/min"), "k").unwrap_err();
    assert!(matches!(error, StoreError::Forbidden { .. }), "{error:?}");
    let impairments = runtime().block_on(async { node.store.probe().await }).unwrap();
    assert_eq!(impairments[0].kind, ImpairmentKind::Forbidden);
    assert!(impairments[0].detail.contains("GRANT"), "{}", impairments[0].detail);
}

#[test]
fn a_read_only_server_and_a_missing_database_are_outages() {
    let server = Postgres::start();
    let node = Node::new(&server.url(), "tollgate", PATIENT);
    let plan = plan("a", "5/min");
    assert!(node.take(&plan, "k").unwrap().allowed);
    server.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    server.sql("SELECT pg_reload_conf()");
    wait_until("it is read-only", || node.take(&plan, "k").is_err());
    let error = node.take(&plan, "k").unwrap_err();
    assert!(matches!(&error, StoreError::Refused { reason } if reason.contains("25006")), "{error:?}");
    assert!(runtime().block_on(async { node.store.probe().await }).unwrap_err().is_outage());
    server.sql("ALTER SYSTEM RESET default_transaction_read_only");
    server.sql("SELECT pg_reload_conf()");
    node.recovers();
    let error = refusal(settings(&server.url().replace("/postgres", "/nothing"), "tollgate", PATIENT));
    assert!(error.contains("does not exist"), "{error}");
}

#[test]
fn too_many_connections_are_an_outage_that_ends() {
    let server = Postgres::start_with("max_connections = 8\nsuperuser_reserved_connections = 2");
    server.sql("CREATE ROLE app LOGIN; CREATE SCHEMA tollgate AUTHORIZATION app");
    let url = server.url().replace("postgres@", "app@");
    let hog = runtime().block_on(async {
        let mut hog = Vec::new();
        for _ in 0..6 {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            runtime().spawn(connection);
            hog.push(client);
        }
        hog
    });
    let node = Node::new(&url, "tollgate", HASTY);
    let error = node.take(&plan("a", "5/min"), "k").unwrap_err();
    assert!(error.is_outage() && error.to_string().contains("53300"), "{error}");
    drop(hog);
    node.recovers();
}

#[test]
fn rows_that_are_not_ours_are_told_and_touch_no_other_key() {
    let node = Node::new(&shared().url(), "garbled", PATIENT);
    let plan = plan("a", "5/min, 5/hour sliding, 3 at once");
    assert!(node.take(&plan, "bad").unwrap().allowed);
    for change in [
        "states = '\\xffff'",
        "states = ''",
        "limits = 'nonsense'",
        "used = '{-5}', states = states",
        "born = '{}'",
        "used = '{0}'",
        "held = -1, holds = 100",
    ] {
        shared().sql("CREATE TABLE IF NOT EXISTS garbled.backup AS SELECT * FROM garbled.counter");
        shared().sql(&format!("UPDATE garbled.counter SET {change} WHERE key = 'bad'"));
        let error = node.take(&plan, "bad").unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{change}: {error:?}");
        assert!(!error.is_outage());
        node.take(&plan, "good").unwrap();
        shared().sql(
            "UPDATE garbled.counter c SET states = b.states, limits = b.limits, used = b.used, \
             born = b.born, held = b.held, holds = b.holds FROM garbled.backup b WHERE b.id = c.id AND c.key = 'bad'",
        );
        node.take(&plan, "bad").unwrap();
        shared().sql("DROP TABLE garbled.backup");
    }
}

#[test]
fn an_open_transaction_of_an_application_keeps_nobody_waiting() {
    let node = Node::new(&shared().url(), "beside", PATIENT);
    let plan = Arc::clone(&plan("a", "500/min"));
    node.take(&plan, "k").unwrap();
    let client = runtime().block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&shared().url(), tokio_postgres::NoTls).await.unwrap();
        runtime().spawn(connection);
        client
            .batch_execute("BEGIN; SELECT count(*) FROM beside.counter; SELECT pg_advisory_xact_lock(1)")
            .await
            .unwrap();
        client
    });
    for _ in 0..50 {
        assert!(node.take(&plan, "k").unwrap().allowed);
    }
    drop(client);
}

#[test]
fn a_certificate_is_verified() {
    let server = Postgres::start_with_tls();
    let url = format!("{}?sslmode=require", server.url());
    let with = |tls: Tls| {
        let settings = Settings { tls: Some(tls), ..settings(&url, "tollgate", PATIENT) };
        let node = Node::with(settings);
        let answer = node.take(&plan("a", "100/min"), "k");
        (node, answer)
    };
    let error = with(Tls::default()).1.unwrap_err();
    assert!(error.is_outage() && error.to_string().contains("certificate"), "{error}");
    let authorities = Some(server.authority().to_owned());
    let (_verified, answer) = with(Tls { authorities, unverified: false });
    assert!(answer.unwrap().allowed);
    let (_unverified, answer) = with(Tls { authorities: None, unverified: true });
    assert!(answer.unwrap().allowed);
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'tollgate'";
    assert_eq!(server.sql(encrypted), "t");
    let plain = Postgres::start();
    let node = Node::new(&format!("{}?sslmode=require", plain.url()), "tollgate", PATIENT);
    let error = node.take(&plan("a", "100/min"), "k").unwrap_err();
    assert!(error.is_outage(), "a server without TLS is not used: {error}");
}

#[test]
fn a_failover_loses_no_count_that_a_replica_has_confirmed() {
    let mut primary = Postgres::start_with("");
    let replica = primary.replica();
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), replica.port());
    let node = Node::new(&format!("postgres://postgres@{hosts}/postgres"), "tollgate", PATIENT);
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
