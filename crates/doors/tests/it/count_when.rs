//! Rules with `count_when`, as the API shows and changes them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{Door, StoreKind, rule};
use serde_json::{Value, json};
use tollgate_core::{Policies, Policy, Rule};
use tollgate_web::Statuses;

fn guarded() -> Door {
    let guesses = Rule {
        count_when: Some("[401, 403]".parse::<Statuses>().unwrap().classes()),
        ..rule("guesses", &["account"], &["5/hour"])
    };
    let rules: Vec<Arc<Rule>> = [guesses, rule("all", &[], &["50/hour"])].map(Arc::new).into();
    let policies = vec![Policy::new("login".into(), rules.clone(), false)];
    Door::with(Policies::new(true, rules, policies), Vec::new(), StoreKind::Memory)
}

#[tokio::test]
async fn the_listed_rules_show_which_answers_count() {
    let rules = guarded().get("/api/v1/counters").await.json()["rules"].clone();
    assert_eq!(
        (&rules["guesses"]["count_when"], rules["all"].get("count_when")),
        (&json!("[401, 403]"), None)
    );
}

#[tokio::test]
async fn an_override_with_an_at_once_limit_is_refused() {
    let door = guarded();
    let held = door.put("/api/v1/counters/guesses/ada", json!({ "limits": ["5/hour", "2 at once"] })).await;
    assert_eq!(held.status, 400);
    let told = held.json()["detail"].as_str().unwrap().to_owned();
    assert!(told.contains("`2 at once` cannot be combined with `count_when`"), "{told}");
    let more = door.put("/api/v1/counters/guesses/ada", json!({ "limits": ["9/hour"] })).await;
    assert_eq!((more.status, &more.json()["overridden"]), (200, &Value::Bool(true)));
}
