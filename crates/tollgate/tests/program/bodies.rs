//! Memory for request bodies: a client without a token gets none, each key has its part, all share a bound, and short
//! bodies always have room.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::program::{self, http2::Http2};
use crate::program::{Connection, Home, Server, request, wait_until};
use serde_json::{Value, json};

const OPEN: &str = "
store: memory
rules: { one: { by: user, limits: 1000000/day } }
policies: { p: [one] }
";

const CLOSED: &str = "
store: memory
rules: { one: { by: user, limits: 1000000/day } }
policies: { p: [one] }
keys: [{ name: app, role: check, token_env: APP_TOKEN }]
";

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const MEBIBYTE: usize = 1 << 20;

/// How much the server may grow under many clients, bodies aside.
const REST: u64 = 48 << 20;

fn attempt() -> Value {
    json!({ "policy": "p", "fields": { "user": "ada" } })
}

fn grown(server: &Server, before: u64) -> u64 {
    server.memory().saturating_sub(before)
}

#[test]
fn clients_without_a_token_get_no_memory_for_bodies() {
    let relay = "relay: { hostname: relay.test, queue: { dir: ./queue, min_free: 0 }, listen: [{ smtp: '127.0.0.1:0' }] }\n";
    let home = Home::with(&[CLOSED, relay].concat()).variable("APP_TOKEN", TOKEN);
    let server = home.start();
    let paths = [
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/api/v1/openapi.json"),
        ("POST", "/api/v1/check"),
        ("POST", "/api/v1/acquire"),
        ("PUT", "/api/v1/counters/one/ada"),
        ("POST", "/api/v1/forward-auth/p"),
        ("POST", "/api/v1/messages"),
        ("POST", "/api/v1/accounts"),
        ("PUT", "/api/v1/accounts/default/main"),
        ("POST", "/account"),
        ("POST", "/api/v1/lanes/pause"),
        ("POST", "/api/v1/nowhere"),
        ("PATCH", "/api/v1/check"),
    ];
    let before = server.memory();
    let address = server.address;
    let attack = move |connection: usize| {
        let mut client = Http2::open(address);
        for stream in 0..100 {
            let (method, path) = paths[(connection + stream) % paths.len()];
            client.begin(method, path, &[("content-type", "application/json")]);
        }
        client.pour(MEBIBYTE as i64 - 1, Http2::is_reset);
        client
    };
    let attackers: Vec<_> = (0..6).map(|connection| thread::spawn(move || attack(connection))).collect();
    let mut most = 0;
    while attackers.iter().any(|attacker| !attacker.is_finished()) {
        most = most.max(grown(&server, before));
        program::pause(Duration::from_millis(10));
    }
    for attacker in attackers {
        assert!(
            attacker.join().unwrap().is_reset(),
            "the server read the body of a client that may not send one, or waited for it"
        );
    }
    assert!(most < REST, "{most} bytes for clients that may not send any");
    assert_eq!(server.ask_as(TOKEN, "POST", "/api/v1/check", Some(&attempt())).status, 200);
}

/// Sends all but the last byte of a body of this many.
fn all_but_one(server: &Server, length: usize) -> Connection {
    all_but_one_as(server, "", length)
}

fn all_but_one_as(server: &Server, token: &str, length: usize) -> Connection {
    let mut peer = server.connect();
    let head = format!(
        "POST /api/v1/check HTTP/1.1\r\nhost: localhost\r\nx-api-token: {token}\r\ncontent-length: {length}\r\n\r\n"
    );
    peer.send(head.as_bytes());
    peer.send(&vec![b' '; length - 1]);
    peer
}

/// Whether a response has arrived.
fn is_answered(peer: &Connection) -> bool {
    let stream = peer.other_end();
    stream.set_nonblocking(true).unwrap();
    let come = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).unwrap();
    come
}

#[test]
fn bodies_of_all_connections_share_64_mebibytes_and_give_them_back() {
    let home = Home::with(OPEN);
    let server = home.start();
    let before = server.memory();
    let mut peers: Vec<Connection> = (0..240).map(|_| all_but_one(&server, MEBIBYTE)).collect();
    // If the server reads many bodies side by side, more are refused: each takes room before it is complete.
    wait_until("176 bodies too many", || peers.iter().filter(|peer| is_answered(peer)).count() >= 176);
    // Bodies are copied as they grow, and the allocator keeps freed memory for a while.
    wait_for_memory(&server, before, 3 * (64 << 20));
    let (answered, waiting): (Vec<_>, Vec<_>) = peers.drain(..).partition(is_answered);
    for mut peer in answered {
        let refused = peer.reply().unwrap();
        if refused.status == 408 {
            continue; // Reading so many bodies took longer than a body may stand still.
        }
        assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
        assert_eq!(refused.json()["type"], "/problems/unavailable");
        assert!(refused.text().contains("the server has too many request bodies in flight"));
    }
    assert!(waiting.len() <= 64, "{} MiB", waiting.len());
    let mut read = 0;
    for (number, mut peer) in waiting.into_iter().enumerate() {
        if number % 2 == 0 {
            peer.send(b" ");
            match peer.reply().unwrap().status {
                // It is empty, and it was read.
                400 => read += 1,
                408 => {}
                status => assert_eq!(status, 503, "it was still growing"),
            }
        }
    }
    assert!(read > 0);
    // Half of them were answered, and half disconnected.
    wait_until("room again", || {
        let mut peer = all_but_one(&server, MEBIBYTE);
        peer.send(b" ");
        peer.reply().unwrap().status == 400
    });
    wait_for_memory(&server, before, REST);
}

#[test]
fn bodies_of_one_key_that_stand_still_leave_room_to_other_keys() {
    let keys = "keys:
  - { name: app, role: check, token_env: APP_TOKEN }
  - { name: other, role: check, token_env: OTHER_TOKEN }
";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";
    let home = Home::with(&[OPEN, keys].concat());
    let home = home.variable("APP_TOKEN", TOKEN).variable("OTHER_TOKEN", OTHER);
    let server = home.start();
    let mut peers: Vec<Connection> = (0..64).map(|_| all_but_one_as(&server, TOKEN, MEBIBYTE)).collect();
    wait_until("48 bodies too many for one key", || {
        peers.iter().filter(|peer| is_answered(peer)).count() >= 48
    });
    // Another key has room for long bodies, and the same key for short ones.
    let mut long = all_but_one_as(&server, OTHER, MEBIBYTE);
    long.send(b" ");
    assert_eq!(long.reply().unwrap().status, 400);
    for token in [TOKEN, OTHER] {
        for _ in 0..200 {
            assert_eq!(server.ask_as(token, "POST", "/api/v1/check", Some(&attempt())).status, 200);
        }
        let mut short = all_but_one_as(&server, token, 16 << 10);
        short.send(b" ");
        assert_eq!(short.reply().unwrap().status, 400);
    }
    let mut refusals = 0;
    for peer in &mut peers {
        let refused = peer.reply().unwrap();
        match refused.status {
            503 => {
                let said = refused.text();
                assert!(said.contains("this access key has too many request bodies in flight"), "{said}");
                refusals += 1;
            }
            // The others are not read for 30 seconds.
            status => assert_eq!(status, 408),
        }
    }
    assert!((48..64).contains(&refusals), "{refusals}");
}

#[test]
fn a_short_message_has_room_while_long_bodies_of_its_key_have_none() {
    let relay = "relay: { hostname: relay.test, queue: { dir: ./queue, min_free: 0 }, listen: [{ smtp: '127.0.0.1:0' }],
  accounts: { acme/main: { host: 127.0.0.1, port: 9, tls: none } } }
keys: [{ name: app, role: check, tenant: acme, token_env: APP_TOKEN }]
";
    let home = Home::with(&[OPEN, relay].concat()).variable("APP_TOKEN", TOKEN);
    let server = home.start();
    let peers: Vec<Connection> = (0..24).map(|_| all_but_one_as(&server, TOKEN, MEBIBYTE)).collect();
    wait_until("8 bodies too many", || peers.iter().filter(|peer| is_answered(peer)).count() >= 8);
    let send = |length: usize| {
        let mut peer = server.connect();
        let header = "From: a@acme.example\r\nTo: b@there.example\r\n\r\n";
        let text = format!("{header}{}", "x".repeat(length - header.len()));
        let head = format!(
            "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-token: {TOKEN}\r\n\
             content-type: message/rfc822\r\ncontent-length: {length}\r\n\r\n"
        );
        peer.send(head.as_bytes());
        peer.send(text.as_bytes());
        peer.reply().unwrap().status
    };
    assert_eq!(send(16 << 10), 202);
    assert_eq!(send((16 << 10) + 1), 503, "a longer message shares the room of its key");
}

/// Waits until the server has grown by less than `most` bytes. Each of its threads frees its own memory when it
/// does something else, so it is given something to do.
fn wait_for_memory(server: &Server, before: u64, most: u64) {
    let mut others: Vec<Connection> = (0..32).map(|_| server.connect()).collect();
    let look = request("GET", "/livez", &[], None);
    wait_until("the memory to be given back", || {
        others.iter_mut().for_each(|other| other.send(&look));
        others.iter_mut().for_each(|other| drop(other.reply().unwrap().ok()));
        grown(server, before) < most
    });
}

#[test]
fn one_connection_takes_8_mebibytes_and_leaves_the_rest_to_others() {
    let home = Home::with(OPEN);
    let server = home.start();
    let before = server.memory();
    let mut client = Http2::open(server.address);
    for _ in 0..40 {
        client.begin("POST", "/api/v1/check", &[]);
    }
    let refused = |client: &Http2| {
        let refusals = String::from_utf8_lossy(&client.bodies);
        refusals.matches("this connection has too many request bodies in flight").count()
    };
    client.pour(MEBIBYTE as i64 - 1, |client| refused(client) >= 32);
    assert!((32..40).contains(&refused(&client)), "{} of 40 were refused", refused(&client));
    let most = grown(&server, before);
    assert!(most < 2 * (8 << 20) + REST, "{most} bytes for at most 8 MiB");
    assert!(client.get("/livez").is_some(), "the connection goes on");
    let mut other = all_but_one(&server, MEBIBYTE);
    other.send(b" ");
    assert_eq!(other.reply().unwrap().status, 400);
}
