//! HTTP/2 clients that attack the gateway of the real program with frames instead of requests. Each is
//! disconnected or bounded, its memory is released, and other clients are served meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::program::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, fields, frame,
};
use crate::program::{Home, Server, now, pause, wait_until};
use crate::upstream::Upstream;

/// How many clients attack at once.
const CLIENTS: usize = 8;
/// More than the server needs for these clients. A flood that is kept takes more.
const MOST_GROWTH: u64 = 48 << 20;
/// How much each client sends at most.
const FLOOD_BYTES: usize = 16 << 20;
/// A frame type that no version of HTTP/2 defines.
const UNKNOWN: u8 = 0xbb;

fn config(upstream: SocketAddr) -> String {
    format!(
        "store: memory
rules: {{ few: {{ by: ip, limits: 10/day }} }}
policies: {{ few: [few] }}
gateway:
  listen: 127.0.0.1:0
  workers: 2
  bounds: {{ head_timeout: 2s }}
  upstreams: {{ shop: {upstream} }}
  routes:
    few: {{ path: /few, policy: few, upstream: shop }}
    rest: {{ path: /, upstream: shop }}
"
    )
}

/// A value of a metric without labels.
fn metric(server: &Server, name: &str) -> u64 {
    let page = server.get("/metrics");
    let value = page.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.expect("the gateway counts them").parse().unwrap()
}

/// Sends these bytes again and again. Returns whether the server closes the connection before the end of the
/// flood.
fn is_cut(client: &mut Http2, flood: &[u8]) -> bool {
    let mut reader = client.other_end();
    // Replies are read, so that only the flood can be the cause.
    let reading = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let piece = flood.repeat(65_536_usize.div_ceil(flood.len()));
    let sent = (0..FLOOD_BYTES / piece.len()).try_for_each(|_| client.send(&piece));
    client.other_end().shutdown(std::net::Shutdown::Both).ok();
    drop(reading.join().unwrap());
    sent.is_err()
}

/// Lets several clients send the same, and checks that all of them are disconnected, that memory stays bounded
/// and that other clients are served.
fn attack(server: &Server, name: &str, begin: impl Fn(&mut Http2) + Sync, flood: &[u8]) {
    let (address, before) = (server.gateways[0], server.memory());
    thread::scope(|scope| {
        let client = || {
            let mut client = Http2::open(address);
            client.get("/").expect("it is answered before the flood");
            begin(&mut client);
            assert!(is_cut(&mut client, flood), "{FLOOD_BYTES} bytes of {name} are read");
        };
        for _ in 0..CLIENTS {
            scope.spawn(client);
        }
        for _ in 0..20 {
            Http2::open(address).get("/").expect("others are served");
        }
    });
    let grown = server.memory().saturating_sub(before);
    assert!(grown < MOST_GROWTH, "{name}: {grown} bytes more");
    wait_until("all connections are closed", || metric(server, "tollgate_gateway_connections") == 0);
}

#[test]
fn floods_of_frames_without_requests_are_cut_off() {
    let upstream = Upstream::start();
    let home = Home::with(&config(upstream.address));
    let server = home.start();
    let nothing = |_: &mut Http2| {};
    attack(&server, "PING", nothing, &frame(PING, 0, 0, &[0; 8]));
    attack(&server, "SETTINGS", nothing, &frame(SETTINGS, 0, 0, b""));
    attack(&server, "SETTINGS that change", nothing, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]));
    attack(&server, "PRIORITY", nothing, &frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16]));
    attack(&server, "WINDOW_UPDATE", nothing, &frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    attack(&server, "unknown frames", nothing, &frame(UNKNOWN, 0, 0, &[0; 100]));
    let post = |client: &mut Http2| assert_eq!(client.begin("POST", "/", &[]), 3);
    attack(&server, "empty DATA", post, &frame(DATA, 0, 3, b""));
    let head = |client: &mut Http2| assert_eq!(client.head("GET", "/", &[], 0), 3);
    attack(&server, "empty CONTINUATION", head, &frame(CONTINUATION, 0, 3, b""));
    let line = [&[0, 3][..], b"x-a", &[100], &[b'v'; 100]].concat();
    attack(&server, "CONTINUATION", head, &frame(CONTINUATION, 0, 3, &line.repeat(100)));
    server.stop();
}

/// An upstream that reads and never responds. It counts its open connections.
fn silent() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, open) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&open);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, open) = (stream.unwrap(), Arc::clone(&count));
            open.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || {
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    (address, open)
}

/// Requests of which each is reset at once, on streams from `first` on.
fn resets(path: &str, first: u32, count: u32) -> Vec<u8> {
    let head = fields("GET", path, &[]);
    let pair = |number| {
        let stream = first + 2 * number;
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
        [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    };
    (0..count).flat_map(pair).collect()
}

#[test]
fn requests_that_are_reset_at_once_keep_no_upstream_connection_and_no_memory() {
    let (address, open) = silent();
    let home = Home::with(&config(address));
    let server = home.start();
    let before = server.memory();
    let attackers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Http2::open(server.gateways[0]);
            thread::spawn(move || {
                let mut reader = client.other_end();
                let reading = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
                // The server may close the connection.
                let _ = (0..20).try_for_each(|part| client.send(&resets("/", 1 + part * 1_000, 500)));
                client.other_end().shutdown(std::net::Shutdown::Write).ok();
                drop(reading.join().unwrap());
            })
        })
        .collect();
    let mut most = 0;
    while attackers.iter().any(|attacker| !attacker.is_finished()) {
        most = most.max(open.load(Ordering::Relaxed));
        pause(Duration::from_millis(5));
    }
    for attacker in attackers {
        attacker.join().unwrap();
    }
    // 80,000 requests; each client may have 128 in flight at once.
    println!("{most} connections to the upstream");
    assert!(most <= CLIENTS * 128, "{most} connections to the upstream");
    wait_until("no upstream connection is left", || open.load(Ordering::Relaxed) == 0);
    wait_until("all connections are closed", || metric(&server, "tollgate_gateway_connections") == 0);
    let grown = server.memory().saturating_sub(before);
    assert!(grown < MOST_GROWTH, "{grown} bytes more");
    server.stop();
}

#[test]
fn a_request_that_is_reset_counts() {
    let upstream = Upstream::start();
    let home = Home::with(&config(upstream.address));
    let server = home.start();
    for _ in 0..3 {
        let mut client = Http2::open(server.gateways[0]);
        client.send(&resets("/few", 1, 15)).unwrap();
        // The answer to a later request shows that all of these were read.
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 101, &fields("GET", "/", &[]))).unwrap();
        while client.next().is_some_and(|frame| frame.stream != 101) {}
    }
    assert!(server.remaining("few", "127.0.0.1") == 0, "each reset request is counted");
    assert!(upstream.all().iter().filter(|asked| asked.target == "/few").count() <= 10);
    server.stop();
}

#[test]
fn a_head_that_never_ends_is_cut_off_after_its_time() {
    let upstream = Upstream::start();
    let home = Home::with(&config(upstream.address));
    let server = home.start();
    let whole = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields("GET", "/", &[]));
    let unfinished = frame(HEADERS, END_STREAM, 1, &fields("GET", "/", &[]));
    let starts = [unfinished.clone(), whole[..10].to_vec(), whole[..5].to_vec()];
    let mut peers: Vec<Http2> = starts
        .iter()
        .map(|start| {
            let mut client = Http2::open(server.gateways[0]);
            client.send(start).unwrap();
            client
        })
        .collect();
    let mut http1 = server.gateway();
    http1.send(b"GET / HTTP/1.1\r\nhost: sh");
    let begun = now();
    for peer in &mut peers {
        while peer.next().is_some() {}
    }
    http1.rest();
    let took = begun.elapsed();
    assert!((1..8).contains(&took.as_secs()), "`head_timeout` is 2 s, and it took {took:?}");
    assert_eq!(upstream.count(), 0);
    wait_until("all connections are closed", || metric(&server, "tollgate_gateway_connections") == 0);
    server.stop();
}

#[test]
fn a_response_to_head_has_one_length() {
    for (lines, length) in [
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Some("5")),
        ("Content-Length: 5, 5\r\n", Some("5")),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", None),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{lines}\r\n").as_bytes()).unwrap();
        });
        let home = Home::with(&config(address));
        let server = home.start();
        let mut client = server.gateway();
        client.send(b"HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let head = String::from_utf8(client.rest()).unwrap().to_lowercase();
        let found: Vec<&str> =
            head.lines().filter_map(|line| line.strip_prefix("content-length: ")).collect();
        assert_eq!(found, length.into_iter().collect::<Vec<_>>(), "{lines}: {head}");
        upstream.join().unwrap();
        server.stop();
    }
}
