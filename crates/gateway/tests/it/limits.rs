//! Limits at the gateway: what is counted, what the response says, and what is never forwarded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{
    self,
    rules::{alone, rule, together},
};
use crate::support::{Client, Stage, Upstream, route, settings, until};
use sha2::{Digest, Sha256};
use tollgate_core::{Policies, Rule, Span};
use tollgate_gateway::Settings;
use tollgate_gateway::settings::RouteSettings;
use tollgate_store::SystemClock;
use tollgate_web::identity::{ApiKey, ApiKeys, TokenKey, TokenSettings, Tokens};
use tollgate_web::{AnswerSettings, Answers, Credentials, Statuses, TrustedProxies};

/// The route `all` under this policy.
fn under(upstream: &Upstream, policy: &str) -> Settings {
    let mut settings = settings(upstream.address);
    settings.routes[0].policy = Some(policy.into());
    settings
}

async fn stage(upstream: &Upstream, policy: &str, policies: Policies) -> Stage {
    Stage::with_policies(under(upstream, policy), policies).await
}

#[tokio::test]
async fn a_request_within_the_limit_passes_and_shows_the_remainder() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX-RateLimit-Limit: 7\r\nx-ratelimit-reset: 1\r\nX-RateLimit-Other: 5\r\n\r\nx",
    )
    .await;
    let stage = stage(&upstream, "ip", alone(vec![rule("ip", &["ip"], &["10/min burst 3"])])).await;
    let mut client = stage.client().await;
    for left in ["2", "1", "0"] {
        let reply = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("10"), "ours, not the upstream's");
        assert_eq!(reply.header("x-ratelimit-burst"), Some("3"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(reply.header("x-ratelimit-type"), Some("ip"));
        assert_eq!(reply.header("x-ratelimit-other"), Some("5"));
    }
    let reply = client.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Correlation-ID: abc-123\r\n\r\n").await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("retry-after"), Some("6"));
    assert_eq!((reply.header("retry-after-ms"), reply.header("x-should-retry")), (Some("6000"), None));
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.header("x-correlation-id"), Some("abc-123"));
    assert!(reply.text().contains(r#""correlationId":"abc-123""#), "{}", reply.text());
    assert_eq!(upstream.requests().len(), 3, "what is refused is not passed on");
    stage.clock.advance(Span::from_secs(6));
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    assert_eq!(stage.metric("tollgate_gateway_requests_total{route=\"all\",status=\"429\"}"), 1.0);
}

#[tokio::test]
async fn a_route_without_policy_is_untouched() {
    let upstream = Upstream::saying("x").await;
    let mut settings = under(&upstream, "ip");
    settings.routes.push(route("free", "/free"));
    let stage = Stage::with_policies(settings, alone(vec![rule("ip", &["ip"], &["1/hour"])])).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    assert_eq!(stage.fetch("/").await.status, 429);
    for _ in 0..3 {
        let reply = stage.fetch("/free").await;
        assert_eq!(reply.status, 200);
        assert!(!reply.head.to_ascii_lowercase().contains("ratelimit"), "{}", reply.head);
    }
}

#[tokio::test]
async fn all_rules_are_charged_or_none() {
    let upstream = Upstream::saying("x").await;
    let rules = vec![rule("all", &[], &["3/hour"]), rule("user", &["header.x-user"], &["1/hour"])];
    let stage = stage(&upstream, "both", together("both", rules)).await;
    let ask = |user: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n");
    assert_eq!(stage.ask(ask("ann")).await.status, 200);
    for _ in 0..5 {
        let reply = stage.ask(ask("ann")).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-type")), (429, Some("user")));
    }
    assert_eq!(stage.ask(ask("bob")).await.status, 200);
    assert_eq!(stage.ask(ask("cid")).await.status, 200, "refused requests did not use up what all share");
    let reply = stage.ask(ask("dan")).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-type")), (429, Some("all")));
}

#[tokio::test]
async fn each_part_of_a_request_can_be_counted_by() {
    let upstream = Upstream::saying("x").await;
    for (field, same, other) in [
        ("method", "GET /a HTTP/1.1\r\nHost: a", "PUT /a HTTP/1.1\r\nHost: a"),
        ("path", "GET /a?x HTTP/1.1\r\nHost: a", "GET /b HTTP/1.1\r\nHost: a"),
        ("host", "GET /a HTTP/1.1\r\nHost: A:80", "GET /a HTTP/1.1\r\nHost: b"),
        ("header.x-k", "GET /a HTTP/1.1\r\nHost: a\r\nX-K: 1", "GET /a HTTP/1.1\r\nHost: a\r\nX-K: 2"),
        (
            "cookie.k",
            "GET /a HTTP/1.1\r\nHost: a\r\nCookie: k=1",
            "GET /a HTTP/1.1\r\nHost: a\r\nCookie: k=2",
        ),
        ("query.k", "GET /a?k=1 HTTP/1.1\r\nHost: a", "GET /a?k=2 HTTP/1.1\r\nHost: a"),
    ] {
        let stage = stage(&upstream, "p", alone(vec![rule("p", &[field], &["1/hour"])])).await;
        assert_eq!(stage.ask(format!("{same}\r\n\r\n")).await.status, 200, "{field}");
        assert_eq!(stage.ask(format!("{same}\r\n\r\n")).await.status, 429, "{field}");
        assert_eq!(stage.ask(format!("{other}\r\n\r\n")).await.status, 200, "{field}");
    }
}

#[tokio::test]
async fn a_path_cannot_be_spelt_past_its_limit() {
    let upstream = Upstream::saying("x").await;
    let stage = stage(&upstream, "p", alone(vec![rule("p", &["path"], &["1/hour"])])).await;
    assert_eq!(stage.fetch("/login").await.status, 200);
    for spelling in ["//login", "/./login", "/x/../login", "/%6cogin", "/%6Cogin?x=1", "/login?"] {
        assert_eq!(stage.fetch(spelling).await.status, 429, "{spelling}");
    }
}

#[tokio::test]
async fn a_spoofed_address_counts_for_nothing_unless_a_proxy_says_it() {
    let upstream = Upstream::saying("x").await;
    let policies = || alone(vec![rule("ip", &["ip"], &["1/hour"])]);
    let ask = |address: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n");
    let stage = stage(&upstream, "ip", policies()).await;
    assert_eq!(stage.ask(ask("192.0.2.1")).await.status, 200);
    assert_eq!(stage.ask(ask("192.0.2.2")).await.status, 429);
    let mut trusting = under(&upstream, "ip");
    trusting.trusted_proxies =
        TrustedProxies::new(vec!["127.0.0.0/8".parse().unwrap()], "x-forwarded-for".parse().unwrap());
    let stage = Stage::with_policies(trusting, policies()).await;
    assert_eq!(stage.ask(ask("192.0.2.1")).await.status, 200);
    assert_eq!(stage.ask(ask("192.0.2.2")).await.status, 200);
    assert_eq!(stage.ask(ask("198.51.100.7, 192.0.2.2")).await.status, 429, "the nearest hop is believed");
}

#[tokio::test]
async fn a_request_without_needed_credentials_gets_401() {
    let upstream = Upstream::saying("x").await;
    let mut known = under(&upstream, "consumer");
    let key =
        ApiKey { name: "ann's".into(), consumer: Some("ann".into()), hash: Sha256::digest("secret").into() };
    let keys = ApiKeys::new("x-api-key".parse().unwrap(), vec![key]).unwrap();
    known.credentials = Arc::new(Credentials::new(Some(keys), None));
    known.routes.push(RouteSettings { policy: Some("ip".into()), ..route("open", "/open") });
    let rules = vec![rule("consumer", &["consumer"], &["1/hour"]), rule("ip", &["ip"], &["100/hour"])];
    let stage = Stage::with_policies(known, alone(rules)).await;
    let ask = |path: &str, key: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{key}\r\n");
    assert_eq!(stage.ask(ask("/", "X-API-Key: secret\r\n")).await.status, 200);
    let reply = stage.ask(ask("/", "X-API-Key: secret\r\n")).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-type")), (429, Some("consumer")));
    let reply = stage.ask(ask("/", "")).await;
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, None), "{}", reply.text());
    assert_eq!(stage.ask(ask("/", "X-API-Key: guess\r\n")).await.status, 401);
    let reply = stage.ask(ask("/open", "X-API-Key: guess\r\n")).await;
    assert_eq!(reply.status, 200, "a route whose rules need no identity checks no API key");

    let keys = vec![TokenKey::Secret(vec![7; 32])];
    let tokens = TokenSettings { keys, ..TokenSettings::default() };
    let tokens = Tokens::new(tokens, Arc::new(SystemClock::new())).unwrap();
    let mut settings = stage.gateway.settings();
    settings.credentials = Arc::new(Credentials::new(None, Some(tokens)));
    stage.gateway.replace(settings).unwrap();
    until("tokens are accepted", || stage.gateway.settings().credentials.takes_tokens()).await;
    let reply = stage.ask(ask("/", "")).await;
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")), "{}", reply.text());
}

#[tokio::test]
async fn a_request_without_the_counted_field_is_a_400() {
    let upstream = Upstream::saying("x").await;
    let stage = stage(&upstream, "p", alone(vec![rule("p", &["header.x-tenant"], &["1/hour"])])).await;
    assert_eq!(stage.fetch("/").await.status, 400);
    let twice = "GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: a\r\nX-Tenant: b\r\n\r\n";
    assert_eq!(stage.ask(twice).await.status, 400);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn an_unknown_policy_lets_no_request_through() {
    let upstream = Upstream::saying("x").await;
    let stage = stage(&upstream, "gone", alone(vec![])).await;
    assert_eq!(stage.fetch("/").await.status, 500);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body_and_reads_past_a_short_one() {
    let upstream = Upstream::saying("x").await;
    let stage = stage(&upstream, "ip", alone(vec![rule("ip", &["ip"], &["1/hour"])])).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let mut client = stage.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 429, "nothing of the body has come");
    let reply = client.ask("helloGET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(reply.status, 429, "and the connection can be used again");

    let mut client = stage.client().await;
    let reply = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nhello").await;
    assert_eq!((reply.status, reply.header("connection")), (429, Some("close")));
    assert!(client.is_closed().await);

    let mut client = stage.client().await;
    let reply =
        client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("connection")), (429, Some("close")), "no leave to send it");
    assert!(client.is_closed().await);
}

/// Answers with the status in the path.
async fn by_path() -> Upstream {
    Upstream::start(|mut line| async move {
        while let Some(seen) = line.request().await {
            let status = seen.line().split(['/', ' ']).nth(2).unwrap().to_owned();
            if status == "cut" {
                return;
            }
            line.send(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")).await;
        }
    })
    .await
}

#[tokio::test]
async fn only_answers_that_count_are_counted() {
    let upstream = by_path().await;
    let logins = Rule {
        count_when: Some("[401, 403]".parse::<Statuses>().unwrap().classes()),
        ..rule("login", &["ip"], &["2/hour"])
    };
    let stage = stage(&upstream, "login", alone(vec![logins])).await;
    let mut client = stage.client().await;
    let ask = async |client: &mut Client, path: &str| {
        client.ask(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")).await.status
    };
    for _ in 0..5 {
        assert_eq!(ask(&mut client, "/200").await, 200);
        assert_eq!(ask(&mut client, "/500").await, 500);
        assert_eq!(ask(&mut client, "/cut").await, 502, "our own answers count or not as others do");
    }
    assert_eq!(ask(&mut client, "/401").await, 401);
    assert_eq!(ask(&mut client, "/403").await, 403);
    assert_eq!(ask(&mut client, "/200").await, 429);
}

#[tokio::test]
async fn a_disconnect_before_the_response_stays_counted() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        line.client.is_closed().await;
    })
    .await;
    let logins = Rule {
        count_when: Some("401".parse::<Statuses>().unwrap().classes()),
        ..rule("login", &["ip"], &["1/hour"])
    };
    let stage = stage(&upstream, "login", alone(vec![logins])).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    support::until("it is passed on", || upstream.requests().len() == 1).await;
    drop(client);
    let gone = "tollgate_gateway_requests_total{route=\"all\",status=\"499\"}";
    support::until("it is noticed", || stage.metric(gone) == 1.0).await;
    assert_eq!(stage.fetch("/").await.status, 429);
}

#[tokio::test]
async fn answers_can_be_said_otherwise() {
    let upstream = Upstream::saying("x").await;
    let mut settings = under(&upstream, "ip");
    settings.answers = Answers::new(AnswerSettings {
        body: Some(r#"{"try_again_in": {retry_after}}"#.to_owned()),
        headers: tollgate_web::answer::HeaderSets { x_ratelimit: false, ietf: true },
        expose: tollgate_web::answer::Exposure::Exposed,
        ..AnswerSettings::default()
    })
    .unwrap();
    let stage = Stage::with_policies(settings, alone(vec![rule("ip", &["ip"], &["1/min"])])).await;
    let reply = stage.fetch("/").await;
    assert_eq!(reply.header("ratelimit-policy"), Some("\"ip\";q=1;w=60"));
    assert_eq!(reply.header("x-ratelimit-limit"), None);
    assert!(reply.header("access-control-expose-headers").unwrap().contains("RateLimit"));
    assert_eq!(stage.fetch("/").await.text(), r#"{"try_again_in": 60}"#);
}

#[tokio::test]
async fn one_that_is_refused_over_http_2_hears_the_same() {
    let upstream = Upstream::saying("x").await;
    let stage = stage(&upstream, "ip", alone(vec![rule("ip", &["ip"], &["1/hour"])])).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let (status, headers, body) = support::http2::fetch(stage.address, "/").await;
    assert_eq!(status, 429);
    assert_eq!(headers["x-ratelimit-remaining"], "0");
    assert_eq!(headers["content-type"], "application/problem+json");
    assert!(body.contains("rate limit exceeded"), "{body}");
}
