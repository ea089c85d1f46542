//! What the console uses: sessions, the status and its stream, keys, rules, and changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::door::{self, Door, Reply, StoreKind};
use axum::body::Body;
use axum::http::{Method, Request};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tollgate_core::rows::RowCount;
use tollgate_core::{Policies, Policy, Rule, Span};
use tollgate_doors::ForwardAuthSettings;
use tollgate_web::TrustedProxies;
use tower::ServiceExt;

const READER: &[(&str, &str)] = &[("x-api-key", "reader")];
const BOSS: &[(&str, &str)] = &[("x-api-key", "boss")];
const HERE: (&str, &str) = ("sec-fetch-site", "same-origin");

async fn send(door: &Door, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
    door.send(method, path, headers, Vec::new()).await
}

/// Signs in, and returns the cookie as a browser sends it.
async fn sign_in(door: &Door, headers: &[(&str, &str)]) -> String {
    let reply = send(door, Method::POST, "/api/v1/session", headers).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_has_the_role_of_its_key_and_ends_after_twelve_hours() {
    let door = Door::guarded();
    let reply = send(&door, Method::POST, "/api/v1/session", READER).await;
    let session = json!({
        "key": "reader", "role": "read", "tenant": null, "until": "2026-01-15T22:00:00Z", "relay": false,
        "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(reply.json(), session);
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.starts_with("tollgate_session="), "{cookie}");
    assert!(cookie.ends_with("; Max-Age=43200; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = sign_in(&door, READER).await;
    let asks = [("cookie", &*cookie), HERE];
    assert_eq!(send(&door, Method::GET, "/api/v1/session", &asks).await.json()["key"], "reader");
    assert_eq!(send(&door, Method::GET, "/api/v1/top", &asks).await.status, 200);
    assert_eq!(send(&door, Method::DELETE, "/api/v1/counters", &asks).await.status, 403, "it may only read");
    let renewed = send(&door, Method::POST, "/api/v1/session", &asks).await;
    assert_eq!(renewed.status, 401, "a session cannot prolong itself");
    let among = [("cookie", &*format!("theme=dark; {cookie}; x=y")), HERE];
    assert_eq!(send(&door, Method::GET, "/api/v1/top", &among).await.status, 200);
    door.advance(12 * 3_600 - 1);
    assert_eq!(send(&door, Method::GET, "/api/v1/top", &asks).await.status, 200);
    door.advance(1);
    let ended = send(&door, Method::GET, "/api/v1/top", &asks).await;
    assert_eq!((ended.status, &*ended.detail()), (401, "the session has ended: sign in again"));
    assert_eq!(ended.json()["type"], "/problems/session-ended");
}

#[tokio::test]
async fn only_a_key_that_may_read_signs_in_and_its_removal_ends_the_session() {
    let door = Door::guarded();
    let checker = [("x-api-key", "checker")];
    assert_eq!(send(&door, Method::POST, "/api/v1/session", &checker).await.status, 403);
    assert_eq!(send(&door, Method::POST, "/api/v1/session", &[]).await.status, 401);
    let cookie = sign_in(&door, BOSS).await;
    let asks = [("cookie", &*cookie), HERE];
    assert_eq!(send(&door, Method::DELETE, "/api/v1/counters", &asks).await.status, 200);
    // A forged or foreign text is no session, and a receipt is none either.
    let allowed = door.send(Method::POST, "/api/v1/check", BOSS, attempt("a")).await.json();
    let receipt = format!("tollgate_session={}", allowed["receipt"].as_str().unwrap());
    for wrong in ["tollgate_session=", "tollgate_session=AAAA", &*receipt, &cookie[..cookie.len() - 2]] {
        let reply = send(&door, Method::GET, "/api/v1/top", &[("cookie", wrong), HERE]).await;
        assert_eq!(reply.status, 401, "{wrong}");
    }
    // A token in a header counts, whatever the cookie.
    let both = [("cookie", "tollgate_session=AAAA"), ("x-api-key", "reader")];
    assert_eq!(send(&door, Method::GET, "/api/v1/top", &both).await.status, 200);
    door.keys.replace(vec![tollgate_doors::AccessKey {
        name: "boss".into(),
        role: tollgate_doors::Role::Admin,
        hash: [7; 32],
        tenant: None,
    }]);
    assert_eq!(send(&door, Method::GET, "/api/v1/top", &asks).await.status, 401);
}

fn attempt(sender: &str) -> Vec<u8> {
    json!({ "policy": "mail.accept", "fields": { "sender": format!("{sender}@example.com") } })
        .to_string()
        .into()
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_a_session() {
    let door = Door::guarded();
    let cookie = sign_in(&door, BOSS).await;
    let host = ("host", "limits.example:8080");
    type Try<'t> = (&'t [(&'t str, &'t str)], bool, bool);
    let tries: [Try<'_>; 9] = [
        (&[host, HERE], true, true),
        (&[host, ("sec-fetch-site", "none")], true, false),
        (&[host, ("sec-fetch-site", "same-site")], false, false),
        (&[host, ("sec-fetch-site", "cross-site")], false, false),
        (&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://limits.example:8080")], false, false),
        // Browsers state the site only over TLS and on loopback.
        (&[host, ("origin", "http://limits.example:8080")], true, true),
        (&[host, ("origin", "http://evil.example")], false, false),
        (&[host, ("origin", "null")], false, false),
        (&[host], true, false),
    ];
    for (headers, looks, changes) in tries {
        let headers: Vec<_> = headers.iter().copied().chain([("cookie", &*cookie)]).collect();
        let status = |allowed| if allowed { 200 } else { 403 };
        assert_eq!(
            send(&door, Method::GET, "/api/v1/top", &headers).await.status,
            status(looks),
            "{headers:?}"
        );
        let deleted = send(&door, Method::DELETE, "/api/v1/counters", &headers).await;
        assert_eq!(deleted.status, status(changes), "{headers:?}");
    }
}

#[tokio::test]
async fn the_cookie_is_secure_over_tls_and_signing_out_deletes_it() {
    let door = Door::guarded();
    for said in [("origin", "https://limits.example"), ("x-forwarded-proto", "https")] {
        let reply = send(&door, Method::POST, "/api/v1/session", &[READER[0], said]).await;
        assert!(reply.header("set-cookie").unwrap().ends_with("; Secure"), "{said:?}");
    }
    let cookie = sign_in(&door, READER).await;
    let reply = send(&door, Method::DELETE, "/api/v1/session", &[("cookie", &cookie), HERE]).await;
    assert_eq!(reply.json(), json!({ "signed_out": true }));
    let deletes = "tollgate_session=; Max-Age=0; HttpOnly; SameSite=Strict";
    assert_eq!(reply.header("set-cookie"), Some(deletes));
    // A server without keys needs no session.
    let open = Door::open();
    let reply = send(&open, Method::POST, "/api/v1/session", &[]).await;
    assert_eq!((reply.json()["role"].as_str(), reply.header("set-cookie")), (Some("admin"), None));
}

async fn checks(door: &Door, policy: &str, field: (&str, &str), times: usize) {
    for _ in 0..times {
        door.check(policy, json!({ (field.0): field.1 })).await;
    }
}

#[tokio::test]
async fn the_status_has_rates_by_policy_and_the_history_every_second() {
    let door = Door::open();
    door.live.tick();
    checks(&door, "mail.accept", ("sender", "a@example.com"), 5).await;
    checks(&door, "shadow", ("ip", "192.0.2.9"), 3).await;
    door.advance(1);
    door.live.tick();
    let status = door.get("/api/v1/status").await.json();
    let quiet = json!({ "allow": 0, "blocked": 0, "deny": 0, "wait": 0, "defer": 0, "observe": 0 });
    let with = |changes: Value| {
        let mut all = quiet.clone();
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        all
    };
    let (accept, shadow) =
        (with(json!({ "allow": 3, "deny": 2 })), with(json!({ "allow": 3, "observe": 2 })));
    let policies = json!([
        { "policy": "mail.accept", "waiting": 0, "second": accept, "minute": accept },
        { "policy": "shadow", "waiting": 0, "second": shadow, "minute": shadow },
    ]);
    assert_eq!(status["policies"], policies);
    assert_eq!(status["store"], json!({ "shared": false, "state": "up", "reason": null, "cause": null }));
    assert_eq!(status["offenders"][0]["key"], "a@example.com");
    door.advance(2);
    door.live.tick();
    let history = door.get("/api/v1/status/history").await.json();
    assert_eq!(history["at"], "2026-01-15T10:00:03Z");
    let accept = json!({ "policy": "mail.accept", "outcomes": { "allow": [3, 0, 0], "deny": [2, 0, 0] } });
    assert_eq!(history["policies"][0], accept);
    let status = door.get("/api/v1/status").await.json();
    assert_eq!(status["policies"][0]["second"], quiet);
    assert_eq!(status["policies"][0]["minute"]["deny"], 2);
}

/// The events of a stream, as they come.
async fn stream(door: &Door) -> impl StreamExt<Item = String> + Unpin {
    let request = Request::get("/api/v1/status/stream").body(Body::empty()).unwrap();
    let response = door.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let pieces = response.into_body().into_data_stream();
    Box::pin(pieces.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap()))
}

fn told(event: &str) -> Value {
    let json = event.split_once("event: status\ndata: ").unwrap().1;
    serde_json::from_str(json.strip_suffix("\n\n").unwrap()).unwrap()
}

#[tokio::test]
async fn every_page_gets_the_same_event_each_second_until_the_server_ends() {
    let door = Door::open();
    let (mut one, mut two) = (stream(&door).await, stream(&door).await);
    assert_eq!(told(&one.next().await.unwrap())["at"], "2026-01-15T10:00:00Z");
    two.next().await.unwrap();
    door.advance(1);
    door.live.tick();
    let event = one.next().await.unwrap();
    assert_eq!(told(&event)["at"], "2026-01-15T10:00:01Z");
    assert_eq!(told(&event)["pages"], 2);
    assert_eq!(two.next().await.unwrap(), event);
    // A slow reader misses events, and delays no other reader.
    for _ in 0..10 {
        door.advance(1);
        door.live.tick();
    }
    assert_eq!(told(&one.next().await.unwrap())["at"], "2026-01-15T10:00:11Z");
    door.live.end();
    assert_eq!((one.next().await, two.next().await), (None, None));
}

#[tokio::test]
async fn a_stream_ends_after_ten_minutes_and_when_the_keys_change() {
    let door = Door::open();
    let mut page = stream(&door).await;
    let mut events = 0;
    while page.next().await.is_some() {
        events += 1;
        door.advance(1);
        door.live.tick();
    }
    assert_eq!(events, 601);
    let guarded = Door::guarded();
    let request = Request::get("/api/v1/status/stream").header("x-api-key", "reader").body(Body::empty());
    let response = guarded.router.clone().oneshot(request.unwrap()).await.unwrap();
    let mut page = response.into_body().into_data_stream();
    assert!(page.next().await.is_some());
    guarded.keys.replace(Vec::new());
    guarded.live.tick();
    assert!(page.next().await.is_none());
}

#[tokio::test]
async fn a_stream_ends_with_its_session() {
    let door = Door::guarded();
    let cookie = sign_in(&door, READER).await;
    let request = Request::get("/api/v1/status/stream").header("cookie", cookie).header(HERE.0, HERE.1);
    let response = door.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut page = response.into_body().into_data_stream();
    assert!(page.next().await.is_some());
    door.advance(12 * 3_600 - 1);
    door.live.tick();
    assert!(page.next().await.is_some(), "the session lasts another second");
    door.advance(1);
    door.live.tick();
    assert!(page.next().await.is_none());
}

#[tokio::test]
async fn a_page_can_ask_for_only_the_seconds_it_missed() {
    let door = Door::open();
    door.live.tick();
    for times in [3, 0, 2, 1] {
        checks(&door, "shadow", ("ip", "192.0.2.9"), times).await;
        door.advance(1);
        door.live.tick();
    }
    let latest = door.get("/api/v1/status/history?seconds=2").await.json();
    assert_eq!(latest["at"], "2026-01-15T10:00:04Z");
    assert_eq!(latest["policies"][0]["outcomes"]["allow"], json!([2, 1]));
    let all = door.get("/api/v1/status/history?seconds=900").await.json();
    assert_eq!(all, door.get("/api/v1/status/history").await.json());
    for wrong in ["0", "901", "-1", "all"] {
        let refused = door.get(&format!("/api/v1/status/history?seconds={wrong}")).await;
        assert_eq!((refused.status, &*refused.detail()), (400, "`seconds` is a number from 1 to 900"));
    }
}

#[tokio::test]
async fn a_node_serves_at_most_256_status_streams() {
    let door = Door::open();
    let mut pages = Vec::new();
    for _ in 0..256 {
        pages.push(stream(&door).await);
    }
    let refused = door.get("/api/v1/status/stream").await;
    assert_eq!(refused.status, 503);
    assert!(refused.detail().contains("ask for /api/v1/status every few seconds"), "{refused:?}");
    pages.pop();
    let _again = stream(&door).await;
}

#[tokio::test]
async fn a_key_is_shown_at_every_rule_that_it_fits() {
    let door = Door::open();
    checks(&door, "mail.accept", ("sender", "a@example.com"), 2).await;
    checks(&door, "shadow", ("ip", "192.0.2.9"), 2).await;
    let of = |body: &Value, member: &str| -> Vec<Value> {
        body["rules"].as_array().unwrap().iter().map(|rule| rule[member].clone()).collect()
    };
    let address = door.get("/api/v1/keys/192.0.2.9").await.json();
    let rules = of(&address, "rule");
    assert!(rules.contains(&json!("ip")) && rules.contains(&json!("shadow")), "{rules:?}");
    assert!(!rules.contains(&json!("orders")), "a key of two fields is another kind of key");
    let shadow = address["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == "shadow").unwrap();
    assert_eq!(shadow["on_exceed"], "observe");
    assert_eq!(shadow["fields"], json!({ "ip": "192.0.2.9" }));
    assert_eq!(shadow["limits"][0]["used"], 1);
    let pair = door.get("/api/v1/keys/checkout,192.0.2.9").await.json();
    assert!(of(&pair, "fields").contains(&json!({ "route": "checkout", "ip": "192.0.2.9" })), "{pair}");
    // A secret key is shown as its pseudonym, and its fields are not.
    let secret = address["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == "api_key").unwrap();
    assert!(secret["key"].as_str().unwrap().starts_with('#'));
    assert_eq!(secret["fields"], json!({}));
    let slashes = door.get("/api/v1/keys/a%2Fb/c%20d").await.json();
    assert!(of(&slashes, "key").contains(&json!("a/b/c d")), "{slashes}");
    let down = Door::with(door::policies(), Vec::new(), StoreKind::Gone);
    assert_eq!(down.get("/api/v1/keys/192.0.2.9").await.status, 503);
}

/// What operators see of a secret key.
async fn pseudonym_of(door: &Door, key: &str) -> String {
    let shown = door.get(&format!("/api/v1/counters/api_key/{key}")).await.json();
    shown["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_pseudonym_is_never_taken_for_a_key() {
    let door = Door::open();
    checks(&door, "mail.accept", ("api_key", "hidden-silver"), 3).await;
    let used = async |key: &str| {
        let shown = door.get(&format!("/api/v1/counters/api_key/{key}")).await.json();
        shown["limits"][0]["used"].as_u64()
    };
    let pseudonym = pseudonym_of(&door, "hidden-silver").await;
    let path = format!("/api/v1/counters/api_key/{}", pseudonym.replace('#', "%23"));
    let limits = json!({ "limits": "7/hour" }).to_string().into_bytes();
    for (method, path, body) in [
        (Method::GET, path.clone(), Vec::new()),
        (Method::PUT, path.clone(), limits),
        (Method::DELETE, path.clone(), Vec::new()),
        (Method::DELETE, format!("{path}/override"), Vec::new()),
    ] {
        let refused = door.send(method, &path, &[], body).await;
        let why =
            format!("`{pseudonym}` is the pseudonym of a secret key of rule `api_key`: give the key itself");
        assert_eq!((refused.status, refused.detail()), (400, why));
    }
    assert_eq!(used("hidden-silver").await, Some(3));
    assert_eq!(door.get("/api/v1/changes").await.json()["changes"], json!([]), "nothing was changed");
    // The whole key works, and a text that is no pseudonym is a key.
    assert_eq!(door.delete("/api/v1/counters/api_key/hidden-silver").await.status, 200);
    assert_eq!(used("hidden-silver").await, Some(0));
    assert_eq!(used("%23not-a-pseudonym").await, Some(0));
    // A rule without secrets takes any key.
    assert_eq!(door.get(&path.replace("api_key", "jobs")).await.status, 200);
}

#[tokio::test]
async fn the_pseudonym_of_a_key_with_limits_of_its_own_stands_for_that_key() {
    let door = Door::open();
    checks(&door, "mail.accept", ("api_key", "hidden-gold"), 3).await;
    let pseudonym = pseudonym_of(&door, "hidden-gold").await.replace('#', "%23");
    let path = format!("/api/v1/counters/api_key/{pseudonym}");
    let shown = door.get(&path).await.json();
    assert_eq!((&shown["limits"][0]["limit"], &shown["limits"][0]["used"]), (&json!("9000/hour"), &json!(3)));
    door.delete(&path).await;
    let shown = door.get("/api/v1/counters/api_key/hidden-gold").await.json();
    assert_eq!(shown["limits"][0]["used"], 0);
    door.put("/api/v1/counters/api_key/hidden-silver", json!({ "limits": "7/hour" })).await;
    let silver = pseudonym_of(&door, "hidden-silver").await.replace('#', "%23");
    let removed = door.delete(&format!("/api/v1/counters/api_key/{silver}/override")).await;
    assert_eq!(removed.json(), json!({ "removed": true }));
    assert_eq!(door.get(&format!("/api/v1/counters/api_key/{silver}")).await.status, 400);
}

#[tokio::test]
async fn a_pseudonym_is_recognised_as_one() {
    let door = Door::open();
    checks(&door, "mail.accept", ("api_key", "hidden-silver"), 3).await;
    let of = |body: &Value, rule: &str| {
        body["rules"].as_array().unwrap().iter().find(|one| one["rule"] == rule).cloned()
    };
    let known = door.get("/api/v1/keys/hidden-silver").await.json();
    assert_eq!(known["pseudonym"], false);
    let secret = of(&known, "api_key").unwrap();
    assert_eq!((&secret["secret"], &secret["limits"][0]["used"]), (&json!(true), &json!(3)));
    assert_eq!(of(&known, "jobs").unwrap()["secret"], false);
    let pseudonym = secret["key"].as_str().unwrap().replace('#', "%23");
    let shown = door.get(&format!("/api/v1/keys/{pseudonym}")).await.json();
    assert_eq!(shown["pseudonym"], true);
    assert_eq!(of(&shown, "api_key"), None, "its counts are not known by it");
    assert!(of(&shown, "jobs").is_some(), "it may be a key of another rule");
}

#[tokio::test]
async fn the_configuration_of_a_rule_is_complete() {
    let (database, query) = ("shop".into(), "SELECT count(*) FROM deals WHERE advertiser = $1".into());
    let rows = RowCount { database, query, timeout: Span::from_millis(250), cache: Span::from_secs(1) };
    let mut deals = door::rule("deals", &["advertiser"], &["10 at once for 30s"]);
    deals.rows = Some(rows.into());
    let mut hidden = door::rule("hidden", &["token"], &["9/hour"]);
    hidden.secret = true;
    let rules: Vec<Arc<Rule>> = vec![deals.into(), hidden.into()];
    let policy = Policy::new("deals".into(), rules.clone(), false);
    let door = Door::with(Policies::new(true, rules, vec![policy]), Vec::new(), StoreKind::Memory);
    let shown = door.get("/api/v1/counters").await.json();
    let expected = json!({
        "in": "shop", "query": "SELECT count(*) FROM deals WHERE advertiser = $1", "at_most": 10,
        "reserve": "30s", "cache": "1s", "timeout": "250ms",
    });
    assert_eq!(shown["rules"]["deals"]["count_rows"], expected);
    assert_eq!(shown["rules"]["deals"]["secret"], false);
    assert_eq!(
        (&shown["rules"]["hidden"]["secret"], &shown["rules"]["hidden"]["count_rows"]),
        (&json!(true), &Value::Null)
    );
}

#[tokio::test]
async fn each_of_many_policies_has_its_own_pressure() {
    let rule = |number: usize| Arc::new(door::rule(&format!("r{number:02}"), &["user"], &["1/hour"]));
    let rules: Vec<Arc<Rule>> = (0..60).map(rule).collect();
    let policy =
        |rule: &Arc<Rule>| Policy::new(format!("of-{}", rule.name).into(), vec![Arc::clone(rule)], false);
    let policies = Policies::new(true, rules.clone(), rules.iter().map(policy).collect());
    let door = Door::with(policies, Vec::new(), StoreKind::Memory);
    door.live.tick();
    for rule in &rules {
        checks(&door, &format!("of-{}", rule.name), ("user", "ada"), 4).await;
    }
    door.advance(1);
    door.live.tick();
    let shown = door.get("/api/v1/rules").await.json();
    let shown = shown["rules"].as_array().unwrap();
    assert_eq!(shown.len(), 60);
    for rule in shown {
        let figures = (&rule["attempts"], &rule["recent"]["deny"], &rule["pressure"]);
        assert_eq!(figures, (&json!(4), &json!(3), &json!(0.75)), "{rule}");
    }
}

#[tokio::test]
async fn rules_show_their_share_of_denied_attempts() {
    let door = Door::open();
    door.live.tick();
    checks(&door, "mail.accept", ("sender", "a@example.com"), 8).await;
    checks(&door, "shadow", ("ip", "192.0.2.9"), 4).await;
    door.advance(1);
    door.live.tick();
    let shown = door.get("/api/v1/rules").await.json();
    let rule = |name: &str| {
        let rules = shown["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["rule"] == name).unwrap_or_else(|| panic!("{name} in {shown}")).clone()
    };
    let sender = rule("sender");
    assert_eq!(sender["recent"], json!({ "deny": 5, "wait": 0, "defer": 0, "observe": 0 }));
    assert_eq!((&sender["attempts"], &sender["pressure"]), (&json!(8), &json!(0.625)));
    assert_eq!(sender["last_denied"], "2026-01-15T10:00:01Z");
    assert_eq!(sender["policies"], json!(["mail.accept"]));
    let shadow = rule("shadow");
    assert_eq!((&shadow["observed"], &shadow["recent"]["observe"]), (&json!(true), &json!(3)));
    assert_eq!(shadow["last_observed"], "2026-01-15T10:00:01Z");
    assert_eq!(rule("ip")["attempts"], 12, "it is in two policies");
    assert_eq!(rule("global")["used"], 3.0 / 50_000.0);
    assert_eq!(rule("sender")["used"], Value::Null);
    // After fifteen minutes nothing of it is recent.
    door.advance(16 * 60);
    door.live.tick();
    let later = door.get("/api/v1/rules").await.json();
    assert!(later["rules"].as_array().unwrap().iter().all(|rule| rule["pressure"] == 0.0));
}

#[tokio::test]
async fn changes_are_kept_with_their_author_and_time() {
    let door = Door::guarded();
    let limits = json!({ "limits": "7/hour" }).to_string().into_bytes();
    door.send(Method::PUT, "/api/v1/counters/sender/a@example.com", BOSS, limits).await;
    door.advance(60);
    send(&door, Method::DELETE, "/api/v1/counters/sender/a@example.com/override", BOSS).await;
    send(&door, Method::DELETE, "/api/v1/counters/sender/a@example.com/override", BOSS).await;
    let changes = send(&door, Method::GET, "/api/v1/changes", READER).await.json();
    let what = "sender/a@example.com";
    let expected = json!({ "changes": [
        { "at": "2026-01-15T10:01:00Z", "actor": "boss", "action": "override.remove", "what": what, "before": "7/hour", "after": null },
        { "at": "2026-01-15T10:00:00Z", "actor": "boss", "action": "override.set", "what": what, "before": null, "after": "7/hour" },
    ] });
    assert_eq!(changes, expected);
    let one = send(&door, Method::GET, "/api/v1/changes?limit=1", READER).await.json();
    assert_eq!(one["changes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_address_that_keeps_sending_wrong_tokens_at_sign_in_waits_and_no_other_does() {
    let door = Door::guarded();
    door.forward_auth.replace(ForwardAuthSettings {
        trusted_proxies: TrustedProxies::new(
            vec!["192.0.2.0/24".parse().unwrap()],
            "x-forwarded-for".parse().unwrap(),
        ),
        ..ForwardAuthSettings::default()
    });
    let ask = async |method: Method, path: &str, client: &str, token: &str| {
        send(&door, method, path, &[("x-forwarded-for", client), ("x-api-key", token)]).await
    };
    let session = "/api/v1/session";
    for _ in 0..5 {
        assert_eq!(ask(Method::POST, session, "203.0.113.1", "wrong").await.status, 401);
    }
    for (method, token) in [(Method::POST, "wrong"), (Method::POST, "boss"), (Method::GET, "boss")] {
        let refused = ask(method, session, "203.0.113.1", token).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("10")), "{refused:?}");
        assert_eq!(refused.json()["type"], "/problems/too-many-wrong-tokens");
    }
    assert_eq!(ask(Method::POST, session, "203.0.113.2", "boss").await.status, 200, "another address");
    for _ in 0..20 {
        assert_eq!(ask(Method::GET, "/api/v1/top", "203.0.113.2", "wrong").await.status, 401);
    }
    assert_eq!(ask(Method::POST, session, "203.0.113.2", "boss").await.status, 200, "only sign-ins count");
    assert_eq!(ask(Method::GET, "/api/v1/top", "203.0.113.1", "boss").await.status, 200, "not a sign-in");
    door.advance(10);
    assert_eq!(ask(Method::POST, session, "203.0.113.1", "wrong").await.status, 401, "one more try");
    assert_eq!(ask(Method::POST, session, "203.0.113.1", "boss").await.status, 429);
    door.advance(10);
    assert_eq!(ask(Method::POST, session, "203.0.113.1", "boss").await.status, 200);
}
