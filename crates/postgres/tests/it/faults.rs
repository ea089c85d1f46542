//! What goes wrong with a server, and with what is in it: a clear error, nothing counted twice, and all is
//! well again by itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::stage::{HASTY, Node, PATIENT, charges, client, now, plan, runtime, settings, shared, ticket};
use tollgate_core::StoreError;
use tollgate_core::store::{Counter, Forget, ImpairmentKind, Refunded};
use tollgate_postgres::{PostgresStore, Settings, Tls};
use tollgate_testbed::{Postgres, wait_until};

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
    let start = now();
    let error = node.take(&plan, "k").unwrap_err();
    assert!(error.is_outage() && start.elapsed() < HASTY + Duration::from_secs(2), "{error:?}");
    server.resume();
    node.recovers();
    assert_eq!(node.used(&plan, "k"), 1, "what was asked while it was frozen never took effect");
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
    assert_eq!(shared().sql("SELECT count(*), max(number) FROM at_once.version"), "1|4");
}

#[test]
fn a_migration_that_was_cut_off_leaves_nothing_behind() {
    // A table of the same name stops the migration in the middle.
    shared().sql("CREATE SCHEMA cut_off; CREATE TABLE cut_off.hold (a int)");
    let error = refusal(settings(&shared().url(), "cut_off", PATIENT));
    assert!(error.contains("already exists"), "{error}");
    let tables = "SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = 'cut_off'::regnamespace";
    assert_eq!(shared().sql(tables), "hold", "all of a migration is made, or nothing");
    shared().sql("DROP TABLE cut_off.hold");
    assert!(Node::new(&shared().url(), "cut_off", PATIENT).take(&plan("a", "5/min"), "k").unwrap().allowed);
}

#[test]
fn settings_of_the_role_change_nothing() {
    shared().sql("CREATE ROLE strict SUPERUSER LOGIN");
    shared().sql("ALTER ROLE strict SET default_transaction_isolation = 'serializable'");
    shared().sql("ALTER ROLE strict SET standard_conforming_strings = off; ALTER ROLE strict SET bytea_output = 'escape'");
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
fn missing_rights_of_the_role_are_reported() {
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
    // Each right is looked at by itself.
    for (right, revoked) in [("SELECT", "counter"), ("INSERT", "entry"), ("DELETE", "spent")] {
        shared().sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA guarded TO reader");
        assert_eq!(node.probe().unwrap(), []);
        assert!(node.take(&plan("a", "50/min"), "k").unwrap().allowed);
        shared().sql(&format!("REVOKE {right} ON guarded.{revoked} FROM reader"));
        let impairments = node.probe().unwrap();
        assert_eq!(impairments[0].kind, ImpairmentKind::Forbidden, "{right}");
        let detail = &impairments[0].detail;
        assert!(detail.contains(revoked) && detail.contains("GRANT"), "{detail}");
    }
    shared().sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA guarded TO reader");
    shared().sql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA guarded FROM PUBLIC");
    let impairments = node.probe().unwrap();
    assert!(impairments[0].detail.contains("EXECUTE ON ALL FUNCTIONS"), "{}", impairments[0].detail);
    let error = node.take(&plan("a", "50/min"), "k").unwrap_err();
    assert!(matches!(error, StoreError::Forbidden { .. }), "{error:?}");
}

#[test]
fn a_full_disk_is_reported_and_reads_and_deletes_still_work() {
    let node = Node::new(&shared().url(), "filled", PATIENT);
    let (plan, ticket) = (plan("a", "50/hour sliding"), ticket());
    node.take_by(&plan, "k", ticket).unwrap();
    // As a server says it that cannot make a table longer.
    shared().sql(
        "CREATE FUNCTION filled.full_disk() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON filled.entry EXECUTE FUNCTION filled.full_disk()",
    );
    let error = node.take(&plan, "k").unwrap_err();
    assert!(matches!(error, StoreError::OutOfMemory { .. }) && !error.is_outage(), "{error:?}");
    let impairments = node.probe().unwrap();
    assert_eq!(impairments[0].kind, ImpairmentKind::Full);
    assert!(impairments[0].detail.contains("53100"), "{}", impairments[0].detail);
    assert_eq!(node.used(&plan, "k"), 1, "nothing was counted");
    node.forget(Forget::Key(Counter { plan: &plan, key: "k" })).unwrap();
    assert_eq!(node.used(&plan, "k"), 0);
    shared().sql("DROP TRIGGER full_disk ON filled.entry");
    node.recovers();
    assert_eq!(node.probe().unwrap(), []);
}

#[test]
fn an_update_that_the_server_refuses_counts_nothing_for_certain() {
    let node = Node::new(&shared().url(), "refused", PATIENT);
    let plans = [plan("a", "50/hour"), plan("b", "50/hour sliding")];
    let parts = plans.each_ref().map(|plan| (Arc::clone(plan), "k".to_owned()));
    let take = || runtime().block_on(node.take_all(&charges(ticket(), &parts)));
    assert!(take().unwrap().allowed);
    shared().sql(
        "CREATE FUNCTION refused.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$; \
         CREATE TRIGGER refuse BEFORE UPDATE ON refused.counter EXECUTE FUNCTION refused.refuse()",
    );
    let error = take().unwrap_err();
    assert!(matches!(&error, StoreError::Refused { reason } if reason.contains("not today")), "{error:?}");
    assert!(!error.is_uncertain());
    for plan in &plans {
        assert_eq!(node.used(plan, "k"), 1, "neither the counter nor the entry was written");
    }
    shared().sql("DROP TRIGGER refuse ON refused.counter");
    assert!(take().unwrap().allowed);
    assert_eq!(plans.each_ref().map(|plan| node.used(plan, "k")), [2, 2]);
}

#[test]
fn a_password_is_asked_for_and_a_wrong_one_is_told() {
    let server = Postgres::start_with("password_encryption = 'scram-sha-256'");
    server.sql("CREATE ROLE app LOGIN PASSWORD 'right'; CREATE SCHEMA tollgate AUTHORIZATION app");
    server.ask_for_passwords();
    let url = |password: &str| server.url().replace("postgres@", &format!("app:{password}@"));
    let node = Node::new(&url("right"), "tollgate", PATIENT);
    assert!(node.take(&plan("a", "5/min"), "k").unwrap().allowed);
    let error = refusal(settings(&url("wrong"), "tollgate", PATIENT));
    assert!(error.contains("28P01") && !error.contains("wrong"), "{error}");
    // A password that is changed later is an outage, until it is changed back.
    server.sql("ALTER ROLE app PASSWORD 'other'");
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    wait_until("it is noticed", || {
        node.probe().is_err_and(|error| error.is_outage() && error.to_string().contains("28P01"))
    });
    server.sql("ALTER ROLE app PASSWORD 'right'");
    assert!(node.probe().is_ok());
    node.recovers();
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
    assert!(node.probe().unwrap_err().is_outage());
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
fn an_open_transaction_of_an_application_delays_no_decision() {
    let node = Node::new(&shared().url(), "beside", PATIENT);
    let plan = plan("a", "500000/min");
    node.take(&plan, "k").unwrap();
    let application = client(&shared().url());
    let begin = "BEGIN; CREATE TABLE beside.of_the_application (a int); SELECT count(*) FROM beside.counter; \
                 SELECT pg_advisory_xact_lock(1); SELECT pg_advisory_xact_lock(1, 1)";
    runtime().block_on(application.batch_execute(begin)).unwrap();
    // As many versions of one row as it makes in an hour, of which none can be removed.
    runtime().block_on(async {
        let parts = [(Arc::clone(&plan), "k".to_owned())];
        for _ in 0..300 {
            let takes =
                (0..40).map(|_| async { node.take_all(&charges(ticket(), &parts)).await.unwrap().allowed });
            assert!(futures_util::future::join_all(takes).await.into_iter().all(|allowed| allowed));
        }
    });
    let locks = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                 WHERE a.application_name = 'tollgate' AND l.relation = 'beside.of_the_application'::regclass";
    runtime().block_on(application.batch_execute("COMMIT")).unwrap();
    assert_eq!(shared().sql(locks), "0");
    // A lock on the whole table keeps callers waiting, and is no outage.
    let hasty = Node::new(&shared().url(), "beside", Duration::from_secs(1));
    hasty.take(&plan, "k").unwrap();
    runtime().block_on(application.batch_execute("BEGIN; LOCK TABLE beside.counter")).unwrap();
    assert_eq!(hasty.take(&plan, "k").unwrap_err(), StoreError::Busy);
    runtime().block_on(application.batch_execute("ROLLBACK")).unwrap();
    hasty.recovers();
}

#[test]
fn updates_stay_in_their_page() {
    let node = Node::new(&shared().url(), "pages", PATIENT);
    let plan = plan("a", "100000/hour, 100/s burst 1000, 100000/hour sliding");
    for turn in 0..1_500 {
        node.take(&plan, &format!("k{}", turn % 20)).unwrap();
    }
    let ratio = "SELECT n_tup_upd, round(100.0 * n_tup_hot_upd / n_tup_upd) FROM pg_stat_all_tables \
                 WHERE schemaname = 'pages' AND relname = 'counter'";
    wait_until("the statistics are there", || {
        let told = shared().sql(ratio);
        let (updates, hot) = told.split_once('|').unwrap_or(("0", "0"));
        updates.parse::<u64>().is_ok_and(|updates| updates >= 1_400) && {
            assert!(hot.parse::<u64>().unwrap() >= 80, "only {hot} % of the updates stayed in their page");
            true
        }
    });
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
    let (_verified, answer) = with(Tls { authorities, unverified: false, identity: None });
    assert!(answer.unwrap().allowed);
    let (_unverified, answer) = with(Tls { authorities: None, unverified: true, identity: None });
    assert!(answer.unwrap().allowed);
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'tollgate'";
    assert_eq!(server.sql(encrypted), "t");
    let plain = Postgres::start();
    let node = Node::new(&format!("{}?sslmode=require", plain.url()), "tollgate", PATIENT);
    let error = node.take(&plan("a", "100/min"), "k").unwrap_err();
    assert!(error.is_outage(), "a server without TLS is not used: {error}");
}
