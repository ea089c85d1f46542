//! Problems as they are sent, and the ids that tie them to a log.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;

use http::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tollgate_core::{Mistake, StoreError};
use tollgate_web::correlation::CORRELATION_ID;
use tollgate_web::{Aliases, Correlation, Problem};

fn correlation(id: &str) -> Correlation {
    let mut headers = HeaderMap::new();
    headers.insert(CORRELATION_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap());
    Correlation::of(&headers)
}

#[test]
fn a_problem_says_what_is_wrong() {
    let response = Problem::not_found("no route \"leads\" there").answer(&correlation("abc"));
    assert_eq!(response.status(), 404);
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    let expected = json!({
        "type": "/problems/not-found", "title": "Not found", "status": 404, "detail": "no route \"leads\" there",
        "correlationId": "abc",
    });
    assert_eq!(body, expected);
    let header = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!(header("content-type"), "application/problem+json");
    assert_eq!((header("cache-control"), header("x-correlation-id")), ("no-store", "abc"));
}

#[test]
fn every_problem_has_its_status() {
    let problems = [
        (Problem::bad_request("x"), 400),
        (Problem::unauthorized("x"), 401),
        (Problem::forbidden("x"), 403),
        (Problem::not_found("x"), 404),
        (Problem::method_not_allowed("x"), 405),
        (Problem::too_late("x"), 408),
        (Problem::too_large(7), 413),
        (Problem::headers_too_large("x"), 431),
        (Problem::misconfigured("x"), 500),
        (Problem::bad_gateway("x"), 502),
        (Problem::unavailable("x"), 503),
        (Problem::gateway_timeout("x"), 504),
        (StoreError::Unavailable { reason: "gone".into() }.into(), 503),
    ];
    let mut kinds = HashSet::new();
    for (problem, status) in &problems {
        let response = problem.answer(&Correlation::default());
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!((response.status().as_u16(), &body["status"]), (*status, &json!(status)));
        assert!(kinds.insert(body["type"].clone()), "{body}");
        assert_eq!(response.headers().contains_key("retry-after"), *status == 503);
        assert_eq!(response.headers().contains_key("www-authenticate"), *status == 401);
    }
}

#[test]
fn a_client_is_not_told_to_change_the_configuration() {
    let (policy, fields) = ("orders".to_owned(), vec!["header.x-tenant".to_owned(), "query.user".to_owned()]);
    let problem = Problem::about(Mistake::NoRuleApplies { policy, fields }, &Aliases::default());
    assert_eq!(problem.status, 400);
    let expected =
        "the request has nothing that it can be limited by: it needs some of header.x-tenant, query.user";
    assert_eq!(problem.detail(), expected);
}

#[test]
fn a_long_detail_is_cut() {
    let response = Problem::bad_request("é".repeat(10_000)).answer(&Correlation::default());
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["detail"].as_str().unwrap().chars().count(), 600);
}

#[test]
fn an_id_that_is_fit_is_taken_over() {
    for id in ["a", "abc-123-def", "\"};<script>", &"x".repeat(Correlation::MOST_BYTES)] {
        assert_eq!(correlation(id).id().as_str(), id);
    }
}

#[test]
fn an_id_that_is_not_fit_is_replaced() {
    for id in ["", "a b", "é", "tab\there", &"x".repeat(Correlation::MOST_BYTES + 1)] {
        let made_up = correlation(id).id();
        assert!(
            made_up.as_str().len() == 16 && made_up.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{made_up:?}"
        );
    }
}

#[test]
fn no_id_is_made_up_twice() {
    let ids: HashSet<_> = (0..10_000).map(|_| Correlation::default().id()).collect();
    assert_eq!(ids.len(), 10_000);
}
