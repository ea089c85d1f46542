//! Checks: requests, responses and headers.

use crate::door::{self, Door};
use axum::http::Method;
use serde_json::{Value, json};
use tollgate_core::Policies;

/// A limit, its capacity, what is left, and milliseconds to its reset and retry.
type Shown<'l> = (&'l str, u64, u64, Option<u64>, Option<u64>);

/// A rule's object; `at` is the index of its binding limit.
fn line(rule: &str, key: &str, limits: &[Shown<'_>], at: usize) -> Value {
    let shown = limits.iter().map(|(limit, capacity, remaining, reset, retry)| {
        json!({
            "limit": limit, "capacity": capacity, "remaining": remaining,
            "reset_after_ms": reset, "retry_after_ms": retry,
        })
    });
    let (limit, capacity, remaining, reset, _) = limits[at];
    json!({
        "rule": rule, "key": key, "limit": limit, "capacity": capacity, "remaining": remaining,
        "reset_after": reset.map(|reset| reset.div_ceil(1_000)), "reset_after_ms": reset,
        "exceeded": limits.iter().any(|limit| limit.4.is_some()), "observed": false,
        "limits": shown.collect::<Vec<_>>(),
    })
}

const HOUR: Option<u64> = Some(3_600_000);
const DAY: Option<u64> = Some(86_400_000);

#[tokio::test]
async fn an_allowed_attempt_shows_every_rule() {
    let door = Door::open();
    let fields =
        json!({ "ip": "10.0.0.1", "sender": "User@Example.COM", "domain": "example.com", "recipients": 3 });
    let reply = door.check("mail.accept", fields).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let expected = json!({
        "allowed": true, "verdict": "allow", "policy": "mail.accept", "origin": "store", "repeated": false,
        "rules": [
            line("global", "global", &[("50000/hour", 50_000, 49_999, HOUR, None), ("500000/day", 500_000, 499_999, DAY, None)], 0),
            line("domain", "example.com", &[
                ("5000/hour", 5_000, 4_999, HOUR, None),
                ("50000/day", 50_000, 49_999, DAY, None),
                ("100 recipients per attempt", 100, 97, None, None),
            ], 0),
            line("sender", "user@example.com", &[("3/hour", 3, 2, HOUR, None), ("1000/day", 1_000, 999, DAY, None)], 0),
            line("ip", "10.0.0.1", &[("500/hour", 500, 499, HOUR, None), ("5000/day", 5_000, 4_999, DAY, None)], 0),
        ],
        "receipt": "…",
    });
    assert_eq!(reply.settled(), expected);
    let headers = ["x-ratelimit-limit: 3", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 1768474800"];
    assert_eq!(reply.headers_like("x-ratelimit"), headers);
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(reply.header("ratelimit"), None);
}

#[tokio::test]
async fn a_denial_names_its_rule_and_the_retry_time() {
    let door = Door::open();
    let fields = json!({ "sender": "user@example.com" });
    for _ in 0..3 {
        assert_eq!(door.check("mail.accept", fields.clone()).await.status, 200);
    }
    door.clock.advance(tollgate_core::Span::from_micros(1_800_000_500));
    let reply = door.check("mail.accept", fields.clone()).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    let left = Some(1_800_000);
    let expected = json!({
        "type": "/problems/rate-limit-exceeded", "title": "Rate limit exceeded", "status": 429,
        "detail": "sender user@example.com exceeded 3/hour; retry after 1800 s",
        "correlationId": "…", "error": "rate limit exceeded", "allowed": false, "verdict": "deny",
        "policy": "mail.accept", "origin": "store", "denied_by": "sender", "denied_key": "user@example.com",
        "retry_after": 1_800, "retryAfter": 1_800, "retry_after_ms": 1_800_000, "limit": 3,
        "rules": [
            line("global", "global", &[("50000/hour", 50_000, 49_997, left, None), ("500000/day", 500_000, 499_997, Some(84_600_000), None)], 0),
            line("sender", "user@example.com", &[("3/hour", 3, 0, left, left), ("1000/day", 1_000, 997, Some(84_600_000), None)], 0),
        ],
    });
    assert_eq!(reply.settled(), expected);
    let headers = ["x-ratelimit-limit: 3", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 1768474800"];
    assert_eq!(reply.headers_like("x-ratelimit"), headers);
    assert_eq!(reply.header("retry-after"), Some("1800"));
    assert_eq!(
        (reply.header("retry-after-ms"), reply.header("x-should-retry")),
        (Some("1800000"), Some("false"))
    );
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("x-correlation-id"), reply.json()["correlationId"].as_str());

    door.clock.advance(tollgate_core::Span::from_micros(1_799_999_499));
    let early = door.check("mail.accept", fields.clone()).await;
    assert_eq!((early.status, &early.json()["retry_after"]), (429, &json!(1)), "a microsecond is rounded up");
    assert_eq!(early.json()["retry_after_ms"], 1);
    door.clock.advance(tollgate_core::Span::from_micros(1));
    assert_eq!(door.check("mail.accept", fields).await.status, 200, "and then it passes");
}

#[tokio::test]
async fn a_deferred_attempt_is_told_the_moment() {
    let door = Door::open();
    let fields = json!({ "recipient_domain": "gmail.com" });
    door.check("mail.deliver", fields.clone()).await;
    door.check("mail.deliver", fields.clone()).await;
    let reply = door.check("mail.deliver", fields).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.json()["verdict"], "defer");
    assert_eq!(reply.json()["defer_until"], "2026-01-15T11:00:00Z");
    assert_eq!(reply.header("retry-after"), Some("3600"));
}

#[tokio::test]
async fn a_paced_attempt_waits_and_a_bucket_shows_rate_and_burst() {
    let door = Door::open();
    door.check("pace", json!({})).await;
    let reply = door.check("pace", json!({})).await;
    assert_eq!((reply.status, &reply.json()["verdict"]), (429, &json!("wait")));
    assert_eq!(reply.detail(), "pace exceeded 1/s burst 1; retry after 1 s");
    assert_eq!(reply.header("retry-after"), Some("1"));
    let reply = door.check("orders", json!({ "route": "/pay,ment", "ip": "::ffff:10.0.0.9" })).await;
    assert_eq!(reply.json()["rules"][0]["key"], "/pay\\,ment,10.0.0.9");
    let headers = [
        "x-ratelimit-burst: 50",
        "x-ratelimit-limit: 10",
        "x-ratelimit-remaining: 49",
        "x-ratelimit-reset: 1768471201",
    ];
    assert_eq!(reply.headers_like("x-ratelimit"), headers);
}

#[tokio::test]
async fn a_denial_that_no_wait_ends_has_no_retry_time() {
    let door = Door::open();
    let too_much = json!({ "policy": "orders", "fields": { "route": "r", "ip": "10.0.0.1" }, "cost": 51 });
    let never = door.post("/api/v1/check", too_much).await;
    assert_eq!(never.detail(), "orders r,10.0.0.1 exceeded 10/s burst 50; it can never pass");
    door.post("/api/v1/holds", json!({ "policy": "slots", "fields": { "account": "a" }, "id": "1" })).await;
    let hold = json!({ "policy": "slots", "fields": { "account": "a" }, "id": "2" });
    let held = door.post("/api/v1/holds", hold).await;
    assert_eq!(held.detail(), "slots a exceeded 1 at once; retry when a hold has ended");
    assert_eq!(held.header("x-ratelimit-reset"), None, "it does not reset by itself");
    for reply in [never, held] {
        assert_eq!(reply.status, 429);
        assert_eq!(reply.header("retry-after"), None);
        let body = reply.json();
        assert!(["retry_after", "retryAfter", "retry_after_ms"].iter().all(|name| body.get(name).is_none()));
    }
    let many = json!({ "domain": "example.com", "recipients": 101 });
    let reply = door.check("mail.accept", many).await;
    assert_eq!(reply.detail(), "domain example.com exceeded 100 recipients per attempt; it can never pass");
    assert_eq!(reply.headers_like("x-ratelimit"), ["x-ratelimit-limit: 100", "x-ratelimit-remaining: 0"]);
}

#[tokio::test]
async fn an_observed_rule_is_shown_and_never_refuses() {
    let door = Door::open();
    door.check("shadow", json!({ "ip": "10.0.0.1" })).await;
    let reply = door.check("shadow", json!({ "ip": "10.0.0.1" })).await;
    assert_eq!(reply.status, 200);
    let shadow = &reply.json()["rules"][0];
    assert_eq!((&shadow["exceeded"], &shadow["observed"]), (&json!(true), &json!(true)));
    assert_eq!(shadow["limits"][0]["retry_after_ms"], 3_600_000);
    assert_eq!(reply.header("x-ratelimit-limit"), Some("500"), "headers speak of what is enforced");
}

#[tokio::test]
async fn on_request_the_ietf_fields_stand_beside_the_others() {
    let door = Door::open();
    let body = json!({ "policy": "mail.accept", "fields": { "sender": "a@example.com" }, "cost": 3 });
    let asked = door.post("/api/v1/check?ratelimit=ietf", body.clone()).await;
    assert_eq!(asked.header("ratelimit-policy"), Some("\"global\";q=50000;w=3600, \"sender\";q=3;w=3600"));
    assert_eq!(asked.header("ratelimit"), Some("\"global\";r=49997;t=3600, \"sender\";r=0;t=3600"));
    door.advance(1_800);
    let bytes = body.to_string().into_bytes();
    let asked = door.send(Method::POST, "/api/v1/check", &[("X-RateLimit-Format", "ietf")], bytes).await;
    assert_eq!(asked.status, 429);
    assert_eq!(asked.header("ratelimit"), Some("\"global\";r=49997;t=1800, \"sender\";r=0;t=1800"));
    assert_eq!(asked.header("x-ratelimit-limit"), Some("3"));
}

#[tokio::test]
async fn looking_and_dry_runs_take_nothing() {
    let door = Door::open();
    let fields = json!({ "sender": "a@example.com" });
    for body in [
        json!({ "policy": "mail.accept", "fields": fields, "dry_run": true, "cost": 2 }),
        json!({ "policy": "mail.accept", "fields": fields, "cost": 0 }),
    ] {
        for _ in 0..5 {
            let reply = door.post("/api/v1/check", body.clone()).await;
            assert_eq!(reply.status, 200);
            assert!(reply.json().get("receipt").is_none(), "there is nothing to give back");
            assert_eq!(reply.json()["rules"][1]["remaining"], 3);
            assert_eq!(reply.json()["rules"][1]["reset_after_ms"], 0);
        }
    }
    let dry = json!({ "policy": "mail.accept", "fields": fields, "dry_run": true, "cost": 4 });
    assert_eq!(door.post("/api/v1/check", dry).await.status, 429, "a dry run says what would be decided");
}

#[tokio::test]
async fn a_caller_finds_its_own_id_again_if_it_is_fit_to_be_sent_back() {
    let door = Door::open();
    let ask = async |id: &str, body: &str| {
        let headers = [("X-Correlation-ID", id)];
        door.send(Method::POST, "/api/v1/check", &headers, body.as_bytes().to_vec()).await
    };
    let fine = r#"{"policy":"mail.accept","fields":{"ip":"10.0.0.1"}}"#;
    assert_eq!(ask("req-7\"<", fine).await.header("x-correlation-id"), Some("req-7\"<"));
    let problem = ask("req-7\"<", "{").await;
    assert_eq!(problem.json()["correlationId"], "req-7\"<");
    assert_eq!(problem.header("x-correlation-id"), Some("req-7\"<"));
    let longest = "x".repeat(128);
    assert_eq!(ask(&longest, "{").await.json()["correlationId"], *longest);
    for unfit in [&*"x".repeat(129), "two words", "tab\there", ""] {
        let problem = ask(unfit, "{").await;
        let made = problem.json()["correlationId"].as_str().unwrap().to_owned();
        assert!(made.len() == 16 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");
        assert_eq!(problem.header("x-correlation-id"), Some(&*made));
        assert_eq!(ask(unfit, fine).await.header("x-correlation-id"), None);
    }
    let other = ask("", "{").await.json()["correlationId"].clone();
    assert_ne!(other, ask("", "{").await.json()["correlationId"], "each is made anew");
}

#[tokio::test]
async fn several_attempts_are_decided_one_after_the_other() {
    let door = Door::open();
    let attempt = |cost: Value| json!({ "policy": "mail.accept", "fields": { "sender": "a@example.com" }, "cost": cost });
    let attempts = json!({ "attempts": [attempt(json!(2)), attempt(json!(2)), attempt(json!(-1)), { "policy": "mail.acept" }, attempt(json!(1)), 7] });
    let reply = door.post("/api/v1/check", attempts).await;
    assert_eq!(reply.status, 200);
    let decisions = reply.json()["decisions"].as_array().unwrap().clone();
    let statuses: Vec<&Value> = decisions.iter().map(|decision| &decision["status"]).collect();
    assert_eq!(statuses, [200, 429, 400, 400, 200, 400]);
    assert_eq!(decisions[0]["rules"][1]["remaining"], 1);
    assert!(decisions[0]["receipt"].is_string());
    assert_eq!(decisions[1]["denied_by"], "sender");
    assert_eq!(decisions[1]["retry_after"], 3_600);
    let detail = "expected a whole number of at least 0, not the number -1, at `cost`";
    assert_eq!(decisions[2]["detail"], detail);
    assert_eq!(decisions[3]["detail"], "there is no policy `mail.acept`; did you mean `mail.accept`?");
    assert_eq!(decisions[4]["rules"][1]["remaining"], 0);
    assert_eq!(decisions[1]["correlationId"], decisions[2]["correlationId"]);
}

#[tokio::test]
async fn a_hundred_attempts_fit_into_one_request_and_one_more_does_not() {
    let door = Door::open();
    let attempts = |count: usize| json!({ "attempts": vec![json!({ "policy": "trial", "fields": { "account": "a" } }); count] });
    let reply = door.post("/api/v1/check", attempts(101)).await;
    assert_eq!(reply.status, 400);
    assert!(reply.detail().starts_with("more than 100 in one list"), "{}", reply.detail());
    let reply = door.post("/api/v1/check", attempts(100)).await;
    let decisions = reply.json()["decisions"].as_array().unwrap().clone();
    assert_eq!(decisions.len(), 100);
    let allowed = decisions.iter().filter(|decision| decision["allowed"] == true).count();
    assert_eq!(allowed, 2, "the hundred and one left nothing behind");
    assert_eq!(
        door.post("/api/v1/check", json!({ "attempts": [] })).await.json(),
        json!({ "decisions": [] })
    );
}

#[tokio::test]
async fn secret_keys_never_leave_the_door() {
    let door = Door::open();
    let secret = "hidden-gold";
    let body = json!({ "policy": "mail.accept", "fields": { "api_key": secret }, "cost": 9_000 });
    let mut seen = vec![door.post("/api/v1/check", body.clone()).await];
    assert_eq!(seen[0].status, 200);
    seen.push(door.post("/api/v1/check", body).await);
    assert_eq!(seen[1].status, 429);
    let veiled = seen[1].json()["denied_key"].as_str().unwrap().to_owned();
    assert!(veiled.starts_with('#'), "{veiled}");
    let limits = json!({ "limits": ["20/hour"] });
    seen.push(door.put(&format!("/api/v1/counters/api_key/{secret}"), limits).await);
    for path in ["counters", "counters/api_key/hidden-gold", "decisions", "top", "holds/api_key/hidden-gold"]
    {
        seen.push(door.get(&format!("/api/v1/{path}")).await);
    }
    seen.push(door.get("/metrics").await);
    seen.push(door.delete(&format!("/api/v1/counters/api_key/{secret}")).await);
    seen.push(door.delete(&format!("/api/v1/counters/api_key/{secret}/override")).await);
    for reply in &seen {
        assert!(!reply.text.contains(secret), "{}", reply.text);
    }
    assert_eq!(seen.iter().filter(|reply| reply.text.contains(&veiled)).count(), 8);
}

#[tokio::test]
async fn without_a_store_there_is_no_decision() {
    let door = Door::without_store();
    let reply = door.check("mail.accept", json!({ "sender": "a@example.com" })).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.detail(), "the store cannot be used: no server is there");
    let attempt = json!({ "policy": "mail.accept", "fields": { "sender": "a@example.com" } });
    let reply = door.post("/api/v1/check", json!({ "attempts": [attempt] })).await;
    assert_eq!(reply.json()["decisions"][0]["status"], 503);
}

#[tokio::test]
async fn limits_that_are_switched_off_allow_everything() {
    let mut policies = door::policies();
    policies.enabled = false;
    let door = Door::with(policies, Vec::new(), door::StoreKind::Gone);
    let reply = door.check("mail.accept", json!({ "sender": "a@example.com" })).await;
    let expected = json!({
        "allowed": true, "verdict": "allow", "policy": "mail.accept", "origin": "fixed", "repeated": false, "rules": [],
    });
    assert_eq!((reply.status, reply.json()), (200, expected));
    assert!(reply.headers_like("x-ratelimit").is_empty());
    for (policy, fields, mistake) in [
        ("mail.acept", json!({}), "there is no policy `mail.acept`; did you mean `mail.accept`?"),
        (
            "mail.accept",
            json!({ "sendr": "a" }),
            "no rule of policy `mail.accept` uses the field `sendr`; did you mean `sender`?",
        ),
        ("mail.accept", json!({ "ip": "10.0.0" }), "the value of `ip` is not an IPv4 or IPv6 address"),
    ] {
        let reply = door.check(policy, fields).await;
        assert_eq!((reply.status, &*reply.detail()), (400, mistake), "a mistake is one all the same");
    }
    let none = Policies::new(false, Vec::new(), Vec::new());
    let door = Door::with(none, Vec::new(), door::StoreKind::Gone);
    assert_eq!(door.check("any", json!({ "x": 1 })).await.status, 200, "there is nothing to mistake");
}
