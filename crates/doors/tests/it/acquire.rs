//! Waiting over HTTP, in virtual time: when attempts pass, what is refused instead, and pauses.

use std::sync::Arc;
use std::time::Duration;

use crate::door::{Door, Reply, StoreKind, policies, rule};
use axum::http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use tollgate_core::{OnExceed, Policies, Policy, Rule, Span};
use tollgate_doors::{AccessKey, Role};

/// The usual policies, and one that makes many attempts wait: a hundred a second, for all chats.
fn patient() -> Policies {
    let known = policies();
    let wait = OnExceed::Wait(Span::from_secs(3_600));
    let rules = [
        Rule { on_exceed: wait, ..rule("all", &[], &["100/s burst 1"]) },
        Rule { on_exceed: wait, ..rule("chat", &["chat"], &["1/min burst 1"]) },
    ]
    .map(Arc::new);
    let named = |name: &str, rules: &[Arc<Rule>]| Policy::new(name.into(), rules.to_vec(), false);
    let made = [named("many", &rules[..1]), named("chats", &rules)];
    let policies = known.iter().cloned().chain(made).collect();
    Policies::new(true, known.rules().iter().cloned().chain(rules.clone()).collect(), policies)
}

fn open() -> Door {
    Door::with(patient(), Vec::new(), StoreKind::Memory)
}

async fn acquire(door: &Door, body: Value) -> Reply {
    door.post("/api/v1/acquire", body).await
}

fn pace(max_wait: &str) -> Value {
    json!({ "policy": "pace", "max_wait": max_wait })
}

/// Advances the store's clock with the runtime's until `work` is done.
async fn as_time_goes<T>(door: &Door, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(Duration::from_millis(10)) => door.clock.advance(Span::from_millis(10)),
        }
    }
}

/// Waits until this many calls wait.
async fn until_waiting(door: &Door, many: usize) {
    while door.pacer.waiting() < many {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_within_its_limit_passes_at_once_as_with_check() {
    let door = open();
    let reply = acquire(&door, json!({ "policy": "pace", "cost": 1 })).await;
    let expected = json!({
        "allowed": true, "verdict": "allow", "policy": "pace", "origin": "store", "repeated": false,
        "rules": [{
            "rule": "pace", "key": "pace", "limit": "1/s burst 1", "capacity": 1, "remaining": 0,
            "reset_after": 1, "reset_after_ms": 1_000, "exceeded": false, "observed": false,
            "limits": [{ "limit": "1/s burst 1", "capacity": 1, "remaining": 0, "reset_after_ms": 1_000, "retry_after_ms": null }],
        }],
        "receipt": "…", "at": "2026-01-15T10:00:00Z", "waited_ms": 0,
    });
    assert_eq!((reply.status, reply.settled()), (200, expected));
    assert_eq!(reply.header("x-ratelimit-limit"), Some("1"));
    let receipt = reply.json()["receipt"].clone();
    assert_eq!(door.post("/api/v1/refund", json!({ "receipt": receipt })).await.json()["refunded"], "back");
    let ietf = door.send(
        Method::POST,
        "/api/v1/acquire?ratelimit=ietf",
        &[],
        json!({ "policy": "pace" }).to_string().into_bytes(),
    );
    assert_eq!(ietf.await.header("ratelimit"), Some("\"pace\";r=0;t=1"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_is_answered_when_it_may_pass() {
    let door = open();
    let start = Instant::now();
    let replies = as_time_goes(&door, async {
        tokio::join!(
            acquire(&door, pace("5s")),
            acquire(&door, pace("5s")),
            acquire(&door, json!({ "policy": "pace" })),
        )
    })
    .await;
    let waited = [replies.0, replies.1, replies.2].map(|reply| {
        assert_eq!(reply.status, 200, "{reply:?}");
        (reply.json()["waited_ms"].as_u64().unwrap() / 100, reply.json()["at"].clone())
    });
    let moment = |second: u64| json!(format!("2026-01-15T10:00:0{second}Z"));
    assert_eq!(waited.clone().map(|(waited, _)| waited), [0, 10, 20]);
    assert_eq!(waited.map(|(_, at)| at), [moment(0), moment(1), moment(2)]);
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_refused_at_once_with_its_length() {
    let door = open();
    let start = Instant::now();
    assert_eq!(acquire(&door, pace("0s")).await.status, 200);
    let reply = acquire(&door, pace("400ms")).await;
    let expected = json!({
        "type": "/problems/wait-too-long", "title": "Wait too long", "status": 429,
        "detail": "the wait would be 1s, longer than the caller allows; retry after 1 s",
        "correlationId": "…", "error": "wait too long", "allowed": false, "verdict": "wait", "policy": "pace",
        "retry_after": 1, "retryAfter": 1, "retry_after_ms": 1_000, "waited_ms": 0,
    });
    assert_eq!((reply.status, reply.settled()), (429, expected));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!((reply.header("retry-after"), reply.header("cache-control")), (Some("1"), Some("no-store")));
    assert_eq!(reply.header("x-correlation-id"), reply.json()["correlationId"].as_str());
    // Five can wait for up to five seconds, as the rule says; the sixth cannot.
    let waiting = futures(&door, 5, &json!({ "policy": "pace" }));
    until_waiting(&door, 5).await;
    let reply = acquire(&door, json!({ "policy": "pace" })).await;
    assert_eq!((reply.status, reply.json()["denied_by"].clone()), (429, json!("pace")));
    assert_eq!(reply.json()["retry_after_ms"], 6_000);
    assert_eq!(reply.header("retry-after"), Some("6"));
    assert_eq!((reply.header("retry-after-ms"), reply.header("x-should-retry")), (Some("6000"), None));
    // No request waits for longer than a minute, whatever its rules allow.
    let chat = json!({ "policy": "chats", "fields": { "chat": "a" }, "cost": 1 });
    assert_eq!(acquire(&door, chat.clone()).await.status, 200);
    let next = futures(&door, 1, &chat);
    until_waiting(&door, 6).await;
    let reply = acquire(&door, chat).await;
    assert_eq!((reply.status, &reply.json()["retry_after_ms"]), (429, &json!(120_000)));
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(start.elapsed(), Duration::ZERO, "none of these waited");
    waiting.into_iter().chain(next).for_each(|task| task.abort());
}

/// Sends this many requests in the background.
fn futures(door: &Door, many: usize, body: &Value) -> Vec<tokio::task::JoinHandle<u16>> {
    let task = |_| {
        let (router, body) = (door.router.clone(), body.to_string());
        tokio::spawn(async move {
            let request = axum::http::Request::post("/api/v1/acquire").body(axum::body::Body::from(body));
            let answered = tower::ServiceExt::oneshot(router, request.expect("a request")).await;
            answered.expect("the router always answers").status().as_u16()
        })
    };
    (0..many).map(task).collect()
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_waiting_refuses_as_with_check() {
    let door = open();
    let body = json!({ "policy": "mail.accept", "fields": { "sender": "a@example.com" }, "cost": 3 });
    assert_eq!(acquire(&door, body.clone()).await.status, 200);
    let checked = door.post("/api/v1/check", body.clone()).await;
    let reply = acquire(&door, body).await;
    assert_eq!((reply.status, reply.settled()), (429, checked.settled()));
    assert_eq!(reply.header("retry-after"), checked.header("retry-after"));
    assert_eq!(reply.headers_like("x-ratelimit"), checked.headers_like("x-ratelimit"));
}

#[tokio::test(start_paused = true)]
async fn a_hold_belongs_to_its_id_and_a_repeat_takes_nothing() {
    let door = open();
    let body = json!({ "policy": "jobs", "fields": { "account": "acme" }, "id": "job-7" });
    let reply = acquire(&door, body.clone()).await;
    assert_eq!((reply.status, &reply.json()["id"]), (200, &json!("job-7")));
    let again = acquire(&door, body).await.json();
    assert_eq!((&again["repeated"], again.get("at"), again.get("receipt")), (&json!(true), None, None));
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_caller_leaves_the_queue_and_takes_nothing() {
    let door = open();
    assert_eq!(acquire(&door, pace("5s")).await.status, 200);
    let gone = futures(&door, 3, &pace("5s"));
    until_waiting(&door, 3).await;
    gone.iter().for_each(tokio::task::JoinHandle::abort);
    for task in gone {
        assert!(task.await.unwrap_err().is_cancelled());
    }
    assert_eq!(door.pacer.waiting(), 0);
    let reply = as_time_goes(&door, acquire(&door, pace("5s"))).await;
    assert_eq!(reply.json()["at"], "2026-01-15T10:00:01Z", "as if they had never been there");
}

#[tokio::test(start_paused = true)]
async fn a_request_of_higher_priority_goes_first() {
    let door = open();
    assert_eq!(acquire(&door, pace("5s")).await.status, 200);
    let with = |priority: i8| json!({ "policy": "pace", "priority": priority });
    let (low, usual, high) = as_time_goes(&door, async {
        tokio::join!(acquire(&door, with(-100)), acquire(&door, with(0)), acquire(&door, with(100)))
    })
    .await;
    let at = |reply: Reply| reply.json()["at"].as_str().unwrap().to_owned();
    let (low, usual, high) = (at(low), at(usual), at(high));
    assert!(high < usual && usual < low, "{high} {usual} {low}");
}

#[tokio::test(start_paused = true)]
async fn where_too_many_wait_the_next_is_sent_away() {
    let door = open();
    let body = json!({ "policy": "many" });
    assert_eq!(acquire(&door, body.clone()).await.status, 200);
    let waiting = futures(&door, 1_000, &body);
    until_waiting(&door, 1_000).await;
    let reply = acquire(&door, body).await;
    let expected = json!({
        "type": "/problems/queue-full", "title": "Queue full", "status": 429,
        "detail": "1000 attempts are waiting already; retry after 1 s", "correlationId": "…", "error": "queue full",
        "allowed": false, "verdict": "wait", "policy": "many",
        "retry_after": 1, "retryAfter": 1, "retry_after_ms": 1_000, "waited_ms": 0,
    });
    assert_eq!((reply.status, reply.settled()), (429, expected));
    assert_eq!(reply.header("retry-after"), Some("1"));
    let page = door.get("/metrics").await.text;
    for line in [
        "tollgate_paced_waiting{policy=\"many\"} 1000",
        "tollgate_paced_total{policy=\"many\",outcome=\"passed\"} 1",
        "tollgate_paced_total{policy=\"many\",outcome=\"full\"} 1",
        "tollgate_paced_wait_seconds_count{policy=\"many\"} 1",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line} is not in\n{page}");
    }
    door.post("/api/v1/paced/many/retry-after", json!({ "retry_after": 30 })).await;
    let reply = acquire(&door, json!({ "policy": "many" })).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("30")), "it stands still: {reply:?}");
    waiting.into_iter().for_each(|task| task.abort());
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_wait_than_leave_room_for_others() {
    let door = open();
    let to = |chat: usize| json!({ "policy": "chats", "fields": { "chat": chat } });
    assert_eq!(acquire(&door, to(0)).await.status, 200);
    let waiting: Vec<_> = (1..=5_000).flat_map(|chat| futures(&door, 1, &to(chat))).collect();
    until_waiting(&door, 5_000).await;
    let reply = acquire(&door, to(5_001)).await;
    assert_eq!((reply.status, reply.json()["type"].clone()), (429, json!("/problems/queue-full")));
    assert_eq!(door.get("/livez").await.status, 200);
    assert_eq!(acquire(&door, json!({ "policy": "unknown" })).await.status, 400);
    let page = door.get("/metrics").await.text;
    assert!(page.contains("tollgate_paced_total{policy=\"chats\",outcome=\"full\"} 1\n"), "{page}");
    assert!(!page.contains("unknown"), "{page}");
    waiting.into_iter().for_each(|task| task.abort());
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_get_503_when_the_server_ends() {
    let door = open();
    assert_eq!(acquire(&door, pace("5s")).await.status, 200);
    let (reply, ()) = tokio::join!(acquire(&door, pace("5s")), async {
        until_waiting(&door, 1).await;
        door.pacer.end();
    });
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert_eq!(reply.detail(), "the server is ending, and nothing was taken: ask again");
    assert_eq!(door.pacer.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_request_is_refused_with_the_reason() {
    let door = open();
    let table = [
        (json!({ "policy": "pace", "cost": -1 }), "expected a whole number of at least 0, not the number -1"),
        (json!({ "policy": "pac" }), "there is no policy `pac`; did you mean `pace`?"),
        (json!({ "policy": "pace", "id": "x".repeat(1 << 18) }), "262144 bytes"),
        (json!({ "policy": "pace", "max_wait": "5 parsecs" }), "`max_wait`: `5 parsecs`"),
        (json!({ "policy": "pace", "max_wait": "-5s" }), "`max_wait`: `-5s`"),
        (json!({ "policy": "pace", "max_wait": 5 }), "expected a string, not the number 5"),
        (json!({ "policy": "pace", "max_wait": "2m" }), "the maximum is `1m`"),
        (json!({ "policy": "pace", "priority": 101 }), "from -100 to 100, not the number 101"),
        (json!({ "policy": "pace", "priority": -128 }), "from -100 to 100, not the number -128"),
        (json!({ "policy": "pace", "priority": "high" }), "from -100 to 100, not the text \"high\""),
        (json!({ "policy": "pace", "dry_run": true }), "`dry_run` is not known here"),
        (json!({ "fields": {} }), "`policy` is missing"),
        (json!({ "policy": "chats", "fields": { "cat": "a" } }), "did you mean `chat`?"),
    ];
    for (body, part) in table {
        let reply = acquire(&door, body).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.detail().contains(part), "{}", reply.detail());
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_key_reports_short_pauses_of_keys_and_the_record_says_who_paused() {
    let key = |name: &str, role| AccessKey {
        name: name.into(),
        role,
        hash: Sha256::digest(name).into(),
        tenant: None,
    };
    let door = open();
    door.keys.replace(vec![key("app", Role::Check), key("ops", Role::Admin)]);
    let report = async |token: &str, body: Value| {
        let headers = [("x-api-token", token), ("content-type", "application/json")];
        let path = "/api/v1/paced/chats/retry-after";
        door.send(Method::POST, path, &headers, body.to_string().into_bytes()).await
    };
    for body in [json!({ "retry_after": 7 }), json!({ "retry_after": "61m", "fields": { "chat": "a" } })] {
        let refused = report("app", body.clone()).await;
        assert!(refused.status == 403 && refused.detail().contains("role `admin`"), "{refused:?}");
        assert_eq!(report("ops", body).await.status, 200);
    }
    for chat in ["a", "b", "c"] {
        let short = report("app", json!({ "retry_after": 60, "fields": { "chat": chat } })).await;
        assert_eq!(short.status, 200, "{short:?}");
    }
    door.advance(10);
    report("app", json!({ "retry_after": 60, "fields": { "chat": "d" } })).await;
    let changes =
        door.send(Method::GET, "/api/v1/changes", &[("x-api-token", "ops")], Vec::new()).await.json();
    let changes: Vec<[&str; 4]> = changes["changes"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|change| ["actor", "action", "what", "after"].map(|member| change[member].as_str().unwrap()))
        .collect();
    assert_eq!(
        changes,
        [
            ["ops", "pause.set", "chats", "the whole policy for 7s"],
            ["ops", "pause.set", "chats", "1 key for 1h1m"],
            ["app", "pause.set", "chats", "1 key for 1m"],
            ["app", "pause.set", "chats", "1 key for 1m; 2 more were reported before"],
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_reported_retry_after_pauses_its_scope_and_no_other() {
    let door = open();
    let report = async |body: Value| door.post("/api/v1/paced/chats/retry-after", body).await;
    let reply = report(json!({ "retry_after": 7, "fields": { "chat": "a" } })).await;
    assert_eq!(reply.json(), json!({ "policy": "chats", "keys": 1, "retry_after_ms": 7_000 }));
    let to = |chat: &str| json!({ "policy": "chats", "fields": { "chat": chat }, "max_wait": "5s" });
    let late = acquire(&door, to("a")).await;
    assert_eq!((late.status, &late.json()["retry_after_ms"]), (429, &json!(7_000)));
    assert_eq!(acquire(&door, to("b")).await.status, 200);
    let shown = json!({
        "policy": "chats", "waiting": 0,
        "pauses": [{ "rule": "chat", "key": "a", "retry_after_ms": 7_000 }],
    });
    assert_eq!(door.get("/api/v1/paced/chats").await.json(), shown);
    // A shorter report does not shorten a pause.
    report(json!({ "retry_after": "2s" })).await;
    report(json!({ "retry_after": 0.5 })).await;
    assert_eq!(
        acquire(&door, json!({ "policy": "chats", "fields": { "chat": "c" }, "max_wait": "1s" }))
            .await
            .json()["retry_after_ms"],
        2_000
    );
    assert_eq!(
        acquire(&door, json!({ "policy": "many", "max_wait": "0s" })).await.json()["retry_after_ms"],
        10,
        "only its own limit"
    );
    let pauses = door.get("/api/v1/paced/chats").await.json()["pauses"].clone();
    assert_eq!(pauses[0], json!({ "rule": null, "key": null, "retry_after_ms": 2_000 }));
    assert_eq!(pauses.as_array().unwrap().len(), 2);
    let resumed = door.delete("/api/v1/paced/chats/retry-after").await;
    assert_eq!(resumed.json(), json!({ "resumed": 2 }));
    door.advance(1);
    assert_eq!(acquire(&door, to("a")).await.json()["waited_ms"], 0);
}

#[tokio::test(start_paused = true)]
async fn all_forms_of_a_retry_after_header_are_understood() {
    let door = open();
    let report = async |said: Value| {
        let reply = door.post("/api/v1/paced/chats/retry-after", json!({ "retry_after": said })).await;
        (reply.status, reply.json())
    };
    let table = [
        (json!(7), 7_000),
        (json!(0), 0),
        (json!(1.2345), 1_235),
        (json!("7"), 7_000),
        (json!(" 120 "), 120_000),
        (json!("1.5"), 1_500),
        (json!("0.0001"), 1),
        (json!("1m30s"), 90_000),
        (json!("250ms"), 250),
        (json!("Thu, 15 Jan 2026 10:00:45 GMT"), 45_000),
        (json!("Thursday, 15-Jan-26 10:00:45 GMT"), 45_000),
        (json!("Thu, 15 Jan 2026 09:00:00 GMT"), 0),
        (json!("Thu, 01 Jan 1970 00:00:00 GMT"), 0),
    ];
    for (said, millis) in table {
        let expected = json!({ "policy": "chats", "keys": 0, "retry_after_ms": millis });
        assert_eq!(report(said.clone()).await, (200, expected), "{said}");
    }
    for (said, part) in [
        (json!(-1), "expected seconds"),
        (json!(-0.5), "expected seconds"),
        (json!(null), "expected seconds"),
        (json!([7]), "expected seconds"),
        (json!("soon"), "`retry_after`: `soon`"),
        (json!("-7"), "`retry_after`: `-7`"),
        (json!("1e3"), "`retry_after`: `1e3`"),
        (json!("."), "`retry_after`: `.`"),
        (json!("99999999999999999999"), "at most `1w`"),
        (json!(""), "`retry_after`: ``"),
        (json!("Thu, 35 Jan 2026 10:00:45 GMT"), "`retry_after`: `Thu"),
        (json!("8d"), "at most `1w`"),
        (json!(1e300), "at most `1w`"),
        (json!(u64::MAX), "at most `1w`"),
        (json!("Thu, 15 Jan 2099 10:00:45 GMT"), "at most `1w`"),
    ] {
        let (status, body) = report(said.clone()).await;
        assert_eq!(status, 400, "{said}");
        assert!(body["detail"].as_str().unwrap().contains(part), "{said}: {body}");
    }
}

#[tokio::test]
async fn an_unknown_policy_or_field_cannot_be_paused() {
    let door = open();
    let report = async |path: &str, body: Value| {
        let reply = door.post(path, body).await;
        (reply.status, reply.detail())
    };
    let seven = |fields: Value| json!({ "retry_after": 7, "fields": fields });
    let unknown = report("/api/v1/paced/chat/retry-after", seven(json!({}))).await;
    assert_eq!(unknown, (404, "there is no policy `chat`; did you mean `chats`?".to_owned()));
    let (status, detail) = report("/api/v1/paced/chats/retry-after", seven(json!({ "cat": "a" }))).await;
    assert!(status == 400 && detail.contains("did you mean `chat`?"), "{status} {detail}");
    let (status, detail) = report("/api/v1/paced/chats/retry-after", json!({ "fields": {} })).await;
    assert!(status == 400 && detail.contains("`retry_after` is missing"), "{status} {detail}");
    assert_eq!(door.get("/api/v1/paced/nothing").await.status, 404);
    assert_eq!(door.delete("/api/v1/paced/nothing/retry-after").await.status, 404);
    assert_eq!(door.get("/api/v1/paced/chats").await.json()["pauses"], json!([]));
}

#[tokio::test]
async fn a_store_that_is_gone_is_a_problem_of_its_own() {
    let door = Door::without_store();
    assert_eq!(acquire(&door, json!({ "policy": "pace" })).await.status, 503);
    let reply = door.post("/api/v1/paced/pace/retry-after", json!({ "retry_after": 7 })).await;
    assert_eq!(reply.status, 503);
    assert!(reply.detail().starts_with("the pause applies on this node only: "), "{}", reply.detail());
    let shown = door.get("/api/v1/paced/pace").await.json();
    assert_eq!(shown["pauses"].as_array().unwrap().len(), 1);
}
