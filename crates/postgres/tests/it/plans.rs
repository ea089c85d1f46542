//! The server keeps the plans of our functions as long as a connection lasts. A plan that was made while the tables were
//! small must not read them as a whole when they are large.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{PATIENT, runtime, settings};
use tollgate_postgres::PostgresStore;
use tollgate_testbed::Postgres;

/// How many counters there are later, each with an entry.
const LATER: u32 = 20_000;

/// Calls of the functions that every decision and every sweep uses, at two counters.
const CALLS: [&str; 6] = [
    "s.lock_and_read('{1000,1000,1000}', '{7,8}', own.ids, NULL, true)",
    "s.oldest_entries(own.ids, 12, true)",
    "s.live_entries(own.ids, '{1,1}', '{0,0}', '{12,12}')",
    "s.own_entries(own.ids, '{1,1}', '{NULL,NULL}', 7, 0)",
    r#"s.update_counters(own.ids, '{"{1}","{1}"}', '{"{0}","{0}"}', '{2,2}', '{0,0}', '{0,0}', '{0,0}', '{5,5}')"#,
    "s.remove_counters(own.ids, 2000)",
];

/// Adds counters with these numbers, each with an entry of a log.
fn add(from: u32, to: u32) -> String {
    format!(
        "INSERT INTO s.counter SELECT decode(md5(n::text), 'hex'), 'rule', n::text, '5/min sliding', '{{1}}', '{{0}}', \
         '{{0}}', 2, 0, 0, 0, 5 FROM generate_series({from}, {to}) n; \
         INSERT INTO s.entry SELECT decode(md5(n::text), 'hex'), 0, 1, 1, 7, 1 FROM generate_series({from}, {to}) n;"
    )
}

#[test]
fn plans_for_small_tables_do_not_read_large_ones_as_a_whole() {
    let server = Postgres::start_with("fsync = off\nautovacuum = off");
    let starting = PostgresStore::start(settings(&server.url(), "s", PATIENT));
    drop(runtime().block_on(starting).unwrap());
    let read = "(SELECT sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid)) FROM pg_class \
                WHERE relnamespace = 's'::regnamespace AND relname IN ('counter', 'entry', 'counter_pkey', 'entry_pkey', \
                'entry_ticket'))";
    for call in CALLS {
        server.sql("TRUNCATE s.counter, s.entry");
        server.sql(&add(1, 4));
        // Only now does the server know how small they are.
        server.sql("VACUUM ANALYZE s.counter, s.entry");
        let call_at = |first: u32| {
            let ids = format!("ARRAY[decode(md5('{first}'), 'hex'), decode(md5('{}'), 'hex')]", first + 1);
            format!("SELECT count(*) FROM (SELECT {ids} AS ids) own, LATERAL {call} r;")
        };
        // One session and one transaction: the function keeps the plan of its first call.
        let told = server.sql(&format!(
            "SELECT 'plan'; {} {} SELECT {read}; {} SELECT {read};",
            call_at(1),
            add(5, LATER),
            call_at(3)
        ));
        let numbers: Vec<u64> = told.lines().filter_map(|line| line.parse().ok()).collect();
        let [.., before, rows, after] = numbers[..] else { panic!("{told}") };
        assert!(rows > 0, "{call} finds nothing");
        assert!(after - before < 100, "{call} reads {} rows of the tables for two counters", after - before);
    }
}
