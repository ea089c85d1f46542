//! Clients that send too much, too slowly, or half of it, and clients that vanish.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use crate::support::{self, Stage, Upstream, http2, route, settings, until};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;
use tokio::io::AsyncWriteExt;
use tollgate_gateway::settings::Settings;

const CONNECTIONS: &str = "tollgate_gateway_connections";

/// Settings with short time-outs.
fn impatient(upstream: &Upstream) -> Settings {
    let mut settings = settings(upstream.address);
    settings.bounds.head_timeout = Duration::from_millis(200);
    settings.bounds.idle_timeout = Duration::from_millis(300);
    settings.bounds.stall_timeout = Duration::from_millis(200);
    settings
}

#[tokio::test]
async fn a_head_that_is_too_long_is_a_431() {
    let upstream = Upstream::saying("x").await;
    let mut small = settings(upstream.address);
    small.bounds.head_bytes = 8 * 1024;
    small.bounds.head_lines = 20;
    let stage = Stage::new(small).await;
    let long = "x".repeat(9_000);
    let many: String = (0..30).map(|number| format!("X-{number}: y\r\n")).collect();
    let more: String = (0..600).map(|number| format!("X-{number}: y\r\n")).collect();
    for request in [
        format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}"),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n"),
        long.clone(),
    ] {
        let mut client = stage.client().await;
        let reply = client.ask(&request).await;
        assert_eq!(reply.status, 431, "{}", &request[..40]);
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(client.is_closed().await);
    }
    let nearly = "x".repeat(8_000);
    assert_eq!(stage.fetch(&format!("/{nearly}")).await.status, 200);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_a_413() {
    let upstream = Upstream::saying("x").await;
    let mut small = settings(upstream.address);
    small.bounds.body_bytes = Some(100);
    let mut roomy = route("roomy", "/roomy");
    roomy.body_bytes = Some(1_000);
    small.routes.push(roomy);
    let stage = Stage::new(small).await;
    let body = "x".repeat(101);
    let reply = stage
        .ask(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        .await;
    assert_eq!(reply.status, 413);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(upstream.connections(), 0, "it is known before anything is passed on");
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = stage.client().await;
    let reply = client.ask(format!("{chunked}65\r\n{body}\r\n0\r\n\r\n")).await;
    assert_eq!(reply.status, 413);
    assert_eq!(upstream.requests(), [], "no request was whole");
    let reply = stage
        .ask(format!("POST /roomy HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        .await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_head_that_trickles_in_is_cut_off() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(impatient(&upstream)).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n").await;
    let (mut read, mut write) = client.stream.into_split();
    // A byte now and then does not make the head arrive in time.
    let trickling = tokio::spawn(async move {
        while write.write_all(b"X").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut answer = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut answer);
    let _ = tokio::time::timeout(support::PATIENCE, reading).await.expect("it is cut off");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("connection: close"));
    trickling.await.unwrap();
    until("the connection is let go", || stage.metric(CONNECTIONS) == 0.0).await;
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_silent_connection_is_closed_without_a_response() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(impatient(&upstream)).await;
    let mut client = stage.client().await;
    assert!(client.is_closed().await);
    let mut half = stage.client().await;
    half.send("PRI * HT").await;
    assert_eq!(half.reply().await.status, 408, "it might have become HTTP/2");
    until("the connections are let go", || stage.metric(CONNECTIONS) == 0.0).await;
}

#[tokio::test]
async fn a_connection_that_is_not_used_is_closed_after_a_while_and_not_before() {
    let upstream = Upstream::saying("x").await;
    let mut settings = impatient(&upstream);
    settings.bounds.idle_timeout = Duration::from_millis(1_500);
    let stage = Stage::new(settings).await;
    let mut client = stage.client().await;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.ask(get).await.status, 200);
    // Longer than a head may take, and long enough for the connection to free its buffers.
    tokio::time::sleep(Duration::from_millis(1_250)).await;
    assert_eq!(client.ask(get).await.status, 200);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_a_408_and_never_whole_for_the_upstream() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(impatient(&upstream)).await;
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ] {
        let mut client = stage.client().await;
        let reply = client.ask(request).await;
        assert_eq!(reply.status, 408, "{request}");
        assert!(client.is_closed().await);
    }
    assert_eq!(upstream.requests(), []);
    until("the connections are let go", || stage.metric(CONNECTIONS) == 0.0).await;
}

#[tokio::test]
async fn a_client_that_vanishes_in_its_body_leaves_nothing_behind() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello").await;
    until("it is passed on", || upstream.connections() == 1).await;
    drop(client);
    until("the connection is let go", || stage.metric(CONNECTIONS) == 0.0).await;
    assert_eq!(upstream.requests(), []);
    let name = "tollgate_gateway_requests_total{route=\"all\",status=\"499\"}";
    assert_eq!(stage.metric(name), 1.0);
}

#[tokio::test]
async fn a_client_that_does_not_wait_for_its_answer_ends_the_upstreams_work_too() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        // The gateway notices that the client is gone although it sends nothing.
        assert!(line.client.is_closed().await);
        line.request().await;
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("it is passed on", || upstream.requests().len() == 1).await;
    drop(client);
    until("the connection is let go", || stage.metric(CONNECTIONS) == 0.0).await;
    assert_eq!(stage.metric("tollgate_gateway_requests_total{route=\"all\",status=\"499\"}"), 1.0);
}

#[tokio::test]
async fn a_client_that_sends_ahead_and_does_not_wait_is_noticed_too_and_loses_nothing_if_it_does() {
    let (open, gate) = tokio::sync::watch::channel(false);
    let upstream = Upstream::start(move |mut line| {
        let mut gate = gate.clone();
        async move {
            while line.request().await.is_some() {
                gate.wait_for(|open| *open).await.unwrap();
                line.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await;
            }
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let many = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2_000);
    let (mut patient, mut hasty) = (stage.client().await, stage.client().await);
    patient.send(&many).await;
    hasty.send(&many).await;
    until("both are under way", || upstream.requests().len() == 2).await;
    drop(hasty);
    let gone = "tollgate_gateway_requests_total{route=\"all\",status=\"499\"}";
    until("it is noticed", || stage.metric(gone) == 1.0).await;
    open.send_replace(true);
    for _ in 0..2_000 {
        assert_eq!(patient.reply().await.text(), "x");
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await;
        let piece = vec![7; 1 << 16];
        while line.client.stream.write_all(&piece).await.is_ok() {}
    })
    .await;
    let stage = Stage::new(impatient(&upstream)).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await;
    until("the connection is let go", || stage.metric(CONNECTIONS) == 0.0).await;
    let mut read = 0;
    while client.more().await > 0 {
        read += client.read.len();
        client.read.clear();
    }
    assert!(read < 100_000_000, "{read} bytes came to a client that stopped reading");
}

#[tokio::test]
async fn a_slow_client_that_goes_on_sending_is_waited_for() {
    let upstream = Upstream::saying("ok").await;
    let stage = Stage::new(impatient(&upstream)).await;
    let mut client = stage.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n").await;
    for byte in b"0123456789" {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.send([*byte]).await;
    }
    assert_eq!(client.reply().await.text(), "ok");
    assert_eq!(upstream.request().body, b"0123456789");
}

#[tokio::test]
async fn an_upstream_cannot_split_a_response_by_its_headers() {
    let odd = "HTTP/1.1 200 OK\r\nX-Odd: a\nSet-Cookie: b\r\nContent-Length: 1\r\n\r\nx";
    let upstream = Upstream::answering(odd).await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = client.head().await;
    for line in head.head.split("\r\n") {
        assert!(!line.contains(['\r', '\n']), "{line:?}");
    }
}

#[tokio::test]
async fn the_next_connection_waits_for_room() {
    let upstream = Upstream::saying("x").await;
    let mut one = settings(upstream.address);
    one.bounds.connections = 1;
    let stage = Stage::new(one).await;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut first = stage.client().await;
    assert_eq!(first.ask(get).await.status, 200);
    let mut second = stage.client().await;
    second.send(get).await;
    assert_eq!(first.ask(get).await.status, 200);
    assert_eq!((upstream.requests().len(), stage.metric(CONNECTIONS)), (2, 1.0));
    drop(first);
    assert_eq!(second.reply().await.status, 200);
}

#[tokio::test]
async fn forward_proxies_are_elsewhere() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    for request in [
        "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(stage.ask(request).await.status, 405, "{request}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_method_in_small_letters_is_refused_in_every_protocol() {
    let upstream = Upstream::saying("x").await;
    let mut settings = settings(upstream.address);
    let mut login = route("login", "/login");
    login.methods = vec![http::Method::POST];
    settings.routes.push(login);
    let stage = Stage::new(settings).await;
    for method in ["post", "Post", "pOST", "get", "propfind"] {
        let reply = stage.ask(format!("{method} /login HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{method}");
        let mut send: SendRequest<Empty<Bytes>> = http2::connect(stage.address).await;
        let request = http::Request::builder().method(method).uri("http://a/login");
        let reply = send.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(reply.status(), 400, "{method}");
    }
    assert_eq!(upstream.requests().len(), 0, "the service saw none of them");
    assert_eq!(stage.ask("PURGE / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
}
