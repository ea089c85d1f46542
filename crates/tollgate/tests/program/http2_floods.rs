//! HTTP/2 frames without a request: a client may send some, but one that sends nothing else is disconnected.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::program::http2::{Http2, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame};
use crate::program::{Home, now};

const CONFIG: &str = "
store: memory
rules: { one: { by: user, limits: 1000000/day } }
policies: { p: [one] }
";

/// Longer than a busy machine needs, and shorter than the server's time-out for a silent client.
const SOON: Duration = Duration::from_secs(8);

/// A frame type that no version of HTTP/2 defines.
const UNKNOWN: u8 = 0xbb;

/// Whether the server closes the connection soon after this many frames, long before it would for silence.
fn is_cut(client: &mut Http2, flood: &[u8]) -> bool {
    let mut reader = client.other_end();
    let reading = thread::spawn(move || {
        // Any bytes, until the end.
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    let piece = flood.repeat(100);
    let _ = (0..1_000).try_for_each(|_| client.send(&piece));
    let begun = now();
    reading.join().unwrap();
    begun.elapsed() < SOON
}

#[test]
fn a_flood_of_frames_without_a_request_ends_the_connection() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let floods = [
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, b"")),
        ("RST_STREAM", frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
        ("unknown", frame(UNKNOWN, 0, 0, &[0; 100])),
    ];
    for (name, flood) in floods {
        let mut client = Http2::open(server.address);
        client.get("/livez").expect("it is answered before the flood");
        assert!(is_cut(&mut client, &flood), "100,000 frames of {name} are read");
    }
    assert!(Http2::open(server.address).get("/livez").is_some());
    server.stop();
}

#[test]
fn frames_that_go_with_requests_are_no_flood() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let mut client = Http2::open(server.address);
    let beside = [frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16]), frame(PING, 0, 0, &[0; 8])].concat();
    for number in 0..2_000 {
        client.send(&beside.repeat(2)).unwrap();
        assert!(client.get("/livez").is_some(), "the connection ends at request {number}");
    }
}
