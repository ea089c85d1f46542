//! What the program does while PostgreSQL cannot be used, and when what it keeps there is lost: it decides in
//! time, says how and why, tells the log once, and comes back by itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::nodes::{PATIENT, STEADY, attempt, comes_back, home, metric, store_lines};
use crate::outage::{RULES, Seen, started, survives};
use crate::program::{Home, Server, now, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::{Postgres, Proxy};

/// The settings that a store on PostgreSQL has by itself.
const DEFAULT: &str = "command_timeout: 250ms, connect_timeout: 1s";

/// A server, a proxy before it, and a node behind that.
fn node(settings: &str) -> (Postgres, Proxy, Home, Server) {
    let postgres = Postgres::start();
    let proxy = Proxy::to(postgres.port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let home = home(&url, settings, &RULES);
    let server = started(&home);
    (postgres, proxy, home, server)
}

#[test]
fn a_store_behind_a_black_hole_is_done_without() {
    let (_postgres, proxy, _home, server) = node(DEFAULT);
    survives(&server, "blackhole", || proxy.blackhole(), || proxy.heal());
}

#[test]
fn a_store_that_stands_still_is_done_without() {
    let (postgres, _proxy, _home, server) = node(DEFAULT);
    survives(&server, "paused", || postgres.pause(), || postgres.resume());
}

#[test]
fn a_store_that_cannot_be_written_to_is_done_without() {
    let (postgres, _proxy, _home, server) = node(DEFAULT);
    let set = |value: &str| {
        postgres.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"));
        postgres.sql("SELECT pg_reload_conf()");
    };
    survives(&server, "25006", || set("on"), || set("off"));
    assert!(
        server.log().contains("25006") || server.log().contains("cannot be written to"),
        "{}",
        server.log()
    );
}

#[test]
fn a_store_that_is_gone_is_looked_for_with_pauses() {
    let (mut postgres, proxy, _home, server) = node(DEFAULT);
    let before = proxy.connections();
    postgres.stop_immediately();
    let start = now();
    let seen = Seen::during(&server, Duration::from_secs(3));
    let (made, lasted) = (proxy.connections() - before, start.elapsed());
    println!("{made} connections in {lasted:?}");
    seen.check("gone");
    // A few soon after each other, then one in a second, and the probes.
    let most = 12 + 3 * lasted.as_secs();
    assert!((2..=most).contains(&made), "{made} connections, at most {most}");
    postgres.restart();
    println!("gone: back after {:?}", comes_back(&server, "half"));
}

#[test]
fn a_password_that_was_changed_is_told() {
    let postgres = Postgres::start();
    postgres.sql("CREATE ROLE app LOGIN PASSWORD 'right'; CREATE SCHEMA tollgate AUTHORIZATION app");
    postgres.ask_for_passwords();
    let url = format!("postgres://app:right@127.0.0.1:{}/postgres", postgres.port());
    let home = home(&url, STEADY, &RULES);
    let server = started(&home);
    postgres.sql("ALTER ROLE app PASSWORD 'other'");
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    wait_until("it is told", || server.get("/readyz").text().contains("28P01"));
    server.wait_for_log("28P01");
    assert!(!server.log().contains("right"), "{}", server.log());
    postgres.sql("ALTER ROLE app PASSWORD 'right'");
    comes_back(&server, "half");
}

#[test]
fn records_and_the_secret_that_are_deleted_are_told() {
    let postgres = Postgres::start();
    let home = home(&postgres.url(), PATIENT, &[("window", "by: user, limits: 1000/day")]);
    let server = home.start();
    comes_back(&server, "window");
    for user in ["ada", "bob"] {
        let path = format!("/api/v1/counters/window/{user}");
        assert_eq!(server.ask("PUT", &path, Some(&json!({ "limits": "7/day" }))).status, 200);
        wait_until("it is in force", || server.remaining("window", user) == 7);
    }
    // Until it has read what it wrote, it does not know what could be missing.
    let polls = || postgres.sql("SELECT sum(xact_commit) FROM pg_stat_database").parse::<u64>().unwrap();
    let before = polls();
    wait_until("it looks at its records", || polls() >= before + 60);
    let missing = || metric(&server, "tollgate_records_missing_total");
    assert_eq!(missing(), 0.0);
    postgres.sql("DELETE FROM tollgate.record WHERE name LIKE '%bob%'");
    wait_until("one that is gone is told", || missing() == 1.0);
    wait_until("what is left is in force", || server.remaining("window", "bob") == 1000);
    assert_eq!(server.remaining("window", "ada"), 7);
    postgres.sql("TRUNCATE tollgate.record, tollgate.record_space");
    wait_until("all that are gone are told", || missing() == 2.0);
    let secret = postgres.sql("SELECT encode(bytes, 'hex') FROM tollgate.secret");
    postgres.sql("DELETE FROM tollgate.secret");
    wait_until("the secret is put back", || {
        postgres.sql("SELECT encode(bytes, 'hex') FROM tollgate.secret") == secret
    });
    wait_until("the secret is counted too", || missing() == 3.0);
    let lines = store_lines(&server.log());
    let told = lines.iter().filter(|(level, message)| level == "error" && message.contains("are missing"));
    assert_eq!(told.count(), 3, "{lines:?}");
}

#[test]
fn a_batch_of_a_hundred_costs_a_few_round_trips_and_nodes_share_overrides() {
    let postgres = Postgres::start();
    let proxy = Proxy::to(postgres.port());
    let rules = [("window", "by: user, limits: 60/day"), ("sliding", "by: user, limits: 60/day sliding")];
    let far = home(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port()), PATIENT, &rules);
    let near = home(&postgres.url(), PATIENT, &rules);
    let (one, two) = (far.start(), near.start());
    for (policy, _) in rules {
        comes_back(&one, policy);
        let attempts: Vec<Value> = (0..100).map(|_| attempt(policy, "ada")).collect();
        let before = proxy.pieces_sent();
        let reply = one.check(&json!({ "attempts": attempts }));
        let pieces = proxy.pieces_sent() - before;
        let answers = reply.ok()["decisions"].as_array().cloned().unwrap_or_default();
        let allowed: Vec<bool> = answers.iter().map(|answer| answer["allowed"] == true).collect();
        assert_eq!(allowed, (0..100).map(|turn| turn < 60).collect::<Vec<_>>(), "{}", reply.text());
        // With what polls and probes send meanwhile.
        assert!(pieces < 60, "{policy}: 100 attempts in {pieces} pieces");
    }
    assert_eq!(
        one.ask("PUT", "/api/v1/counters/window/eve", Some(&json!({ "limits": "7/day" }))).status,
        200
    );
    wait_until("the other node follows", || two.remaining("window", "eve") == 7);
    let taken = one.check(&attempt("sliding", "bob")).ok();
    assert_eq!(two.remaining("sliding", "bob"), 59);
    let given = two.post("/api/v1/refund", &json!({ "receipt": taken["receipt"] }));
    assert_eq!((given.status, two.remaining("sliding", "bob")), (200, 60), "{}", given.text());
}
