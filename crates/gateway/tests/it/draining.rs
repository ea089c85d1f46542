//! A gateway that shuts down: clients are told before their connections close, and no request waits any more.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use crate::support::rules::{alone, rule, together};
use crate::support::{Client, PATIENCE, Stage, Upstream, http2, route, settings, until};
use http::{Request, StatusCode};
use http_body_util::{Empty, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;
use tokio::task::JoinSet;
use tollgate_core::{Guard, OnExceed, Rule, Span};
use tollgate_gateway::settings::{GuardSettings, Success};
use tollgate_web::Aliases;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HOUR: Duration = Duration::from_secs(3_600);
/// The pause of a client between two requests: most connections are idle at any moment.
const THINKING: Duration = Duration::from_millis(20);

/// Shuts a gateway down in the background.
fn end(stage: Stage) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move { stage.gateway.end(Duration::from_secs(10)).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_keep_connections_open_are_told_before_these_close() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut asking = JoinSet::new();
    for _ in 0..32 {
        let mut client = stage.client().await;
        asking.spawn(async move {
            loop {
                // Fails if the connection closes instead of a response.
                let reply = client.ask(GET).await;
                assert_eq!(reply.status, 200);
                if reply.header("connection") == Some("close") {
                    return client.is_closed().await;
                }
                tokio::time::sleep(THINKING).await;
            }
        });
    }
    until("they are busy", || upstream.requests().len() > 200).await;
    let ending = end(stage);
    while let Some(told) = tokio::time::timeout(PATIENCE, asking.join_next()).await.unwrap() {
        assert!(told.unwrap());
    }
    tokio::time::timeout(PATIENCE, ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_connects_while_the_gateway_drains_is_served_once() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let address = stage.address;
    let mut idle = stage.client().await;
    assert_eq!(idle.ask(GET).await.header("connection"), None);
    let ending = end(stage);
    let mut told = 0;
    while told < 50 {
        let mut client = Client::connect(address).await;
        let reply = client.ask(GET).await;
        assert_eq!(reply.status, 200);
        told += usize::from(reply.header("connection") == Some("close"));
    }
    assert_eq!(idle.ask(GET).await.header("connection"), Some("close"), "it was idle until now");
    tokio::time::timeout(PATIENCE, ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_http2_client_is_sent_away_and_its_request_under_way_is_answered() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut send: SendRequest<Empty<Bytes>> = http2::connect(stage.address).await;
    let request = || Request::get("http://a/").body(Empty::new()).unwrap();
    assert_eq!(send.send_request(request()).await.unwrap().status(), 200);
    let ending = end(stage);
    let mut answered = 0;
    while send.ready().await.is_ok() {
        match send.send_request(request()).await {
            Ok(reply) => assert_eq!(reply.status(), 200),
            // Sent after GOAWAY, and so processed by no server.
            Err(error) => assert!(error.is_canceled() || error.is_closed(), "{error:?}"),
        }
        answered += 1;
    }
    println!("{answered} requests were answered after the end had begun");
    tokio::time::timeout(PATIENCE, ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn logins_that_are_held_back_are_answered_at_once() {
    let upstream = Upstream::answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno").await;
    let mut settings = settings(upstream.address);
    let fields = Aliases::default().with([("user", "form.user")]).unwrap();
    let success = Success::new("303".parse().unwrap(), vec!["/login".parse().unwrap()]);
    let mut login = route("login", "/login");
    login.guard = Some(GuardSettings { fields, max_delay: HOUR, ..GuardSettings::new("login", success) });
    settings.routes.push(login);
    let policies = together("login", vec![rule("login", &["user"], &["ladder 1 +30m"])]);
    let stage =
        Stage::with_policies(settings, policies.with_guards(vec![Guard::new("login", "login")])).await;
    let kind = "application/x-www-form-urlencoded";
    let guess = format!(
        "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: 8\r\n\r\nuser=ada"
    );
    assert_eq!(stage.ask(&guess).await.status, 401);
    let mut waiting = stage.client().await;
    waiting.send(&guess).await;
    let mut other: SendRequest<Full<Bytes>> = http2::connect(stage.address).await;
    let request = Request::post("http://a/login").header("content-type", kind);
    let asked = tokio::spawn(other.send_request(request.body(Full::from("user=ada")).unwrap()));
    until("both are held back", || stage.metric("tollgate_guard_delayed") == 2.0).await;
    let ending = end(stage);
    let reply = waiting.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (503, Some("close")), "{}", reply.text());
    assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(upstream.requests().len(), 1, "the service saw neither");
    tokio::time::timeout(PATIENCE, ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_that_wait_for_their_turn_are_answered_at_once() {
    let upstream = Upstream::saying("x").await;
    let mut settings = settings(upstream.address);
    settings.routes[0].policy = Some("pace".into());
    let patient =
        Rule { on_exceed: OnExceed::Wait(Span::from_secs(3_600)), ..rule("pace", &["ip"], &["1/hour"]) };
    let stage = Stage::with_policies(settings, alone(vec![patient])).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let mut waiting = stage.client().await;
    waiting.send(GET).await;
    until("it waits", || stage.parts.admissions.pacer.as_ref().unwrap().waiting() == 1).await;
    let (pacer, ending) = (stage.parts.admissions.pacer.as_ref().unwrap().clone(), end(stage));
    let reply = waiting.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (503, Some("close")), "{}", reply.text());
    until("its place is free", || pacer.waiting() == 0).await;
    tokio::time::timeout(PATIENCE, ending).await.unwrap().unwrap();
}
