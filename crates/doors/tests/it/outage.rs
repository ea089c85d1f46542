//! What callers see during an outage of the shared store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{Door, StoreKind, rule};
use serde_json::{Value, json};
use tollgate_core::{Policies, Policy, Rule};

fn lost() -> Door {
    let with = |name: &str, limits: &[&str], on_outage: &str| {
        Arc::new(Rule { on_outage: on_outage.parse().unwrap(), ..rule(name, &["account"], limits) })
    };
    let rules = vec![
        with("counted", &["4/hour"], "local 50%"),
        with("login", &["4/hour"], "deny"),
        with("open", &["4/hour"], "allow"),
        with("jobs", &["4 at once for 30s"], "local 1/4"),
    ];
    let alone = rules.iter().map(|rule| Policy::new(Arc::clone(&rule.name), vec![Arc::clone(rule)], false));
    let both = Policy::new("both".into(), rules[..2].to_vec(), false);
    let policies = alone.chain([both]).collect();
    Door::with(Policies::new(true, rules, policies), Vec::new(), StoreKind::Lost)
}

fn account() -> Value {
    json!({ "account": "ada" })
}

#[tokio::test]
async fn a_share_is_decided_here_and_says_so() {
    let door = lost();
    let first = door.check("counted", account()).await;
    assert_eq!(first.status, 200);
    let body = first.json();
    assert_eq!((&body["origin"], &body["reason"]), (&json!("local"), &json!("unreachable")));
    assert_eq!((&body["rules"][0]["limit"], &body["rules"][0]["capacity"]), (&json!("2/hour"), &json!(2)));
    assert_eq!(first.headers["x-ratelimit-limit"], "2");
    let given = door.post("/api/v1/refund", json!({ "receipt": body["receipt"] })).await;
    assert_eq!((given.status, given.json()), (200, json!({ "refunded": "back", "given": "back" })));

    assert_eq!(door.check("counted", account()).await.json()["reason"], "open");
    assert_eq!(door.check("counted", account()).await.status, 200);
    let denied = door.check("counted", account()).await;
    assert_eq!((denied.status, &denied.headers["retry-after"]), (429, &"3600".parse().unwrap()));
    let body = denied.json();
    assert_eq!((&body["origin"], &body["reason"]), (&json!("local"), &json!("open")));
    assert_eq!(body["error"], "rate limit exceeded");
}

#[tokio::test]
async fn a_denial_during_an_outage_is_503_with_the_rule_and_the_reason() {
    let door = lost();
    for policy in ["login", "both"] {
        let denied = door.check(policy, account()).await;
        assert_eq!((denied.status, &denied.headers["retry-after"]), (503, &"1".parse().unwrap()));
        assert!(denied.headers.get("x-ratelimit-limit").is_none(), "nothing was read");
        let body = denied.settled();
        let (origin, rules) = (&body["origin"], &body["rules"]);
        assert_eq!(
            (origin, &body["denied_by"], &body["denied_key"]),
            (&json!("outage"), &json!("login"), &json!("ada"))
        );
        assert_eq!((&body["retry_after"], &body["type"]), (&json!(1), &json!("/problems/store-unavailable")));
        assert_eq!((&body["error"], &body["status"]), (&json!("store unavailable"), &json!(503)));
        assert_eq!(rules.as_array().unwrap().last().unwrap()["limits"], json!([]));
    }
    let told = door.check("login", account()).await.json()["detail"].clone();
    assert_eq!(told, "login ada cannot be counted: the store failed a moment ago; retry after 1 s");
}

#[tokio::test]
async fn a_cost_beyond_the_share_is_503_and_one_beyond_the_limit_429() {
    let door = lost();
    let ask = |cost| json!({ "policy": "counted", "fields": account(), "cost": cost });
    let share = door.post("/api/v1/check", ask(3)).await;
    assert_eq!((share.status, &share.json()["origin"]), (503, &json!("outage")));
    let never = door.post("/api/v1/check", ask(5)).await;
    assert_eq!((never.status, &never.json()["retry_after"]), (429, &Value::Null));
    assert_eq!(never.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn a_rule_that_allows_is_skipped() {
    let body = lost().check("open", account()).await.json();
    assert_eq!((&body["allowed"], &body["origin"]), (&json!(true), &json!("outage")));
    assert_eq!((&body["reason"], &body["rules"]), (&json!("unreachable"), &json!([])));
    assert_eq!(body.get("receipt"), None);
}

#[tokio::test]
async fn each_of_several_attempts_says_how_it_was_decided() {
    let door = lost();
    let attempts: Vec<Value> =
        ["counted", "login", "open"].map(|policy| json!({ "policy": policy, "fields": account() })).into();
    let answer = door.post("/api/v1/check", json!({ "attempts": attempts })).await;
    let body = answer.json();
    let shown = |member: &str| {
        body["decisions"].as_array().unwrap().iter().map(|one| one[member].clone()).collect::<Vec<_>>()
    };
    assert_eq!(answer.status, 200);
    assert_eq!(shown("status"), [200, 503, 200]);
    assert_eq!(shown("origin"), ["local", "outage", "outage"]);
    assert_eq!(shown("reason"), ["unreachable", "open", "open"]);
}

#[tokio::test]
async fn holds_are_taken_and_ended_here() {
    let door = lost();
    let take = |id: &str| json!({ "policy": "jobs", "fields": account(), "id": id });
    assert_eq!(door.post("/api/v1/holds", take("a")).await.json()["origin"], "local");
    assert_eq!(door.post("/api/v1/holds", take("b")).await.status, 429, "a quarter of four");
    let released = door.delete("/api/v1/holds/jobs/ada/a").await;
    assert_eq!((released.status, released.json()), (200, json!({ "released": true })));
    assert_eq!(door.post("/api/v1/holds", take("b")).await.status, 200);
    let listed = door.get("/api/v1/holds/jobs/ada").await;
    assert_eq!((listed.status, &listed.headers["retry-after"]), (503, &"1".parse().unwrap()));
}

#[tokio::test]
async fn it_is_ready_though_degraded_and_counts_every_decision() {
    let door = lost();
    let first = door.get("/readyz").await;
    assert_eq!(
        (first.status, first.json()),
        (
            200,
            json!({ "status": "degraded", "cause": "the store cannot be used: no server is there", "reason": "unreachable" })
        )
    );
    for policy in ["counted", "login", "open"] {
        door.check(policy, account()).await;
        door.check(policy, account()).await;
    }
    let page = door.get("/metrics").await.text;
    for line in [
        "tollgate_store_up 0",
        "tollgate_degraded_total{policy=\"counted\",reason=\"open\"} 2",
        "tollgate_degraded_total{policy=\"login\",reason=\"open\"} 2",
        "tollgate_degraded_total{policy=\"open\",reason=\"open\"} 2",
        "tollgate_decisions_total{policy=\"login\",rule=\"login\",outcome=\"deny\"} 2",
        "tollgate_denied_locally_total 0",
        "tollgate_retractions_dropped_total 0",
        "tollgate_refunds_dropped_total 0",
        "tollgate_store_call_seconds_count 1",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line} is not in\n{page}");
    }
    let journal = door.get("/api/v1/decisions").await.json();
    assert_eq!(
        (&journal["decisions"][0]["origin"], &journal["decisions"][0]["reason"]),
        (&json!("outage"), &json!("open"))
    );
    assert_eq!(door.get("/api/v1/top").await.json()["offenders"], json!([]), "no client did anything wrong");
}

#[tokio::test]
async fn every_metric_of_a_shared_store_is_in_the_reference() {
    let reference = include_str!("../../../../docs/reference/metrics.md");
    let page = lost().get("/metrics").await.text;
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<_> = types.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(reference.contains(&format!("`{name}`")), "{name} is missing");
    }
}

#[tokio::test]
async fn the_listed_rules_show_their_action_during_an_outage() {
    let body = lost().get("/api/v1/counters").await.json();
    let told = |rule: &str| body["rules"][rule]["on_outage"].clone();
    assert_eq!(
        [told("counted"), told("login"), told("open"), told("jobs")],
        ["local 50%", "deny", "allow", "local 1/4"]
    );
}
