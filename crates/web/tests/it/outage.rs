//! Refusals during an outage: the client did nothing wrong, and may retry soon.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{clock, policies, rule};
use futures_lite::future::block_on;
use serde_json::{Value, json};
use tollgate_core::{Attempt, OnOutage, Records, Rule, Span};
use tollgate_engine::{Engine, Fallback, Parts};
use tollgate_store::MemoryStore;
use tollgate_store::faulty::{Call, FaultyStore, Meeting};
use tollgate_web::answer::Media;
use tollgate_web::{AnswerSettings, Answers, Correlation};

#[test]
fn a_denial_during_an_outage_ignores_the_custom_refusal() {
    let clock = clock();
    let local = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, 100));
    let fallback =
        Fallback { store: Arc::clone(&local) as _, clock: clock as _, probe_every: Span::from_secs(10) };
    // It fails after the start.
    let gone = Arc::new(FaultyStore::over(Arc::clone(&local) as _, |call| match call {
        Call::Probe => Meeting::Pass,
        _ => Meeting::unreachable(),
    }));
    let parts = Parts { store: gone, records: local as Arc<dyn Records>, fallback: Some(fallback) };
    let denying = Rule { on_outage: OnOutage::Deny, ..rule("login", &["user"], &["5/min"]) };
    let engine = block_on(Engine::start(policies(vec![denying]), parts)).unwrap();
    let answers = Answers::new(AnswerSettings {
        media: Media::Json,
        type_uri: Some("urn:too-many".to_owned()),
        title: Some("Too many".to_owned()),
        detail: Some("slow down".to_owned()),
        body: Some(r#"{"status": 429}"#.to_owned()),
        ..AnswerSettings::default()
    })
    .unwrap();
    let pinned = engine.pin();
    let attempt = Attempt { policy: "api", fields: &[("user", "alice")], cost: 1, id: None };
    let decision = block_on(engine.decide(&pinned, &attempt)).unwrap();
    let response = answers.refusal(&engine, &decision, &Correlation::default());
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["type"], "/problems/store-unavailable");
    assert_eq!(body["detail"], "login alice cannot be counted: the store cannot be reached; retry after 1 s");
    assert_eq!((&body["status"], &body["origin"]), (&json!(503), &json!("outage")));
    assert_eq!(response.headers()["x-correlation-id"], body["correlationId"].as_str().unwrap());
}
