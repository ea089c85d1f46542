//! Receipts and tickets that another version of tollgate issued, or a server with another store: they are refused, and
//! change nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{Door, StoreKind, rule};
use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};
use tollgate_core::{Guard, Policies, Policy, Rule};
use tollgate_engine::receipt::{Kind, Seal};

/// The secret of every door's store.
const SECRET: [u8; 32] = [7; 32];

/// What other versions and other servers would issue in place of this text.
fn foreign(text: &Value, kind: Kind) -> Vec<(&'static str, String)> {
    let text = text.as_str().unwrap();
    let (opened, receipt) = Seal::new(SECRET).open(text).unwrap();
    assert_eq!(opened, kind);
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
    let version = |version: u8| {
        let other: Vec<u8> = [version].into_iter().chain(bytes[1..].iter().copied()).collect();
        BASE64URL_NOPAD.encode(&other)
    };
    // The first format had a kind, a ticket, a time, and a tag of 16 bytes.
    let first: Vec<u8> = [kind as u8]
        .into_iter()
        .chain(receipt.ticket.0.to_be_bytes())
        .chain(receipt.at.as_micros().to_be_bytes())
        .chain([5; 16])
        .collect();
    vec![
        ("the first format", BASE64URL_NOPAD.encode(&first)),
        ("an earlier version", version(bytes[0] - 1)),
        ("a later version", version(bytes[0] + 1)),
        ("another secret", Seal::new([8; 32]).seal(kind, &receipt)),
        ("another kind", Seal::new(SECRET).seal(Kind::Lock, &receipt)),
    ]
}

#[tokio::test]
async fn a_receipt_of_another_version_or_server_is_refused_and_refunds_nothing() {
    let door = Door::open();
    let body = json!({ "policy": "trial", "fields": { "account": "acme" }, "cost": 2 });
    let receipt = door.post("/api/v1/check", body).await.json()["receipt"].clone();
    let used = || async { door.get("/api/v1/counters/trial/acme").await.json()["limits"][0]["used"].clone() };
    for (what, text) in foreign(&receipt, Kind::Receipt) {
        let reply = door.post("/api/v1/refund", json!({ "receipt": text })).await;
        let refusal = (reply.status, &*reply.detail());
        assert_eq!(refusal, (400, "this is not a receipt of this server"), "{what}");
        assert_eq!(used().await, 2, "{what}");
    }
    let reply = door.post("/api/v1/refund", json!({ "receipt": receipt })).await;
    assert_eq!((&reply.json()["refunded"], used().await), (&json!("back"), json!(0)));
}

#[tokio::test]
async fn a_ticket_of_another_version_or_server_is_refused_and_ends_nothing() {
    let rules: Vec<Arc<Rule>> = vec![Arc::new(rule("account", &["user"], &["ladder 4 lock 15m"]))];
    let policy = Policy::new("login".into(), rules.clone(), false);
    let guards = vec![Guard::new("door", "login")];
    let policies = Policies::new(true, rules, vec![policy]).with_guards(guards);
    let door = Door::with(policies, Vec::new(), StoreKind::Memory);
    let ada = json!({ "fields": { "user": "ada" } });
    let failures = || async {
        let shown = door.post("/api/v1/guards/door/inspect", ada.clone()).await.json();
        shown["ladders"][0]["failures"].clone()
    };
    let ticket = door.post("/api/v1/guards/door/begin", ada.clone()).await.json()["ticket"].clone();
    assert_eq!(failures().await, 1, "an attempt counts as a failure until it ends");
    for (what, text) in foreign(&ticket, Kind::Ticket) {
        for outcome in ["success", "failure", "abandoned"] {
            let body = json!({ "ticket": text, "outcome": outcome });
            let reply = door.post("/api/v1/guards/finish", body).await;
            let refusal = (reply.status, &*reply.detail());
            assert_eq!(refusal, (400, "this is not a ticket of this server"), "{what}, {outcome}");
            assert_eq!(failures().await, 1, "{what}, {outcome}");
        }
    }
    let body = json!({ "ticket": ticket, "outcome": "success" });
    let reply = door.post("/api/v1/guards/finish", body).await;
    assert_eq!((&reply.json()["finished"], failures().await), (&json!("now"), json!(0)));
}
