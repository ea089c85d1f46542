//! Clients that speak HTTP/2, over plain connections and TLS.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use crate::support::{self, Stage, Upstream, http2, settings, until};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Channel, Empty, Full};
use hyper::body::{Bytes, Frame};

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://example.com{path}")).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn a_request_over_http_2_is_passed_on_in_http_1() {
    let upstream = Upstream::answering(
        "HTTP/1.1 201 Made\r\nContent-Length: 5\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nhello",
    )
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut send = http2::connect(stage.address).await;
    let request = Request::get("http://example.com:81/a/../b?x=%zz")
        .header("cookie", "one=1")
        .header("cookie", "two=2")
        .header("te", "trailers")
        .header("x-forwarded-for", "1.1.1.1")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = send.send_request(request).await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["content-length"], "5");
    assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
    assert!(!response.headers().contains_key("keep-alive") && !response.headers().contains_key("connection"));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    let seen = upstream.request();
    assert_eq!(seen.line(), "GET /b?x=%zz HTTP/1.1");
    assert_eq!(seen.header("host"), Some("example.com:81"));
    assert_eq!(seen.header("cookie"), Some("one=1; two=2"), "HTTP/1 has them in one line");
    assert_eq!((seen.header("te"), seen.header("connection")), (Some("trailers"), Some("te")));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let send = http2::connect(stage.address).await;
    let asks = (0..200).map(|number| {
        let mut send = send.clone();
        tokio::spawn(async move {
            send.ready().await.unwrap();
            let response = send.send_request(get(&format!("/{number}"))).await.unwrap();
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.unwrap();
        })
    });
    for ask in asks.collect::<Vec<_>>() {
        ask.await.unwrap();
    }
    assert_eq!(upstream.requests().len(), 200);
    assert_eq!(stage.metric("tollgate_gateway_connections"), 1.0);
}

#[tokio::test]
async fn bodies_and_trailers_pass_both_ways_piece_by_piece() {
    let upstream = Upstream::start(|mut line| async move {
        line.head().await;
        line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        loop {
            let size = line.client.until(b"\r\n").await;
            if size == b"0" {
                break;
            }
            let said = line.client.until(b"\r\n").await;
            line.send(format!("{:x}\r\n{}\r\n", said.len(), String::from_utf8(said).unwrap())).await;
        }
        let trailer = line.client.until(b"\r\n\r\n").await;
        line.send(format!("0\r\nx-back: {}\r\n\r\n", String::from_utf8(trailer).unwrap())).await;
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut send = http2::connect(stage.address).await;
    let (mut pieces, body) = Channel::<Bytes>::new(1);
    let request = Request::post("http://example.com/").header("te", "trailers").body(body).unwrap();
    let mut response = send.send_request(request).await.unwrap().into_body();
    for word in ["one", "two", "three"] {
        pieces.send_data(word.into()).await.unwrap();
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), word, "it comes back before the next is sent");
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-there", "1".parse().unwrap());
    pieces.send(Frame::trailers(trailers)).await.unwrap();
    drop(pieces);
    let last = response.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(last["x-back"], "x-there: 1");
}

#[tokio::test]
async fn large_bodies_arrive_as_they_were_sent() {
    let upstream = Upstream::start(|mut line| async move {
        while let Some(seen) = line.request().await {
            line.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", seen.body.len())).await;
            line.send(&seen.body).await;
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut send = http2::connect(stage.address).await;
    let body: Vec<u8> = (0..3_000_001_usize).map(|at| (at * 7 + at / 251) as u8).collect();
    let request = Request::post("http://example.com/").body(Full::new(Bytes::from(body.clone()))).unwrap();
    let response = send.send_request(request).await.unwrap();
    let back = response.into_body().collect().await.unwrap().to_bytes();
    assert!(back == body, "{} bytes came back", back.len());
    assert_eq!(upstream.request().header("content-length"), Some("3000001"));
}

#[tokio::test]
async fn bad_requests_are_refused_in_http_2_as_in_http_1() {
    let upstream = Upstream::saying("x").await;
    let mut small = settings(upstream.address);
    small.bounds.body_bytes = Some(10);
    let stage = Stage::new(small).await;
    let mut send = http2::connect(stage.address).await;
    let ask = |build: http::request::Builder| build.body(Full::new(Bytes::new())).unwrap();
    for (status, request) in [
        (400, ask(Request::get("http://example.com/%2f"))),
        (400, ask(Request::get("http://example.com/").header("host", "other.com"))),
        (400, ask(Request::get("http://example.com/").header("content_length", "1"))),
        (400, ask(Request::get("http://example.com/").header("x_forwarded_for", "1.1.1.1"))),
        (400, ask(Request::get("http://example.com/").header("expect", "wonders"))),
        (400, ask(Request::get("http://example.com/").header("x-tier", " gold"))),
        (400, ask(Request::get("http://example.com/").header("x-tier", "gold\t"))),
        (400, ask(Request::get("http://example.com/").header("cookie", "a=1").header("cookie", "b=2 "))),
        (405, ask(Request::builder().method("TRACE").uri("http://example.com/"))),
        (413, Request::post("http://example.com/").body(Full::new(Bytes::from_static(&[7; 11]))).unwrap()),
    ] {
        let shown = format!("{request:?}");
        send.ready().await.unwrap();
        let response = send.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{shown}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn lines_are_bounded_and_cookies_are_one() {
    let upstream = Upstream::saying("x").await;
    let mut few = settings(upstream.address);
    few.bounds.head_lines = 5;
    let stage = Stage::new(few).await;
    let mut send = http2::connect(stage.address).await;
    for (status, lines) in [(200, 5), (431, 6)] {
        for name in ["x-many", "x"] {
            let mut request = get("/");
            for number in 0..lines {
                let name = if name == "x" { format!("x-{number}") } else { name.to_owned() };
                let name = http::HeaderName::try_from(name).unwrap();
                request.headers_mut().append(name, "1".parse().unwrap());
            }
            send.ready().await.unwrap();
            assert_eq!(send.send_request(request).await.unwrap().status(), status, "{lines} of {name}");
        }
    }
    let mut request = get("/");
    for _ in 0..10 {
        request.headers_mut().append("cookie", "a=1".parse().unwrap());
    }
    send.ready().await.unwrap();
    assert_eq!(send.send_request(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_stream_that_is_given_up_ends_the_upstreams_work_and_no_other_stream() {
    let upstream = Upstream::start(|mut line| async move {
        while let Some(seen) = line.request().await {
            if seen.line().contains("/never") {
                line.client.is_closed().await;
                return;
            }
            line.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await;
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut send = http2::connect(stage.address).await;
    let never = send.send_request(get("/never"));
    let given_up = tokio::time::timeout(Duration::from_millis(50), never).await;
    assert!(given_up.is_err());
    let gone = "tollgate_gateway_requests_total{route=\"all\",status=\"499\"}";
    until("it is noticed", || stage.metric(gone) == 1.0).await;
    assert_eq!(send.send_request(get("/")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn an_upstream_that_dies_in_a_response_resets_the_stream() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut send = http2::connect(stage.address).await;
    // The stream may be reset before its head was read.
    if let Ok(response) = send.send_request(get("/")).await {
        assert!(response.into_body().collect().await.is_err(), "the client can see that it is incomplete");
    }
}

#[tokio::test]
async fn a_reader_that_stalls_loses_its_stream() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n").await;
        let piece = vec![7; 1 << 16];
        while tokio::io::AsyncWriteExt::write_all(&mut line.client.stream, &piece).await.is_ok() {}
    })
    .await;
    let mut impatient = settings(upstream.address);
    impatient.bounds.stall_timeout = Duration::from_millis(200);
    let stage = Stage::new(impatient).await;
    let mut send = http2::connect(stage.address).await;
    let response = send.send_request(get("/")).await.unwrap();
    let done = "tollgate_gateway_requests_total{route=\"all\",status=\"200\"}";
    until("it is over", || stage.metric(done) == 1.0).await;
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_connection_that_asks_nothing_is_closed_after_a_while() {
    let upstream = Upstream::saying("x").await;
    let mut impatient = settings(upstream.address);
    impatient.bounds.idle_timeout = Duration::from_millis(200);
    let stage = Stage::new(impatient).await;
    let mut send = http2::connect(stage.address).await;
    let response = send.send_request(get("/")).await.unwrap();
    response.into_body().collect().await.unwrap();
    until("it is closed", || send.is_closed()).await;
    until("it is let go", || stage.metric("tollgate_gateway_connections") == 0.0).await;
}

#[tokio::test]
async fn an_end_waits_for_streams_that_are_under_way() {
    let upstream = Upstream::start(|mut line| async move {
        while line.request().await.is_some() {
            tokio::time::sleep(Duration::from_millis(200)).await;
            line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").await;
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut send = http2::connect(stage.address).await;
    let ask = tokio::spawn(send.send_request(get("/")));
    until("the request is under way", || upstream.requests().len() == 1).await;
    let ending = tokio::spawn(async move { stage.gateway.end(Duration::from_secs(3600)).await });
    let response = ask.await.unwrap().unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "late");
    tokio::time::timeout(support::PATIENCE, ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_listener_without_http_2_takes_its_first_bytes_for_a_bad_request() {
    let upstream = Upstream::saying("x").await;
    let mut plain = settings(upstream.address);
    plain.listeners[0].http2 = false;
    let stage = Stage::new(plain).await;
    let reply = stage.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_eq!(reply.status, 400);
}
