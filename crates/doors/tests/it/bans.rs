//! The blocklist and the allowlist over HTTP: setting, listing, removing, and the response to a blocked
//! client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{Door, Reply, StoreKind, policies, rule};
use axum::http::Method;
use serde_json::{Value, json};
use tollgate_core::key::Kinds;
use tollgate_core::{Author, Listing, Policies, Policy, Roster, Rule, Stance, Target, Timestamp};
use tollgate_engine::Wish;

async fn ban(door: &Door, body: Value) -> Reply {
    door.post("/api/v1/bans", body).await
}

/// A door whose configuration blocks a network and a user.
fn configured() -> Door {
    let listing = |target: &str, stance, reason: &str| Listing {
        target: Target::parse(target, &Kinds::default()).unwrap(),
        stance,
        since: Timestamp::ZERO,
        until: None,
        reason: reason.into(),
        show_reason: false,
        author: Author::Configuration,
        times: 0,
    };
    let listings = vec![
        listing("198.51.100.0/24", Stance::Block, "a bad neighbourhood"),
        listing("198.51.100.7", Stance::Allow, ""),
    ];
    let roster = Roster::new(Kinds::default(), listings);
    Door::with(policies().with_roster(Arc::new(roster)), Vec::new(), StoreKind::Memory)
}

#[tokio::test]
async fn a_blocked_client_gets_403_without_rate_limit_headers_and_takes_nothing() {
    let door = Door::open();
    let set = ban(&door, json!({ "target": "203.0.113.0/24", "for": "1h", "reason": "scraping" })).await;
    assert_eq!(set.status, 200);
    let reply = door
        .send(
            Method::POST,
            "/api/v1/check?ratelimit=ietf",
            &[("x-correlation-id", "req-1")],
            json!({ "policy": "orders", "fields": { "route": "/", "ip": "203.0.113.7" } })
                .to_string()
                .into_bytes(),
        )
        .await;
    assert_eq!(reply.status, 403);
    let expected = json!({
        "type": "/problems/banned", "title": "Banned", "status": 403, "detail": "banned; retry after 3600 s",
        "correlationId": "req-1", "error": "banned", "allowed": false, "verdict": "deny", "policy": "orders",
        "origin": "blocked", "retry_after": 3600, "retryAfter": 3600, "retry_after_ms": 3_600_000, "rules": [],
    });
    assert_eq!(reply.json(), expected);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("retry-after"), Some("3600"));
    assert!(reply.headers_like("x-ratelimit").is_empty() && reply.headers_like("ratelimit").is_empty());
    let counts = door.get("/api/v1/counters/orders/%2F,203.0.113.7").await.json();
    assert_eq!(counts["limits"][0]["used"], 0);
    door.advance(3_600);
    assert_eq!(door.check("orders", json!({ "route": "/", "ip": "203.0.113.7" })).await.status, 200);
}

#[tokio::test]
async fn a_reason_is_told_only_if_it_is_public() {
    let door = Door::open();
    ban(&door, json!({ "target": "sender=spam@example.com", "reason": "seen by informer 7" })).await;
    let reply = door.check("mail.accept", json!({ "sender": "Spam@Example.com" })).await;
    assert_eq!((reply.status, reply.detail()), (403, "banned".to_owned()));
    assert!(!reply.text.contains("informer") && !reply.text.contains("spam@"), "{}", reply.text);
    assert_eq!((reply.json().get("reason"), reply.header("retry-after")), (None, None), "it is for good");
    let told = json!({ "target": "sender=spam@example.com", "reason": "write to abuse@example.net", "public": true });
    ban(&door, told).await;
    let reply = door.check("mail.accept", json!({ "sender": "spam@example.com" })).await;
    assert_eq!(reply.detail(), "banned: write to abuse@example.net");
    assert_eq!(reply.json()["reason"], "write to abuse@example.net");
}

#[tokio::test]
async fn every_way_to_ask_for_a_decision_is_blocked() {
    let door = Door::open();
    ban(&door, json!({ "fields": { "account": 7 } })).await;
    let fields = json!({ "account": "7" });
    let dry =
        door.post("/api/v1/check", json!({ "policy": "jobs", "fields": fields, "dry_run": true })).await;
    let hold = door.post("/api/v1/holds", json!({ "policy": "jobs", "fields": fields, "id": "a" })).await;
    for reply in [dry, hold] {
        assert_eq!((reply.status, reply.json()["error"].clone()), (403, json!("banned")));
    }
    let attempts =
        json!([{ "policy": "jobs", "fields": fields }, { "policy": "jobs", "fields": { "account": "8" } }]);
    let batch = door.post("/api/v1/check", json!({ "attempts": attempts })).await.json();
    assert_eq!(batch["decisions"][0]["status"], 403);
    assert_eq!(batch["decisions"][1]["allowed"], true);
}

#[tokio::test]
async fn an_address_may_come_to_a_policy_that_does_not_know_it() {
    let door = Door::open();
    let with = |ip: &str| json!({ "account": "7", "ip": ip });
    assert_eq!(door.check("trial", with("203.0.113.7")).await.status, 200);
    ban(&door, json!({ "target": "203.0.113.7" })).await;
    assert_eq!(door.check("trial", with("203.0.113.7")).await.status, 403);
    let bad = door.check("trial", with("nonsense")).await;
    assert_eq!(
        (bad.status, bad.detail()),
        (400, "the value of `ip` is not an IPv4 or IPv6 address".to_owned())
    );
    assert_eq!(door.check("trial", json!({ "account": "7", "tenant": "x" })).await.status, 400);
}

#[tokio::test]
async fn entries_are_set_shown_and_removed() {
    let door = Door::guarded();
    let boss = [("authorization", "Bearer boss")];
    let body = json!({ "target": "IP=203.0.113.9", "kind": "allow", "for": "90s", "reason": "office" });
    let wrong = door.send(Method::POST, "/api/v1/bans", &boss, body.to_string().into_bytes()).await;
    assert_eq!(wrong.status, 400, "fields have their own case");
    let body =
        json!({ "target": "ip=::ffff:203.0.113.9", "kind": "allow", "for": "90s", "reason": "office" });
    let set = door.send(Method::POST, "/api/v1/bans", &boss, body.to_string().into_bytes()).await;
    let expected = json!({
        "target": "203.0.113.9", "kind": "allow", "reason": "office", "public": false, "author": "boss",
        "since": "2026-01-15T10:00:00Z", "until": "2026-01-15T10:01:30Z",
    });
    assert_eq!(set.json(), json!({ "bans": [expected], "next": null }));
    let reader = [("authorization", "Bearer reader")];
    assert_eq!(
        door.send(Method::GET, "/api/v1/bans", &reader, vec![]).await.json(),
        json!({ "bans": [expected], "next": null })
    );
    for (method, path, body) in [
        (Method::POST, "/api/v1/bans", json!({ "target": "203.0.113.9" }).to_string()),
        (Method::DELETE, "/api/v1/bans/203.0.113.9", String::new()),
    ] {
        let refused = door.send(method, path, &reader, body.into_bytes()).await;
        assert_eq!((refused.status, refused.json()["type"].clone()), (403, json!("/problems/forbidden")));
    }
    let checker =
        door.send(Method::GET, "/api/v1/bans", &[("authorization", "Bearer checker")], vec![]).await;
    assert_eq!(checker.status, 403);
    for removed in [true, false] {
        let reply = door.send(Method::DELETE, "/api/v1/bans/203.0.113.9", &boss, vec![]).await;
        assert_eq!(reply.json(), json!({ "removed": removed, "configured": false }));
    }
    assert!(door.engine.lists.page(None, 9, |_| true).is_empty());
}

#[tokio::test]
async fn configured_entries_are_listed_and_cannot_be_removed() {
    let door = configured();
    assert_eq!(door.check("orders", json!({ "route": "/", "ip": "198.51.100.8" })).await.status, 403);
    assert_eq!(door.check("orders", json!({ "route": "/", "ip": "198.51.100.7" })).await.status, 200);
    let reply = door.delete("/api/v1/bans/198.51.100.0%2F24").await;
    assert_eq!(reply.json(), json!({ "removed": false, "configured": true }));
    ban(&door, json!({ "target": "198.51.100.0/24", "kind": "allow" })).await;
    assert_eq!(door.check("orders", json!({ "route": "/", "ip": "198.51.100.8" })).await.status, 200);
    let shown = door.get("/api/v1/bans?contains=.0%2F24").await.json();
    assert_eq!(shown["bans"].as_array().unwrap().len(), 2);
    assert_eq!(shown["bans"][1]["since"], Value::Null);
    let reply = door.delete("/api/v1/bans/198.51.100.0/24").await;
    assert_eq!(reply.json(), json!({ "removed": true, "configured": true }), "a slash is a slash");
    assert_eq!(door.check("orders", json!({ "route": "/", "ip": "198.51.100.8" })).await.status, 403);
}

#[tokio::test]
async fn entries_are_paged_and_filtered() {
    let door = configured();
    let bans: Vec<Value> = (0..250)
        .map(|number| json!({ "target": format!("10.0.{number}.0/24"), "reason": format!("reason {}", number % 10) }))
        .collect();
    assert_eq!(ban(&door, json!({ "bans": bans })).await.json()["bans"].as_array().unwrap().len(), 250);
    let (mut all, mut path) = (Vec::new(), "/api/v1/bans?limit=90".to_owned());
    let pages = loop {
        let page = door.get(&path).await.json();
        all.extend(
            page["bans"].as_array().unwrap().iter().map(|ban| ban["target"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => path = format!("/api/v1/bans?limit=90&after={}", next.replace('/', "%2F")),
            None => break all.len().div_ceil(90),
        }
    };
    let mut sorted = all.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((all.len(), pages, &all), (252, 3, &sorted));
    let count = async |query: &str| {
        door.get(&format!("/api/v1/bans?{query}")).await.json()["bans"].as_array().unwrap().len()
    };
    assert_eq!(count("contains=reason+7").await, 25);
    assert_eq!(count("kind=allow").await, 1);
    assert_eq!(count("author=configuration").await, 2);
    assert_eq!(count("author=anonymous&limit=1000").await, 250);
    assert_eq!(count("address=198.51.100.7").await, 2);
    assert_eq!(count("address=10.0.33.1&kind=allow").await, 0);
    assert_eq!(
        door.get("/api/v1/bans?limit=250&author=anonymous").await.json()["next"],
        Value::Null,
        "the last page"
    );
}

#[tokio::test]
async fn bad_input_is_a_400_that_says_what_would_be_right() {
    let door = Door::open();
    let long = "x".repeat(600);
    let mebibyte = "x".repeat(900_000);
    let table = [
        (json!({}), "`target` is missing"),
        (json!({ "target": "203.0.113.7/24" }), "write `203.0.113.0/24` for the network"),
        (json!({ "target": "203.0.113.300" }), "0 to 255"),
        (json!({ "target": "bob" }), "as in `user=bob`"),
        (json!({ "target": "acount=7" }), "did you mean `account`?"),
        (
            json!({ "target": "api_key=k" }),
            "the keys of rule `api_key` are secret, and entries are not: `api_key` cannot be listed unless the rule says `secret: false`",
        ),
        (json!({ "target": "10.0.0.1", "fields": { "account": "7" } }), "keep one of"),
        (json!({ "fields": {} }), "1 to 4 fields"),
        (json!({ "target": "10.0.0.1", "for": "1 fortnight" }), "`for`: "),
        (json!({ "target": "10.0.0.1", "for": "0s" }), "more than nothing"),
        (json!({ "target": "10.0.0.1", "kind": "ban" }), "block"),
        (json!({ "target": "10.0.0.1", "reason": long }), "at most 512"),
        (json!({ "target": "10.0.0.1", "reason": "a\nb" }), "one line"),
        (json!({ "target": "10.0.0.1", "public": true }), "needs a `reason`"),
        (
            json!({ "target": "10.0.0.1", "kind": "allow", "reason": "us", "public": true }),
            "cannot be public",
        ),
        (json!({ "target": "10.0.0.1", "until": "1h" }), "`until` is not known here"),
        (json!({ "target": format!("account={mebibyte}") }), "bytes long"),
        (json!({ "bans": [{ "target": "10.0.0.1" }, { "target": "10.0.0.1/8" }] }), "bans[1]: "),
        (json!({ "bans": [], "target": "10.0.0.1" }), "with `bans`"),
        (json!({ "bans": vec![json!({ "target": "10.0.0.1" }); 1_001] }), "1000"),
        (json!({ "bans": [["10.0.0.1"]] }), "an object"),
    ];
    for (body, expected) in table {
        let reply = ban(&door, body.clone()).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.detail().contains(expected), "{expected}: {}", reply.detail());
    }
    for path in ["?kind=ban", "?address=x", "?limit=0", "?until=1", "?after=%FF"] {
        assert_eq!(door.get(&format!("/api/v1/bans{path}")).await.status, 400, "{path}");
    }
    for target in ["bob", "203.0.113.7%2F24", "%FF"] {
        assert_eq!(door.delete(&format!("/api/v1/bans/{target}")).await.status, 400, "{target}");
    }
    assert!(door.engine.lists.page(None, 1, |_| true).is_empty());
}

#[tokio::test]
async fn lists_that_are_full_say_so() {
    let door = Door::open();
    let wish = |number: u32| Wish {
        target: door.engine.lists.target(&format!("account={number}")).unwrap(),
        stance: Stance::Block,
        lasts: None,
        reason: "".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    };
    door.engine.lists.put((0..200_000).map(wish).collect()).await.unwrap();
    let full = ban(&door, json!({ "target": "10.0.0.1" })).await;
    assert_eq!((full.status, full.json()["type"].clone()), (409, json!("/problems/list-full")));
    assert!(full.detail().starts_with("200000 entries were set at run time, and no more can be"));
    assert_eq!(
        ban(&door, json!({ "target": "account=7", "for": "1h" })).await.status,
        200,
        "this one is not new"
    );
    door.delete("/api/v1/bans/account=8").await;
    assert_eq!(ban(&door, json!({ "target": "10.0.0.1" })).await.status, 200);
}

#[tokio::test]
async fn a_store_that_cannot_answer_sets_nothing() {
    let door = Door::with(policies(), Vec::new(), StoreKind::Lost);
    for _ in 0..10 {
        door.check("orders", json!({ "route": "/", "ip": "203.0.113.7" })).await;
    }
    let reply = ban(&door, json!({ "target": "10.0.0.1" })).await;
    assert_eq!((reply.status, reply.json()["type"].clone()), (503, json!("/problems/store-unavailable")));
    assert!(door.engine.lists.page(None, 1, |_| true).is_empty());
}

#[tokio::test]
async fn a_ban_by_a_rule_is_seen_in_the_lists_the_journal_and_the_metrics() {
    let login = Rule {
        ban: Some("after 2 denials in 10m ban 1h up to 24h".parse().unwrap()),
        ..rule("login", &["ip"], &["1/hour"])
    };
    let login = Arc::new(login);
    let policy = Policy::new("login".into(), vec![Arc::clone(&login)], false);
    let door = Door::with(Policies::new(true, vec![login], vec![policy]), Vec::new(), StoreKind::Memory);
    for _ in 0..3 {
        door.check("login", json!({ "ip": "203.0.113.7" })).await;
    }
    door.engine.tend().await;
    assert_eq!(door.check("login", json!({ "ip": "203.0.113.7" })).await.status, 403);
    let shown = door.get("/api/v1/bans?author=rule%20login").await.json();
    let expected = json!({
        "target": "203.0.113.7", "kind": "block", "reason": "2 denials in 10m by rule login", "public": false,
        "author": "rule login", "since": "2026-01-15T10:00:00Z", "until": "2026-01-15T11:00:00Z", "times": 1,
    });
    assert_eq!(shown["bans"], json!([expected]));
    let journal = door.get("/api/v1/decisions").await.json();
    let of = |origin: &str| {
        journal["decisions"].as_array().unwrap().iter().find(|entry| entry["origin"] == origin).cloned()
    };
    let blocked = of("blocked").unwrap();
    assert_eq!((&blocked["rule"], &blocked["key"]), (&Value::Null, &json!("203.0.113.7")));
    let banned: Vec<Value> = journal["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry.get("banned_for_ms").is_some())
        .cloned()
        .collect();
    assert_eq!(banned.len(), 1);
    assert_eq!((&banned[0]["rule"], &banned[0]["banned_for_ms"]), (&json!("login"), &json!(3_600_000)));
    let page = door.get("/metrics").await.text;
    for line in [
        "tollgate_list_entries{kind=\"block\"} 1",
        "tollgate_list_entries{kind=\"allow\"} 0",
        "tollgate_bans_total{rule=\"login\"} 1",
        "tollgate_bans_missed_total 0",
        "tollgate_decisions_total{policy=\"login\",rule=\"\",outcome=\"blocked\"} 1",
    ] {
        assert!(page.contains(line), "{line}");
    }
    let configured = door.get("/api/v1/counters").await.json();
    assert_eq!(configured["rules"]["login"]["ban"], "after 2 denials in 10m ban 1h up to 1d");
}

#[tokio::test]
async fn every_address_is_blocked_only_by_force() {
    let door = Door::open();
    for target in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
        let refused = ban(&door, json!({ "target": target })).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(
            refused.detail().contains("would block every address: add `\"force\":true` if you mean that")
        );
        let listed =
            ban(&door, json!({ "bans": [{ "target": "192.0.2.1" }, { "target": target, "force": false }] }))
                .await;
        assert_eq!(listed.status, 400);
        assert!(
            listed.detail().starts_with("bans[1]: ") && listed.detail().ends_with("; nothing was set"),
            "{listed:?}"
        );
    }
    assert_eq!(door.check("orders", json!({ "route": "/", "ip": "203.0.113.7" })).await.status, 200);
    assert_eq!(ban(&door, json!({ "target": "0.0.0.0/0", "kind": "allow" })).await.status, 200);
    assert_eq!(ban(&door, json!({ "target": "0.0.0.0/0", "force": true })).await.status, 200);
    assert_eq!(door.check("orders", json!({ "route": "/", "ip": "203.0.113.7" })).await.status, 403);
}
