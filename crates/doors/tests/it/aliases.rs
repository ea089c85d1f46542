//! Former names of paths: each answers like the current one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::door::{Door, Reply};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

/// The requests in their order, with the current names.
fn asked() -> Vec<(&'static str, &'static str, Value)> {
    let made = json!({ "name": "partners", "requestsPerSecond": 10, "burstSize": 50 });
    let mail = json!({ "messages_per_hour": 2000, "recipients_per_message": 50 });
    vec![
        ("GET", "/api/v1/counters", Value::Null),
        ("GET", "/api/v1/counters/global/global", Value::Null),
        ("GET", "/api/v1/counters/domain/example.com", Value::Null),
        ("GET", "/api/v1/counters/sendr/a@example.com", Value::Null),
        ("PUT", "/api/v1/counters/example.org", mail),
        ("PUT", "/api/v1/counters/sender/a@example.com", json!({ "limits": "7/hour" })),
        ("DELETE", "/api/v1/counters/sender/a@example.com/override", Value::Null),
        ("DELETE", "/api/v1/counters/sender/a@example.com", Value::Null),
        ("DELETE", "/api/v1/counters/sender", Value::Null),
        ("DELETE", "/api/v1/counters", Value::Null),
        ("POST", "/api/v1/policies", made.clone()),
        ("POST", "/api/v1/policies", made),
        ("GET", "/api/v1/policies?limit=5", Value::Null),
        ("GET", "/api/v1/policies/partners", Value::Null),
        ("PUT", "/api/v1/policies/partners", json!({ "limits": "9/hour" })),
        ("DELETE", "/api/v1/policies/partner", Value::Null),
        ("POST", "/api/v1/policies", json!({ "name": "short", "limits": "1/hour" })),
        ("DELETE", "/api/v1/policies/short", Value::Null),
        ("POST", "/api/v1/refund", json!({ "receipt": "nothing" })),
    ]
}

/// The former name of a path.
fn earlier(path: &str) -> String {
    let names = [("counters", "ratelimits"), ("policies", "rate-limits"), ("refund", "give")];
    let name = names.iter().find(|(now, _)| path[8..].starts_with(now)).unwrap();
    path.replacen(name.0, name.1, 1)
}

async fn ask(door: &Door, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    door.answer(Request::builder().method(method).uri(path).body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn each_alias_answers_like_its_present_name() {
    let (now, before) = (Door::open(), Door::open());
    for (method, path, body) in asked() {
        let old = earlier(path);
        assert_ne!(old, path);
        let (expected, reply) =
            (ask(&now, method, path, &body).await, ask(&before, method, &old, &body).await);
        assert_eq!((reply.status, reply.settled()), (expected.status, expected.settled()), "{method} {old}");
        for header in ["content-type", "location"] {
            assert_eq!(reply.header(header), expected.header(header), "{method} {old}");
        }
        let known = path.contains("sendr") || path.ends_with("/partner") || reply.status < 300;
        assert!(known || matches!(reply.status, 400 | 409), "{method} {old}: {reply:?}");
    }
}

#[tokio::test]
async fn both_names_are_one_thing() {
    let door = Door::open();
    let taken = door.check("trial", json!({ "account": "acme" })).await.json();
    let used =
        async |path: &str| ask(&door, "GET", path, &Value::Null).await.json()["limits"][0]["used"].clone();
    assert_eq!(used("/api/v1/ratelimits/trial/acme").await, 1);
    let refunded = ask(&door, "POST", "/api/v1/give", &json!({ "receipt": taken["receipt"] })).await;
    assert_eq!(refunded.json(), json!({ "refunded": "back", "given": "back" }));
    assert_eq!(used("/api/v1/counters/trial/acme").await, 0);
    let again = door.post("/api/v1/refund", json!({ "receipt": taken["receipt"] })).await;
    assert_eq!(again.json(), json!({ "refunded": "already", "given": "already" }));
}

#[tokio::test]
async fn the_document_shows_present_names_and_tells_of_the_earlier_ones() {
    let document = Door::open().document().await;
    let about = document["info"]["description"].as_str().unwrap();
    for (_, path, _) in asked() {
        let name = |path: &str| path.split(['/', '?']).nth(3).unwrap().to_owned();
        let (now, before) = (name(path), name(&earlier(path)));
        assert!(document["paths"].get(format!("/api/v1/{now}")).is_some(), "{now}");
        assert!(document["paths"].get(format!("/api/v1/{before}")).is_none(), "{before}");
        assert!(about.contains(&format!("`/api/v1/{before}` is `/api/v1/{now}`")), "{about}");
    }
}

#[tokio::test]
async fn an_alias_needs_the_same_role_and_counts_under_the_present_name() {
    let door = Door::guarded();
    for (method, path, body) in asked() {
        assert_eq!(ask(&door, method, &earlier(path), &body).await.status, 401, "{method} {path}");
    }
    let page = Request::builder().uri("/metrics").header("authorization", "Bearer reader");
    let page = door.answer(page.body(Body::empty()).unwrap()).await.text;
    assert!(page.contains(r#"route="/api/v1/counters",status="401""#), "{page}");
    assert!(!page.contains("/api/v1/ratelimits"), "{page}");
}
