//! The mail relay over HTTP: accounts, submissions, messages and lanes, with a real queue and a real sink.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{self, Door, Reply, StoreKind, rule};
use axum::http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_core::{Policies, Policy};
use tollgate_doors::{AccessKey, MailTenant, Role};
use tollgate_engine::Admissions;
use tollgate_relay::accounts::SecretKey;
use tollgate_relay::{Relay, RelayParts, RelaySettings};
use tollgate_store::ManualClock;
use tollgate_testbed::{PATIENCE, Sink};

/// A door with a relay, and the directory of its queue.
struct Post {
    door: Door,
    relay: Arc<Relay>,
    _home: tempfile::TempDir,
}

/// The limits of sending accounts, senders and API keys.
fn policies() -> Policies {
    let mut account = rule("account", &["tenant", "account"], &[]);
    account.on_exceed = "defer".parse().unwrap();
    let rules = [
        account,
        rule("sender", &["sender"], &["2/hour"]),
        rule("api_key", &["api_key"], &["3/hour"]),
        rule("size", &[], &["50 recipients per attempt"]),
    ];
    let rules: Vec<_> = rules.into_iter().map(Arc::new).collect();
    let deliver = Policy::new("mail.deliver".into(), vec![Arc::clone(&rules[0])], true);
    let accept = Policy::new("mail.accept".into(), rules[1..].to_vec(), true);
    Policies::new(true, rules, vec![deliver, accept])
}

fn key(name: &str, role: Role, tenant: Option<&str>) -> AccessKey {
    let senders: Arc<[String]> = Arc::from(["acme.example".to_owned()]);
    let tenant = tenant.map(|name| MailTenant { name: name.into(), senders });
    AccessKey { name: name.into(), role, hash: Sha256::digest(name).into(), tenant }
}

impl Post {
    fn open(keys: Vec<AccessKey>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let started = std::cell::RefCell::new(None);
        let start = |admissions: Admissions, clock: Arc<ManualClock>| {
            let mut settings = RelaySettings::new("relay.example", home.path().join("queue"));
            settings.queue.min_free = 0;
            settings.secret_key = Some(SecretKey([7; 32]));
            settings.accept.policy = Some("mail.accept".into());
            settings.accept.max_size = 1 << 20;
            let parts = RelayParts { admissions, clock };
            let starting = Relay::start(settings, parts);
            let relay = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(starting));
            let relay = Arc::new(relay.unwrap());
            *started.borrow_mut() = Some(Arc::clone(&relay));
            relay
        };
        let door = Door::with_relay(policies(), keys, StoreKind::Memory, Some(&start));
        let relay = started.into_inner().unwrap();
        Self { door, relay, _home: home }
    }

    async fn ask(&self, token: &str, method: Method, path: &str, body: Value) -> Reply {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let headers = [("x-api-token", token), ("content-type", "application/json")];
        self.door.send(method, path, &headers, body).await
    }

    async fn submit(&self, token: &str, headers: &[(&str, &str)], body: Value) -> Reply {
        let mut all = vec![("x-api-token", token), ("content-type", "application/json")];
        all.extend(headers);
        self.door.send(Method::POST, "/api/v1/messages", &all, body.to_string().into_bytes()).await
    }

    /// Adds the account that messages of tests may wait for: nothing listens there.
    async fn add_account(&self) {
        let account = json!({ "host": "127.0.0.1", "port": 1, "tls": "none" });
        let made = self.ask("boss", Method::PUT, "/api/v1/accounts/acme/main", account).await;
        assert_eq!(made.status, 201, "{made:?}");
    }

    async fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let waiting = async {
            while !so() {
                self.relay.sender().nudge();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "waited in vain for: {what}");
    }
}

fn keys() -> Vec<AccessKey> {
    vec![
        key("boss", Role::Admin, None),
        key("app", Role::Check, Some("acme")),
        key("checker", Role::Check, None),
        key("clerk", Role::Read, Some("acme")),
    ]
}

fn message(to: &[&str]) -> Value {
    json!({ "from": "ada@acme.example", "to": to, "subject": "hi", "text": "hello\nworld" })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_of_the_other_proxy_is_made_shown_and_removed_without_its_password() {
    let post = Post::open(keys());
    let printed = json!({
        "id": "primary-smtp", "tenant_id": "acme", "host": "smtp.example.com", "port": 587,
        "user": "sender@example.com", "password": "secret-word", "use_tls": true,
        "limit_per_minute": 10, "limit_per_hour": 100, "limit_per_day": 1000
    });
    let made = post.ask("boss", Method::POST, "/account", printed).await;
    assert_eq!((made.status, &made.json()["ok"]), (200, &json!(true)), "{made:?}");
    assert_eq!(made.json()["limits"], json!(["10/min sliding", "100/hour sliding", "1000/day sliding"]));
    let bare =
        json!({ "id": "unlimited-smtp", "tenant_id": "acme", "host": "smtp.example.com", "port": 587 });
    let bare = post.ask("boss", Method::POST, "/account", bare).await;
    assert_eq!((bare.status, &bare.json()["limits"]), (200, &json!(["unlimited"])), "{bare:?}");
    let shown = post.ask("clerk", Method::GET, "/api/v1/accounts/acme/primary-smtp", Value::Null).await;
    let body = shown.json();
    assert_eq!((&body["limit_per_minute"], &body["tls"]), (&json!(10), &json!("starttls")), "{body}");
    let list = post.ask("clerk", Method::GET, "/api/v1/accounts?limit=1", Value::Null).await;
    assert_eq!(
        (list.json()["accounts"].as_array().unwrap().len(), &list.json()["next"]),
        (1, &json!("acme/primary-smtp"))
    );
    let rest = post.ask("clerk", Method::GET, "/api/v1/accounts?after=acme/primary-smtp", Value::Null).await;
    assert_eq!(rest.json()["accounts"][0]["id"], "unlimited-smtp");
    for reply in [&made, &shown, &list] {
        assert!(
            !reply.text.contains("secret-word") && !reply.text.contains("\"password\""),
            "{}",
            reply.text
        );
    }
    let gone = post.ask("boss", Method::DELETE, "/api/v1/accounts/acme/unlimited-smtp", Value::Null).await;
    assert_eq!(gone.json(), json!({ "removed": true }));
    let gone = post.ask("boss", Method::GET, "/api/v1/accounts/acme/unlimited-smtp", Value::Null).await;
    assert_eq!(gone.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_accept_our_members_and_refuse_invalid_values() {
    let post = Post::open(keys());
    let ours = json!({ "tenant": "acme", "host": "mx.example", "port": 465, "limits": ["5/s burst 10"], "on_limit": "reject", "priority": 3 });
    let made = post.ask("boss", Method::POST, "/api/v1/accounts", ours.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let body = made.json();
    let id = body["id"].as_str().unwrap();
    assert!(id.starts_with("account-"), "{body}");
    assert_eq!(
        (&body["tls"], &body["limit_behavior"], &body["limit_per_day"]),
        (&json!("implicit"), &json!("reject"), &Value::Null)
    );
    assert_eq!(made.header("location"), Some(&*format!("/api/v1/accounts/acme/{id}")));
    let path = format!("/api/v1/accounts/acme/{id}");
    let changed = post.ask("boss", Method::PUT, &path, json!({ "host": "mx2.example" })).await;
    assert_eq!((changed.status, &changed.json()["port"]), (200, &json!(587)), "{changed:?}");
    let other =
        post.ask("boss", Method::PUT, "/api/v1/accounts/acme/second", json!({ "host": "mx2.example" })).await;
    assert_eq!(other.status, 201);
    let taken = json!({ "id": "second", "tenant": "acme", "host": "x" });
    assert_eq!(post.ask("boss", Method::POST, "/api/v1/accounts", taken).await.status, 409);
    let wrong = [
        (json!({ "host": "x" }), "`tenant` is missing"),
        (json!({ "tenant": "a", "tenant_id": "b", "host": "x" }), "differ"),
        (json!({ "tenant": "acme", "host": "" }), "`host`"),
        (json!({ "tenant": "acme", "host": "a\r\nb" }), "`host`"),
        (json!({ "tenant": "../x", "host": "x" }), "`tenant`"),
        (json!({ "tenant": "acme", "host": "x", "port": 0 }), "`port`"),
        (json!({ "tenant": "acme", "host": "x", "port": 70000 }), "`port`"),
        (json!({ "tenant": "acme", "host": "x", "tls": "maybe" }), "`tls`"),
        (json!({ "tenant": "acme", "host": "x", "password": "p" }), "`password` needs `user`"),
        (json!({ "tenant": "acme", "host": "x", "user": "u" }), "`user` needs `password`"),
        (
            json!({ "tenant": "acme", "host": "x", "user": "u", "password": "p", "use_tls": false }),
            "without TLS",
        ),
        (json!({ "tenant": "acme", "host": "x", "limits": "1/s", "limit_per_day": 3 }), "either"),
        (json!({ "tenant": "acme", "host": "x", "on_limit": "drop" }), "`on_limit`"),
        (json!({ "tenant": "acme", "host": "x", "colour": 1 }), "colour"),
    ];
    for (body, why) in wrong {
        let refused = post.ask("boss", Method::POST, "/api/v1/accounts", body.clone()).await;
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert!(refused.detail().contains(why), "{body}: {}", refused.detail());
    }
    let number = json!({ "tenant": "acme", "host": "x", "user": "u", "password": 123_454_321 });
    let refused = post.ask("boss", Method::POST, "/api/v1/accounts", number).await;
    assert!(refused.status == 400 && !refused.text.contains("123454321"), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_tenant_sees_and_sends_for_that_tenant_only() {
    let post = Post::open(keys());
    for tenant in ["acme", "other"] {
        let body = json!({ "host": "127.0.0.1", "port": 1, "tls": "none" });
        let made = post.ask("boss", Method::PUT, &format!("/api/v1/accounts/{tenant}/main"), body).await;
        assert_eq!(made.status, 201);
    }
    let list = post.ask("clerk", Method::GET, "/api/v1/accounts", Value::Null).await;
    assert_eq!(list.json()["accounts"].as_array().unwrap().len(), 1, "{}", list.text);
    assert_eq!(post.ask("clerk", Method::GET, "/api/v1/accounts/other/main", Value::Null).await.status, 403);
    assert_eq!(
        post.ask("clerk", Method::GET, "/api/v1/messages?tenant=other", Value::Null).await.status,
        403
    );
    assert_eq!(
        post.ask("clerk", Method::PUT, "/api/v1/accounts/acme/x", json!({"host": "x"})).await.status,
        403
    );
    assert_eq!(post.ask("app", Method::GET, "/api/v1/messages", Value::Null).await.status, 403);
    let refused = post.submit("checker", &[], message(&["b@there.example"])).await;
    assert!(refused.status == 403 && refused.detail().contains("give it a `tenant`"), "{refused:?}");
    let mut foreign = message(&["b@there.example"]);
    foreign["tenant"] = json!("other");
    assert_eq!(post.submit("app", &[], foreign.clone()).await.status, 403);
    let sent = post.submit("boss", &[], foreign.clone()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let id = sent.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(
        post.ask("clerk", Method::GET, &format!("/api/v1/messages/{id}"), Value::Null).await.status,
        404
    );
    assert_eq!(
        post.ask("boss", Method::GET, &format!("/api/v1/messages/{id}"), Value::Null).await.status,
        200
    );
    foreign["tenant"] = Value::Null;
    foreign["from"] = json!("ada@elsewhere.example");
    let refused = post.submit("app", &[], foreign).await;
    assert!(refused.status == 403 && refused.detail().contains("elsewhere.example"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_is_sent_once_and_its_story_is_told() {
    let (post, sink) = (Post::open(keys()), Sink::start());
    let account =
        json!({ "host": "127.0.0.1", "port": sink.port(), "tls": "none", "limits": "1/hour sliding" });
    assert_eq!(post.ask("boss", Method::PUT, "/api/v1/accounts/acme/main", account).await.status, 201);
    let mut body = message(&["Bob <b@there.example>"]);
    body["bcc"] = json!("hidden@there.example");
    body["html"] = json!("<p>hello</p>");
    body["headers"] = json!({ "X-Campaign": "ünïcode", "Reply-To": "support@acme.example" });
    body["attachments"] =
        json!([{ "filename": "a.txt", "content_type": "text/plain", "content": "aGVsbG8=" }]);
    let sent = post.submit("app", &[("idempotency-key", "one")], body.clone()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let again = post.submit("app", &[("idempotency-key", "one")], body.clone()).await;
    assert_eq!(
        (again.status, &again.text, again.header("idempotent-replayed")),
        (202, &sent.text, Some("true"))
    );
    body["subject"] = json!("another");
    let other = post.submit("app", &[("idempotency-key", "one")], body).await;
    assert_eq!(other.status, 422, "{other:?}");
    post.until("the message arrives", || sink.count() == 1).await;
    let text = sink.messages()[0].text.clone();
    assert!(
        text.contains("To: \"Bob\" <b@there.example>") || text.contains("To: Bob <b@there.example>"),
        "{text}"
    );
    assert!(
        text.contains("Received:") && text.contains("multipart/mixed") && text.contains("Message-ID: <"),
        "{text}"
    );
    assert!(!text.contains("hidden@") && text.matches("Date:").count() == 1, "{text}");

    let second = post.submit("app", &[], message(&["c@there.example"])).await;
    let id = second.json()["id"].as_str().unwrap().to_owned();
    post.until("the second is deferred", || {
        post.relay.sender().lanes().iter().any(|lane| lane.sleep.is_some())
    })
    .await;
    let listed = post.ask("clerk", Method::GET, "/messages?tenant_id=acme", Value::Null).await.json();
    let deferred: Vec<&Value> = listed["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| !message["deferred_ts"].is_null())
        .collect();
    assert_eq!(deferred.len(), 1, "{listed}");
    assert_eq!((&deferred[0]["id"], &deferred[0]["deferred_by"]), (&json!(id), &json!("account acme,main")));
    assert_eq!(deferred[0]["deferred_ts"], json!(door::START + 3_600), "the exact moment");
    let by_status = |status: &str| format!("/api/v1/messages?status={status}&recipient=c@there.example");
    let found = post.ask("clerk", Method::GET, &by_status("deferred"), Value::Null).await.json();
    assert_eq!(found["messages"].as_array().unwrap().len(), 1, "{found}");
    let found = post.ask("clerk", Method::GET, &by_status("sent"), Value::Null).await.json();
    assert_eq!(found["messages"], json!([]), "{found}");
    let lanes = post.ask("clerk", Method::GET, "/api/v1/lanes", Value::Null).await.json();
    assert_eq!(
        (&lanes["lanes"][0]["domain"], &lanes["lanes"][0]["cause"]),
        (&json!("there.example"), &json!("limit"))
    );
    assert_eq!(lanes["lanes"][0]["reason"], "account acme,main");
    assert_eq!(lanes["lanes"][0]["sleeps_until"], "2026-01-15T11:00:00Z");
    assert_eq!(lanes["lanes"][0]["oldest"], "2026-01-15T10:00:00Z");
    let cancelled =
        post.ask("boss", Method::POST, &format!("/api/v1/messages/{id}/cancel"), Value::Null).await;
    assert_eq!(cancelled.json(), json!({ "cancelled": true }));
    let shown = post.ask("clerk", Method::GET, &format!("/api/v1/messages/{id}"), Value::Null).await.json();
    let events: Vec<&str> =
        shown["timeline"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((&shown["status"], events), (&json!("cancelled"), vec!["accepted", "deferred", "cancelled"]));
    assert_eq!(shown["api_key"], "app");
    let again = post.ask("boss", Method::POST, &format!("/api/v1/messages/{id}/cancel"), Value::Null).await;
    assert_eq!(again.json(), json!({ "cancelled": false }));
}

#[tokio::test(flavor = "multi_thread")]
async fn submissions_pass_the_same_limits_and_a_refusal_speaks_as_a_mail_server() {
    let post = Post::open(keys());
    post.add_account().await;
    let many: Vec<String> = (0..51).map(|number| format!("b{number}@there.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = post.submit("app", &[], message(&many)).await;
    assert_eq!((refused.status, &refused.json()["denied_by"]), (429, &json!("size")), "{refused:?}");
    assert_eq!((&refused.json()["retry_after"], refused.header("retry-after")), (&Value::Null, None));
    assert!(refused.detail().contains("send it in parts"), "{refused:?}");
    for _ in 0..2 {
        assert_eq!(post.submit("app", &[], message(&["b@there.example"])).await.status, 202);
    }
    let refused = post.submit("app", &[], message(&["b@there.example"])).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    let body = refused.json();
    assert_eq!(
        (&body["error"], &body["denied_by"], &body["denied_key"]),
        (&json!("rate limit exceeded"), &json!("sender"), &json!("ada@acme.example"))
    );
    assert_eq!((&body["retry_after"], refused.header("retry-after")), (&json!(3600), Some("3600")));
    assert_eq!(
        (refused.header("retry-after-ms"), refused.header("x-should-retry")),
        (Some("3600000"), Some("false"))
    );
    let mut other = message(&["b@there.example"]);
    other["from"] = json!("eve@acme.example");
    assert_eq!(post.submit("app", &[], other.clone()).await.status, 202);
    let refused = post.submit("app", &[], other).await;
    assert_eq!(
        (&refused.json()["denied_by"], &refused.json()["denied_key"]),
        (&json!("api_key"), &json!("app"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn escapes_in_any_member_are_read_as_what_they_stand_for() {
    let post = Post::open(keys());
    post.add_account().await;
    let json = [("x-api-token", "app"), ("content-type", "application/json")];
    let mut body = message(&["b@there.example"]);
    body["headers"] = json!({ "X-Campaign": "spring", "Bcc": "x@y.example" });
    let hidden = body.to_string().replace("\"Bcc\"", r#""\u0042cc""#);
    let refused = post.door.send(Method::POST, "/api/v1/messages", &json, hidden.into_bytes()).await;
    assert!(refused.status == 400 && refused.detail().contains("may not set"), "{refused:?}");
    body["headers"] = json!({ "X-Campaign": "spring" });
    let text = body.to_string().replace("\"X-Campaign\"", r#""\u0058-Campaign""#);
    assert!(text.contains(r"\u0058"), "{text}");
    let sent = post.door.send(Method::POST, "/api/v1/messages", &json, text.into_bytes()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_submissions_are_refused_and_cost_nothing() {
    let post = Post::open(keys());
    post.add_account().await;
    let with = |member: &str, value: Value| {
        let mut body = message(&["b@there.example"]);
        body[member] = value;
        body
    };
    let wrong = [
        (with("subject", json!("a\r\nBcc: x@y.example")), "line break"),
        (with("headers", json!({ "X-A": "b\r\n\r\nbody" })), "line break"),
        (with("headers", json!({ "X A": "b" })), "not the name"),
        (with("headers", json!({ "Bcc": "b@x.example" })), "may not set"),
        (with("headers", json!({ "Content-Type": "text/html" })), "may not set"),
        (with("from", json!("nobody")), "`from`"),
        (with("from", json!("")), "`from`"),
        (with("from", json!("a\n <ada@acme.example>")), "line break"),
        (with("to", json!(["b@there.example\r\nRCPT TO:<c@d.example>"])), "`to`"),
        (with("to", json!([])), "no recipients"),
        (with("cc", json!("x")), "`cc`"),
        (with("attachments", json!([{ "filename": "a", "content": "***" }])), "base64"),
        (with("attachments", json!([{ "filename": "a\nb", "content": "" }])), "line break"),
        (
            with("attachments", json!([{ "filename": "a", "content_type": "x\r\ny", "content": "" }])),
            "media type",
        ),
        (with("priority", json!("urgent")), "`priority`"),
        (with("colour", json!(1)), "colour"),
        (with("account", json!("a".repeat(65))), "`account`"),
        (with("account", json!("a/b")), "`account`"),
        (with("account", json!("")), "`account`"),
    ];
    for (body, why) in wrong {
        let refused = post.submit("app", &[], body.clone()).await;
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert!(refused.detail().contains(why), "{body}: {}", refused.detail());
    }
    let form = [("x-api-token", "app"), ("content-type", "text/html")];
    let refused = post.door.send(Method::POST, "/api/v1/messages", &form, b"x".to_vec()).await;
    assert_eq!(refused.status, 415);
    let raw = [("x-api-token", "app"), ("content-type", "message/rfc822")];
    let texts: [(&[u8], u16, &str); 5] = [
        (b"Subject: x\r\n\r\nx", 400, "no `From`"),
        (b"From: ada@acme.example\r\n\r\nx", 400, "no recipients"),
        (b"From: ada@acme.example\r\nTo: b@x.example\r\n\r\na\nb", 400, "CR"),
        (b"From: ada@acme.example\r\nTo: b@x.example\r\n\r\na\r\n.\r\nMAIL FROM:<x@y.example>\0", 400, "NUL"),
        (
            &[b"From: ada@acme.example\r\nTo: b@x.example\r\n\r\n", &[b'x'; 1 << 20][..]].concat(),
            413,
            "max_size",
        ),
    ];
    for (text, status, why) in texts {
        let refused = post.door.send(Method::POST, "/api/v1/messages", &raw, text.to_vec()).await;
        assert_eq!(refused.status, status, "{refused:?}");
        assert!(refused.detail().contains(why), "{why}: {}", refused.detail());
    }
    assert_eq!(post.relay.queue().len(), 0, "nothing was queued");
    for _ in 0..2 {
        let sent = post.submit("app", &[], message(&["b@there.example"])).await;
        assert_eq!(sent.status, 202, "nothing was charged: {sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_values_that_mail_programs_read_differently_are_refused() {
    let post = Post::open(keys());
    post.add_account().await;
    let with = |member: &str, value: Value| {
        let mut body = message(&["b@there.example"]);
        body[member] = value;
        body
    };
    let wrong = [
        (with("from", json!("=?utf-8?Q?Boss?= <ada@acme.example>")), "encoded word"),
        (with("to", json!("=?utf-8?B?Qm9zcw==?= <b@there.example>")), "encoded word"),
        (with("attachments", json!([{ "filename": "=?utf-8?Q?a.exe?=", "content": "" }])), "encoded word"),
        (with("headers", json!({ "Date": "yesterday" })), "`Date`"),
        (with("headers", json!({ "date": "Wed, 18 Nov 2026 19:04:05 +0100 ".repeat(200) })), "`Date`"),
        (
            with("headers", json!({ "Message-ID": format!("<{}@acme.example>", "x".repeat(5_000)) })),
            "`Message-ID`",
        ),
        (with("headers", json!({ "References": "x".repeat(5_000) })), "`References`"),
        (with("headers", json!({ "Reply-To": "=?utf-8?Q?Boss?= <ada@acme.example>" })), "encoded word"),
        (with("headers", json!({ "Reply-To": "nobody" })), "addresses"),
    ];
    for (body, why) in wrong {
        let refused = post.submit("app", &[], body.clone()).await;
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert!(refused.detail().contains(why), "{body}: {}", refused.detail());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_values_arrive_as_the_text_that_was_submitted() {
    let (post, sink) = (Post::open(keys()), Sink::start());
    let account = json!({ "host": "127.0.0.1", "port": sink.port(), "tls": "none" });
    assert_eq!(post.ask("boss", Method::PUT, "/api/v1/accounts/acme/main", account).await.status, 201);
    let mut body = message(&["Jürgen <b@there.example>"]);
    let looks_encoded = "=?utf-8?B?SSBsb3ZlIHlvdQ==?= is a subject";
    let endless = "x".repeat(5_000);
    body["subject"] = json!(looks_encoded);
    body["headers"] = json!({
        "X-Note": looks_encoded,
        "X-Endless": endless,
        "Reply-To": "Jürgen <j@acme.example>, help@acme.example",
        "Message-ID": "<one@acme.example>",
        "References": "<a@acme.example> ".repeat(100),
        "Date": "Wed, 18 Nov 2026 19:04:05 +0100",
        "List-Unsubscribe": format!("<https://acme.example/{}>", "u".repeat(200)),
    });
    let sent = post.submit("app", &[], body).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    post.until("the message arrives", || sink.count() == 1).await;
    let text = sink.messages()[0].text.clone();
    assert!(text.lines().all(|line| line.len() <= 998), "{text}");
    let parsed = mail_parser::MessageParser::default().parse(&text).unwrap();
    let raw = |name: &str| parsed.header_raw(name).unwrap_or_default().trim().to_owned();
    assert_eq!(parsed.subject(), Some(looks_encoded));
    assert_eq!(parsed.message_id(), Some("one@acme.example"));
    assert_eq!(parsed.references().as_text_list().map(<[_]>::len), Some(100));
    assert_eq!(raw("Date"), "Wed, 18 Nov 2026 19:04:05 +0100");
    let replies: Vec<_> = parsed.reply_to().unwrap().iter().map(|one| (one.name(), one.address())).collect();
    assert_eq!(replies, [(Some("Jürgen"), Some("j@acme.example")), (None, Some("help@acme.example"))]);
    assert!(!raw("X-Note").contains("SSBsb3ZlIHlvdQ") && raw("X-Endless").starts_with("=?utf-8?"));
    assert!(raw("List-Unsubscribe").starts_with("<https://acme.example/uuu"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_no_account_could_send_is_refused_until_there_is_one() {
    let post = Post::open(keys());
    let of_tenant = post.submit("app", &[], message(&["b@there.example"])).await;
    assert_eq!((of_tenant.status, &of_tenant.json()["type"]), (422, &json!("/problems/no-account")));
    assert!(of_tenant.detail().contains("tenant acme has no account"), "{}", of_tenant.detail());
    post.add_account().await;
    let mut mistyped = message(&["b@there.example"]);
    mistyped["account"] = json!("mian");
    let refused = post.submit("app", &[], mistyped.clone()).await;
    assert!(refused.status == 422 && refused.detail().contains("no account mian"), "{refused:?}");
    let text = b"From: ada@acme.example\r\nTo: b@x.example\r\n\r\nx".to_vec();
    let raw = [("x-api-token", "app"), ("content-type", "message/rfc822")];
    let refused = post.door.send(Method::POST, "/api/v1/messages?account=mian", &raw, text).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(post.relay.queue().len(), 0, "nothing was queued");
    mistyped["account"] = json!("main");
    for _ in 0..2 {
        let sent = post.submit("app", &[("idempotency-key", "one")], mistyped.clone()).await;
        assert_eq!(sent.status, 202, "nothing was charged: {sent:?}");
        // A repeated submission is answered as before, whatever became of its account.
        let gone = post.ask("boss", Method::DELETE, "/api/v1/accounts/acme/main", Value::Null).await;
        assert_eq!(gone.status, 200, "{gone:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_submits_sees_its_own_messages_and_no_others() {
    let mut keys = keys();
    keys.push(key("other-app", Role::Check, Some("acme")));
    let post = Post::open(keys);
    post.add_account().await;
    let sent = post.submit("app", &[], message(&["b@there.example"])).await;
    let path = format!("/api/v1/messages/{}", sent.json()["id"].as_str().unwrap());
    let shown = post.ask("app", Method::GET, &path, Value::Null).await;
    assert_eq!((shown.status, &shown.json()["api_key"]), (200, &json!("app")));
    for (token, status) in [("other-app", 404), ("checker", 404), ("clerk", 200), ("boss", 200)] {
        assert_eq!(post.ask(token, Method::GET, &path, Value::Null).await.status, status, "{token}");
    }
    assert_eq!(post.ask("app", Method::GET, "/api/v1/messages", Value::Null).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_a_submission_chooses_are_bounded() {
    let post = Post::open(keys());
    // A key without a tenant chooses one.
    for tenant in ["t".repeat(1 << 18), "a b".to_owned(), "a/b".to_owned(), String::new()] {
        let mut body = message(&["b@there.example"]);
        body["tenant"] = json!(tenant);
        let refused = post.submit("boss", &[], body).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(
            refused.detail().contains("`tenant`") && refused.detail().len() < 200,
            "{}",
            refused.detail()
        );
    }
    let text = b"From: ada@acme.example\r\nTo: b@x.example\r\n\r\nx";
    for (token, query, why) in [("app", "account=a%2Fb", "`account`"), ("boss", "tenant=a%20b", "`tenant`")] {
        let raw = [("x-api-token", token), ("content-type", "message/rfc822")];
        let path = format!("/api/v1/messages?{query}");
        let refused = post.door.send(Method::POST, &path, &raw, text.to_vec()).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.detail().contains(why), "{why}: {}", refused.detail());
    }
    assert_eq!(post.relay.queue().len(), 0, "nothing was queued");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_message_goes_to_the_recipients_of_its_header_or_of_the_query() {
    let (post, sink) = (Post::open(keys()), Sink::start());
    let account = json!({ "host": "127.0.0.1", "port": sink.port(), "tls": "none" });
    post.ask("boss", Method::PUT, "/api/v1/accounts/acme/main", account).await;
    let raw = [("x-api-token", "app"), ("content-type", "message/rfc822"), ("idempotency-key", "k")];
    let text = b"From: Ada <ada@acme.example>\r\nTo: \"B, C\" <b@there.example>, d@there.example\r\nBcc: e@there.example\r\nMessage-ID: <m1@acme.example>\r\n\r\n.\r\nhi";
    let sent = post.door.send(Method::POST, "/api/v1/messages", &raw, text.to_vec()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let again = post.door.send(Method::POST, "/api/v1/messages", &raw, text.to_vec()).await;
    assert_eq!((again.status, &again.text), (202, &sent.text));
    let other = post.door.send(Method::POST, "/api/v1/messages", &raw, [&text[..], b"!"].concat()).await;
    assert_eq!(other.status, 422);
    post.until("the message arrives", || sink.count() == 1).await;
    let said = sink.messages()[0].recipients.clone();
    let mut recipients: Vec<&str> =
        said.iter().map(|one| one.trim_start_matches('<').split('>').next().unwrap()).collect();
    recipients.sort_unstable();
    assert_eq!(recipients, ["b@there.example", "d@there.example", "e@there.example"]);
    let found = post
        .ask("clerk", Method::GET, "/api/v1/messages?message_id=m1@acme.example", Value::Null)
        .await
        .json();
    assert_eq!(found["messages"][0]["message_id"], "<m1@acme.example>", "{found}");
    let raw = &raw[..2];
    let path = "/api/v1/messages?from=bounces@acme.example&to=x@there.example,y@there.example";
    assert_eq!(post.door.send(Method::POST, path, raw, text.to_vec()).await.status, 202);
    post.until("the second arrives", || sink.count() == 2).await;
    assert_eq!(sink.messages().iter().map(|message| message.recipients.len()).sum::<usize>(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_lane_waits_until_an_operator_resumes_it() {
    let (post, sink) = (Post::open(keys()), Sink::start());
    let account = json!({ "host": "127.0.0.1", "port": sink.port(), "tls": "none" });
    post.ask("boss", Method::PUT, "/api/v1/accounts/acme/main", account).await;
    let paused = post.ask("boss", Method::POST, "/api/v1/lanes/pause", json!({ "tenant": "acme" })).await;
    assert_eq!(paused.json(), json!({ "paused": true, "changed": true }), "{paused:?}");
    assert_eq!(post.submit("app", &[], message(&["b@there.example"])).await.status, 202);
    post.until("the message is in its lane", || post.relay.sender().lanes().iter().any(|lane| lane.held))
        .await;
    let lanes = post.ask("clerk", Method::GET, "/api/v1/lanes", Value::Null).await.json();
    assert_eq!((&lanes["lanes"][0]["held"], sink.count()), (&json!(true), 0), "{lanes}");
    let account = "/api/v1/accounts/acme/main/pause";
    assert_eq!(post.ask("boss", Method::POST, account, Value::Null).await.json()["changed"], true);
    assert_eq!(post.ask("boss", Method::POST, account, Value::Null).await.json()["changed"], false);
    let resumed = post.ask("boss", Method::POST, "/api/v1/lanes/resume", json!({ "tenant": "acme" })).await;
    assert_eq!(resumed.json(), json!({ "paused": false, "changed": true }));
    let shown = post.ask("clerk", Method::GET, "/api/v1/accounts/acme/main", Value::Null).await.json();
    assert_eq!(shown["paused"]["reason"], "an operator paused it", "{shown}");
    post.until("no account can be used", || {
        post.relay.sender().lanes().iter().any(|lane| lane.sleep.is_some())
    })
    .await;
    assert_eq!(sink.count(), 0);
    let resumed = post.ask("boss", Method::POST, "/api/v1/accounts/acme/main/resume", Value::Null).await;
    assert_eq!(resumed.json()["changed"], true);
    post.until("the message arrives", || sink.count() == 1).await;
    let unknown = post.ask("boss", Method::POST, "/api/v1/accounts/acme/nothing/pause", Value::Null).await;
    assert_eq!(unknown.status, 404);
    let wrong = post.ask("boss", Method::POST, "/api/v1/lanes/pause", json!({ "domain": "x.example" })).await;
    assert!(wrong.status == 400 && wrong.detail().contains("needs `tenant`"), "{wrong:?}");
    assert_eq!(post.ask("clerk", Method::POST, "/api/v1/lanes/pause", json!({})).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_tells_its_oldest_message_and_its_last_error() {
    let (post, sink) = (Post::open(keys()), Sink::start_with(&["-r", "rcpt"]));
    let account = json!({ "host": "127.0.0.1", "port": sink.port(), "tls": "none" });
    post.ask("boss", Method::PUT, "/api/v1/accounts/acme/main", account).await;
    assert_eq!(post.submit("app", &[], message(&["b@there.example"])).await.status, 202);
    let failed = || post.relay.sender().lanes().iter().any(|lane| lane.last_error.is_some());
    post.until("the server refuses for now", failed).await;
    post.door.advance(5);
    assert_eq!(post.submit("app", &[], message(&["c@there.example"])).await.status, 202);
    let both = || post.relay.sender().lanes().iter().any(|lane| lane.waiting == 2);
    post.until("both messages wait", both).await;
    let lanes = post.ask("clerk", Method::GET, "/api/v1/lanes", Value::Null).await.json();
    let lane = &lanes["lanes"][0];
    assert_eq!((&lane["domain"], &lane["waiting"]), (&json!("there.example"), &json!(2)), "{lanes}");
    assert_eq!(lane["oldest"], "2026-01-15T10:00:00Z");
    assert!(lane["last_error"].as_str().unwrap().contains("450"), "{lanes}");
    assert!(lane["next_due"].as_str().unwrap() > "2026-01-15T10:00:00Z", "{lanes}");
    assert_eq!(sink.count(), 0);
}

#[tokio::test]
async fn without_a_relay_its_paths_say_what_is_missing() {
    let door = Door::open();
    for path in ["/api/v1/accounts", "/api/v1/messages", "/api/v1/lanes", "/messages"] {
        let refused = door.get(path).await;
        assert!(refused.status == 404 && refused.detail().contains("no mail relay"), "{path}: {refused:?}");
    }
}
