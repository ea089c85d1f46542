//! Tables of an older version are brought to this one and keep what they count; of many nodes one sweeps.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::stage::{Node, PATIENT, plan, runtime, settings, shared};
use tollgate_postgres::{PostgresStore, Settings};
use tollgate_testbed::wait_until;

#[test]
fn tables_of_the_first_version_are_upgraded_and_keep_their_counts() {
    let schema = "upgraded";
    shared().sql(&format!("CREATE SCHEMA {schema}"));
    shared().sql(&include_str!("../../src/schema/1.sql").replace('@', schema));
    shared().sql(&format!("UPDATE {schema}.version SET number = 1"));
    let start = || Node {
        store: runtime().block_on(PostgresStore::start(settings(&shared().url(), schema, PATIENT))).unwrap(),
    };
    let plan = plan("day", "3/day, 3/day sliding");
    for _ in 0..2 {
        // The second node finds tables that are of its version already.
        assert!(start().take(&plan, "ada").unwrap().allowed);
    }
    assert_eq!(shared().sql(&format!("SELECT number FROM {schema}.version")), "4");
    // What the first version had is there after an upgrade of tables that are in use.
    shared().sql(&format!(
        "DROP TABLE {schema}.swept; UPDATE {schema}.version SET number = 1; DROP INDEX {schema}.entry_ticket; \
         DROP FUNCTION {schema}.lock_and_load(text[], bigint[], bytea[], bigint, boolean), \
         {schema}.lock_and_read, {schema}.update_counters"
    ));
    let upgraded = start();
    assert!(upgraded.take(&plan, "ada").unwrap().allowed);
    assert!(!upgraded.take(&plan, "ada").unwrap().allowed, "both takes before the upgrade count");
}

#[test]
fn of_many_nodes_one_looks_for_idle_rows() {
    let schema = "claimed";
    let interval = Duration::from_millis(400);
    let start = || {
        let settings = Settings { sweep_interval: interval, ..settings(&shared().url(), schema, PATIENT) };
        runtime().block_on(PostgresStore::start(settings)).unwrap()
    };
    let first = start();
    shared().sql(&format!(
        "CREATE TABLE {schema}.claim (at bigint); \
         CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO {schema}.claim VALUES (new.at); RETURN new; END $$; \
         CREATE TRIGGER note AFTER UPDATE ON {schema}.swept FOR EACH ROW EXECUTE FUNCTION {schema}.note()"
    ));
    let _nodes = [first, start(), start(), start()];
    let claims = || -> Vec<i64> {
        let told = shared().sql(&format!("SELECT at FROM {schema}.claim ORDER BY at"));
        told.lines().map(|at| at.parse().unwrap()).collect()
    };
    wait_until("some rounds", || claims().len() >= 6);
    let claims = claims();
    let half = i64::try_from(interval.as_micros() / 2).unwrap();
    assert!(claims.windows(2).all(|two| two[1] - two[0] > half), "{claims:?}");
    // A clock that went back does not delay the next round for long.
    let ahead = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 3600000000";
    shared().sql(&format!("UPDATE {schema}.swept SET at = {ahead}; DELETE FROM {schema}.claim"));
    wait_until("a round by the new clock", || {
        shared().sql(&format!("SELECT count(*) FROM {schema}.claim WHERE at < {ahead} - 1800000000")) != "0"
    });
}
