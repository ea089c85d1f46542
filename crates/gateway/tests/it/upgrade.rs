//! WebSockets and other protocol upgrades.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use crate::support::{self, Client, Stage, Upstream, settings, until};
use tokio::io::AsyncWriteExt;
use tollgate_gateway::settings::RouteSettings;

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: x\r\n\r\n";
const TUNNELS: &str = "tollgate_gateway_tunnels";

/// Accepts the upgrade to WebSockets, says hello, and echoes what it reads.
async fn echo() -> Upstream {
    Upstream::start(|mut line| async move {
        let seen = line.request().await.unwrap();
        assert_eq!((seen.header("upgrade"), seen.header("connection")), (Some("websocket"), Some("upgrade")));
        assert_eq!(seen.header("sec-websocket-key"), Some("x"));
        line.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: y\r\n\r\nhello").await;
        loop {
            let heard = std::mem::take(&mut line.client.read);
            line.send(&heard).await;
            if line.client.more().await == 0 {
                line.send("bye").await;
                return;
            }
        }
    })
    .await
}

async fn open(stage: &Stage) -> Client {
    let mut client = stage.client().await;
    client.send(ASK).await;
    let head = client.head().await;
    assert_eq!(head.status, 101);
    assert_eq!((head.header("upgrade"), head.header("connection")), (Some("websocket"), Some("upgrade")));
    assert_eq!(head.header("sec-websocket-accept"), Some("y"));
    client.until(b"hello").await;
    client
}

#[tokio::test]
async fn after_an_upgrade_bytes_pass_both_ways_until_both_have_ended() {
    let upstream = echo().await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = open(&stage).await;
    assert_eq!(stage.metric(TUNNELS), 1.0);
    for word in ["one", "two", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        client.send(word).await;
        assert_eq!(client.until(word.as_bytes()).await, b"");
    }
    client.stream.shutdown().await.unwrap();
    let rest = client.rest().await;
    assert!(rest.ends_with(b"bye"), "the other way stays open until it ends too: {rest:?}");
    until("the tunnel is let go", || stage.metric(TUNNELS) == 0.0).await;
    assert_eq!(stage.metric("tollgate_gateway_requests_total{route=\"all\",status=\"101\"}"), 1.0);
    assert_eq!(upstream.connections(), 1, "what went through the tunnel was no request");
}

#[tokio::test]
async fn bytes_sent_right_after_an_upgrade_request_go_through_the_tunnel() {
    let upstream = echo().await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send(format!("{ASK}early")).await;
    assert_eq!(client.head().await.status, 101);
    client.until(b"hello").await;
    client.until(b"early").await;
}

#[tokio::test]
async fn an_upstream_may_decline() {
    let upstream = Upstream::saying("no").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    let reply = client.ask(ASK).await;
    assert_eq!((reply.status, reply.text()), (200, "no"));
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
}

#[tokio::test]
async fn an_upgrade_to_h2c_is_not_forwarded() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let reply = stage
        .ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
        .await;
    assert_eq!(reply.status, 200);
    let seen = upstream.request();
    assert_eq!(
        (seen.header("upgrade"), seen.header("connection"), seen.header("http2-settings")),
        (None, None, None)
    );
}

#[tokio::test]
async fn tunnels_are_bounded_and_close_when_nothing_moves() {
    let upstream = echo().await;
    let mut one = settings(upstream.address);
    one.bounds.tunnels = 1;
    one.bounds.tunnel_timeout = Duration::from_millis(500);
    one.routes = vec![RouteSettings::new("all", "app")];
    let stage = Stage::new(one).await;
    let mut client = open(&stage).await;
    assert_eq!(stage.ask(ASK).await.status, 503);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.send("x").await;
        client.until(b"x").await;
    }
    assert!(client.is_closed().await, "nothing moves any more");
    until("the tunnel is let go", || stage.metric(TUNNELS) == 0.0).await;
    open(&stage).await;
}

#[tokio::test]
async fn tunnels_end_with_the_gateway() {
    let upstream = echo().await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = open(&stage).await;
    let ending = tokio::time::timeout(support::PATIENCE, stage.gateway.end(Duration::from_secs(3600)));
    let (ended, closed) = tokio::join!(ending, client.is_closed());
    assert!(ended.is_ok() && closed);
}
