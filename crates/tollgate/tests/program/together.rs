//! Many concurrent clients: a limit admits exactly what it says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;

use crate::program::{Home, Server};
use serde_json::{Value, json};

const CONFIG: &str = "
store: { file: ./state.redb }
rules:
  window: { by: user, limits: 50/day }
  sliding: { by: user, limits: 50/day sliding }
  bucket: { by: user, limits: 1/day burst 50 }
  total: { limits: 70 in total }
policies:
  window: [window]
  sliding: [sliding]
  bucket: [bucket]
  both: [total, window]
";

fn attempt(policy: &str, user: &str) -> Value {
    json!({ "policy": policy, "fields": { "user": user } })
}

/// How many of 200 attempts by each of four clients are allowed.
fn allowed(server: &Server, policy: &str, user: &str) -> usize {
    let ask = || {
        let mut connection = server.connect();
        let body = attempt(policy, user);
        let statuses = (0..200).map(|_| connection.ask("POST", "/api/v1/check", &[], Some(&body)).status);
        let statuses: Vec<u16> = statuses.collect();
        assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
        statuses.into_iter().filter(|status| *status == 200).count()
    };
    thread::scope(|scope| {
        let clients = [(); 4].map(|()| scope.spawn(ask));
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

#[test]
fn four_clients_get_exactly_what_the_limit_says() {
    let home = Home::with(CONFIG);
    let server = home.start();
    for policy in ["window", "sliding", "bucket"] {
        assert_eq!(allowed(&server, policy, "ada"), 50, "{policy}");
    }
}

#[test]
fn denied_clients_do_not_use_up_a_shared_limit() {
    let home = Home::with(CONFIG);
    let server = home.start();
    assert_eq!(allowed(&server, "both", "ada"), 50);
    assert_eq!(server.remaining("total", "total"), 20);
    assert_eq!(allowed(&server, "both", "bob"), 20);
    assert_eq!(server.remaining("window", "bob"), 30, "what total refused was not taken from bob");
}

#[test]
fn a_batch_is_decided_one_by_one_in_order() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let mut attempts = vec![attempt("window", "ada"); 98];
    attempts.insert(10, json!({ "policy": "no such" }));
    attempts.insert(70, attempt("window", "bob"));
    let decisions = server.check(&json!({ "attempts": attempts })).ok();
    let statuses: Vec<u64> = decisions["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["status"].as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = (0..100)
        .map(|number| match number {
            10 => 400,
            70 => 200,
            ..=50 => 200,
            _ => 429,
        })
        .collect();
    assert_eq!(statuses, expected);
    let many = json!({ "attempts": vec![attempt("window", "eve"); 101] });
    assert_eq!(server.check(&many).status, 400);
    assert_eq!(server.remaining("window", "eve"), 50, "nothing of it was taken");
}

#[test]
fn batches_of_several_clients_share_one_limit() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let body = json!({ "attempts": vec![attempt("window", "ada"); 100] });
    let allowed: usize = thread::scope(|scope| {
        let clients = [(); 4].map(|()| {
            scope.spawn(|| {
                let decisions = server.check(&body).ok();
                let decisions = decisions["decisions"].as_array().unwrap();
                decisions.iter().filter(|one| one["allowed"] == true).count()
            })
        });
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(allowed, 50);
}
