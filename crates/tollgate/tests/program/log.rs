//! The log: the fields of a denial, the number of lines under attack, and what is never logged.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::program::{Home, Server, now, pause};
use serde_json::{Value, json};

fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn denials(log: &str) -> Vec<Value> {
    lines(log).into_iter().filter(|line| line["msg"] == "rate limit exceeded").collect()
}

const JSON: &str = "
store: memory
log: { format: json }
rules: { one: { by: user, limits: 1/30m } }
policies: { p: [one] }
";

#[test]
fn a_denial_is_one_flat_object_with_exactly_these_members() {
    let home = Home::with(JSON);
    let server = home.start();
    let body = json!({ "policy": "p", "fields": { "user": "ada \"x\"\n" } });
    assert_eq!(server.check(&body).status, 200);
    let denied = server.check(&body);
    let id = denied.header("x-correlation-id").expect("a refusal tells an id").to_owned();
    assert_eq!(denied.status, 429);
    let log = server.stop();
    let [mut line] = denials(&log).try_into().unwrap();
    let time = line.as_object_mut().unwrap().remove("time").unwrap();
    let time: jiff::Timestamp = time.as_str().unwrap().parse().expect("an RFC 3339 time");
    assert!(jiff::Timestamp::now().duration_since(time).as_secs() < 60);
    let expected = json!({
        "level": "warn",
        "component": "ratelimit",
        "msg": "rate limit exceeded",
        "policy": "p",
        "denied_by": "one",
        "key": "ada \"x\"\n",
        "retry_after": "30m",
        "correlation": id,
    });
    assert_eq!(line, expected);
    let every = lines(&log);
    assert!(every.iter().all(|line| line.as_object().unwrap().values().all(|value| !value.is_object())));
}

#[test]
fn an_attack_writes_few_lines_and_says_how_many_were_held_back() {
    let home = Home::with(JSON);
    let server = home.start();
    let attempt = json!({ "policy": "p", "fields": { "user": "mallory" } });
    server.check(&attempt).ok();
    let begun = now();
    for _ in 0..10 {
        let decisions = server.check(&json!({ "attempts": vec![&attempt; 100] })).ok();
        assert!(decisions["decisions"].as_array().unwrap().iter().all(|one| one["status"] == 429));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let written = denials(&server.log()).len();
    assert!(written <= 51 + (10.0 * seconds) as usize, "{written} lines in {seconds} s");
    // Ten lines a second become free again.
    pause(Duration::from_millis(250));
    assert_eq!(server.check(&attempt).status, 429);
    let denied = denials(&server.stop());
    let held_back: u64 = denied.iter().filter_map(|line| line["held_back"].as_u64()).sum();
    assert_eq!(held_back + denied.len() as u64, 1_001, "every denial is written or counted");
    assert!(denied.last().unwrap()["held_back"].as_u64() > Some(0), "{:?}", denied.last());
}

#[test]
fn a_pretty_log_has_no_colours_without_a_terminal() {
    let home = Home::with(&JSON.replace("json", "pretty"));
    let server = home.start();
    for status in [200, 429] {
        let body = json!({ "policy": "p", "fields": { "user": "ada\u{1b}[31m\nERROR forged" } });
        assert_eq!(server.check(&body).status, status);
    }
    let log = server.stop();
    assert!(!log.contains('\u{1b}'), "{log:?}");
    let line = log.lines().find(|line| line.contains("rate limit exceeded")).unwrap();
    assert!(line.contains("WARN") && line.contains("denied_by=\"one\""), "{line}");
    assert!(!log.lines().any(|line| line.starts_with("ERROR")), "a key writes no lines of its own: {log}");
}

#[test]
fn the_level_decides_what_is_written() {
    let levels = |level: &str| -> BTreeSet<String> {
        let home = Home::with(&JSON.replace("format: json", &format!("format: json, level: {level}")));
        let server = home.start();
        for _ in 0..2 {
            server.check(&json!({ "policy": "p", "fields": { "user": "ada" } }));
        }
        lines(&server.stop()).iter().map(|line| line["level"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(levels("error"), BTreeSet::new());
    assert_eq!(levels("warn"), BTreeSet::from(["warn".to_owned()]));
    assert_eq!(levels("info"), BTreeSet::from(["info".to_owned(), "warn".to_owned()]));
}

const SECRETS: &str = "
store: { file: ./state.redb }
log: { format: json, level: trace }
keys: [{ name: ops, role: admin, token_env: OPS_TOKEN }]
rules:
  hidden: { by: api_key, limits: [1/hour, 5 at once], secret: true, overrides: { k3y-in-the-file: 1/day } }
policies: { p: [hidden] }
";

const TOKEN: &str = "t0ken-of-the-operator";

/// All responses for an operator that inspects the server.
fn looked_at(server: &Server) -> String {
    let pages = ["/metrics", "/api/v1/decisions", "/api/v1/top", "/api/v1/counters", "/api/v1/openapi.json"];
    let ask = |path: &str| server.ask_as(TOKEN, "GET", path, None);
    let mut seen: String = pages.map(|path| format!("{path}: {}\n", ask(path).text())).concat();
    for key in ["k3y-that-is-secret", "k3y-in-the-file"] {
        for path in ["counters", "holds"] {
            seen += ask(&format!("/api/v1/{path}/hidden/{key}")).text();
        }
    }
    seen
}

#[test]
fn tokens_and_secret_keys_are_never_said() {
    let home = Home::with(SECRETS).variable("OPS_TOKEN", TOKEN);
    let server = home.start();
    let key = "k3y-that-is-secret";
    let mut seen = String::new();
    let mut ask = |method: &str, path: &str, body: Value| {
        let reply = server.ask_as(TOKEN, method, path, Some(&body));
        // A receipt belongs to the caller that sent the key.
        let mut answer: Value = reply.json();
        answer.as_object_mut().unwrap().remove("receipt");
        seen += &format!("{answer} {:?}\n", reply.headers);
        reply.status
    };
    let attempt = json!({ "policy": "p", "fields": { "api_key": key }, "id": "1" });
    assert_eq!(ask("POST", "/api/v1/check", attempt.clone()), 200);
    let second = json!({ "policy": "p", "fields": { "api_key": key }, "id": "2" });
    assert_eq!(ask("POST", "/api/v1/check", second), 429);
    let put = format!("/api/v1/counters/hidden/{key}");
    assert_eq!(ask("PUT", &put, json!({ "limits": ["3/hour", "4 at once"] })), 200);
    assert_eq!(ask("PUT", &put, json!({ "limits": ["3/fortnight"] })), 400);
    assert_eq!(ask("PUT", &format!("/api/v1/holds/hidden/{key}"), json!({ "ids": ["a"] })), 200);
    assert_eq!(ask("DELETE", &format!("/api/v1/holds/hidden/{key}/a"), json!({})), 200);
    assert_eq!(ask("POST", &format!("/api/v1/holds/hidden/{key}/b/renew"), json!({})), 404);
    assert_eq!(ask("DELETE", &put, json!({})), 200);
    let mut looked = looked_at(&server);
    assert_eq!(ask("DELETE", &format!("{put}/override"), json!({})), 200);
    let long = format!("{key}{}", "x".repeat(2_000));
    assert_eq!(ask("POST", "/api/v1/check", json!({ "policy": "p", "fields": { "api_key": long } })), 400);
    for wrong in ["t0ken-that-is-wrong", "t0ken-of-the-operator2"] {
        let refused = server.ask_as(wrong, "POST", "/api/v1/check", Some(&attempt));
        assert_eq!(refused.status, 401);
        looked += refused.text();
    }
    home.configure(&SECRETS.replace("limits: [1/hour", "limits: [1/fortnight"));
    assert_eq!(ask("POST", "/api/v1/reload", json!({})), 422);
    let log = server.stop();
    assert!(log.contains("rate limit exceeded"), "{log}");
    for secret in ["t0ken", "k3y"] {
        for (place, text) in [("the log", &log), ("an answer", &seen), ("a page", &looked)] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{place} says {secret}");
        }
    }
}
