//! Nodes of the program on one shared store: their configuration, and what their responses say about the store.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use std::time::Duration;

use serde_json::{Value, json};

use crate::program::{Home, Reply, Server, now, pause, wait_until};

/// How soon everything must work again after the cause has ended; part of it is for a busy machine.
pub const RECOVERY: Duration = Duration::from_secs(3 + 4);
/// Settings with a long time-out, for a busy machine.
pub const PATIENT: &str = "command_timeout: 10s, connect_timeout: 10s";
/// Settings with a short time-out.
pub const HASTY: &str = "command_timeout: 100ms, connect_timeout: 1s";
/// Settings with a time-out that a busy machine does not reach.
pub const STEADY: &str = "command_timeout: 500ms, connect_timeout: 1s";

/// A directory for a node, with a store at this address, these settings, and these rules, each in a policy of
/// the same name.
pub fn home(url: &str, settings: &str, rules: &[(&str, &str)]) -> Home {
    let kind = if url.starts_with("postgres") { "postgres" } else { "redis" };
    let mut config = format!("store: {{ {kind}: '{url}', {settings} }}\nlog: {{ format: json }}\nrules:\n");
    for (name, rule) in rules {
        config += &format!("  {name}: {{ {rule} }}\n");
    }
    config += "policies:\n";
    for (name, _) in rules {
        config += &format!("  {name}: [{name}]\n");
    }
    Home::with(&config)
}

pub fn attempt(policy: &str, user: &str) -> Value {
    json!({ "policy": policy, "fields": { "user": user } })
}

/// The origin of a decision, and why it did not come from the store.
pub fn origin(reply: &Reply) -> (String, Option<String>) {
    let answer = reply.json();
    let text = |name: &str| answer[name].as_str().map(str::to_owned);
    (text("origin").unwrap_or_else(|| panic!("{answer}")), text("reason"))
}

/// Asks until a decision comes from the store. Returns how long that took.
pub fn comes_back(server: &Server, policy: &str) -> Duration {
    let start = now();
    let mut connection = server.connect();
    loop {
        let reply = connection.ask("POST", "/api/v1/check", &[], Some(&attempt(policy, "returning")));
        if origin(&reply).0 == "store" {
            return start.elapsed();
        }
        assert!(start.elapsed() < RECOVERY, "{}", reply.text());
        pause(Duration::from_millis(10));
    }
}

/// Waits until `/readyz` has this status.
pub fn wait_until_it_is(server: &Server, status: &str) {
    wait_until(status, || readiness(server) == status);
}

/// The status of `/readyz`.
pub fn readiness(server: &Server) -> String {
    server.get("/readyz").ok()["status"].as_str().unwrap().to_owned()
}

/// The sum of all series with this prefix.
pub fn metric(server: &Server, series: &str) -> f64 {
    let page = server.get("/metrics");
    let lines = page.text().lines().filter(|line| line.starts_with(series));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// The log lines about the store, as levels and messages.
pub fn store_lines(log: &str) -> Vec<(String, String)> {
    let lines =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    lines
        .filter(|line| line["component"] == "store")
        .map(|line| (text(&line, "level"), text(&line, "msg")))
        .collect()
}
