//! The program on PostgreSQL: nodes share limits across restarts of each and of the server, and the log and
//! `tollgate doctor` report it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, text, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Postgres;

fn config(url: &str) -> String {
    format!(
        "store: {{ postgres: '{url}', command_timeout: 5s }}
rules:
  minute: {{ by: account, limits: 100/min }}
  hour: {{ by: account, limits: 100/hour sliding }}
  day: {{ by: account, limits: 100/day calendar }}
policies: {{ send: [minute, hour, day] }}
"
    )
}

fn send(account: &str) -> Value {
    json!({ "policy": "send", "fields": { "account": account } })
}

#[test]
fn nodes_share_limits_across_restarts_and_the_log_can_be_read() {
    let mut postgres = Postgres::start();
    let homes = [Home::with(&config(&postgres.url())), Home::with(&config(&postgres.url()))];
    let (one, two) = (homes[0].start(), homes[1].start());
    for server in [&one, &two] {
        for _ in 0..10 {
            let reply = server.check(&send("ada"));
            assert_eq!((reply.status, &reply.json()["origin"]), (200, &json!("store")), "{}", reply.json());
        }
    }
    one.stop();
    let one = homes[0].start();
    assert_eq!(one.remaining("hour", "ada"), 80);
    postgres.stop();
    wait_until("the outage is noticed", || one.check(&send("ada")).json()["origin"] != "store");
    postgres.restart();
    for server in [&one, &two] {
        wait_until("the store is used again", || server.check(&send("bob")).json()["origin"] == "store");
        for rule in ["minute", "hour", "day"] {
            assert_eq!(server.remaining(rule, "ada"), 80, "{rule}");
        }
    }
    let log = postgres
        .sql("SELECT rule, key, count(*), sum(cost) FROM tollgate.send_log WHERE key = 'ada' GROUP BY 1, 2");
    assert_eq!(log, "hour|ada|20|20");
}

#[test]
fn the_doctor_tells_what_it_finds_and_makes_nothing() {
    let postgres = Postgres::start();
    let home = Home::with(&config(&postgres.url()));
    let doctor = || home.program().args(["doctor", "--config", "tollgate.yaml"]).output().unwrap();
    let output = doctor();
    let words = text(&output.stdout);
    assert!(output.status.success() && words.contains("no tables yet"), "{words}");
    assert_eq!(postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'tollgate'"), "0");
    home.start().stop();
    let output = doctor();
    let words = text(&output.stdout);
    assert!(output.status.success() && words.contains("version 4"), "{words}");
    postgres.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    postgres.sql("SELECT pg_reload_conf()");
    wait_until("it is read-only", || doctor().status.code() == Some(2));
    let broken = Home::with(&config("postgres://u@127.0.0.1:1/d"));
    let output = broken.program().args(["doctor", "--config", "tollgate.yaml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
}
