//! The keys of a secret rule cannot be read anywhere: not in Redis, not in a file, not in any response. Nodes
//! still count together.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes::{PATIENT, STEADY, comes_back, origin, wait_until_it_is};
use crate::program::{Home, Server};
use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_testbed::{Reply, Server as Redis};

const ACCOUNT: &str = "ada.lovelace@example.org";

const RULES: &str = "
log: { format: json, level: debug }
rules:
  window: { by: account, limits: 5/hour, secret: true }
  sliding: { by: account, limits: [5/hour sliding, 9/day sliding by 1h], secret: true }
  held: { by: account, limits: 5 at once for 1h, secret: true }
  ladder: { by: account, limits: ladder 5 +1m then 6 lock 15m, secret: true }
  open: { by: user, limits: 5/hour }
policies:
  window: [window]
  sliding: [sliding]
  held: [held]
  ladder: [ladder]
  open: [open]
";

const HIDDEN: [&str; 4] = ["window", "sliding", "held", "ladder"];

fn on_redis(redis: &Redis, settings: &str) -> Home {
    Home::with(&format!("store: {{ redis: '{}', {settings} }}\n{RULES}", redis.url()))
}

fn attempt(policy: &str, number: usize) -> Value {
    json!({ "policy": policy, "fields": { "account": ACCOUNT }, "id": format!("session-{number}") })
}

/// Everything that a server stores: the names of its keys, and their values.
fn dump(redis: &Redis) -> Vec<u8> {
    let mut all = Vec::new();
    for key in redis.command(&["KEYS", "*"]).parts() {
        let key = key.text();
        let kind = redis.command(&["TYPE", &key]).text();
        let value = match kind.as_str() {
            "string" => redis.command(&["GET", &key]),
            "hash" => redis.command(&["HGETALL", &key]),
            "list" => redis.command(&["LRANGE", &key, "0", "-1"]),
            "zset" => redis.command(&["ZRANGE", &key, "0", "-1"]),
            other => panic!("{key} is a {other}"),
        };
        all.extend_from_slice(key.as_bytes());
        all.push(b'\n');
        write(&value, &mut all);
    }
    all
}

fn write(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Bulk(bytes) => out.extend_from_slice(bytes),
        Reply::Array(parts) => parts.iter().for_each(|part| write(part, out)),
        other => panic!("{other:?}"),
    }
    out.push(b'\n');
}

/// Checks that the bytes contain neither the account nor a hash of it without a secret.
fn hides_the_account(what: &str, bytes: &[u8]) {
    let digest = Sha256::digest(ACCOUNT.as_bytes());
    let (hex, base64) = (HEXLOWER.encode(&digest), BASE64.encode(&digest));
    for (form, trace) in [
        ("its name", ACCOUNT.as_bytes()),
        ("a part of it", b"lovelace"),
        ("its hash", &digest[..16]),
        ("its hash, written out", &hex.as_bytes()[..16]),
        ("its hash in base 64", &base64.as_bytes()[..12]),
    ] {
        let found = bytes.windows(trace.len()).any(|window| window == trace);
        assert!(!found, "{form} is in {what}: {}", String::from_utf8_lossy(bytes));
    }
}

/// Checks that no page for operators shows a secret key.
fn check_pages(server: &Server) {
    for page in
        ["/metrics", "/api/v1/decisions?limit=1000", "/api/v1/top", "/api/v1/bans", "/api/v1/counters"]
    {
        let reply = server.get(page);
        assert_eq!(reply.status, 200, "{page}");
        hides_the_account(page, &reply.body);
    }
}

#[test]
fn two_nodes_share_the_count_of_an_account_that_redis_does_not_know() {
    let redis = Redis::redis().start();
    let homes = [(); 2].map(|()| on_redis(&redis, PATIENT));
    let nodes = homes.each_ref().map(Home::start);
    for policy in HIDDEN {
        let mut allowed = 0;
        for number in 0..8 {
            let reply = nodes[number % 2].check(&attempt(policy, number));
            assert_eq!(origin(&reply).0, "store", "{}", reply.text());
            hides_the_account("an answer", &reply.body);
            allowed += usize::from(reply.status == 200);
        }
        assert_eq!(allowed, 5, "{policy}");
    }
    nodes[0].check(&json!({ "policy": "open", "fields": { "user": "bob" } })).ok();
    let kept = dump(&redis);
    let readable = "tollgate:{open:bob}";
    assert!(kept.windows(readable.len()).any(|window| window == readable.as_bytes()), "others are readable");
    hides_the_account("Redis", &kept);
    for node in nodes {
        check_pages(&node);
        hides_the_account("the log", node.stop().as_bytes());
    }
}

#[test]
fn nodes_with_the_same_secret_share_counters_that_others_cannot_find() {
    let redis = Redis::redis().start();
    let told = |secret: &str| {
        on_redis(&redis, &format!("{PATIENT}, key_secret_env: KEY_SECRET")).variable("KEY_SECRET", secret)
    };
    let homes = ["kept beside the password", "kept beside the password", "of another cluster"].map(told);
    let nodes = homes.each_ref().map(Home::start);
    let allowed =
        |node: &Server| (0..8).filter(|number| node.check(&attempt("window", *number)).status == 200).count();
    let taken = (0..3).filter(|number| nodes[0].check(&attempt("window", *number)).status == 200).count();
    assert_eq!((taken, allowed(&nodes[1]), allowed(&nodes[2])), (3, 2, 5));
    hides_the_account("Redis", &dump(&redis));
    for node in nodes {
        let log = node.stop();
        assert!(!log.contains("kept beside") && !log.contains("another cluster"), "{log}");
    }
}

#[test]
fn a_node_that_starts_before_redis_counts_with_the_others_once_it_is_there() {
    let mut redis = Redis::redis().append_only().start();
    let first = on_redis(&redis, PATIENT);
    let node = first.start();
    node.check(&attempt("window", 0)).ok();
    node.stop();
    redis.stop();
    let late = on_redis(&redis, STEADY);
    let node = late.start();
    let reply = node.check(&attempt("window", 1));
    assert_eq!(origin(&reply).0, "local", "an outage like any other: {}", reply.text());
    redis.start();
    wait_until_it_is(&node, "ready");
    comes_back(&node, "open");
    let reply = node.check(&attempt("window", 2));
    assert_eq!((origin(&reply).0.as_str(), &reply.ok()["rules"][0]["remaining"]), ("store", &json!(3)));
    hides_the_account("Redis", &dump(&redis));
    hides_the_account("the log", node.stop().as_bytes());
}

#[test]
fn a_file_does_not_know_the_account_either() {
    let home = Home::with(&format!("store: {{ file: ./t.redb, sync: always }}\n{RULES}"));
    let server = home.start();
    for policy in HIDDEN {
        for number in 0..8 {
            hides_the_account("an answer", &server.check(&attempt(policy, number)).body);
        }
    }
    check_pages(&server);
    hides_the_account("the log", server.stop().as_bytes());
    hides_the_account("the file", &std::fs::read(home.path("t.redb")).unwrap());
    let server = home.start();
    assert_eq!(server.check(&attempt("window", 9)).status, 429, "and it remembers");
}
