//! Overrides that end: `tollgate set … --for`, on every store, with the remaining time in every place that
//! shows an override.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes::{PATIENT, attempt};
use crate::program::{Home, Server, text, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::{Postgres, Server as Redis};

const DAY_MS: u64 = 86_400_000;

fn home(store: &str) -> Home {
    Home::with(&format!(
        "store: {store}
log: {{ format: json }}
rules:
  user: {{ by: user, limits: 2/4w }}
  key: {{ by: api_key, limits: 2/4w, secret: true }}
policies: {{ user: [user], key: [key] }}
"
    ))
}

fn capacity(server: &Server) -> Value {
    server.get("/api/v1/counters/user/ada").ok()["limits"][0]["capacity"].clone()
}

fn run(home: &Home, server: &Server, arguments: &[&str]) -> String {
    let output = home.run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// Sets limits for a time over the command line, and counts three attempts, which the rule would not allow.
fn set(home: &Home, server: &Server, lasts: &str) {
    let said = run(home, server, &["set", "user", "ada", "5/4w", "--for", lasts]);
    assert!(said.starts_with("user ada (override, for another "), "{said}");
    for _ in 0..3 {
        assert_eq!(server.check(&attempt("user", "ada")).status, 200);
    }
}

/// The rule's own limit is in force again, and three attempts are still counted.
fn check_ended(server: &Server) {
    wait_until("the rule's own limit is in force again", || capacity(server) == 2);
    let shown = server.get("/api/v1/counters/user/ada").ok();
    assert_eq!((&shown["overridden"], &shown["override_ends"]), (&json!(false), &Value::Null));
    assert_eq!(shown["limits"][0]["remaining"], 0, "the counts stay: {shown}");
    assert_eq!(server.check(&attempt("user", "ada")).status, 429);
    assert_eq!(server.get("/api/v1/counters").ok()["rules"]["user"]["override_ends"], Value::Null);
}

#[test]
fn on_a_file_it_is_shown_survives_a_restart_and_ends() {
    let home = home("{ file: ./state.redb, sync: always }").with_moved_clock();
    let server = home.start();
    set(&home, &server, "1d");
    let ends = server.get("/api/v1/counters/user/ada").ok()["override_ends"].clone();
    let left = ends["after_ms"].as_u64().unwrap();
    assert!(left > DAY_MS - 60_000 && left <= DAY_MS, "{ends}");
    assert!(ends["at"].as_str().unwrap().ends_with('Z'), "{ends}");
    let listed = server.get("/api/v1/counters").ok()["rules"]["user"].clone();
    assert_eq!(listed["overrides"]["ada"], json!(["5/4w"]));
    assert!(listed["override_ends"]["ada"]["after_ms"].as_u64().unwrap() <= left, "{listed}");
    server.wait_for_log("\"after\":\"5/4w for 1d\"");
    server.stop();

    let server = home.start();
    home.shift_clock(86_400 - 7_200);
    wait_until("two hours are left", || {
        let peeked = run(&home, &server, &["peek", "user", "ada"]);
        peeked.contains("override, for another 2h") || peeked.contains("override, for another 1h 59m")
    });
    let config = run(&home, &server, &["config"]);
    assert!(config.contains("5/4w, for 2h") || config.contains("5/4w, for 1h 59m"), "{config}");
    home.shift_clock(86_400);
    check_ended(&server);
    let unset = run(&home, &server, &["set", "user", "ada", "--unset"]);
    assert_eq!(unset, "ada had no override in rule user\n");
}

#[test]
fn every_node_on_redis_ends_it_by_the_clock_of_redis() {
    let redis = Redis::redis().faketime(0).start();
    let store = format!("{{ redis: '{}', {PATIENT} }}", redis.url());
    let homes = [home(&store), home(&store)];
    let (one, two) = (homes[0].start(), homes[1].start());
    set(&homes[0], &one, "1d");
    wait_until("the other node knows", || capacity(&two) == 5);
    let shown = run(&homes[1], &two, &["peek", "user", "ada"]);
    assert!(shown.contains("for another 1d") || shown.contains("for another 23h 59m"), "{shown}");
    redis.shift_clock(86_401);
    check_ended(&one);
    check_ended(&two);
}

#[test]
fn every_node_on_postgresql_ends_it() {
    let postgres = Postgres::start();
    let store = format!("{{ postgres: '{}', command_timeout: 5s }}", postgres.url());
    let homes = [home(&store), home(&store)];
    let (one, two) = (homes[0].start(), homes[1].start());
    set(&homes[0], &one, "6s");
    wait_until("the other node knows", || capacity(&two) == 5);
    check_ended(&one);
    check_ended(&two);
    assert_eq!(
        postgres.sql("SELECT count(*) FROM tollgate.record WHERE space = 'config' AND bytes IS NOT NULL"),
        "0"
    );
}

#[test]
fn the_members_are_checked_and_secret_keys_stay_hidden() {
    let home = home("memory");
    let server = home.start();
    let put = |path: &str, body: Value| server.ask("PUT", path, Some(&body));
    for (lasts, words) in
        [("0s", "more than nothing"), ("1 parsec", "the units of a duration"), ("99999d", "ten years")]
    {
        let reply = put("/api/v1/counters/user/ada", json!({ "limits": "5/4w", "for": lasts }));
        assert_eq!(reply.status, 400);
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("`for`: ") && detail.contains(words), "{detail}");
        let output = home.run(&server, &["set", "user", "ada", "5/4w", "--for", lasts]);
        assert_eq!(output.status.code(), Some(2));
    }
    let mixed = put("/api/v1/counters/user/ada", json!({ "limits": "5/4w", "messages_per_hour": 3 }));
    assert!(mixed.text().contains("no other member but `for`"), "{}", mixed.text());
    let mail = put("/api/v1/counters/user/ada", json!({ "messages_per_hour": 3, "for": "1h" }));
    assert!(mail.ok()["override_ends"]["after_ms"].as_u64().unwrap() <= 3_600_000);
    put("/api/v1/counters/key/hush-hush", json!({ "limits": "5/4w", "for": "1h" })).ok();
    let listed = server.get("/api/v1/counters").text().to_owned();
    assert!(listed.contains("override_ends\":{\"#") && !listed.contains("hush"), "{listed}");
    let said = run(&home, &server, &["consumers", "set", "acme", "100/hour", "--for", "90m"]);
    assert_eq!(said, "acme: 100/hour, for 1h 30m\n");
    let output = home.run(&server, &["set", "user", "ada", "--unset", "--for", "1h"]);
    assert_eq!(output.status.code(), Some(2), "a removal does not last");
}
