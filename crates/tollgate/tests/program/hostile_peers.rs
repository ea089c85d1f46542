//! Hostile clients: garbage, endless heads, floods of requests. The server refuses invalid requests, answers
//! valid ones, and its memory stays small.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::thread;

use crate::program::{Home, Server, request};
use serde_json::json;

const CONFIG: &str = "
store: memory
rules: { one: { by: user, limits: 1000000/day } }
policies: { p: [one] }
";

fn still_serves(server: &Server) {
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
}

/// Reproducible random bytes.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn garbage_is_refused_and_the_next_one_is_served() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let mut wrong: Vec<Vec<u8>> = (1..50).map(|seed| noise(seed, 4_000)).collect();
    wrong.extend([
        b"\r\n\r\n\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"POST /api/v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n{}".to_vec(),
        b"POST /api/v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n"
            .to_vec(),
        b"POST /api/v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"
            .to_vec(),
        b"POST /api/v1/check HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            .to_vec(),
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), noise(7, 4_000)].concat(),
    ]);
    for bytes in &wrong {
        let peer = server.connect();
        // The server may close before it has read everything.
        let _ = peer.other_end().write_all(bytes);
        let _ = peer.other_end().shutdown(std::net::Shutdown::Write);
        still_serves(&server);
    }
    assert_eq!(server.remaining("one", "ada"), 1_000_000 - wrong.len() as u64);
    assert!(!server.stop().contains("panicked"));
}

#[test]
fn an_endless_head_is_refused() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let before = server.memory();
    let heads: [&[u8]; 3] = [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\n"];
    for (head, more) in heads.iter().zip(["a", "b", "x: y\r\n"]) {
        let mut peer = server.connect();
        peer.send(head);
        let more = more.repeat(10_000);
        // More than a server reads on after its answer.
        let cut = (0..20_000).any(|_| peer.try_send(more.as_bytes()).is_err());
        assert!(cut, "it reads a head without end");
        still_serves(&server);
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for three heads");
}

#[test]
fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let before = server.memory();
    let mut peer = server.connect();
    peer.send(b"POST /api/v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n");
    let mut sender = peer.other_end();
    let sending = thread::spawn(move || {
        let part = vec![b' '; 1 << 20];
        (0..1_000).any(|_| sender.write_all(&part).is_err())
    });
    let reply = peer.reply();
    assert!(reply.is_none_or(|reply| reply.status == 413));
    assert!(sending.join().unwrap(), "it reads a body without end");
    assert!(server.memory().saturating_sub(before) < 32 << 20);
    still_serves(&server);
}

#[test]
fn ten_thousand_requests_in_one_go_are_all_answered_in_order() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let before = server.memory();
    let mut peer = server.connect();
    let mut sender = peer.other_end();
    let body = json!({ "policy": "p", "fields": { "user": "bob" } });
    let bytes = request("POST", "/api/v1/check", &[], Some(&body)).repeat(10_000);
    let sending = thread::spawn(move || sender.write_all(&bytes).unwrap());
    for answered in 1..=10_000_u64 {
        let reply = peer.reply().unwrap_or_else(|| panic!("the connection ended after {answered}"));
        let remaining = reply.ok()["rules"][0]["remaining"].clone();
        assert_eq!(remaining, 1_000_000 - answered);
    }
    sending.join().unwrap();
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for one connection");
}
