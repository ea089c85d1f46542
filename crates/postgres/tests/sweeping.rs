//! Rows that say no more than none go by themselves, and rows that count stay.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stage;

use std::sync::Arc;

use stage::{Node, PATIENT, charges, plan, runtime, settings, shared, ticket};
use tollgate_core::{Span, Store, Timestamp};
use tollgate_postgres::PostgresStore;
use tollgate_store::ManualClock;
use tollgate_testbed::Postgres;

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
    let keys = if std::env::var_os("TOLLGATE_LONG").is_some() { 100_000 } else { 3_000 };
    // A server of its own: VACUUM keeps the rows that any transaction of the server may still see.
    let server = Postgres::start_with("autovacuum = off");
    let start = Timestamp::from_micros(1_760_000_000_000_000);
    let clock = Arc::new(ManualClock::at(start));
    let starting = PostgresStore::start(settings(&server.url(), "rounds", PATIENT));
    let node = Node { store: runtime().block_on(starting).unwrap().with_clock(clock.clone()) };
    let plan = plan("brief", "5/min, 5/min sliding");
    let mut sizes = Vec::new();
    for round in 0..3_u64 {
        clock.set(start + Span::from_secs(round * 1_000));
        // Other keys in each round.
        for some in (0..keys).collect::<Vec<u64>>().chunks(1_000) {
            let (node, plan) = (&node, &plan);
            runtime().block_on(async {
                let takes = some.iter().map(|key| async move {
                    let parts = [(Arc::clone(plan), format!("{round} {key}"))];
                    node.take_all(&charges(ticket(), &parts)).await.unwrap().allowed
                });
                assert!(futures_util::future::join_all(takes).await.into_iter().all(|allowed| allowed));
            });
        }
        let size = "SELECT pg_table_size('rounds.counter') + pg_table_size('rounds.entry')";
        sizes.push(server.sql(size).parse::<u64>().unwrap());
        clock.set(start + Span::from_secs(round * 1_000 + 500));
        assert_eq!(runtime().block_on(node.store.sweep()).unwrap(), keys);
        // What autovacuum does by itself, sooner or later.
        for table in ["counter", "entry"] {
            server.sql(&format!("VACUUM rounds.{table}"));
        }
    }
    assert!(sizes[2] <= sizes[0] + sizes[0] / 10, "{sizes:?}");
    assert_eq!(rows(&server, "rounds"), "0|0|0|0");
}
