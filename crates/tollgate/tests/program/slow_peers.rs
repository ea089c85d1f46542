//! Slow clients: one that is silent, stops in the middle or does not read is disconnected, and delays no
//! other client.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{ErrorKind, Write};
use std::thread;
use std::time::Duration;

use crate::program::{
    self,
    http2::{ACK, CONTINUATION, END_HEADERS, HEADERS, Http2, PING, fields, frame},
};
use crate::program::{Connection, Home, Server, now, pause, request};
use serde_json::json;

const CONFIG: &str = "
store: memory
rules: { one: { by: user, limits: 1000000/day } }
policies: { p: [one] }
";

/// The server allows ten seconds; a busy machine needs a little more.
const CUT_WITHIN: Duration = Duration::from_secs(16);

fn still_serves(server: &Server) {
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
}

#[test]
fn slow_peers_are_disconnected_and_delay_no_other_client() {
    let home = Home::with(CONFIG);
    let server = home.start();
    thread::scope(|scope| {
        scope.spawn(|| stops(&server, "says nothing", b""));
        scope.spawn(|| stops(&server, "stops in the head", b"POST /api/v1/check HTTP/1.1\r\nhost: toll"));
        scope.spawn(|| stops(&server, "stops in the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\n"));
        scope.spawn(|| stops(&server, "says hello in HTTP/2 and no more", HELLO_HTTP_2));
        scope.spawn(|| stops_after_a_request(&server));
        scope.spawn(|| stops_in_a_head_of_http_2(&server));
        scope.spawn(|| {
            // The frame is longer than what is sent of it.
            let start = [0, 0x20, 0, HEADERS, END_HEADERS, 0, 0, 0, 3];
            drips_a_head_of_http_2(&server, &start, b"x", Duration::from_millis(250));
        });
        scope.spawn(|| {
            let start = frame(HEADERS, 0, 3, &fields("GET", "/livez", &[]));
            let more = frame(CONTINUATION, 0, 3, b"");
            drips_a_head_of_http_2(&server, &start, &more, Duration::from_secs(3));
        });
        scope.spawn(|| drips(&server));
        scope.spawn(|| reads_no_answers(&server));
        for _ in 0..50 {
            still_serves(&server);
        }
    });
    still_serves(&server);
    server.stop();
}

/// The preface and an empty SETTINGS frame.
const HELLO_HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Sends the start of something, and expects the connection to be closed.
fn stops(server: &Server, what: &str, start: &[u8]) {
    let mut peer = server.connect();
    peer.send(start);
    let begun = now();
    peer.rest();
    let took = begun.elapsed();
    assert!(took < CUT_WITHIN, "{what}: {took:?}");
    assert!(took > Duration::from_secs(5), "{what}: {took:?} is no time for a slow line");
}

fn stops_after_a_request(server: &Server) {
    let mut peer = server.connect();
    peer.ask("GET", "/livez", &[], None).ok();
    peer.send(b"GET /li");
    peer.rest();
}

/// A connection on which one request was answered and another has started.
fn half_a_head_of_http_2(server: &Server) -> Http2 {
    let mut client = Http2::open(server.address);
    client.get("/livez").expect("it is answered");
    client.head("GET", "/livez", &[], 0);
    client
}

fn stops_in_a_head_of_http_2(server: &Server) {
    let mut client = half_a_head_of_http_2(server);
    let begun = now();
    // The server pings the client, and the client responds.
    while let Some(asked) = client.next() {
        if asked.kind == PING {
            let _ = client.send(&frame(PING, ACK, 0, &asked.payload));
        }
        assert!(begun.elapsed() < CUT_WITHIN, "a head may stay unfinished for ever");
    }
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?} is no time for a slow line", begun.elapsed());
}

/// Sends a head in small pieces that never ends.
fn drips_a_head_of_http_2(server: &Server, start: &[u8], drip: &[u8], pace: Duration) {
    let mut client = Http2::open(server.address);
    client.get("/livez").expect("it is answered");
    client.send(start).unwrap();
    let begun = now();
    while client.send(drip).is_ok() {
        assert!(begun.elapsed() < CUT_WITHIN, "a head may drip for ever");
        pause(pace);
    }
}

fn drips(server: &Server) {
    let mut peer = server.connect().other_end();
    let begun = now();
    peer.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();
    while peer.write_all(b"x-drip: 1\r\n").is_ok() {
        assert!(begun.elapsed() < CUT_WITHIN, "it may drip for ever");
        pause(Duration::from_millis(250));
    }
}

fn reads_no_answers(server: &Server) {
    let mut peer = server.connect().other_end();
    peer.set_nonblocking(true).unwrap();
    let asked = request("GET", "/api/v1/openapi.json", &[], None).repeat(100);
    let begun = now();
    // The write may end anywhere: the server does not read to the end.
    let error = loop {
        match peer.write(&asked) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause(Duration::from_millis(50)),
            Err(error) => break error,
        }
        assert!(begun.elapsed() < CUT_WITHIN, "it may keep its connection for ever");
    };
    assert!(begun.elapsed() > Duration::from_secs(5), "{error}");
}

#[test]
fn idle_connections_delay_no_other_client() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let mut idle: Vec<Connection> = (0..200).map(|_| server.connect()).collect();
    for peer in idle.iter_mut().step_by(2) {
        peer.send(b"POST /api/v1/check HTTP/1.1\r\n");
    }
    for _ in 0..100 {
        still_serves(&server);
    }
    assert_eq!(server.remaining("one", "ada"), 1_000_000 - 100);
    let ended = server.end_by(program::Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.took < Duration::from_secs(5), "{:?}", ended.took);
}
