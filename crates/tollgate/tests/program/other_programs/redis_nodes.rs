//! Several nodes on one Redis act as one limiter: one count, one clock, one set of overrides.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::nodes::{self, PATIENT, attempt, home, readiness};
use crate::program::{self, Home, Server, faketime, now, pause, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

fn redis() -> &'static Redis {
    static REDIS: OnceLock<Redis> = OnceLock::new();
    REDIS.get_or_init(|| Redis::redis().start())
}

/// This many nodes with the same rules, under their own prefix.
fn nodes(count: usize, prefix: &str, rules: &[(&str, &str)]) -> Vec<(Home, Server)> {
    let settings = format!("key_prefix: {prefix}, {PATIENT}");
    let homes = (0..count).map(|_| home(&redis().url(), &settings, rules));
    homes
        .map(|home| {
            let server = home.start();
            (home, server)
        })
        .collect()
}

/// Sends this many requests to every node, all at once. Returns how many were allowed.
fn allowed(nodes: &[(Home, Server)], path: &str, each: usize, body: impl Fn(usize) -> Value + Sync) -> usize {
    let number = AtomicUsize::new(0);
    let ask = |server: &Server| {
        let mut connection = server.connect();
        let mut allowed = 0;
        for _ in 0..each {
            let reply =
                connection.ask("POST", path, &[], Some(&body(number.fetch_add(1, Ordering::Relaxed))));
            assert!(matches!(reply.status, 200 | 429), "{}", reply.text());
            assert_eq!(nodes::origin(&reply).0, "store", "{}", reply.text());
            allowed += usize::from(reply.status == 200);
        }
        allowed
    };
    thread::scope(|scope| {
        let asking: Vec<_> = nodes.iter().map(|(_, server)| scope.spawn(|| ask(server))).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).sum()
    })
}

const KINDS: [(&str, &str); 8] = [
    ("window", "by: user, limits: 50/day"),
    ("calendar", "by: user, limits: 50/month calendar"),
    ("sliding", "by: user, limits: 50/day sliding"),
    ("slotted", "by: user, limits: 50/day sliding by 1h"),
    ("bucket", "by: user, limits: 1/day burst 50"),
    ("at_once", "by: user, limits: 50 at once"),
    ("at_once_for", "by: user, limits: 50 at once for 1h"),
    ("total", "by: user, limits: 50 in total"),
];

#[test]
fn four_processes_admit_exactly_what_every_kind_of_limit_says() {
    let nodes = nodes(4, "exactly", &KINDS);
    for (kind, _) in KINDS {
        let holds = kind.starts_with("at_once");
        let path = if holds { "/api/v1/holds" } else { "/api/v1/check" };
        let admitted = allowed(&nodes, path, 125, |number| {
            let mut body = attempt(kind, "ada");
            if holds {
                body["id"] = json!(format!("job {number}"));
            }
            body
        });
        assert_eq!(admitted, 50, "{kind}");
        for (_, server) in &nodes {
            assert_eq!(server.remaining(kind, "ada"), 0, "{kind}: every node says so");
        }
    }
}

#[test]
fn a_burst_over_three_nodes_gets_exactly_what_a_sliding_limit_says() {
    let nodes = nodes(3, "burst", &[("sliding", "by: user, limits: 100/60s sliding")]);
    let admitted = allowed(&nodes, "/api/v1/check", 50, |_| attempt("sliding", "ada"));
    assert_eq!(admitted, 100);
    assert_eq!(allowed(&nodes, "/api/v1/check", 5, |_| attempt("sliding", "ada")), 0);
}

#[test]
fn nodes_with_skewed_clocks_share_one_truth() {
    let rules = [
        ("window", "by: user, limits: 30/hour"),
        ("calendar", "by: user, limits: 30/month calendar"),
        ("sliding", "by: user, limits: 30/hour sliding"),
        ("bucket", "by: user, limits: 1/hour burst 30"),
    ];
    let settings = format!("key_prefix: skewed, {PATIENT}");
    let nodes: Vec<(Home, Server)> = ["+0", "+5000000", "-90000"]
        .into_iter()
        .map(|ahead| {
            let home = home(&redis().url(), &settings, &rules)
                .variable("LD_PRELOAD", &faketime().display().to_string())
                .variable("FAKETIME", ahead)
                .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .variable("DONT_FAKE_MONOTONIC", "1");
            let server = home.start();
            (home, server)
        })
        .collect();
    let logged = |server: &Server| -> jiff::Timestamp {
        server.check(&attempt("window", "nobody"));
        server.get("/api/v1/counters/window/nobody");
        server.get("/readyz").header("date").map_or_else(jiff::Timestamp::now, |date| {
            jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).unwrap()
        })
    };
    let apart = logged(&nodes[1].1).duration_since(logged(&nodes[2].1)).as_secs();
    assert!(apart > 5_000_000, "the clocks are {apart} s apart");
    for (kind, _) in rules {
        assert_eq!(allowed(&nodes, "/api/v1/check", 20, |_| attempt(kind, "ada")), 30, "{kind}");
        let resets = nodes.iter().map(|(_, server)| {
            let shown = server.get(&format!("/api/v1/counters/{kind}/ada")).ok();
            shown["limits"][0]["reset_after_ms"].as_u64().unwrap_or_else(|| panic!("{shown}"))
        });
        let resets: Vec<u64> = resets.collect();
        let (least, most) = (resets.iter().min().unwrap(), resets.iter().max().unwrap());
        assert!(most - least < 10_000, "{kind}: {resets:?}");
    }
}

#[test]
fn an_override_set_on_one_node_holds_on_the_others_within_a_second() {
    let nodes = nodes(2, "overrides", &[("window", "by: user, limits: 2/day")]);
    let [(_, one), (_, other)] = &nodes[..] else { panic!("there are two") };
    assert_eq!(allowed(&nodes, "/api/v1/check", 5, |_| attempt("window", "ada")), 2);
    let start = now();
    one.ask("PUT", "/api/v1/counters/window/ada", Some(&json!({ "limits": ["4/day"] }))).ok();
    assert_eq!(one.remaining("window", "ada"), 2, "where it was set it holds at once");
    wait_until("the override holds elsewhere", || other.check(&attempt("window", "ada")).status == 200);
    let took = start.elapsed();
    println!("elsewhere after {took:?}");
    assert!(took < Duration::from_secs(1 + 3), "{took:?}");
    assert_eq!(other.check(&attempt("window", "ada")).status, 200);
    assert_eq!(other.check(&attempt("window", "ada")).status, 429);
    one.ask("DELETE", "/api/v1/counters/window/ada/override", None);
    wait_until("it is taken back elsewhere", || {
        other.get("/api/v1/counters/window/ada").ok()["limits"][0]["capacity"] == 2
    });
}

#[test]
fn a_reset_on_one_node_ends_what_others_remember_within_a_second() {
    let nodes = nodes(2, "reset", &[("window", "by: user, limits: 2/day"), ("total", "limits: 1 in total")]);
    let [(_, one), (_, other)] = &nodes[..] else { panic!("there are two") };
    for (policy, path) in [("window", "/api/v1/counters/window/ada"), ("total", "/api/v1/counters/total")] {
        let body = if policy == "window" { attempt(policy, "ada") } else { json!({ "policy": policy }) };
        while other.check(&body).status == 200 {}
        let before = nodes::metric(other, "tollgate_denied_locally_total");
        assert_eq!(other.check(&body).status, 429);
        assert!(nodes::metric(other, "tollgate_denied_locally_total") > before, "it is remembered");
        let start = now();
        assert!(one.ask("DELETE", path, None).status < 300);
        let mut connection = other.connect();
        while connection.ask("POST", "/api/v1/check", &[], Some(&body)).status != 200 {
            assert!(start.elapsed() < Duration::from_secs(1 + 3), "{policy} is still denied");
            pause(Duration::from_millis(5));
        }
        println!("{policy}: free elsewhere after {:?}", start.elapsed());
    }
}

#[test]
fn a_receipt_of_one_node_is_good_on_another_and_once() {
    let nodes = nodes(2, "receipts", &[("window", "by: user, limits: 2/day")]);
    let [(_, one), (_, other)] = &nodes[..] else { panic!("there are two") };
    assert_eq!((readiness(one), readiness(other)), ("ready".to_owned(), "ready".to_owned()));
    let receipt = one.check(&attempt("window", "ada")).ok()["receipt"].clone();
    let given = other.post("/api/v1/refund", &json!({ "receipt": receipt }));
    assert_eq!(given.status, 200, "{}", given.text());
    assert_eq!(one.remaining("window", "ada"), 2);
    one.post("/api/v1/refund", &json!({ "receipt": receipt }));
    assert_eq!(one.remaining("window", "ada"), 2, "once");
}

#[test]
fn a_node_that_is_killed_and_returns_finds_what_it_had_counted() {
    let mut nodes = nodes(2, "killed", &[("total", "by: user, limits: 50 in total")]);
    assert_eq!(allowed(&nodes, "/api/v1/check", 10, |_| attempt("total", "ada")), 20);
    let (home, server) = nodes.remove(0);
    server.end_by(program::Signal::KILL);
    assert_eq!(allowed(&nodes, "/api/v1/check", 10, |_| attempt("total", "ada")), 10);
    let server = home.start();
    nodes.push((home, server));
    assert_eq!(allowed(&nodes, "/api/v1/check", 20, |_| attempt("total", "ada")), 20);
    assert!(nodes.iter().all(|(_, server)| server.remaining("total", "ada") == 0));
}
