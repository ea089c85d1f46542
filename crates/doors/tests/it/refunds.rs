//! Partial refunds: an attempt that used less than it took, at rules that count different fields.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{Door, StoreKind, rule};
use serde_json::json;
use tollgate_core::{Policies, Policy, Rule};

#[tokio::test]
async fn a_refund_gives_back_the_part_that_it_names_at_each_rule() {
    let recipients =
        Rule { count: Some("recipients".into()), ..rule("recipients", &["sender"], &["50/hour"]) };
    let rules: Vec<Arc<Rule>> =
        [rule("messages", &["sender"], &["10/hour"]), recipients].map(Arc::new).into();
    let policies = vec![Policy::new("mail".into(), rules.clone(), false)];
    let door = Door::with(Policies::new(true, rules, policies), Vec::new(), StoreKind::Memory);
    let fields = json!({ "sender": "a@example.com", "recipients": "7" });
    let left = || async {
        let look = door.post("/api/v1/check", json!({ "policy": "mail", "fields": fields, "cost": 0 })).await;
        let rules = look.json()["rules"].clone();
        [0, 1].map(|index| rules[index]["remaining"].as_u64().unwrap())
    };
    let take = || door.post("/api/v1/check", json!({ "policy": "mail", "fields": fields, "cost": 2 }));
    for (part, expected) in [
        (json!({}), [10, 50]),
        (json!({ "amount": 1 }), [9, 43]),
        (json!({ "counts": { "recipients": 3 } }), [7, 39]),
        (json!({ "amount": 9, "counts": { "recipients": 9, "other": 1 } }), [7, 39]),
    ] {
        let mut body = part.clone();
        body["receipt"] = take().await.json()["receipt"].clone();
        assert_eq!(
            door.post("/api/v1/refund", body.clone()).await.json(),
            json!({ "refunded": "back", "given": "back" })
        );
        assert_eq!(left().await, expected, "{part}");
        assert_eq!(
            door.post("/api/v1/refund", body).await.json(),
            json!({ "refunded": "already", "given": "already" })
        );
    }
    let without = json!({ "policy": "mail", "fields": { "sender": "a@example.com" } });
    let refused = door.post("/api/v1/check", without).await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.detail(),
        "rule `recipients` counts `recipients`: send that field, with a whole number"
    );
}
