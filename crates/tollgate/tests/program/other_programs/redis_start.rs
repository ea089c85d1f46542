//! Nodes and their store start and stop in any order: each works with what is available, and all is right
//! again once they are connected.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::nodes::{
    HASTY, PATIENT, STEADY, attempt, comes_back, home, origin, readiness, store_lines, wait_until_it_is,
};
use crate::program::{now, pause, wait_until};
use serde_json::json;
use tollgate_testbed::{Proxy, Server as Redis};

const RULES: [(&str, &str); 3] = [
    ("window", "by: user, limits: 10/day"),
    ("sliding", "by: user, limits: 10/day sliding"),
    ("holds", "by: user, limits: 10 at once for 1h"),
];

#[test]
fn a_node_that_starts_before_its_store_finds_it_and_its_overrides() {
    let mut redis = Redis::redis().append_only().start();
    let first = home(&redis.url(), STEADY, &RULES);
    let server = first.start();
    comes_back(&server, "window");
    let put = server.ask("PUT", "/api/v1/counters/window/ada", Some(&json!({ "limits": ["3/day"] })));
    assert_eq!(put.status, 200, "{}", put.text());
    drop(server);
    redis.stop();
    let second = home(&redis.url(), STEADY, &RULES);
    let start = now();
    let server = second.start();
    println!("listens after {:?} without its store", start.elapsed());
    assert_eq!(readiness(&server), "degraded");
    let reply = server.check(&attempt("window", "ada"));
    assert_eq!((reply.status, origin(&reply).0.as_str()), (200, "local"));
    redis.start();
    wait_until_it_is(&server, "ready");
    for status in [200, 200, 200, 429] {
        let reply = server.check(&attempt("window", "ada"));
        assert_eq!((reply.status, origin(&reply).0.as_str()), (status, "store"), "{}", reply.text());
    }
    let told = store_lines(&server.stop());
    let levels: Vec<&str> = told.iter().map(|(level, _)| level.as_str()).collect();
    assert_eq!(levels, ["warn", "info"], "{told:?}");
}

#[test]
fn a_node_cut_off_from_the_store_goes_on_alone_and_the_others_together() {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let (alone, together) = (home(&proxy.url(), STEADY, &RULES), home(&redis.url(), PATIENT, &RULES));
    let (cut_off, other, another) = (alone.start(), together.start(), together.start());
    comes_back(&cut_off, "window");
    for server in [&cut_off, &other, &another] {
        assert_eq!(origin(&server.check(&attempt("window", "ada"))).0, "store");
    }
    proxy.blackhole();
    wait_until("one has noticed", || {
        origin(&cut_off.check(&attempt("window", "other"))).1.as_deref() == Some("open")
    });
    assert_eq!(readiness(&cut_off), "degraded");
    let local = (0..20).filter(|_| cut_off.check(&attempt("window", "ada")).status == 200).count();
    assert_eq!(local, 5, "half of the limit, and no more");
    for server in [&other, &another] {
        assert_eq!(readiness(server), "ready");
        assert_eq!(origin(&server.check(&attempt("window", "ada"))).0, "store");
    }
    proxy.heal();
    comes_back(&cut_off, "window");
    let left: usize = [&cut_off, &other, &another]
        .map(|server| (0..10).filter(|_| server.check(&attempt("window", "ada")).status == 200).count())
        .iter()
        .sum();
    assert_eq!(left, 5, "what one decided alone was not counted for all");
}

#[test]
fn takes_whose_answers_were_lost_are_undone_after_the_outage() {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let (behind, direct) = (home(&proxy.url(), STEADY, &RULES), home(&redis.url(), PATIENT, &RULES));
    let (server, witness) = (behind.start(), direct.start());
    comes_back(&server, "window");
    assert_eq!(server.check(&attempt("sliding", "ada")).status, 200);
    proxy.swallow_replies();
    for (path, policy) in [("/api/v1/check", "sliding"), ("/api/v1/holds", "holds")] {
        let mut body = attempt(policy, "ada");
        if policy == "holds" {
            body["id"] = json!("job");
        }
        let reply = server.post(path, &body);
        assert_eq!(origin(&reply), ("local".to_owned(), Some("timeout".to_owned())));
        wait_until("it was counted without a reply", || witness.remaining(policy, "ada") < 10);
    }
    wait_until("both were counted", || witness.remaining("sliding", "ada") == 8);
    proxy.heal();
    comes_back(&server, "window");
    wait_until("they are undone", || {
        (witness.remaining("sliding", "ada"), witness.remaining("holds", "ada")) == (9, 10)
    });
    pause(Duration::from_millis(600));
    assert_eq!(witness.remaining("sliding", "ada"), 9, "what was answered stays");
}

#[test]
fn a_damaged_key_is_done_without_and_no_other() {
    let redis = Redis::redis().start();
    let home = home(&redis.url(), PATIENT, &RULES);
    let server = home.start();
    comes_back(&server, "window");
    let key = "tollgate:{window:ada}";
    let _ = redis.command(&["RPUSH", key, "not", "ours"]).ok();
    for _ in 0..5 {
        let reply = server.check(&attempt("window", "ada"));
        assert_eq!(origin(&reply), ("local".to_owned(), Some("damaged".to_owned())), "{}", reply.text());
        assert_eq!(origin(&server.check(&attempt("window", "bob"))).0, "store");
    }
    assert_eq!(readiness(&server), "ready");
    assert_eq!(redis.command(&["LRANGE", key, "0", "-1"]).parts().len(), 2, "it is as it was");
    let _ = redis.command(&["DEL", key]);
    assert_eq!(origin(&server.check(&attempt("window", "ada"))).0, "store");
}

#[test]
fn a_password_comes_from_a_file_or_a_variable_and_tls_from_its_authority() {
    let redis = Redis::redis().tls().password("s3cret").start();
    let url = format!("rediss://127.0.0.1:{}", redis.port());
    let authority = format!("tls_ca: '{}', {PATIENT}", redis.authority().display());
    let by_file = home(&url, &format!("password_file: ./password, {authority}"), &RULES);
    std::fs::write(by_file.path("password"), "s3cret\n").unwrap();
    let by_variable = home(&url, &format!("password_env: REDIS_SECRET, {authority}"), &RULES);
    let by_variable = by_variable.variable("REDIS_SECRET", "s3cret");
    let insecure = home(&url, &format!("password_env: REDIS_SECRET, tls_insecure: true, {PATIENT}"), &RULES);
    let insecure = insecure.variable("REDIS_SECRET", "s3cret");
    for (number, home) in [&by_file, &by_variable, &insecure].into_iter().enumerate() {
        let server = home.start();
        let reply = server.check(&attempt("window", "ada"));
        assert_eq!(origin(&reply).0, "store", "{}", reply.text());
        assert_eq!(server.remaining("window", "ada"), 9 - number as u64);
        let log = server.stop();
        assert!(!log.contains("s3cret"), "{log}");
        assert_eq!(log.contains("tls_insecure"), number == 2, "{log}");
    }
}

#[test]
fn a_store_that_does_not_let_the_node_in_is_told_in_the_log_without_the_password() {
    let redis = Redis::redis().password("right").start();
    let wrong = home(&format!("redis://:hunter2@127.0.0.1:{}", redis.port()), HASTY, &RULES);
    let server = wrong.start();
    assert_eq!(readiness(&server), "degraded");
    let reply = server.check(&attempt("window", "ada"));
    assert_eq!(origin(&reply).0, "local");
    server.wait_for_log("WRONGPASS");
    // An operator corrects it; nothing is restarted.
    let mut wire = redis.wire();
    let _ = wire.command(&["CONFIG", "SET", "requirepass", "hunter2"]).unwrap().ok();
    wait_until_it_is(&server, "ready");
    assert!(!server.stop().contains("hunter2"));
}
