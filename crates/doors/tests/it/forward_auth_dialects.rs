//! Forward-auth: its responses in each dialect.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::asking::{PATH, TOLD, ask, ask_nginx, door, policies, settings, trusting};
use crate::door::{Door, START, StoreKind};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tollgate_doors::ForwardAuthSettings;
use tollgate_web::Answers;
use tollgate_web::answer::{AnswerSettings, HeaderSets, Media};

#[tokio::test]
async fn an_allowed_request_shows_the_remainder_and_a_denied_one_the_retry_time() {
    let door = door();
    let first = ask(&door, "orders?route=shop", &[("x-correlation-id", "req-7")]).await;
    assert_eq!((first.status, &*first.text), (200, ""));
    let left = |remaining: u8| {
        [
            "x-ratelimit-limit: 2".to_owned(),
            format!("x-ratelimit-remaining: {remaining}"),
            format!("x-ratelimit-reset: {}", START + 3600),
            "x-ratelimit-type: route".to_owned(),
        ]
    };
    assert_eq!(first.headers_like("x-ratelimit"), left(1));
    assert_eq!(first.header("x-correlation-id"), Some("req-7"));
    assert_eq!(ask(&door, "orders?route=shop", &[]).await.headers_like("x-ratelimit"), left(0));
    let denied = ask(&door, "orders?route=shop", &[("x-correlation-id", "req-8")]).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.headers_like("x-ratelimit"), left(0));
    assert_eq!(denied.header("retry-after"), Some("3600"));
    assert_eq!(denied.header("cache-control"), Some("no-store"));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    let body = denied.json();
    assert_eq!((&body["denied_by"], &body["denied_key"]), (&json!("orders"), &json!("shop,192.0.2.1")));
    assert_eq!((&body["retryAfter"], &body["correlationId"]), (&json!(3600), &json!("req-8")));
    assert_eq!(denied.headers_like("x-tollgate"), [""; 0]);
    assert_eq!(ask(&door, "orders?route=blog", &[]).await.status, 200, "another route");
    door.advance(3600);
    assert_eq!(ask(&door, "orders?route=shop", &[]).await.status, 200);
}

#[tokio::test]
async fn nginx_gets_the_status_and_the_body_in_headers() {
    let door = door();
    for remaining in ["1", "0"] {
        let passed = ask_nginx(&door, "orders?route=shop", &[]).await;
        assert_eq!((passed.status, passed.header("x-ratelimit-remaining")), (200, Some(remaining)));
        assert_eq!(passed.headers_like("x-tollgate"), [""; 0]);
    }
    let denied = ask_nginx(&door, "orders?route=shop", &[]).await;
    assert_eq!((denied.status, denied.header("x-tollgate-status")), (403, Some("429")));
    assert_eq!((denied.header("retry-after"), denied.header("x-ratelimit-limit")), (Some("3600"), Some("2")));
    assert_eq!(denied.header("x-tollgate-body"), Some(&*denied.text));
    assert_eq!(denied.json()["denied_by"], "orders");
}

#[tokio::test]
async fn a_body_in_a_header_is_one_line_and_not_a_long_one() {
    let door = trusting();
    let body = "{\n  \"title\": \"{title}\",\r\n\t\"key\": \"{key}\"\n}".to_owned();
    let answers = AnswerSettings {
        body: Some(body),
        media: Media::Json,
        headers: HeaderSets { x_ratelimit: true, ietf: true },
        ..AnswerSettings::default()
    };
    door.forward_auth.replace(ForwardAuthSettings { answers: Answers::new(answers).unwrap(), ..settings() });
    let exhaust = async |tenant: &str| {
        let bytes = HeaderValue::from_bytes(tenant.as_bytes()).unwrap();
        let mut last = None;
        for _ in 0..3 {
            let request = Request::get(format!("{PATH}tenant?dialect=nginx"))
                .header("x-original-method", "GET")
                .header("x-original-uri", "/")
                .header("x-tenant", &bytes);
            last = Some(door.answer(request.body(Body::empty()).unwrap()).await);
        }
        last.unwrap()
    };
    let denied = exhaust("Zoë \"Z\"").await;
    assert_eq!((denied.status, denied.header("x-tollgate-status")), (403, Some("429")));
    let line = str::from_utf8(denied.headers["x-tollgate-body"].as_bytes()).unwrap();
    assert_eq!(line, r#"{   "title": "Rate limit exceeded",   "key": "Zoë \"Z\"" }"#);
    assert_eq!(serde_json::from_str::<Value>(line).unwrap(), denied.json());
    assert_eq!(denied.header("content-type"), Some("application/json"));
    assert_eq!(denied.header("ratelimit"), Some("\"tenant\";r=0;t=3600"));

    door.forward_auth.replace(settings());
    let long = exhaust(&"\"".repeat(500)).await;
    assert!(long.text.len() > 2048, "{}", long.text.len());
    assert_eq!((long.header("x-tollgate-status"), long.header("x-tollgate-body")), (Some("429"), None));
}

#[tokio::test]
async fn every_refusal_of_a_client_is_403_for_nginx_so_that_none_passes_for_an_outage() {
    let door = trusting();
    for (question, headers, status) in [
        ("page", [("x-original-uri", "/a%2Fb")], "400"),
        ("page", [("x-original-uri", "b")], "400"),
        ("page", [("x-forwarded-host", "a b")], "400"),
        ("page", [("x-original-method", "G T")], "400"),
        ("tenant", [("x-tenant", &*"t".repeat(2000))], "400"),
        ("search", [("x-original-uri", "/?q=1&q=2")], "400"),
        ("consumer", [("x-api-key", "nobodys")], "401"),
    ] {
        let refused = ask_nginx(&door, question, &headers).await;
        let said = (refused.status, refused.header("x-tollgate-status"));
        assert_eq!(said, (403, Some(status)), "{question} {headers:?}: {refused:?}");
        assert_eq!(refused.header("x-tollgate-body"), Some(&*refused.text));
        let headers = headers.map(|(name, value)| (name.replace("original", "forwarded"), value));
        let headers = headers.each_ref().map(|(name, value)| (name.as_str(), *value));
        let plain = ask(&door, question, &headers).await;
        assert_eq!(plain.status.to_string(), status, "{question} {headers:?}");
    }
    let challenged = ask_nginx(&door, "consumer", &[("x-api-key", "nobodys")]).await;
    assert_eq!(challenged.header("www-authenticate"), None, "no token would be accepted");

    let lost = Door::with(policies(), Vec::new(), StoreKind::Lost);
    let denied = ask(&lost, "denying", &[]).await;
    assert_eq!((denied.status, denied.header("retry-after")), (503, Some("1")));
    let denied = ask_nginx(&lost, "denying", &[]).await;
    assert_eq!((denied.status, denied.header("x-tollgate-status")), (403, Some("503")));
    assert_eq!(denied.header("retry-after"), Some("1"));
    let gone = Door::with(policies(), Vec::new(), StoreKind::Gone);
    assert_eq!(ask(&gone, "ip", &[]).await.status, 503);
    assert_eq!(ask_nginx(&gone, "ip", &[]).await.header("x-tollgate-status"), Some("503"));
}

#[tokio::test]
async fn every_method_asks_alike_and_bodies_are_not_read() {
    let door = door();
    let read = Arc::new(AtomicBool::new(false));
    let mut statuses = Vec::new();
    for method in ["POST", "HEAD", "PROPFIND"] {
        let read = Arc::clone(&read);
        let body = Body::new(Full::new(Bytes::from("a body")).map_frame(move |frame| {
            read.store(true, Ordering::SeqCst);
            frame
        }));
        let request = Request::builder().method(method).uri(format!("{PATH}orders?route=shop"));
        let request = TOLD.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        statuses.push(door.answer(request.body(body).unwrap()).await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
    assert!(!read.load(Ordering::SeqCst), "what a client sends to a service is not for us");
    let page = door.get("/metrics").await.text;
    let route = "{method=\"GET\",route=\"/api/v1/forward-auth/{policy}\",status=\"429\"} 1";
    assert!(page.contains(route), "{page}");
}
