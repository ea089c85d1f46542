//! Rows that say no more than none go by themselves, and rows that count stay.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::stage::{HASTY, Node, PATIENT, charges, plan, runtime, settings, shared, ticket};
use tollgate_core::store::{Forget, Refunded};
use tollgate_core::{Charges, Span, Store, Timestamp};
use tollgate_postgres::{PostgresStore, Settings};
use tollgate_store::ManualClock;
use tollgate_testbed::{Postgres, wait_until};

/// How many rows each table of a schema has.
fn rows(server: &Postgres, schema: &str) -> String {
    let count = |table: &str| format!("(SELECT count(*) FROM {schema}.{table})");
    let tables = ["counter", "entry", "hold", "spent"].map(count);
    server.sql(&format!("SELECT {}", tables.join(", ")))
}

#[test]
fn idle_rows_go_and_others_stay() {
    let schema = "swept";
    let now = shared().sql("SELECT (extract(epoch FROM now()) * 1000000)::bigint").parse().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(now)));
    let starting = PostgresStore::start(settings(&shared().url(), schema, PATIENT));
    let node = Node { store: runtime().block_on(starting).unwrap().with_clock(clock.clone()) };
    let brief = plan("brief", "5/min, 5/min sliding, 5 at once for 1m");
    let lasting = plan("lasting", "5/day, 5/day sliding, 5 at once for 1h");
    let eternal = plan("eternal", "5 in total");
    for plan in [&brief, &lasting, &eternal] {
        for key in 0..150 {
            node.take(plan, &key.to_string()).unwrap();
        }
        let ticket = ticket();
        let at = node.take_by(plan, "given", ticket).unwrap().now;
        node.refund(plan, "given", ticket, at).unwrap();
    }
    assert_eq!(rows(shared(), schema), "453|300|300|3");
    assert_eq!(runtime().block_on(node.store.sweep()).unwrap(), 1, "only what was given back in full");
    clock.set(Timestamp::from_micros(now) + Span::from_secs(3_500));
    let removed = runtime().block_on(node.store.sweep()).unwrap();
    assert_eq!(removed, 151, "all of `brief`");
    // The window of `lasting` that was given back keeps its end.
    assert_eq!(rows(shared(), schema), "301|150|150|3");
    let parts = [(Arc::clone(&lasting), "1".to_owned())];
    let mut outcome = Default::default();
    runtime().block_on(async { node.store.peek(&charges(ticket(), &parts), &mut outcome).await }).unwrap();
    assert_eq!(outcome.readings[0].remaining, 4);
}

#[test]
fn the_table_does_not_grow_from_round_to_round() {
    // The server extends a table by many pages when several connections need one: too much for a small table.
    let is_long = std::env::var_os("TOLLGATE_LONG").is_some();
    let (keys, together) = if is_long { (1_000_000, 16) } else { (400, 1) };
    // A server of its own: VACUUM keeps the rows that any transaction of the server may still see.
    let server = Postgres::start_with("fsync = off\nsynchronous_commit = off\nautovacuum = off");
    let start = Timestamp::from_micros(1_760_000_000_000_000);
    let clock = Arc::new(ManualClock::at(start));
    let settings = Settings {
        sweep_interval: Duration::from_secs(86_400),
        ..settings(&server.url(), "rounds", PATIENT)
    };
    let starting = PostgresStore::start(settings);
    let node = Node { store: runtime().block_on(starting).unwrap().with_clock(clock.clone()) };
    let plan = plan("brief", "5/min, 5/min sliding");
    let mut sizes = Vec::new();
    for round in 0..3_u64 {
        clock.set(start + Span::from_secs(round * 1_000));
        // Other keys in each round, as many in one attempt as it can have.
        for some in (0..keys).collect::<Vec<u64>>().chunks(together * Charges::MOST) {
            let (node, plan) = (&node, &plan);
            runtime().block_on(async {
                let takes = some.chunks(Charges::MOST).map(|keys| async move {
                    let parts: Vec<_> =
                        keys.iter().map(|key| (Arc::clone(plan), format!("{round} {key}"))).collect();
                    node.take_all(&charges(ticket(), &parts)).await.unwrap().allowed
                });
                assert!(futures_util::future::join_all(takes).await.into_iter().all(|allowed| allowed));
            });
        }
        let size = "SELECT sum(pg_table_size(c.oid)), sum(pg_total_relation_size(c.oid)) FROM pg_class c \
                    WHERE c.oid IN ('rounds.counter'::regclass, 'rounds.entry'::regclass)";
        let told = server.sql(size);
        let (tables, all) = told.split_once('|').unwrap();
        sizes.push([tables, all].map(|bytes| bytes.parse::<u64>().unwrap()));
        clock.set(start + Span::from_secs(round * 1_000 + 500));
        assert_eq!(runtime().block_on(node.store.sweep()).unwrap(), keys);
        // What autovacuum does by itself, sooner or later. Pages of indexes can be used again after the second.
        for table in ["counter", "entry", "counter", "entry"] {
            server.sql(&format!("VACUUM rounds.{table}"));
        }
    }
    println!("{keys} keys in each round, bytes of tables and with their indexes after each: {sizes:?}");
    let [tables, all] = [0, 1].map(|which| (sizes[0][which], sizes[2][which]));
    assert!(tables.1 <= tables.0 + tables.0 / 50, "the tables have grown: {sizes:?}");
    assert!(all.1 <= all.0 + all.0 / 4, "the indexes have grown: {sizes:?}");
    assert_eq!(rows(&server, "rounds"), "0|0|0|0");
}

/// A node by a clock of its own, on the shared server.
fn node_at(schema: &str, patience: Duration) -> (Arc<ManualClock>, Node) {
    let now = shared().sql("SELECT (extract(epoch FROM now()) * 1000000)::bigint").parse().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(now)));
    let settings = Settings {
        sweep_interval: Duration::from_secs(3_600),
        ..settings(&shared().url(), schema, patience)
    };
    let store = runtime().block_on(PostgresStore::start(settings)).unwrap();
    (clock.clone(), Node { store: store.with_clock(clock) })
}

fn later(clock: &ManualClock, span: Span) {
    clock.set(tollgate_core::Clock::now(clock) + span);
}

#[test]
fn long_logs_of_idle_keys_are_removed_in_portions() {
    let (clock, node) = node_at("portions", HASTY);
    let plan = plan("long", "90000/min sliding");
    for key in 0..25 {
        node.take(&plan, &key.to_string()).unwrap();
    }
    // More than can be removed within the time of a decision.
    shared().sql(
        "INSERT INTO portions.entry SELECT c.id, 0, n, e.at, n, 1 FROM portions.counter c \
         JOIN portions.entry e ON e.counter = c.id, generate_series(1, 10000) n; \
         UPDATE portions.counter SET used[1] = 10001, seq = 10001",
    );
    later(&clock, Span::from_secs(600));
    // A portion may come too late on a busy machine; those before it are gone for good.
    wait_until("every portion is removed", || {
        let _ = runtime().block_on(node.store.sweep());
        rows(shared(), "portions") == "0|0|0|0"
    });
}

#[test]
fn a_counter_that_cannot_be_removed_keeps_no_other() {
    let (clock, node) = node_at("stuck", PATIENT);
    let plan = plan("brief", "5/min, 5/min sliding");
    for key in 0..300 {
        node.take(&plan, &key.to_string()).unwrap();
    }
    // The first that is found.
    shared().sql(
        "CREATE FUNCTION stuck.refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF old.id = (SELECT id FROM stuck.counter ORDER BY id LIMIT 1) THEN RAISE 'stuck' USING ERRCODE = '55P03'; \
         END IF; RETURN old; END $$; \
         CREATE TRIGGER refuse BEFORE DELETE ON stuck.counter FOR EACH ROW EXECUTE FUNCTION stuck.refuse()",
    );
    later(&clock, Span::from_secs(600));
    let told = runtime().block_on(node.store.sweep());
    assert!(told.is_err(), "{told:?}");
    let left = shared().sql("SELECT count(*) FROM stuck.counter").parse::<u64>().unwrap();
    assert!((1..=64).contains(&left), "{left}");
    shared().sql("DROP TRIGGER refuse ON stuck.counter");
    assert_eq!(runtime().block_on(node.store.sweep()).unwrap(), left);
}

#[test]
fn marks_of_refunds_and_resets_expire() {
    let (clock, node) = node_at("marks", PATIENT);
    let (plan, own) = (plan("brief", "500/min"), ticket());
    let at = node.take_by(&plan, "k", own).unwrap().now;
    assert_eq!(node.refund(&plan, "k", own, at).unwrap(), Refunded::Done);
    node.forget(Forget::Rule("brief")).unwrap();
    // More than one look removes.
    let micros = at.as_micros();
    shared().sql(&format!(
        "INSERT INTO marks.spent SELECT '\\x00', n, n, {micros} FROM generate_series(1, 9000) n"
    ));
    let marks =
        || shared().sql("SELECT (SELECT count(*) FROM marks.spent), (SELECT count(*) FROM marks.forgotten)");
    for (days, expected) in [(0, "9001|1"), (2, "0|1"), (30, "0|1"), (35, "0|0")] {
        clock.set(at + Span::from_secs(days * 86_400));
        runtime().block_on(node.store.sweep()).unwrap();
        assert_eq!(marks(), expected, "after {days} days");
    }
}

#[test]
fn idle_rows_go_by_themselves() {
    let settings = Settings {
        sweep_interval: Duration::from_millis(50),
        ..settings(&shared().url(), "itself", PATIENT)
    };
    let start = Timestamp::from_micros(1_760_000_000_000_000);
    let clock = Arc::new(ManualClock::at(start));
    let store = runtime().block_on(PostgresStore::start(settings)).unwrap().with_clock(clock.clone());
    let node = Node { store };
    for key in 0..100 {
        node.take(&plan("brief", "5/min, 5/min sliding, 5 at once for 1m"), &key.to_string()).unwrap();
    }
    assert_eq!(rows(shared(), "itself"), "100|100|100|0");
    later(&clock, Span::from_secs(600));
    wait_until("they are gone", || rows(shared(), "itself") == "0|0|0|0");
}

#[test]
fn a_small_rule_among_many_counters_is_reset() {
    let (_clock, node) = node_at("small", HASTY);
    let (small, large) = (plan("small", "50/day"), plan("large", "50/day"));
    node.take(&small, "k").unwrap();
    node.take(&large, "k").unwrap();
    shared().sql(
        "INSERT INTO small.counter SELECT sha256(n::text::bytea), 'large', n::text, limits, used, marks, logs, seq, \
         holds, oldest, newest, NULL FROM small.counter c, generate_series(1, 150000) n WHERE c.rule = 'large'",
    );
    node.forget(Forget::Rule("small")).unwrap();
    assert_eq!((node.used(&small, "k"), node.used(&large, "k")), (0, 1));
}
