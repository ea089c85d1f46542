//! A restart loses nothing: counts of every kind of limit, holds, overrides and receipts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Server};
use serde_json::{Value, json};

/// A rule for every kind of limit; each one has a policy of the same name.
const CONFIG: &str = "
store: { file: ./state.redb, flush_interval: 1h }
rules:
  window: { by: user, limits: 100/hour }
  calendar: { by: user, limits: 100/month calendar }
  zoned: { by: user, limits: 100/month calendar in Europe/Berlin }
  sliding: { by: user, limits: 100/hour sliding }
  slotted: { by: user, limits: 100/day sliding by 5m }
  bucket: { by: user, limits: 1/hour burst 100 }
  total: { by: user, limits: 100 in total }
  held: { by: user, limits: 100 at once }
  leased: { by: user, limits: 100 at once for 1h }
  together: { by: user, limits: [100/hour, 200/day, 300/week sliding by 1h] }
  all: { limits: 100/day }
policies:
  window: [window]
  calendar: [calendar]
  zoned: [zoned]
  sliding: [sliding]
  slotted: [slotted]
  bucket: [bucket]
  total: [total]
  held: [held]
  leased: [leased]
  together: [together, all]
";

const RULES: [&str; 10] =
    ["window", "calendar", "zoned", "sliding", "slotted", "bucket", "total", "held", "leased", "together"];

/// How much is used of every limit of every rule.
fn used(server: &Server) -> Vec<(String, Value)> {
    let look = |rule: &str, key: &str| {
        let shown = server.get(&format!("/api/v1/counters/{rule}/{key}")).ok();
        let limits = shown["limits"].as_array().unwrap().iter();
        limits.map(|limit| (format!("{rule} {}", limit["limit"]), limit["used"].clone())).collect::<Vec<_>>()
    };
    RULES.iter().flat_map(|rule| look(rule, "ada")).chain(look("all", "all")).collect()
}

fn take(server: &Server, policy: &str, cost: u64) -> Value {
    let id = format!("job-{policy}-{cost}");
    server.check(&json!({ "policy": policy, "fields": { "user": "ada" }, "cost": cost, "id": id })).ok()
}

#[test]
fn counts_of_every_kind_of_limit_survive() {
    let home = Home::with(CONFIG);
    let server = home.start();
    for rule in RULES {
        take(&server, rule, 3);
        take(&server, rule, 4);
    }
    let before = used(&server);
    assert!(before.iter().all(|(_, used)| *used == 7), "{before:?}");
    server.stop();
    let server = home.start();
    assert_eq!(used(&server), before);
    for rule in RULES {
        let body = json!({ "policy": rule, "fields": { "user": "ada" }, "cost": 94, "id": "more" });
        assert_eq!(server.check(&body).status, 429, "{rule} forgot");
        let body = json!({ "policy": rule, "fields": { "user": "ada" }, "cost": 93, "id": "rest" });
        assert_eq!(server.check(&body).status, 200, "{rule} counts too much");
    }
    server.stop();
}

#[test]
fn holds_survive_with_their_ids_and_their_ends() {
    let home = Home::with(CONFIG);
    let server = home.start();
    for id in ["a", "b", "c"] {
        let body = json!({ "policy": "leased", "fields": { "user": "ada" }, "id": id });
        assert_eq!(server.post("/api/v1/holds", &body).ok()["id"], id);
    }
    server.ask("DELETE", "/api/v1/holds/leased/ada/b", None).ok();
    server.ask("PUT", "/api/v1/holds/held/ada", Some(&json!({ "ids": ["x", "y"] }))).ok();
    let holds = ["leased", "held"].map(|rule| format!("/api/v1/holds/{rule}/ada"));
    let before = holds.clone().map(|path| server.get(&path).ok());
    assert_eq!(before[0]["held"], 2, "{before:?}");
    assert_eq!(before[1]["held"], 2, "{before:?}");
    server.stop();
    let server = home.start();
    assert_eq!(holds.map(|path| server.get(&path).ok()), before);
    let renewed = server.ask("POST", "/api/v1/holds/leased/ada/a/renew", None).ok();
    assert_eq!(renewed, json!({ "renewed": true }));
    assert_eq!(server.ask("POST", "/api/v1/holds/leased/ada/b/renew", None).status, 404);
    let again = json!({ "policy": "leased", "fields": { "user": "ada" }, "id": "c" });
    assert_eq!(server.post("/api/v1/holds", &again).ok()["repeated"], true, "c is still held");
    server.stop();
}

#[test]
fn overrides_survive_and_so_does_their_removal() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let (ada, bob) = ("/api/v1/counters/window/ada", "/api/v1/counters/window/bob");
    server.ask("PUT", ada, Some(&json!({ "limits": ["2/hour", "5/day"] }))).ok();
    server.ask("PUT", bob, Some(&json!({ "limits": ["3/hour"] }))).ok();
    server.ask("DELETE", &format!("{bob}/override"), None).ok();
    take(&server, "window", 1);
    server.stop();
    let server = home.start();
    let shown = server.get(ada).ok();
    assert_eq!(shown["overridden"], true);
    assert_eq!(shown["limits"][1]["limit"], "5/day");
    assert_eq!(server.get(bob).ok()["overridden"], false);
    take(&server, "window", 1);
    assert_eq!(server.check(&json!({ "policy": "window", "fields": { "user": "ada" } })).status, 429);
    server.stop();
}

#[test]
fn a_receipt_from_before_can_be_given_back_once() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let receipts: Vec<(&str, Value)> =
        RULES.iter().map(|rule| (*rule, take(&server, rule, 5)["receipt"].clone())).collect();
    let spent = take(&server, "window", 2)["receipt"].clone();
    let give = |server: &Server, receipt: &Value| {
        server.post("/api/v1/refund", &json!({ "receipt": receipt })).ok()["refunded"].clone()
    };
    assert_eq!(give(&server, &spent), "back");
    server.stop();
    let server = home.start();
    assert_eq!(give(&server, &spent), "already", "it was given back before the restart");
    for (rule, receipt) in &receipts {
        assert_eq!(give(&server, receipt), "back", "{rule}");
        assert_eq!(give(&server, receipt), "already", "{rule}");
    }
    let after = used(&server);
    assert!(after.iter().all(|(_, used)| *used == 0), "{after:?}");
    server.stop();
    let server = home.start();
    assert_eq!(give(&server, &receipts[0].1), "already", "and after another restart");
    server.stop();
}
