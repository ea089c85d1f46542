//! What `tollgate doctor` finds on servers that are set up otherwise than they should be.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::stage::{Node, PATIENT, client, runtime, settings, shared};
use tollgate_core::{Clock, Span, Timestamp};
use tollgate_postgres::inspect::{Finding, Grade, inspect};
use tollgate_store::ManualClock;
use tollgate_testbed::{Pgbouncer, Postgres};

fn server_time() -> Timestamp {
    let now = shared().sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    Timestamp::from_micros(now.parse().unwrap())
}

fn found(url: &str, schema: &str, clock: &dyn Clock) -> Vec<Finding> {
    runtime().block_on(inspect(&settings(url, schema, PATIENT), clock))
}

/// What was found about something, and how bad it is.
fn about<'f>(findings: &'f [Finding], what: &str) -> Option<(Grade, &'f str, &'f str)> {
    let finding = findings.iter().find(|finding| finding.about == what)?;
    Some((finding.grade, &finding.words, finding.remedy.as_deref().unwrap_or("")))
}

#[test]
fn a_server_that_is_well_has_no_warning() {
    drop(Node::new(&shared().url(), "well", PATIENT));
    let findings = found(&shared().url(), "well", &ManualClock::at(server_time()));
    assert!(findings.iter().all(|finding| finding.grade <= Grade::Note), "{findings:?}");
    let absent = ["pooler", "isolation", "clock", "permissions", "transactions", "role"];
    assert!(absent.iter().all(|what| about(&findings, what).is_none()), "{findings:?}");
    assert!(about(&findings, "server").unwrap().1.contains("PostgreSQL"), "{findings:?}");
}

#[test]
fn a_pooler_is_told_by_the_sessions_that_it_shares() {
    let pooler = Pgbouncer::start(shared(), 4);
    let findings = found(&pooler.url(), "well", &ManualClock::at(server_time()));
    assert_eq!(about(&findings, "pooler").unwrap().0, Grade::Note, "{findings:?}");
    let marked = "SELECT coalesce(current_setting('tollgate.doctor', true), '')";
    let session = client(&pooler.url());
    let rows = runtime().block_on(session.query_typed(marked, &[])).unwrap();
    assert_eq!(rows[0].get::<_, String>(0), "", "the session is left as it was");
}

#[test]
fn a_clock_another_isolation_level_and_missing_rights_are_told() {
    drop(Node::new(&shared().url(), "odd", PATIENT));
    shared().sql("CREATE ROLE odd LOGIN; GRANT USAGE ON SCHEMA odd TO odd; GRANT SELECT ON ALL TABLES IN SCHEMA odd TO odd");
    shared().sql("ALTER ROLE odd SET default_transaction_isolation = 'serializable'");
    shared().sql("REVOKE EXECUTE ON FUNCTION odd.remove_counters FROM PUBLIC");
    let url = shared().url().replace("postgres@", "odd@");
    let clock = Arc::new(ManualClock::at(server_time() + Span::from_secs(3_600)));
    let findings = found(&url, "odd", &*clock);
    assert!(about(&findings, "isolation").unwrap().1.contains("serializable"), "{findings:?}");
    assert_eq!(about(&findings, "clock").unwrap().0, Grade::Note, "{findings:?}");
    let (grade, words, remedy) = about(&findings, "permissions").unwrap();
    assert_eq!(grade, Grade::Problem);
    assert!(words.contains("counter") && words.contains("remove_counters"), "{words}");
    assert!(!words.contains("version"), "reading the version is enough: {words}");
    assert!(remedy.contains("IN SCHEMA odd TO odd") && remedy.contains("EXECUTE"), "{remedy}");
    let (_, words, remedy) = about(&findings, "transactions").unwrap();
    assert!(words.contains("does not see") && remedy.contains("pg_read_all_stats"), "{words}");
    // What it advises helps.
    shared().sql(remedy);
    for statement in about(&findings, "permissions").unwrap().2.split("; ") {
        shared().sql(statement);
    }
    let findings = found(&url, "odd", &*clock);
    assert!(about(&findings, "permissions").is_none() && about(&findings, "transactions").is_none());
}

#[test]
fn too_many_connections_have_a_remedy_of_their_own() {
    let server = Postgres::start_with("max_connections = 8\nsuperuser_reserved_connections = 2");
    server.sql("CREATE ROLE app LOGIN");
    let url = server.url().replace("postgres@", "app@");
    let others: Vec<_> = (0..6).map(|_| client(&url)).collect();
    let findings = found(&url, "busy", &ManualClock::at(server_time()));
    let (grade, words, remedy) = about(&findings, "connection").unwrap();
    assert!(grade == Grade::Problem && words.contains("53300"), "{findings:?}");
    assert!(remedy.contains("`max_connections`"), "{remedy}");
    drop(others);
}

#[test]
fn an_unused_replication_slot_is_reported() {
    let server = tollgate_testbed::Postgres::start_with("fsync = off");
    server.sql("SELECT pg_create_physical_replication_slot('forgotten', true)");
    let findings = found(&server.url(), "tollgate", &ManualClock::at(server_time()));
    let (grade, words, _) = about(&findings, "replication").unwrap();
    assert!(grade == Grade::Warning && words.contains("forgotten"), "{words}");
}
