//! Holds and receipts: what is in flight, until it ends, expires, is refunded or corrected.

use crate::door::{self, Door};
use serde_json::{Value, json};

fn hold(policy: &str, id: &str) -> Value {
    json!({ "policy": policy, "fields": { "account": "acme" }, "id": id })
}

#[tokio::test]
async fn a_hold_is_taken_shown_renewed_and_released() {
    let door = Door::open();
    let reply = door.post("/api/v1/holds", hold("jobs", "deal-7")).await;
    let expected = json!({
        "allowed": true, "verdict": "allow", "policy": "jobs", "origin": "store", "repeated": false, "id": "deal-7",
        "rules": [{
            "rule": "jobs", "key": "acme", "limit": "2 at once for 30s", "capacity": 2, "remaining": 1,
            "reset_after": 30, "reset_after_ms": 30_000, "exceeded": false, "observed": false,
            "limits": [{ "limit": "2 at once for 30s", "capacity": 2, "remaining": 1, "reset_after_ms": 30_000, "retry_after_ms": null }],
        }],
        "receipt": "…",
    });
    assert_eq!((reply.status, reply.settled()), (200, expected));
    door.advance(10);
    let again = door.post("/api/v1/holds", hold("jobs", "deal-7")).await;
    assert_eq!((again.status, &again.json()["repeated"]), (200, &json!(true)));
    assert!(again.json().get("receipt").is_none(), "nothing was taken the second time");
    let shown = json!({
        "rule": "jobs", "key": "acme", "limit": "2 at once for 30s", "capacity": 2, "held": 1,
        "holds": [{ "id": "deal-7", "weight": 1, "since": "2026-01-15T10:00:00Z", "expires": "2026-01-15T10:00:30Z" }],
    });
    assert_eq!(door.get("/api/v1/holds/jobs/acme").await.json(), shown);
    let renewed = door.post("/api/v1/holds/jobs/acme/deal-7/renew", json!({})).await;
    assert_eq!((renewed.status, renewed.json()), (200, json!({ "renewed": true })));
    let expires = door.get("/api/v1/holds/jobs/acme").await.json()["holds"][0]["expires"].clone();
    assert_eq!(expires, "2026-01-15T10:00:40Z");
    let released = door.delete("/api/v1/holds/jobs/acme/deal-7").await;
    assert_eq!((released.status, released.json()), (200, json!({ "released": true })));
    let released = door.delete("/api/v1/holds/jobs/acme/deal-7").await;
    assert_eq!((released.status, released.json()), (200, json!({ "released": false })), "twice is no error");
    assert_eq!(door.get("/api/v1/holds/jobs/acme").await.json()["held"], 0);
}

#[tokio::test]
async fn a_hold_that_is_not_renewed_ends_and_cannot_be_revived() {
    let door = Door::open();
    door.post("/api/v1/holds", hold("jobs", "1")).await;
    door.advance(20);
    door.post("/api/v1/holds", hold("jobs", "2")).await;
    let refused = door.post("/api/v1/holds", hold("jobs", "3")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("10")));
    door.advance(10);
    let late = door.post("/api/v1/holds/jobs/acme/1/renew", json!({})).await;
    assert_eq!(late.status, 404);
    assert_eq!(late.detail(), "nothing is held under this id: it was released, or its time is up");
    assert_eq!(door.get("/api/v1/holds/jobs/acme").await.json()["held"], 1);
    assert_eq!(door.post("/api/v1/holds", hold("jobs", "3")).await.status, 200);
}

#[tokio::test]
async fn holds_without_a_lease_last_and_heavy_ones_weigh() {
    let door = Door::open();
    door.post("/api/v1/holds", hold("slots", "a/b c")).await;
    door.advance(1_000_000);
    let shown = door.get("/api/v1/holds/slots/acme").await.json();
    assert_eq!(
        shown["holds"],
        json!([{ "id": "a/b c", "weight": 1, "since": "2026-01-15T10:00:00Z", "expires": null }])
    );
    assert_eq!(shown["limit"], "1 at once");
    assert_eq!(door.delete("/api/v1/holds/slots/acme/a%2Fb%20c").await.json(), json!({ "released": true }));
    let heavy = json!({ "policy": "jobs", "fields": { "account": "with/slash" }, "id": "1", "cost": 2 });
    door.post("/api/v1/holds", heavy).await;
    let shown = door.get("/api/v1/holds/jobs/with/slash").await.json();
    assert_eq!(
        (&shown["key"], &shown["held"], &shown["holds"][0]["weight"]),
        (&json!("with/slash"), &json!(2), &json!(2))
    );
    assert_eq!(door.post("/api/v1/holds/jobs/with/slash/1/renew", json!({})).await.status, 200);
    assert_eq!(door.delete("/api/v1/holds/jobs/with/slash/1").await.json(), json!({ "released": true }));
}

#[tokio::test]
async fn reconciling_makes_the_holds_equal_to_the_callers_list() {
    let door = Door::open();
    door.post("/api/v1/holds", hold("jobs", "gone")).await;
    door.post("/api/v1/holds", hold("jobs", "kept")).await;
    door.advance(5);
    let shown = door.put("/api/v1/holds/jobs/acme", json!({ "ids": ["kept", "new", "newer"] })).await;
    assert_eq!(shown.status, 200);
    let one = |id: &str, since: &str, expires: &str| json!({ "id": id, "weight": 1, "since": since, "expires": expires });
    let expected = json!({
        "rule": "jobs", "key": "acme", "limit": "2 at once for 30s", "capacity": 2, "held": 3,
        "holds": [
            one("kept", "2026-01-15T10:00:00Z", "2026-01-15T10:00:30Z"),
            one("new", "2026-01-15T10:00:05Z", "2026-01-15T10:00:35Z"),
            one("newer", "2026-01-15T10:00:05Z", "2026-01-15T10:00:35Z"),
        ],
    });
    assert_eq!(shown.json(), expected, "more than the limit allows is taken over too");
    assert_eq!(door.get("/api/v1/holds/jobs/acme").await.json(), expected);
    let refused = door.post("/api/v1/holds", hold("jobs", "4")).await;
    assert_eq!((refused.status, &refused.json()["rules"][0]["remaining"]), (429, &json!(0)));
    assert_eq!(door.put("/api/v1/holds/jobs/acme", json!({ "ids": [] })).await.json()["held"], 0);

    let many: Vec<String> = (0..100_000).map(|n| format!("id-{n:016}")).collect();
    let body = axum::body::Body::from(json!({ "ids": many }).to_string());
    let shown = door.answer(axum::http::Request::put("/api/v1/holds/jobs/acme").body(body).unwrap()).await;
    assert_eq!((shown.status, &shown.json()["held"]), (200, &json!(100_000)));
    let more = json!({ "ids": vec!["x"; 100_001] });
    assert!(
        door.put("/api/v1/holds/jobs/acme", more).await.detail().starts_with("more than 100000 in one list")
    );
    let long = door.put("/api/v1/holds/jobs/acme", json!({ "ids": ["x".repeat(257)] })).await;
    assert_eq!(long.detail(), "`ids[0]`: the id is 257 bytes long; at most 256 are allowed");
    let seen = door.check("jobs", json!({ "account": "acme" })).await;
    assert_eq!(seen.status, 429, "what is refused changes nothing");
}

#[tokio::test]
async fn a_check_tells_the_id_under_which_it_holds() {
    let door = Door::open();
    let attempt = json!({ "policy": "jobs", "fields": { "account": "acme" } });
    let one = door.post("/api/v1/check", attempt.clone()).await.json();
    let several = door.post("/api/v1/check", json!({ "attempts": [attempt] })).await.json();
    let ids = [&one["id"], &several["decisions"][0]["id"]].map(|id| id.as_str().unwrap());
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        let released = door.delete(&format!("/api/v1/holds/jobs/acme/{id}")).await;
        assert_eq!(released.json(), json!({ "released": true }), "{id}");
    }
    for _ in 0..2 {
        let own = door.post("/api/v1/check", hold("jobs", "deal-7")).await.json();
        assert_eq!(own["id"], "deal-7", "the caller's own, held already or not");
    }
    for body in [
        json!({ "policy": "jobs", "fields": { "account": "acme" }, "dry_run": true }),
        json!({ "policy": "jobs", "fields": { "account": "acme" }, "cost": 0 }),
        json!({ "policy": "trial", "fields": { "account": "acme" }, "id": "deal-7" }),
    ] {
        let reply = door.post("/api/v1/check", body.clone()).await;
        assert_eq!((reply.status, reply.json().get("id")), (200, None), "nothing is held: {body}");
    }
}

#[tokio::test]
async fn a_hold_needs_an_id() {
    let door = Door::open();
    let reply =
        door.post("/api/v1/holds", json!({ "policy": "jobs", "fields": { "account": "acme" } })).await;
    assert_eq!((reply.status, &*reply.detail()), (400, "`id` is missing"));
    let reply = door.post("/api/v1/holds", json!({ "policy": "jobs", "id": "1", "dry_run": true })).await;
    assert!(
        reply.detail().starts_with("`dry_run` is not known here; known are: `policy`,"),
        "{}",
        reply.detail()
    );
}

#[tokio::test]
async fn a_receipt_gives_back_once() {
    let door = Door::open();
    let body = json!({ "policy": "trial", "fields": { "account": "acme" }, "cost": 2 });
    let receipt = door.post("/api/v1/check", body.clone()).await.json()["receipt"].clone();
    assert_eq!(door.post("/api/v1/check", body.clone()).await.status, 429);
    let give = json!({ "receipt": receipt });
    assert_eq!(
        door.post("/api/v1/refund", give.clone()).await.json(),
        json!({ "refunded": "back", "given": "back" })
    );
    assert_eq!(
        door.post("/api/v1/refund", give.clone()).await.json(),
        json!({ "refunded": "already", "given": "already" })
    );
    assert_eq!(door.get("/api/v1/counters/trial/acme").await.json()["limits"][0]["used"], 0);
    assert_eq!(door.post("/api/v1/check", body).await.status, 200);

    let mut forged = receipt.as_str().unwrap().to_owned();
    let last = if forged.ends_with('A') { "Q" } else { "A" };
    forged.replace_range(forged.len() - 1.., last);
    for unreadable in [&*forged, "", "receipt", "é"] {
        let reply = door.post("/api/v1/refund", json!({ "receipt": unreadable })).await;
        assert_eq!(
            (reply.status, &*reply.detail()),
            (400, "this is not a receipt of this server"),
            "{unreadable}"
        );
    }
    assert_eq!(door.post("/api/v1/refund", json!({})).await.detail(), "`receipt` is missing");
    assert_eq!(door.get("/api/v1/counters/trial/acme").await.json()["limits"][0]["used"], 2);
    assert_eq!(Door::without_store().post("/api/v1/refund", give.clone()).await.status, 503);
    let forgetful = Door::with(door::policies(), Vec::new(), door::StoreKind::Forgetful);
    assert_eq!(
        forgetful.post("/api/v1/refund", give).await.json(),
        json!({ "refunded": "too_old", "given": "too_old" })
    );
}

#[tokio::test]
async fn giving_back_ends_the_hold_that_was_taken() {
    let door = Door::open();
    let receipt = door.post("/api/v1/holds", hold("slots", "1")).await.json()["receipt"].clone();
    assert_eq!(
        door.post("/api/v1/refund", json!({ "receipt": receipt })).await.json(),
        json!({ "refunded": "back", "given": "back" })
    );
    assert_eq!(door.get("/api/v1/holds/slots/acme").await.json()["holds"], json!([]));
}
