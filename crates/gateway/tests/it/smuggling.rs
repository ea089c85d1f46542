//! Ambiguous requests are refused, and nothing of them is forwarded.

use crate::support::{Stage, Upstream, settings};

/// Each of these is refused with 400. What follows the first request would be the smuggled one.
const CORPUS: &[(&str, &str)] = &[
    (
        "two lengths: chunked last",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    ),
    (
        "two lengths: chunked first",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG",
    ),
    (
        "chunked and a length of 0",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    ),
    (
        "two lengths that differ",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    ),
    (
        "two lengths that agree",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    ),
    ("a list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx"),
    ("a length with a sign", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx"),
    ("a negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nx"),
    ("a length in hexadecimal", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nx"),
    ("an empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nx"),
    ("a length with words", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 x\r\n\r\nx"),
    (
        "a length that overflows",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\nx",
    ),
    ("another encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nx"),
    (
        "two encodings in a line",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked twice in a line",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked in two lines",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "identity beside chunked",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    ("not quite chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    (
        "chunked with a tab inside",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chun\tked\r\n\r\n0\r\n\r\n",
    ),
    ("chunked in quotes", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    ("an empty encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n"),
    (
        "chunked with parameters",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    ),
    ("chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (
        "a space before the colon",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    ("a tab before the colon", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length\t: 1\r\n\r\nx"),
    ("a line that goes on", "POST / HTTP/1.1\r\nHost: a\r\nX: 1\r\n Content-Length: 1\r\n\r\nx"),
    ("a first line that goes on", "GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    ("LF alone after the first line", "GET / HTTP/1.1\nHost: a\r\n\r\n"),
    ("LF alone after a header", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"),
    ("LF alone at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n"),
    ("LF alone everywhere", "GET / HTTP/1.1\nHost: a\n\n"),
    ("CR alone in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n"),
    ("CR alone before the end", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\r\n\r\n"),
    ("NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
    ("NUL in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n"),
    ("a name with brackets", "GET / HTTP/1.1\r\nHost: a\r\nX(y): a\r\n\r\n"),
    ("no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"),
    ("no name", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n"),
    ("a length in disguise", "POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 1\r\n\r\nx"),
    ("an encoding in disguise", "POST / HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\n\r\n"),
    ("an address in disguise", "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 1.1.1.1\r\n\r\n"),
    ("no host", "GET / HTTP/1.1\r\n\r\n"),
    ("an empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    ("two hosts that agree", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    ("a list of hosts", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    ("a host with a user", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"),
    ("a host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ("a host with a bad port", "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"),
    ("another host in the target", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("another port in the target", "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a user in the target", "GET http://x@a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("another scheme in the target", "GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a target without slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a star for anything but OPTIONS", "GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two spaces in the first line", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a tab in the first line", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("bytes beyond ASCII in the target", "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("no version", "GET /\r\nHost: a\r\n\r\n"),
    ("HTTP/0.9", "GET / HTTP/0.9\r\nHost: a\r\n\r\n"),
    ("HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    ("HTTP/2 by its name alone", "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    ("another protocol", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n"),
    ("no method", " / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("an unknown expectation", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 200-ok\r\n\r\nx"),
];

#[tokio::test]
async fn an_ambiguous_request_is_refused_and_reaches_no_upstream() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    for (name, request) in CORPUS {
        let mut client = stage.client().await;
        client.send(request).await;
        // This would be answered if the gateway had taken the first request for complete.
        client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 400, "{name}: {reply:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{name}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{name}");
        assert!(client.is_closed().await, "{name}: something came after the refusal");
    }
    assert_eq!(upstream.connections(), 0, "{:?}", upstream.requests());
}

#[tokio::test]
async fn an_ambiguous_request_sent_byte_by_byte_is_refused() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    for (name, request) in CORPUS.iter().step_by(7) {
        let mut client = stage.client().await;
        for byte in request.as_bytes() {
            // The gateway closes a connection on an early refusal, so writing may fail.
            if tokio::io::AsyncWriteExt::write_all(&mut client.stream, &[*byte]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{name}");
    }
    assert_eq!(upstream.connections(), 0);
}

/// Malformed bodies. The gateway may have forwarded a part before it noticed; the upstream must not take that
/// for complete.
const BODIES: &[(&str, &str)] = &[
    ("a size that is no number", "x\r\nabc\r\n0\r\n\r\n"),
    ("no size", "\r\nabc\r\n0\r\n\r\n"),
    ("a size with a sign", "+3\r\nabc\r\n0\r\n\r\n"),
    ("a size with a prefix", "0x3\r\nabc\r\n0\r\n\r\n"),
    ("a size that overflows", "ffffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    ("a size and a space", "3 \r\nabc\r\n0\r\n\r\n"),
    ("LF alone after the size", "3\nabc\r\n0\r\n\r\n"),
    ("LF alone after the data", "3\r\nabc\n0\r\n\r\n"),
    ("more data than said", "3\r\nabcd\r\n0\r\n\r\n"),
    ("CR alone after the size", "3\rabc\r\n0\r\n\r\n"),
    ("CR between the size and an extension", "3\r;a\r\nabc\r\n0\r\n\r\n"),
    ("a form feed between the size and an extension", "3\x0c;a\r\nabc\r\n0\r\n\r\n"),
    ("LF alone in an extension", "3;a\nb\r\nabc\r\n0\r\n\r\n"),
    ("a malformed trailer", "3\r\nabc\r\n0\r\nbad trailer\r\n\r\n"),
    ("a malformed trailer, and an end", "3\r\nabc\r\n0\r\nbad trailer\r\n\r\n\r\n"),
    ("a malformed trailer, and a good one", "3\r\nabc\r\n0\r\nbad trailer\r\n\r\na: b\r\n\r\n"),
    ("LF alone in the trailers", "3\r\nabc\r\n0\r\na: b\nc: d\r\n\r\n"),
    (
        "an endless extension",
        concat!(
            "3;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nabc\r\n0\r\n\r\n"
        ),
    ),
];

#[tokio::test]
async fn a_malformed_body_is_refused_and_never_whole_for_the_upstream() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    for (name, body) in BODIES {
        let mut client = stage.client().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        client.send(body).await;
        client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{name}: {reply:?}");
        assert!(client.is_closed().await, "{name}");
    }
    assert_eq!(upstream.requests(), [], "no request was whole");
}

#[tokio::test]
async fn responses_that_could_be_read_in_two_ways_are_not_passed_on() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 099 Odd\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 000 Odd\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 600 Odd\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 999 Odd\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "hello\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
    ] {
        let upstream = Upstream::answering(answer).await;
        let stage = Stage::new(settings(upstream.address)).await;
        let reply = stage.fetch("/").await;
        assert_eq!(reply.status, 502, "{answer}: {reply:?}");
        assert_eq!(
            stage.metric("tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"malformed\"}"),
            1.0
        );
    }
}

#[tokio::test]
async fn an_unrequested_response_is_never_the_response_to_the_next_request() {
    let doubled =
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2";
    let upstream = Upstream::answering(doubled).await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    for _ in 0..3 {
        let reply = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(reply.text(), "1");
    }
    assert_eq!(upstream.connections(), 3, "such a connection is not used again");
}
