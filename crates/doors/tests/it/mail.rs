//! A mail server's limits: windows that begin with the first message, limits for single domains, resets, and
//! what is left after a restart.

use std::sync::Arc;

use crate::door::{self, Door};
use axum::http::Method;
use serde_json::{Value, json};
use tollgate_store::MemoryStore;

async fn send(door: &Door, count: usize) {
    for _ in 0..count {
        let fields = json!({ "domain": "example.com", "sender": "a@example.com", "ip": "10.0.0.1" });
        let body = json!({ "policy": "mail.accept", "fields": fields });
        assert_eq!(door.post("/api/v1/check", body).await.status, 200);
    }
}

/// The members of a mail server's statistics.
fn counts(reply: &Value) -> Value {
    let names = [
        "level",
        "key",
        "hourly_count",
        "daily_count",
        "hourly_limit",
        "daily_limit",
        "hour_start",
        "day_start",
    ];
    names
        .iter()
        .map(|name| ((*name).to_owned(), reply[name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test]
async fn the_configuration_is_shown_as_rules_and_in_the_terms_of_a_mail_server() {
    let door = Door::open();
    let shown = door.get("/api/v1/counters").await.json();
    assert_eq!(shown["enabled"], true);
    let domain = json!({
        "by": ["domain"], "limits": ["1000/hour", "10000/day"],
        "overrides": { "example.com": ["5000/hour", "50000/day", "100 recipients per attempt"] },
        "on_exceed": "reject", "on_outage": "local 50%", "enabled": true, "secret": false,
    });
    assert_eq!(shown["rules"]["domain"], domain);
    assert_eq!(shown["rules"]["pace"]["on_exceed"], "wait 5s");
    assert_eq!(shown["rules"]["recipient_domain"]["on_exceed"], "defer");
    assert_eq!(shown["rules"]["shadow"]["on_exceed"], "observe");
    assert_eq!(shown["rules"]["orders"]["by"], json!(["route", "ip"]));
    assert_eq!(shown["policies"]["mail.accept"], json!(["global", "domain", "sender", "ip", "api_key"]));
    let two = |hour: u64, day: u64| json!({ "messages_per_hour": hour, "messages_per_day": day });
    let mut mail = shown.clone();
    for general in ["enabled", "rules", "policies"] {
        mail.as_object_mut().unwrap().remove(general);
    }
    let expected = json!({
        "global": two(50_000, 500_000), "default_domain": two(1_000, 10_000), "default_sender": two(3, 1_000),
        "default_ip": two(500, 5_000), "default_api_key": two(1_000, 10_000),
        "default_recipient_domain": two(2, 50_000),
        "domains": { "example.com": { "messages_per_hour": 5_000, "messages_per_day": 50_000, "recipients_per_message": 100 } },
        "recipient_domains": {},
    });
    assert_eq!(mail, expected);
}

#[tokio::test]
async fn sections_whose_rules_are_absent_or_of_another_kind_are_absent() {
    let rules = vec![
        Arc::new(door::rule("global", &[], &["10/s burst 50"])),
        Arc::new(door::rule("sender", &["sender"], &["9/day"])),
        Arc::new(door::rule("ip", &["ip"], &["9/hour calendar"])),
    ];
    let door = Door::with(
        tollgate_core::Policies::new(true, rules, Vec::new()),
        Vec::new(),
        door::StoreKind::Memory,
    );
    let shown = door.get("/api/v1/counters").await.json();
    let names: Vec<&String> = shown.as_object().unwrap().keys().collect();
    assert_eq!(names, ["default_sender", "enabled", "policies", "rules"]);
    assert_eq!(shown["default_sender"], json!({ "messages_per_hour": 0, "messages_per_day": 9 }));
    assert!(door.get("/api/v1/counters/ip/10.0.0.1").await.json().get("hourly_limit").is_none());
}

#[tokio::test]
async fn windows_begin_with_the_first_message_and_end_an_hour_and_a_day_after_it() {
    let door = Door::open();
    let path = "/api/v1/counters/domain/example.com";
    let empty = json!({
        "level": "domain", "key": "example.com", "hourly_count": 0, "daily_count": 0,
        "hourly_limit": 5_000, "daily_limit": 50_000, "hour_start": null, "day_start": null,
    });
    assert_eq!(counts(&door.get(path).await.json()), empty, "looking begins nothing");
    door.advance(90);
    send(&door, 2).await;
    door.advance(1_800);
    send(&door, 1).await;
    let first = "2026-01-15T10:01:30Z";
    let running = json!({
        "level": "domain", "key": "example.com", "hourly_count": 3, "daily_count": 3,
        "hourly_limit": 5_000, "daily_limit": 50_000, "hour_start": first, "day_start": first,
    });
    let shown = door.get(path).await.json();
    assert_eq!(counts(&shown), running);
    let limits = json!([
        { "limit": "5000/hour", "capacity": 5_000, "remaining": 4_997, "used": 3, "reset_after_ms": 1_800_000, "reset_at": "2026-01-15T11:01:30Z" },
        { "limit": "50000/day", "capacity": 50_000, "remaining": 49_997, "used": 3, "reset_after_ms": 84_600_000, "reset_at": "2026-01-16T10:01:30Z" },
        { "limit": "100 recipients per attempt", "capacity": 100, "remaining": 100, "used": 0, "reset_after_ms": null, "reset_at": null },
    ]);
    assert_eq!(shown["limits"], limits);
    assert_eq!((&shown["rule"], &shown["overridden"]), (&json!("domain"), &json!(false)));
    door.advance(1_799);
    assert_eq!(door.get(path).await.json()["hourly_count"], 3);
    door.advance(1);
    let shown = door.get(path).await.json();
    assert_eq!((&shown["hourly_count"], &shown["hour_start"]), (&json!(0), &Value::Null), "the hour is over");
    assert_eq!((&shown["daily_count"], &shown["day_start"]), (&json!(3), &json!(first)));
    door.advance(600);
    send(&door, 1).await;
    let shown = door.get(path).await.json();
    assert_eq!((&shown["hourly_count"], &shown["hour_start"]), (&json!(1), &json!("2026-01-15T11:11:30Z")));
    assert_eq!((&shown["daily_count"], &shown["day_start"]), (&json!(4), &json!(first)));
}

#[tokio::test]
async fn keys_are_found_in_every_spelling() {
    let door = Door::open();
    send(&door, 1).await;
    for (path, key) in [
        ("global/global", "global"),
        ("domain/EXAMPLE.com.", "example.com"),
        ("sender/A@Example.com", "a@example.com"),
        ("sender/%61%40example.com", "a@example.com"),
        ("ip/10.0.0.1", "10.0.0.1"),
        ("ip/::ffff:10.0.0.1", "10.0.0.1"),
    ] {
        let shown = door.get(&format!("/api/v1/counters/{path}")).await.json();
        assert_eq!((&shown["key"], &shown["hourly_count"]), (&json!(key), &json!(1)), "{path}");
    }
    door.check("orders", json!({ "route": "/a/b,c", "ip": "2001:db8::1" })).await;
    for path in ["orders//a/b%5C,c,2001:db8::1", "orders/%2Fa%2Fb%5C%2Cc,2001:db8::"] {
        let shown = door.get(&format!("/api/v1/counters/{path}")).await.json();
        assert_eq!(
            (&shown["key"], &shown["limits"][0]["used"]),
            (&json!("/a/b\\,c,2001:db8::/64"), &json!(1)),
            "{path}"
        );
        assert!(shown.get("level").is_none(), "a bucket is no hour");
    }
}

#[tokio::test]
async fn limits_set_for_a_key_hold_at_once_and_are_recorded() {
    let door = Door::open();
    send(&door, 2).await;
    let path = "/api/v1/counters/sender/a@example.com";
    let shown =
        door.put("/api/v1/counters/sender/A@example.com", json!({ "limits": ["2/hour", "20/day"] })).await;
    assert_eq!(shown.status, 200);
    assert_eq!(shown.json(), door.get(path).await.json());
    let shown = shown.json();
    assert_eq!(
        (&shown["overridden"], &shown["hourly_limit"], &shown["daily_limit"]),
        (&json!(true), &json!(2), &json!(20))
    );
    assert_eq!(shown["hourly_count"], 2, "counts stay when numbers change");
    let refused = door.check("mail.accept", json!({ "sender": "a@example.com" })).await;
    assert_eq!(
        (refused.status, &*refused.detail()),
        (429, "sender a@example.com exceeded 2/hour; retry after 3600 s")
    );
    let recorded = door.recorded().get("override/sender/a@example.com").cloned();
    assert_eq!(recorded.as_deref(), Some(&b"2/hour\n20/day"[..]));

    let store = Arc::new(MemoryStore::new(Arc::clone(&door.clock) as _, 1_000));
    let restarted = door::start(door::policies(), store, Arc::clone(&door.records), None);
    let pinned = restarted.pin();
    let plan = pinned.policies.rule("sender").unwrap().plan_at("a@example.com").to_string();
    assert_eq!(plan, "2/hour, 20/day");

    for body in [r#"{"limits":"5/hour"}"#, r#"{"limits":"5\/hour"}"#] {
        let alone = door.send(Method::PUT, path, &[], body.as_bytes().to_vec()).await;
        let shown = (alone.status, &alone.json()["limits"][0]["limit"]);
        assert_eq!(shown, (200, &json!("5/hour")), "one is a list of one");
    }
    let other = door.put(path, json!({ "limits": 5 })).await;
    assert_eq!(other.detail(), "expected a string, or a list of at most 8, not the number 5, at `limits`");

    let removed = door.delete(&format!("{path}/override")).await;
    assert_eq!((removed.status, removed.json()), (200, json!({ "removed": true })));
    assert_eq!(door.delete(&format!("{path}/override")).await.json(), json!({ "removed": false }));
    assert!(door.recorded().is_empty());
    assert_eq!(door.check("mail.accept", json!({ "sender": "a@example.com" })).await.status, 200);
}

#[tokio::test]
async fn a_domain_is_set_in_a_mail_servers_words() {
    let door = Door::open();
    let body =
        json!({ "messages_per_hour": 2_000, "messages_per_day": 20_000, "recipients_per_message": 50 });
    let shown = door.put("/api/v1/counters/Example.ORG", body.clone()).await.json();
    assert_eq!(
        (&shown["key"], &shown["hourly_limit"], &shown["daily_limit"]),
        (&json!("example.org"), &json!(2_000), &json!(20_000))
    );
    let all = door.get("/api/v1/counters").await.json();
    assert_eq!(all["domains"]["example.org"], body);
    let many = door.check("mail.accept", json!({ "domain": "example.org", "recipients": 51 })).await;
    assert_eq!(many.json()["denied_by"], "domain");

    let shown = door
        .put(
            "/api/v1/counters/domain/example.org",
            json!({ "messages_per_hour": 0, "messages_per_day": null }),
        )
        .await;
    assert_eq!((&shown.json()["hourly_limit"], &shown.json()["limits"]), (&json!(0), &json!([])));
    let all = door.get("/api/v1/counters").await.json();
    assert_eq!(all["domains"]["example.org"], json!({ "messages_per_hour": 0, "messages_per_day": 0 }));
    assert_eq!(all["rules"]["domain"]["overrides"]["example.org"], json!(["unlimited"]));
    let reply = door.check("mail.accept", json!({ "domain": "example.org" })).await;
    assert_eq!(reply.json()["rules"].as_array().unwrap().len(), 1, "only the global rule is left");
    let shown = door.put("/api/v1/counters/global/global", json!({ "limits": ["unlimited"] })).await;
    assert_eq!(shown.json()["hourly_limit"], 0);
}

#[tokio::test]
async fn in_our_own_form_no_limit_is_the_word_and_not_zero() {
    let door = Door::open();
    let path = "/api/v1/counters/sender/a@example.com";
    for limits in [json!("0"), json!(["0"]), json!(["null"]), json!(["5/day", "0/hour"]), json!("0 at once")]
    {
        let refused = door.put(path, json!({ "limits": limits })).await;
        assert_eq!(refused.status, 400, "{limits}");
        assert!(
            refused.detail().contains("this would mean no limit at all: write `unlimited`"),
            "{refused:?}"
        );
    }
    assert!(door.recorded().is_empty());
    assert_eq!(door.put(path, json!({ "limits": "unlimited" })).await.status, 200);
}

#[tokio::test]
async fn a_reset_with_a_query_resets_nothing() {
    let door = Door::open();
    assert_eq!(door.check("mail.accept", json!({ "sender": "a@example.com" })).await.status, 200);
    let reply = door.delete("/api/v1/counters?rule=ip").await;
    assert_eq!(
        (reply.status, &*reply.detail()),
        (400, "`rule` is not a query parameter here; known are: nothing")
    );
    let counted = door.get("/api/v1/counters/sender/a@example.com").await;
    assert_eq!(counted.json()["hourly_count"], 1);
}

#[tokio::test]
async fn the_name_of_a_rule_is_no_domain() {
    let door = Door::open();
    let reply = door.put("/api/v1/counters/sender", json!({ "limits": ["1/hour"] })).await;
    assert_eq!(reply.status, 400);
    assert!(reply.detail().contains("`sender` is a rule"), "{}", reply.detail());
    assert!(door.recorded().is_empty(), "nothing was set");
}

#[tokio::test]
async fn counts_are_reset_for_a_key_a_rule_or_all() {
    let door = Door::open();
    let count = async |place: &str| {
        door.get(&format!("/api/v1/counters/{place}")).await.json()["hourly_count"].clone()
    };
    send(&door, 1).await;
    door.check("mail.accept", json!({ "sender": "b@example.com" })).await;
    let reply = door.delete("/api/v1/counters/sender/A@example.com").await;
    assert_eq!(reply.json(), json!({ "reset": "key", "rule": "sender", "key": "a@example.com" }));
    assert_eq!(
        (count("sender/a@example.com").await, count("sender/b@example.com").await),
        (json!(0), json!(1))
    );
    let reply = door.delete("/api/v1/counters/sender").await;
    assert_eq!(reply.json(), json!({ "reset": "rule", "rule": "sender" }));
    assert_eq!((count("sender/b@example.com").await, count("global/global").await), (json!(0), json!(2)));
    assert_eq!(door.delete("/api/v1/counters").await.json(), json!({ "reset": "all" }));
    assert_eq!(count("global/global").await, 0);
    assert_eq!(door.delete("/api/v1/counters/sendr").await.status, 404);
}

#[tokio::test]
async fn a_key_that_ends_like_a_command_is_reached_by_encoding_its_slash() {
    let door = Door::open();
    let fields = json!({ "route": "/x/override", "ip": "10.0.0.1" });
    door.check("orders", fields).await;
    // The last part of this key is not a command, because the address follows it.
    let place = "/api/v1/counters/orders//x/override,10.0.0.1";
    assert_eq!(door.get(place).await.json()["limits"][0]["used"], 1);
    door.check("trial", json!({ "account": "a/override" })).await;
    let encoded = "/api/v1/counters/trial/a%2Foverride";
    assert_eq!(door.get(encoded).await.json()["limits"][0]["used"], 1);
    let reply = door.send(Method::DELETE, encoded, &[], Vec::new()).await;
    assert_eq!(reply.json(), json!({ "reset": "key", "rule": "trial", "key": "a/override" }));
    assert_eq!(door.get(encoded).await.json()["limits"][0]["used"], 0);
}
