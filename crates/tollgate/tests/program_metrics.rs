//! Metrics: their number does not depend on the keys, and each of them counts what it says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;

use std::collections::BTreeMap;

use program::{Home, Server, wait_until};
use serde_json::{Value, json};

const CONFIG: &str = "
store: { file: ./state.redb, flush_interval: 100ms }
rules:
  all: { limits: 1000000/day }
  user: { by: user, limits: 3/day }
  slow: { by: user, limits: 1/day, on_exceed: defer }
  paced: { by: user, limits: 1/s burst 1, on_exceed: wait 5s }
  seen: { by: user, limits: 1/day, on_exceed: observe }
policies:
  p: [all, user]
  later: [slow]
  soon: [paced]
  shadow: [seen]
";

/// Every series with its value.
fn scrape(server: &Server) -> BTreeMap<String, f64> {
    let page = server.get("/metrics");
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(page.text().ends_with("# EOF\n"));
    let samples = page.text().lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn attempt(policy: &str, user: &str) -> Value {
    json!({ "policy": policy, "fields": { "user": user } })
}

fn use_everything(server: &Server) {
    for policy in ["p", "later", "soon", "shadow"] {
        for _ in 0..5 {
            server.check(&attempt(policy, "ada"));
        }
    }
    server.check(&json!({ "policy": "nothing" }));
    server.get("/nowhere");
}

#[test]
fn ten_thousand_keys_add_no_series() {
    let home = Home::with(CONFIG);
    let server = home.start();
    use_everything(&server);
    scrape(&server);
    let before = scrape(&server);
    let mut connection = server.connect();
    for hundred in 0..100 {
        let users: Vec<Value> =
            (0..100).map(|user| attempt("p", &format!("user-{}", hundred * 100 + user))).collect();
        let body = json!({ "attempts": users });
        connection.ask("POST", "/api/v1/check", &[], Some(&body)).ok();
    }
    for user in 0..100 {
        server.check(&attempt("p", &format!("single-{user}"))).ok();
        server.get(&format!("/api/v1/no/such/path/{user}"));
    }
    let after = scrape(&server);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    let allowed = "tollgate_decisions_total{policy=\"p\",rule=\"\",outcome=\"allow\"}";
    assert_eq!(after[allowed] - before[allowed], 10_100.0);
    assert!(after["tollgate_store_keys"] > 10_000.0);
}

#[test]
fn every_counter_moves_by_what_happened() {
    let home = Home::with(CONFIG);
    let server = home.start();
    // What nobody has used yet is not shown.
    let before = scrape(&server);
    use_everything(&server);
    let after = scrape(&server);
    let grown = |series: &str| {
        let now = after.get(series).unwrap_or_else(|| panic!("{series} is missing: {after:#?}"));
        now - before.get(series).copied().unwrap_or(0.0)
    };
    let decided = |policy: &str, rule: &str, outcome: &str| {
        grown(&format!(
            "tollgate_decisions_total{{policy=\"{policy}\",rule=\"{rule}\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!((decided("p", "", "allow"), decided("p", "user", "deny")), (3.0, 2.0));
    assert_eq!((decided("later", "", "allow"), decided("later", "slow", "defer")), (1.0, 4.0));
    assert_eq!((decided("shadow", "", "allow"), decided("shadow", "seen", "observe")), (5.0, 4.0));
    let waited = decided("soon", "paced", "wait");
    assert_eq!(waited + decided("soon", "", "allow"), 5.0);
    assert!(waited >= 1.0);
    let asked = |method: &str, route: &str, status: u16| {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        grown(&format!("tollgate_http_requests_total{{{labels}}}"))
    };
    let check = [200, 429, 400].map(|status| asked("POST", "/api/v1/check", status));
    assert_eq!(check.iter().sum::<f64>(), 21.0, "{check:?}");
    assert_eq!(check[2], 1.0);
    assert_eq!(asked("", "unmatched", 404), 1.0);
    let timed = "tollgate_http_request_duration_seconds_count{method=\"POST\",route=\"/api/v1/check\"}";
    assert_eq!(grown(timed), 21.0);
    let usage = after["tollgate_usage_ratio{rule=\"all\"}"];
    assert!((usage - 3e-6).abs() < 1e-9, "{usage}");
    assert!(after.keys().any(|series| series.starts_with("tollgate_build_info{version=")));
}

#[test]
fn saving_and_the_time_of_decisions_are_counted() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let before = scrape(&server);
    for user in 0..200 {
        server.check(&attempt("p", &format!("user-{user}"))).ok();
    }
    let after = scrape(&server);
    let timed = "tollgate_decision_duration_seconds_count";
    assert!(after[timed] > before[timed], "one decision in 64 is timed");
    assert!(after["tollgate_store_keys"] >= 200.0);
    wait_until("everything to be saved", || {
        let now = scrape(&server);
        now["tollgate_store_flushed_keys_total"] >= 201.0
            && now["tollgate_store_flushes_total"] > before["tollgate_store_flushes_total"]
            && now["tollgate_store_last_flush_seconds"] > 0.0
    });
    assert_eq!(scrape(&server)["tollgate_store_flush_errors_total"], 0.0);
}
