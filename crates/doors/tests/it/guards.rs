//! Guards over HTTP: beginning, finishing, showing, unlocking, and invalid requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{Door, Reply, StoreKind, rule};
use serde_json::{Value, json};
use tollgate_core::{Guard, Policies, Policy, Rule};

fn guarded(rules: Vec<Rule>) -> Door {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policy = Policy::new("login".into(), rules.clone(), false);
    let plain = Policy::new("plain".into(), rules.clone(), false);
    let guards = vec![Guard::new("door", "login")];
    Door::with(
        Policies::new(true, rules, vec![policy, plain]).with_guards(guards),
        Vec::new(),
        StoreKind::Memory,
    )
}

fn by_user() -> Door {
    guarded(vec![rule("account", &["user"], &["ladder 2 +2s then 3 +5s captcha then 4 lock 15m notify"])])
}

async fn begin(door: &Door, fields: Value) -> Reply {
    door.post("/api/v1/guards/door/begin", json!({ "fields": fields })).await
}

async fn finish(door: &Door, ticket: &Value, outcome: &str) -> Reply {
    door.post("/api/v1/guards/finish", json!({ "ticket": ticket, "outcome": outcome })).await
}

async fn fail(door: &Door, user: &str) -> Value {
    let begun = begin(door, json!({ "user": user })).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    assert_eq!(finish(door, &begun.json()["ticket"], "failure").await.json()["finished"], "now");
    begun.json()
}

#[tokio::test]
async fn the_answer_has_advice_for_this_attempt_and_for_the_next() {
    let door = by_user();
    let none = json!({ "delay_ms": 0, "not_before": null, "captcha": false, "locked_until": null });
    let first = fail(&door, "ada").await;
    assert_eq!(first["if_failed"], none);
    assert_eq!(
        (&first["allowed"], &first["guard"], &first["policy"], &first["origin"], &first["delay_ms"]),
        (&json!(true), &json!("door"), &json!("login"), &json!("store"), &json!(0))
    );
    let second = fail(&door, "ada").await;
    assert_eq!(second["if_failed"]["delay_ms"], 2_000);
    let refused = begin(&door, json!({ "user": "ada" })).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("2")));
    assert_eq!(refused.header("retry-after-ms"), Some("2000"));
    let refused = refused.json();
    assert_eq!(
        (&refused["allowed"], &refused["delay_ms"], &refused["locked_until"], &refused["ticket"]),
        (&json!(false), &json!(2_000), &Value::Null, &Value::Null)
    );
    assert_eq!(refused["denied_by"], "account");
    door.advance(2);
    assert_eq!(fail(&door, "ada").await["if_failed"]["captcha"], true);
    door.advance(5);
    let fourth = fail(&door, "ada").await;
    assert_eq!((&fourth["captcha"], &fourth["if_failed"]["delay_ms"]), (&json!(true), &json!(900_000)));
    let locked = begin(&door, json!({ "user": "ada" })).await.json();
    assert_eq!(locked["locked_until"], fourth["if_failed"]["locked_until"]);
    assert_eq!(begin(&door, json!({ "user": "bob" })).await.status, 200, "another account is not locked");
}

#[tokio::test]
async fn a_ticket_is_finished_once_and_its_first_outcome_stands() {
    let door = by_user();
    fail(&door, "ada").await;
    let ticket = begin(&door, json!({ "user": "ada" })).await.json()["ticket"].clone();
    let first = finish(&door, &ticket, "success").await.json();
    assert_eq!(first, json!({ "guard": "door", "finished": "now" }));
    for outcome in ["failure", "success", "abandoned"] {
        assert_eq!(finish(&door, &ticket, outcome).await.json()["finished"], "already");
    }
    let shown = door.post("/api/v1/guards/door/inspect", json!({ "fields": { "user": "ada" } })).await.json();
    assert_eq!(shown["ladders"][0]["failures"], 0);
}

#[tokio::test]
async fn errors_name_the_accepted_values() {
    let door = guarded(vec![rule("own", &["user", "ip"], &["ladder 4 lock 15m"])]);
    let outcome = door.post("/api/v1/guards/finish", json!({ "ticket": "", "outcome": "won" })).await;
    let words = "`won` is not known here; known are: `success`, `failure`, `abandoned`, at `outcome`";
    assert!(outcome.detail().starts_with(words), "{outcome:?}");
    let unnamed = door.post("/api/v1/guards/door/inspect", json!({})).await;
    assert_eq!(unnamed.status, 400);
    assert!(unnamed.detail().ends_with("applies: its rules need some of the fields user, ip"), "{unnamed:?}");
}

#[tokio::test]
async fn a_bad_guard_request_is_explained_and_counts_nothing() {
    let door = guarded(vec![
        rule("own", &["user", "ip"], &["ladder 4 lock 15m"]),
        rule("address", &["ip"], &["ladder 30 lock 15m"]),
    ]);
    let good = json!({ "user": "ada", "ip": "192.0.2.1" });
    let ticket = begin(&door, good.clone()).await.json()["ticket"].as_str().unwrap().to_owned();
    let receipt = door.check("plain", good.clone()).await.json()["receipt"].clone();
    let table = [
        ("/api/v1/guards/dor/begin", json!({ "fields": good }), 404, "did you mean `door`?"),
        ("/api/v1/guards/dor/unlock", json!({ "fields": good }), 404, "did you mean `door`?"),
        ("/api/v1/guards/door/begin", json!({}), 400, "also needs: `user`, `ip`"),
        ("/api/v1/guards/door/begin", json!({ "fields": { "user": "a" } }), 400, "also needs: `ip`"),
        (
            "/api/v1/guards/door/begin",
            json!({ "fields": { "user": "a", "ip": "192.0.2.1", "usr": 1 } }),
            400,
            "did you mean `user`?",
        ),
        (
            "/api/v1/guards/door/begin",
            json!({ "fields": { "user": "", "ip": "192.0.2.1" } }),
            400,
            "is empty",
        ),
        (
            "/api/v1/guards/door/begin",
            json!({ "fields": { "user": "a".repeat(1_025), "ip": "192.0.2.1" } }),
            400,
            "1025 bytes long",
        ),
        (
            "/api/v1/guards/door/begin",
            json!({ "fields": { "user": "a".repeat(2 << 20), "ip": "192.0.2.1" } }),
            413,
            "longer than",
        ),
        ("/api/v1/guards/door/begin", json!({ "field": good }), 400, "did you mean `fields`?"),
        ("/api/v1/guards/door/unlock", json!({}), 400, "name the user to unlock"),
        ("/api/v1/guards/finish", json!({ "ticket": ticket, "outcome": "won" }), 400, "`abandoned`"),
        ("/api/v1/guards/finish", json!({ "ticket": ticket }), 400, "outcome"),
        (
            "/api/v1/guards/finish",
            json!({ "ticket": "forged", "outcome": "success" }),
            400,
            "not a ticket of this",
        ),
        (
            "/api/v1/guards/finish",
            json!({ "ticket": format!("{}AAAA", &ticket[..ticket.len() - 4]), "outcome": "success" }),
            400,
            "not a ticket of this",
        ),
        (
            "/api/v1/guards/finish",
            json!({ "ticket": receipt, "outcome": "success" }),
            400,
            "that is a receipt",
        ),
        ("/api/v1/refund", json!({ "receipt": ticket }), 400, "this is the ticket of a guard"),
    ];
    for (path, body, status, words) in table {
        let reply = door.post(path, body.clone()).await;
        assert_eq!(reply.status, status, "{path} {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(words), "{path} {reply:?}");
    }
    assert_eq!(door.get("/api/v1/guards/dor/locks").await.status, 404);
    let shown = door.post("/api/v1/guards/door/inspect", json!({ "fields": good })).await.json();
    assert_eq!(shown["ladders"][0]["failures"], 2, "the ticket's and the receipt's");
}

#[tokio::test]
async fn locks_are_listed_in_pages_inspected_and_lifted() {
    let door = guarded(vec![rule("account", &["user"], &["ladder 1 lock 15m notify"])]);
    for user in ["ada", "bob", "eve"] {
        fail(&door, user).await;
    }
    let guards = door.get("/api/v1/guards").await.json();
    let shown = &guards["guards"][0];
    assert_eq!((&shown["fields"], &shown["clears"]), (&json!(["user"]), &json!(["narrowest"])));
    assert_eq!((&shown["begun"], &shown["failures"], &shown["lockouts"]), (&json!(3), &json!(3), &json!(3)));
    let mut users = Vec::new();
    let mut path = "/api/v1/guards/door/locks?limit=2".to_owned();
    loop {
        let page = door.get(&path).await.json();
        for lock in page["locks"].as_array().unwrap() {
            assert_eq!((&lock["rule"], &lock["failures"]), (&json!("account"), &json!(1)));
            assert_eq!(lock["fields"]["user"], lock["key"]);
            users.push(lock["key"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/guards/door/locks?limit=2&after={}", next.replace('#', "%23"));
    }
    users.sort();
    assert_eq!(users, ["ada", "bob", "eve"]);
    let ada = json!({ "fields": { "user": "ada" } });
    let standing = door.post("/api/v1/guards/door/inspect", ada.clone()).await.json();
    let standing = &standing["ladders"][0];
    assert_eq!((&standing["failures"], &standing["observed"]), (&json!(1), &json!(false)));
    assert_eq!((&standing["delay_ms"], &standing["captcha"]), (&json!(900_000), &json!(false)));
    assert!(standing["locked_until"].is_string() && standing["forgotten_at"].is_string());
    let unlocked = door.post("/api/v1/guards/door/unlock", ada).await.json();
    assert_eq!(unlocked, json!({ "unlocked": [{ "rule": "account", "key": "ada" }] }));
    assert_eq!(begin(&door, json!({ "user": "ada" })).await.status, 200);
    assert_eq!(begin(&door, json!({ "user": "bob" })).await.status, 429);
    let journal = door.get("/api/v1/decisions").await.json();
    let told =
        journal["decisions"].as_array().unwrap().iter().filter(|entry| entry["locked_for_ms"] == 900_000);
    assert_eq!(told.count(), 3);
    let metrics = door.get("/metrics").await;
    assert!(metrics.text.contains("tollgate_guard_lockouts_total{guard=\"door\"} 3"), "{}", metrics.text);
    assert!(metrics.text.contains("tollgate_guard_attempts_total{guard=\"door\",outcome=\"refused\"} 1"));
    assert!(metrics.text.contains("tollgate_guard_failures_total{guard=\"door\"} 3"));
}

#[tokio::test]
async fn a_blocked_client_is_refused_before_the_guard_counts() {
    let door = guarded(vec![rule("own", &["user", "ip"], &["ladder 1 lock 15m"])]);
    door.post("/api/v1/bans", json!({ "target": "203.0.113.0/24" })).await;
    let fields = json!({ "user": "ada", "ip": "203.0.113.7" });
    let blocked = begin(&door, fields.clone()).await;
    assert_eq!((blocked.status, &blocked.json()["locked_until"]), (403, &Value::Null));
    let shown = door.post("/api/v1/guards/door/inspect", json!({ "fields": fields })).await.json();
    assert_eq!(shown["ladders"][0]["failures"], 0);
}
