//! HTTP/2 clients that send frames without a request, or a head that never ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use crate::support::{PATIENCE, Stage, Upstream, http2, settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

async fn opened(stage: &Stage) -> TcpStream {
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    stream
}

/// Reads until the gateway closes the connection.
async fn closes(stream: &mut TcpStream) {
    let mut read = Vec::new();
    // The gateway may reset the connection because of unread bytes.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("the gateway closes it");
}

#[tokio::test]
async fn a_flood_of_frames_without_requests_closes_the_connection() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    for (name, flood) in [
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 0, 7])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("unknown", frame(0xbb, 0, 0, b"?")),
    ] {
        let stream = opened(&stage).await;
        let (mut read, mut write) = stream.into_split();
        // Replies to PING and SETTINGS are read, so that only the flood can be the cause.
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while matches!(read.read(&mut buffer).await, Ok(1..)) {}
        });
        let frames = flood.repeat(500);
        let flooding = async { while write.write_all(&frames).await.is_ok() {} };
        timeout(PATIENCE, flooding).await.unwrap_or_else(|_| panic!("{name} is never bounded"));
        timeout(PATIENCE, reading).await.unwrap().unwrap();
        assert_eq!(http2::fetch(stage.address, "/").await.0, 200, "{name}: others are served");
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off_and_others_are_not() {
    let upstream = Upstream::saying("x").await;
    let mut impatient = settings(upstream.address);
    impatient.bounds.head_timeout = Duration::from_millis(300);
    let stage = Stage::new(impatient).await;
    let head = frame(HEADERS, 0, 1, &[0x82, 0x84, 0x86]);
    for sent in [
        head.clone(),
        [&head[..], &frame(CONTINUATION, 0, 1, b"")].concat(),
        // Half of a frame, and half of the nine bytes of a frame header.
        frame(HEADERS, 5, 1, &[0x82, 0x84, 0x86])[..10].to_vec(),
        head[..5].to_vec(),
    ] {
        let mut stream = opened(&stage).await;
        stream.write_all(&sent).await.unwrap();
        closes(&mut stream).await;
    }
    // An idle connection is not closed by that time-out.
    let mut idle = http2::connect(stage.address).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let request = http::Request::get("http://a/").body(http_body_util::Empty::<hyper::body::Bytes>::new());
    assert_eq!(idle.send_request(request.unwrap()).await.unwrap().status(), 200);
}
