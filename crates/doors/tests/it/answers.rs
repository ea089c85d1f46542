//! Responses are written by hand: each must equal the engine's decision, member by member.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{Door, StoreKind, plan, rule};
use axum::body::Body;
use axum::http::{Method, Request};
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_core::{
    Attempt, Decision, Deferral, Line, OnExceed, Origin, Policies, Policy, Reading, Rule, Span, Verdict, When,
};

/// One attempt: key, policy, cost, id, and the time since the last one.
type Drawn = (String, usize, u64, Option<&'static str>, u64);

const POLICIES: [&str; 4] = ["many", "held", "slow", "free"];

/// A few small limits of every kind, so that most attempts meet one.
fn policies() -> Policies {
    let by = ["user\"name\\"];
    let kinds = [
        "3/min",
        "4/day calendar",
        "3/min sliding",
        "5/hour sliding by 5m",
        "1/s burst 3",
        "6 in total",
        "2 parts per attempt",
    ];
    let mut many = rule("many", &by, &kinds);
    many.code = Some("TOO_MANY".parse().unwrap());
    many.overrides.insert("gold".into(), plan("many", &["1000/hour"]));
    let mut secret = rule("secret", &by, &["7/hour"]);
    secret.secret = true;
    let jitter = Span::ZERO;
    let deferring = OnExceed::Defer(Deferral { aligned: true, jitter });
    let rules: Vec<Arc<Rule>> = [
        many,
        secret,
        Rule { on_exceed: OnExceed::Observe, ..rule("shadow", &[], &["5/min", "2/s burst 2"]) },
        rule("held", &by, &["2 at once for 30s", "10/hour"]),
        rule("slots", &[], &["3 at once"]),
        Rule { on_exceed: deferring, ..rule("later", &by, &["2/hour"]) },
        Rule { on_exceed: OnExceed::Wait(Span::from_secs(5)), ..rule("pace", &[], &["2/s burst 2"]) },
        Rule { enabled: false, ..rule("off", &by, &["1/hour"]) },
    ]
    .map(Arc::new)
    .into();
    let policy = |name: &str, rules: &[Arc<Rule>]| Policy::new(name.into(), rules.to_vec(), true);
    let policies = vec![
        policy("many", &rules[..3]),
        policy("held", &rules[3..5]),
        policy("slow", &rules[5..7]),
        policy("free", &rules[7..]),
    ];
    Policies::new(true, rules.clone(), policies)
}

fn attempts() -> impl Strategy<Value = Vec<Drawn>> {
    let key = prop_oneof![Just("gold".to_owned()), Just("a\"\\\n\u{1}é😀".to_owned()), "[ab]"];
    let id = prop::option::of(prop::sample::select(vec!["x", "y\"", "z"]));
    prop::collection::vec((key, 0..POLICIES.len(), 0..4_u64, id, 0..40_u64), 1..40)
}

fn body((key, policy, cost, id, _): &Drawn) -> Value {
    let mut fields = json!({ "user\"name\\": key });
    if *policy == 0 {
        fields["parts"] = json!(cost);
    }
    json!({ "policy": POLICIES[*policy], "fields": fields, "cost": cost, "id": id })
}

/// The engine's own decision, in the terms of the API.
fn expected(door: &Door, drawn: &Drawn) -> Value {
    let (key, policy, cost, id, _) = drawn;
    let pinned = door.engine.pin();
    let parts = cost.to_string();
    let all = [("user\"name\\", key.as_str()), ("parts", &parts)];
    let fields = if *policy == 0 { &all[..] } else { &all[..1] };
    let attempt = Attempt { policy: POLICIES[*policy], fields, cost: *cost, id: *id };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let decision = runtime.block_on(door.engine.decide(&pinned, &attempt)).unwrap();
    if decision.allowed() { allowed(door, &decision, POLICIES[*policy]) } else { refused(door, &decision) }
}

fn allowed(door: &Door, decision: &Decision<'_>, policy: &str) -> Value {
    let origin = if decision.origin == Origin::Store { "store" } else { "fixed" };
    let mut answer = json!({
        "status": 200, "allowed": true, "verdict": "allow", "policy": policy, "origin": origin,
        "repeated": decision.outcome.repeated, "rules": rules(door, decision),
    });
    if decision.receipt().is_some() {
        answer["receipt"] = json!("…");
    }
    let held = |line: &Line<'_>| line.taken || decision.outcome.repeated;
    if decision.lines().any(|line| held(&line) && line.limits.iter().any(|limit| limit.holds())) {
        answer["id"] = json!(decision.charges.id.unwrap_or("…"));
    }
    answer
}

/// A rule and its key, as in a detail.
fn place(door: &Door, line: &Line<'_>) -> String {
    let (name, key) = (&*line.rule.name, door.engine.observer.shown_key(line.rule, line.key));
    if line.rule.by.is_empty() { name.to_owned() } else { format!("{name} {key}") }
}

/// The rule that determines the wait, if it is not the one that denied, as in a detail.
fn because(door: &Door, decision: &Decision<'_>) -> String {
    let named = decision.denied_by().unwrap().rule.name.clone();
    let when = |line: &Line<'_>| line.readings.iter().map(|reading| reading.when).max();
    let exceeded = || decision.lines().filter(|line| line.exceeded() && !line.rule.observes());
    let longest = exceeded().filter_map(|line| when(&line)).max();
    let line = exceeded().find(|line| when(line) == longest).unwrap();
    if line.rule.name == named {
        return String::new();
    }
    format!(", because of {} ({})", place(door, &line), line.binding().unwrap().0)
}

fn refused(door: &Door, decision: &Decision<'_>) -> Value {
    let line = decision.denied_by().unwrap();
    let key = door.engine.observer.shown_key(line.rule, line.key);
    let (limit, _) = line.binding().unwrap();
    let name = &*line.rule.name;
    let (who, because) = (place(door, &line), because(door, decision));
    let (verdict, wait) = match (decision.verdict, decision.retry) {
        (Verdict::Defer(at), _) => ("defer", Some(at.since(decision.outcome.now))),
        (Verdict::Wait(span), _) => ("wait", Some(span)),
        (_, When::After(span)) => ("deny", Some(span)),
        _ => ("deny", None),
    };
    let secs = wait.map(|wait| wait.as_secs_ceil().max(1));
    let then = match (secs, decision.retry) {
        (Some(secs), _) => format!("retry after {secs} s"),
        (None, When::OnRelease) => "retry when a hold has ended".to_owned(),
        (None, _) => "it can never pass".to_owned(),
    };
    let mut answer = json!({
        "type": "/problems/rate-limit-exceeded", "title": "Rate limit exceeded", "status": 429,
        "detail": format!("{who} exceeded {limit}; {then}{because}"), "correlationId": "…",
        "error": "rate limit exceeded", "allowed": false, "verdict": verdict, "policy": *decision.policy().name,
        "origin": "store", "denied_by": name, "denied_key": key, "limit": limit.number(),
        "rules": rules(door, decision),
    });
    if let Some(code) = &line.rule.code {
        answer["code"] = json!(**code);
    }
    if let (Some(secs), Some(wait)) = (secs, wait) {
        answer["retry_after"] = json!(secs);
        answer["retryAfter"] = json!(secs);
        answer["retry_after_ms"] = json!(wait.as_millis_ceil().max(1));
    }
    if let Verdict::Defer(at) = decision.verdict {
        answer["defer_until"] = json!(moment(at.as_micros()));
    }
    answer
}

fn moment(micros: u64) -> String {
    jiff::Timestamp::from_microsecond(i64::try_from(micros).unwrap()).unwrap().to_string()
}

fn rules(door: &Door, decision: &Decision<'_>) -> Vec<Value> {
    decision.lines().map(|line| rule_shown(door, decision, &line)).collect()
}

fn rule_shown(door: &Door, decision: &Decision<'_>, line: &Line<'_>) -> Value {
    let reset = |reading: &Reading| reading.reset.map(|reset| reset.since(decision.outcome.now));
    let limits = line.limits.iter().zip(line.readings).map(|(limit, reading)| {
        let retry = match reading.when {
            When::After(span) => Some(span.as_millis_ceil()),
            _ => None,
        };
        json!({
            "limit": limit.to_string(), "capacity": reading.capacity, "remaining": reading.remaining,
            "reset_after_ms": reset(reading).map(|reset| reset.as_millis_ceil()), "retry_after_ms": retry,
        })
    });
    let (limit, reading) = line.binding().unwrap();
    json!({
        "rule": *line.rule.name, "key": door.engine.observer.shown_key(line.rule, line.key), "limit": limit.to_string(),
        "capacity": reading.capacity, "remaining": reading.remaining,
        "reset_after": reset(&reading).map(|reset| reset.as_secs_ceil()),
        "reset_after_ms": reset(&reading).map(|reset| reset.as_millis_ceil()),
        "exceeded": line.exceeded(), "observed": line.rule.observes(), "limits": limits.collect::<Vec<_>>(),
    })
}

/// A result among several, without generated values.
fn settled(mut answer: Value, drawn: &Drawn) -> Value {
    if let (Some(id), None) = (answer.get_mut("id"), drawn.3) {
        *id = json!("…");
    }
    for made_up in ["receipt", "correlationId"] {
        if let Some(value) = answer.get_mut(made_up) {
            *value = json!("…");
        }
    }
    answer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_response_matches_its_decision(drawn in attempts()) {
        let [asked, twin] = [(); 2].map(|()| Door::with(policies(), Vec::new(), StoreKind::Memory));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for one in &drawn {
            let request = Request::post("/api/v1/check").body(Body::from(body(one).to_string())).unwrap();
            let reply = runtime.block_on(asked.answer(request));
            let mut answer = settled(reply.json(), one);
            answer["status"] = json!(reply.status);
            prop_assert_eq!(answer, expected(&twin, one), "{}", reply.text);
            asked.advance(one.4);
            twin.advance(one.4);
        }
    }

    #[test]
    fn a_batch_is_answered_like_single_requests_in_a_row(drawn in attempts()) {
        let [asked, twin] = [(); 2].map(|()| Door::with(policies(), Vec::new(), StoreKind::Memory));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let attempts: Vec<Value> = drawn.iter().map(body).collect();
        let bytes = json!({ "attempts": attempts }).to_string().into_bytes();
        let reply = runtime.block_on(asked.send(Method::POST, "/api/v1/check", &[], bytes));
        let decisions = reply.json()["decisions"].as_array().unwrap().clone();
        prop_assert_eq!(decisions.len(), drawn.len());
        for (answer, one) in decisions.into_iter().zip(&drawn) {
            prop_assert_eq!(settled(answer, one), expected(&twin, one));
        }
    }
}
