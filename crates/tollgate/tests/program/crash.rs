//! Killed without warning: saved counts are kept, and with `sync: always` that is everything that was
//! returned. `TOLLGATE_LONG=1` kills it 200 times instead of 10.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::program::{Connection, Home, Signal, pause, request, wait_until};
use serde_json::json;

fn kills() -> u64 {
    let long = std::env::vars().any(|(name, value)| name == "TOLLGATE_LONG" && value == "1");
    if long { 200 } else { 10 }
}

fn config(store: &str) -> String {
    format!(
        "store: {{ file: ./state.redb, {store} }}
log: {{ level: error }}
rules:
  total: {{ by: user, limits: 1000000 in total }}
  other: {{ by: user, limits: 1000000/week }}
policies: {{ p: [total, other] }}
"
    )
}

/// Takes one after the other until the connection breaks, and counts the responses.
fn take_until_it_breaks(mut connection: Connection, user: &str, answered: &AtomicU64) {
    let body = json!({ "policy": "p", "fields": { "user": user } });
    let request = request("POST", "/api/v1/check", &[], Some(&body));
    while connection.try_send(&request).is_ok() {
        match connection.reply() {
            Some(reply) if reply.status == 200 => answered.fetch_add(1, Ordering::SeqCst),
            Some(reply) => panic!("{}", reply.text()),
            None => break,
        };
    }
}

const USERS: [&str; 3] = ["ada", "bob", "eve"];
const RULES: [&str; 2] = ["total", "other"];

#[test]
fn with_sync_always_every_answered_count_survives_a_kill() {
    let home = Home::with(&config("sync: always"));
    let mut kept = [[0; RULES.len()]; USERS.len()];
    for round in 0..kills() {
        let server = home.start();
        let answered = USERS.map(|_| AtomicU64::new(0));
        thread::scope(|scope| {
            for (user, answered) in USERS.iter().zip(&answered) {
                let connection = server.connect();
                scope.spawn(move || take_until_it_breaks(connection, user, answered));
            }
            wait_until("some answers", || answered[0].load(Ordering::SeqCst) > 3);
            pause(Duration::from_millis(7 * (round % 8)));
            server.end_by(Signal::KILL);
        });
        let server = home.start();
        for (user, (kept, answered)) in USERS.iter().zip(kept.iter_mut().zip(answered)) {
            let answered = answered.into_inner();
            for (rule, kept) in RULES.iter().zip(kept) {
                let now = 1_000_000 - server.remaining(rule, user);
                // One more may have been counted, at some rules or at all, whose response did not arrive.
                let expected = *kept + answered..=*kept + answered + 1;
                assert!(expected.contains(&now), "{rule} {user}: {now} is not in {expected:?}");
                *kept = now;
            }
        }
        server.end_by(Signal::KILL);
    }
}

#[test]
fn with_an_interval_counts_older_than_it_survive_a_kill() {
    let home = Home::with(&config("flush_interval: 200ms"));
    let mut counted = 0;
    for _ in 0..3 {
        let server = home.start();
        for _ in 0..20 {
            server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
        }
        counted += 20;
        let flushes = |page: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix("tollgate_store_flushes_total "));
            line.unwrap().parse::<u64>().unwrap()
        };
        // The flush after the next one began after the last count.
        let before = flushes(server.get("/metrics").text());
        wait_until("two flushes", || flushes(server.get("/metrics").text()) >= before + 2);
        // These may be lost, but not the ones before them.
        for _ in 0..5 {
            server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
        }
        server.end_by(Signal::KILL);
        let server = home.start();
        let kept = 1_000_000 - server.remaining("total", "ada");
        assert!((counted..=counted + 5).contains(&kept), "{kept} kept of {counted} and 5");
        counted = kept;
        server.stop();
    }
}

#[test]
fn overrides_and_spent_receipts_survive_a_kill_with_sync_always() {
    let home = Home::with(&config("sync: always"));
    let server = home.start();
    server.ask("PUT", "/api/v1/counters/other/ada", Some(&json!({ "limits": ["7/week"] }))).ok();
    let taken = server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
    let give = json!({ "receipt": taken["receipt"] });
    assert_eq!(server.post("/api/v1/refund", &give).ok()["refunded"], "back");
    server.end_by(Signal::KILL);
    let server = home.start();
    assert_eq!(server.get("/api/v1/counters/other/ada").ok()["limits"][0]["limit"], "7/week");
    assert_eq!(server.post("/api/v1/refund", &give).ok()["refunded"], "already");
    assert_eq!(server.remaining("total", "ada"), 1_000_000);
}
