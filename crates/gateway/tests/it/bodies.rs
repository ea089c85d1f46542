//! Bodies in both directions: whole, in pieces, with trailers, and at the pace of the slower side.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{self, Client, PATIENCE, Stage, Upstream, settings, until};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

#[tokio::test]
async fn a_body_of_known_length_arrives_whole() {
    let upstream = Upstream::saying("ok").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let reply = stage.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await;
    assert_eq!(reply.text(), "ok");
    let seen = upstream.request();
    assert_eq!((seen.header("content-length"), &*seen.body), (Some("5"), &b"hello"[..]));
}

#[tokio::test]
async fn an_empty_body_that_is_announced_stays_announced() {
    let upstream = Upstream::saying("ok").await;
    let stage = Stage::new(settings(upstream.address)).await;
    stage.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(upstream.request().header("content-length"), Some("0"));
}

#[tokio::test]
async fn chunks_and_trailers_pass_both_ways() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nX-Sum: 7\r\nContent-Length: 5\r\n\r\n",
    )
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    for _ in 0..2 {
        let reply = client
            .ask(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n\
                 1\r\nx\r\n00002;name=\"v\"\r\nyz\r\n0\r\nX-Check: 1\r\nHost: b\r\n\r\n",
            )
            .await;
        assert_eq!(reply.text(), "abc0123456789abcdef");
        assert_eq!(reply.trailers, "x-sum: 7", "what says how to read a message cannot trail it");
        assert_eq!(reply.header("trailer"), Some("X-Sum"));
        let seen = upstream.requests().pop().unwrap();
        assert_eq!((&*seen.body, &*seen.trailers), (&b"xyz"[..], "x-check: 1\n"));
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_response_that_ends_with_its_connection_is_passed_on_in_chunks() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.0 200 OK\r\nX: y\r\n\r\nhello").await;
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    for _ in 0..2 {
        let reply = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!((reply.text(), reply.header("transfer-encoding")), ("hello", Some("chunked")));
    }
}

#[tokio::test]
async fn responses_without_body_have_none_whatever_their_lines_say() {
    let upstream = Upstream::start(|mut line| async move {
        while let Some(seen) = line.request().await {
            let answer = match seen.line() {
                "GET /204 HTTP/1.1" => "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
                "GET /304 HTTP/1.1" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nETag: x\r\n\r\n",
                "HEAD /chunked HTTP/1.1" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
            };
            line.send(answer).await;
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("GET /204 HTTP/1.1\r\nHost: a\r\n\r\nGET /304 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /chunked HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let none = client.head().await;
    assert_eq!((none.status, none.header("content-length")), (204, None));
    let same = client.head().await;
    assert_eq!((same.status, same.header("content-length")), (304, Some("77")));
    let head = client.head().await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("77")));
    let head = client.head().await;
    assert_eq!((head.status, head.header("content-length")), (200, None));
    assert_eq!(upstream.connections(), 1, "nothing was left over");
    client.stream.shutdown().await.unwrap();
    assert!(client.is_closed().await);
}

/// Bytes that differ from offset to offset.
fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[tokio::test]
async fn large_bodies_arrive_as_they_were_sent() {
    const SIZE: usize = 5_000_003;
    let upstream = Upstream::start(|mut line| async move {
        while let Some(seen) = line.request().await {
            let head = if seen.line().contains("chunked") {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
            } else {
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", seen.body.len())
            };
            line.send(&head).await;
            if seen.line().contains("chunked") {
                for piece in seen.body.chunks(70_001) {
                    line.send(format!("{:X}\r\n", piece.len())).await;
                    line.send(piece).await;
                    line.send("\r\n").await;
                }
                line.send("0\r\n\r\n").await;
            } else {
                line.send(&seen.body).await;
            }
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let body = pattern(SIZE);
    for path in ["/plain", "/chunked"] {
        let (read, mut write) = stage.client().await.stream.into_split();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n");
        let sent = body.clone();
        let sending = tokio::spawn(async move {
            write.write_all(head.as_bytes()).await.unwrap();
            write.write_all(&sent).await.unwrap();
            write
        });
        let mut client = Client::over(tokio::io::join(read, tokio::io::sink()));
        let reply = client.reply().await;
        assert!(reply.body == body, "{path}: {} bytes came back", reply.body.len());
        sending.await.unwrap();
    }
}

#[tokio::test]
async fn a_response_is_passed_on_as_it_comes() {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let upstream = Upstream::start(move |mut line| {
        let told = Arc::clone(&told);
        async move {
            line.request().await;
            line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").await;
            told.notified().await;
            line.send("3\r\ntwo\r\n0\r\n\r\n").await;
            line.request().await;
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await;
    assert_eq!(client.until(b"\r\n").await, b"3");
    assert_eq!(client.until(b"\r\n").await, b"one");
    go.notify_one();
    assert_eq!(client.until(b"0\r\n\r\n").await, b"3\r\ntwo\r\n");
}

#[tokio::test]
async fn a_request_is_passed_on_as_it_comes_and_may_be_answered_before_it_ends() {
    let upstream = Upstream::start(|mut line| async move {
        line.head().await;
        line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        // Echoes what it reads, piece by piece.
        loop {
            if line.client.until(b"\r\n").await == b"0" {
                break;
            }
            let said = line.client.until(b"\r\n").await;
            line.send(format!("{:x}\r\n", said.len())).await;
            line.send(&said).await;
            line.send("\r\n").await;
        }
        line.send("0\r\n\r\n").await;
        line.client.until(b"\r\n").await;
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmore").await;
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.head().await;
    for word in ["hello", "again", "hello"] {
        client.send(format!("5\r\n{word}\r\n")).await;
        assert_eq!(client.until(b"\r\n").await, b"5");
        assert_eq!(client.until(b"\r\n").await, word.as_bytes());
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.until(b"\r\n\r\n").await, b"0");
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.text(), "more", "the connections live");
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_slow_reader_slows_the_upstream_down() {
    let sent = Arc::new(Mutex::new(0_usize));
    let counted = Arc::clone(&sent);
    const SIZE: usize = 64 << 20;
    let upstream = Upstream::start(move |mut line| {
        let counted = Arc::clone(&counted);
        async move {
            line.request().await;
            line.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n")).await;
            let piece = vec![7; 1 << 16];
            for _ in 0..SIZE / piece.len() {
                if line.client.stream.write_all(&piece).await.is_err() {
                    return;
                }
                *counted.lock() += piece.len();
            }
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await;
    // Once the kernel's buffers on the way are full, nothing moves.
    let mut before = usize::MAX;
    let stands = async {
        loop {
            let now = *sent.lock();
            if now == before && now > 0 {
                return now;
            }
            before = now;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let stood = tokio::time::timeout(PATIENCE, stands).await.unwrap();
    assert!(stood < SIZE / 2, "{stood} bytes were taken from the upstream and not read by the client");
    let mut left = SIZE;
    while left > 0 {
        left -= client.read.len();
        client.read.clear();
        if left > 0 {
            assert!(client.more().await > 0);
        }
    }
    assert_eq!(*sent.lock(), SIZE);
}

#[tokio::test]
async fn a_client_that_waits_for_leave_gets_the_upstreams() {
    let upstream = Upstream::start(|mut line| async move {
        while let Some(head) = line.head().await {
            assert_eq!(head.header("expect"), Some("100-Continue"));
            line.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            while line.client.read.len() < 5 {
                line.client.more().await;
            }
            line.client.read.clear();
            line.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    for _ in 0..2 {
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n").await;
        assert_eq!(client.head().await.status, 100);
        assert_eq!(client.ask("hello").await.text(), "ok");
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_client_that_waits_for_leave_is_told_if_there_is_none() {
    let upstream = Upstream::start(|mut line| async move {
        line.head().await;
        line.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
        assert!(line.client.is_closed().await, "nothing of the body came");
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (413, "no"));
    assert!(client.is_closed().await, "the gateway cannot tell what such a client sends next");
}

#[tokio::test]
async fn a_client_that_waits_for_leave_is_not_left_waiting_by_an_upstream_that_knows_no_such_thing() {
    let upstream = Upstream::saying("ok").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.head().await.status, 100);
    assert_eq!(client.ask("hello").await.text(), "ok");
    assert_eq!(upstream.request().body, b"hello");
}

#[tokio::test]
async fn a_response_before_the_body_has_ended_ends_the_connection_if_the_body_is_not_taken() {
    let upstream = Upstream::start(|mut line| async move {
        line.head().await;
        line.send("HTTP/1.1 401 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno").await;
    })
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhello").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (401, "no"));
    assert!(client.is_closed().await);
    until("the connection is let go", || stage.metric("tollgate_gateway_connections") == 0.0).await;
}

#[tokio::test]
async fn the_length_of_an_answer_to_head_is_told_once_however_often_the_upstream_says_it() {
    for (lines, told) in [
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Some("5")),
        ("Content-Length: 5, 5\r\n", Some("5")),
        ("Content-Length: 5\r\n", Some("5")),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", None),
    ] {
        let upstream = Upstream::answering(format!("HTTP/1.1 200 OK\r\n{lines}\r\n")).await;
        let stage = Stage::new(settings(upstream.address)).await;
        let mut client = stage.client().await;
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let head = client.head().await.head.to_lowercase();
        let found: Vec<&str> =
            head.lines().filter_map(|line| line.strip_prefix("content-length: ")).collect();
        assert_eq!(found, told.into_iter().collect::<Vec<_>>(), "{head}");
        let mut send: hyper::client::conn::http2::SendRequest<http_body_util::Empty<hyper::body::Bytes>> =
            support::http2::connect(stage.address).await;
        let request = http::Request::head("http://a/").body(http_body_util::Empty::new()).unwrap();
        let reply = send.send_request(request).await.unwrap();
        let found: Vec<_> =
            reply.headers().get_all("content-length").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(found, told.into_iter().collect::<Vec<_>>(), "{lines}");
    }
}
