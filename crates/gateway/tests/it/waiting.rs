//! Requests that wait for their turn, and connections with holds.

use std::time::Duration;

use crate::support::rules::{alone, rule, together};
use crate::support::{Client, Stage, Upstream, settings, until};
use tollgate_core::{OnExceed, Rule, Span};
use tollgate_gateway::Settings;

/// A rule that makes attempts wait for up to `millis`.
fn pacing(limit: &str, millis: u64) -> Rule {
    Rule { on_exceed: OnExceed::Wait(Span::from_millis(millis)), ..rule("pace", &["ip"], &[limit]) }
}

fn paced(upstream: &Upstream) -> Settings {
    let mut settings = settings(upstream.address);
    settings.routes[0].policy = Some("pace".into());
    settings
}

#[tokio::test]
async fn requests_beyond_the_rate_are_spaced_in_the_order_in_which_they_came() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::in_real_time(paced(&upstream), alone(vec![pacing("10/s burst 1", 5_000)])).await;
    let mut clients = Vec::new();
    for number in 0..6 {
        let mut client = stage.client().await;
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        until("it has its place", || {
            upstream.requests().len() + stage.parts.admissions.pacer.as_ref().unwrap().waiting() > number
                || upstream.requests().len() > number
        })
        .await;
        clients.push(client);
    }
    for client in &mut clients {
        let reply = client.reply().await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("10"));
    }
    let order: Vec<String> = upstream.requests().iter().map(|seen| seen.line().to_owned()).collect();
    let expected: Vec<String> = (0..6).map(|number| format!("GET /{number} HTTP/1.1")).collect();
    assert_eq!(order, expected);
}

#[tokio::test]
async fn a_request_that_would_wait_too_long_gets_retry_after() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::in_real_time(paced(&upstream), alone(vec![pacing("1/s burst 1", 1_500)])).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let mut waiting = stage.client().await;
    waiting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("it waits", || stage.parts.admissions.pacer.as_ref().unwrap().waiting() == 1).await;
    let reply = stage.fetch("/").await;
    assert_eq!(reply.status, 429, "its turn would come after two seconds");
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&seconds), "{seconds}");
    let millis: u64 = reply.header("retry-after-ms").unwrap().parse().unwrap();
    assert!(millis <= seconds * 1_000 && reply.header("x-should-retry").is_none(), "{millis}");
    assert_eq!(waiting.reply().await.status, 200);
}

#[tokio::test]
async fn a_disconnect_while_waiting_frees_the_place_in_the_queue() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::in_real_time(paced(&upstream), alone(vec![pacing("1/hour burst 1", 7_200_000)])).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let gone = "tollgate_gateway_requests_total{route=\"all\",status=\"499\"}";
    // However much the client sent ahead.
    for (count, length) in [(1.0, 5), (2.0, 64 * 1024)] {
        let mut waiting = stage.client().await;
        waiting.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
        waiting.send(vec![b'x'; length]).await;
        until("it waits", || stage.parts.admissions.pacer.as_ref().unwrap().waiting() == 1).await;
        drop(waiting);
        until("it gave up its place", || stage.parts.admissions.pacer.as_ref().unwrap().waiting() == 0).await;
        until("it is counted", || stage.metric(gone) == count).await;
    }
    assert_eq!(upstream.requests().len(), 1);
}

/// Connections are limited by address and in total.
fn guarded(upstream: &Upstream) -> Settings {
    let mut settings = settings(upstream.address);
    settings.connections = Some("connections".into());
    settings
}

fn connection_rules() -> tollgate_core::Policies {
    let each = rule("each", &["ip"], &["2 at once for 30s"]);
    let all = rule("all", &[], &["3 at once for 30s"]);
    together("connections", vec![each, all])
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn connections_are_bounded_by_address_and_in_all_and_free_again_when_they_end() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::with_policies(guarded(&upstream), connection_rules()).await;
    let (mut one, mut two) = (stage.client().await, stage.client().await);
    assert_eq!(one.ask(GET).await.status, 200);
    assert_eq!(two.ask(GET).await.status, 200);
    let mut third = stage.client().await;
    let reply = third.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (429, Some("close")));
    assert_eq!(reply.header("x-ratelimit-type"), Some("each"));
    assert!(third.is_closed().await);
    let mut other = Client::connect_from("127.0.0.2", stage.address).await;
    assert_eq!(other.ask(GET).await.status, 200);
    let reply = Client::connect_from("127.0.0.3", stage.address).await.reply().await;
    assert_eq!((reply.status, reply.header("x-ratelimit-type")), (429, Some("all")));
    assert_eq!(stage.metric("tollgate_gateway_connections_refused_total"), 2.0);
    assert_eq!(one.ask(GET).await.status, 200, "who is in stays in");
    drop(one);
    until("its end is seen", || stage.metric("tollgate_gateway_connections") == 2.0).await;
    stage.parts.admissions.leases.tend().await;
    assert_eq!(stage.client().await.ask(GET).await.status, 200);
}

#[tokio::test]
async fn connections_that_last_keep_their_place_and_those_of_a_dead_gateway_do_not() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::with_policies(guarded(&upstream), connection_rules()).await;
    let (mut one, mut two) = (stage.client().await, stage.client().await);
    assert_eq!(one.ask(GET).await.status, 200);
    assert_eq!(two.ask(GET).await.status, 200);
    for _ in 0..10 {
        stage.clock.advance(Span::from_secs(15));
        stage.parts.admissions.leases.tend().await;
    }
    assert_eq!(stage.client().await.reply().await.status, 429, "both are still there");
    // No node renews the holds any more.
    stage.clock.advance(Span::from_secs(31));
    assert_eq!(stage.client().await.ask(GET).await.status, 200);
}

#[tokio::test]
async fn a_connection_is_let_go_of_however_it_ends() {
    let upstream = Upstream::saying("x").await;
    let mut impatient = guarded(&upstream);
    impatient.bounds.head_timeout = Duration::from_millis(100);
    impatient.bounds.idle_timeout = Duration::from_millis(100);
    let stage = Stage::with_policies(impatient, connection_rules()).await;
    let gone = async || {
        until("its end is seen", || stage.metric("tollgate_gateway_connections") == 0.0).await;
        stage.parts.admissions.leases.tend().await;
    };
    for ends in [
        "",
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nHo",
        GET,
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxx",
    ] {
        for _ in 0..3 {
            let mut client = stage.client().await;
            client.send(ends).await;
            client.rest().await;
            drop(client);
            gone().await;
        }
    }
    let mut client = stage.client().await;
    assert_eq!(client.ask(GET).await.status, 200);
}

#[tokio::test]
async fn connections_of_trusted_proxies_are_not_counted_by_address() {
    let upstream = Upstream::saying("x").await;
    let mut behind = guarded(&upstream);
    behind.trusted_proxies = tollgate_web::TrustedProxies::new(
        vec!["127.0.0.0/8".parse().unwrap()],
        "x-forwarded-for".parse().unwrap(),
    );
    let stage = Stage::with_policies(behind, connection_rules()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = stage.client().await;
        assert_eq!(client.ask(GET).await.status, 200);
        clients.push(client);
    }
    let reply = stage.client().await.reply().await;
    assert_eq!((reply.status, reply.header("x-ratelimit-type")), (429, Some("all")));
}
