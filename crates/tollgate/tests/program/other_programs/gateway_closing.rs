//! How the gateway of the real program closes connections: after a response that refuses a body, which a real
//! Python client must be able to read, and at the shutdown.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::program::{Home, Server, Signal, now, pause, wait_until};
use crate::upstream::Upstream;

fn config(upstream: &Upstream) -> String {
    format!(
        "store: memory
rules:
  login: {{ by: user, limits: ladder 1 +50s }}
  pace: {{ by: ip, limits: 1/min, on_exceed: wait 5m }}
policies: {{ login: [login], pace: [pace] }}
guards: {{ login: {{ policy: login }} }}
gateway:
  listen: 127.0.0.1:0
  workers: 2
  upstreams: {{ shop: {} }}
  routes:
    small: {{ path: /small, body_bytes: 1000, upstream: shop }}
    paced: {{ path: /paced, policy: pace, upstream: shop }}
    login:
      path: /login
      method: POST
      upstream: shop
      guard: {{ name: login, fields: {{ user: form.user }}, success: 303, max_delay: 1m }}
    rest: {{ path: /, upstream: shop }}
",
        upstream.address
    )
}

/// Sends eight megabytes, and at last 72, with every function of Python's library, and prints the statuses.
const UPLOAD: &str = r#"
import http.client, sys, urllib.error, urllib.request

host, port = sys.argv[1].split(":")
body = b"x" * (8 << 20)
form = {"Content-Type": "application/x-www-form-urlencoded"}


def pieces():
    for start in range(0, len(body), 1 << 16):
        yield body[start : start + (1 << 16)]


for _ in range(3):
    for method, path, data in (
        ("POST", "/small", body),
        ("POST", "/small", pieces()),
        ("POST", "/login", body),
        ("post", "/small", body),
        ("POST", "/a%2Fb", body),
        ("POST", "/nowhere", body),
    ):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request(method, path, data, form, encode_chunked=data is not body)
        response = connection.getresponse()
        response.read()
        print(response.status, end=" ")
    try:
        urllib.request.urlopen(f"http://{host}:{port}/small", body * 9, timeout=20)
    except urllib.error.HTTPError as refused:
        print(refused.code)
"#;

#[test]
fn a_client_that_sends_all_of_its_body_first_can_read_why_it_was_refused() {
    let upstream = Upstream::start();
    let home = Home::with(&config(&upstream));
    let server = home.start();
    let address = server.gateway().other_end().peer_addr().unwrap().to_string();
    let output = Command::new("python3").args(["-c", UPLOAD, &address]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().collect::<Vec<_>>(), ["413 413 413 400 400 404 413"; 3]);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn a_refused_client_that_sends_on_for_ever_is_cut_off() {
    let upstream = Upstream::start();
    let home = Home::with(&config(&upstream));
    let server = home.start();
    let refused = || {
        let mut peer = server.gateway();
        peer.send(b"POST /small HTTP/1.1\r\nhost: a\r\ncontent-length: 1073741824\r\n\r\n");
        assert_eq!(peer.reply().expect("the answer comes first").status, 413);
        peer
    };
    let taken = refused().pour(&[b'x'; 65_536], Duration::ZERO);
    assert!(taken < 192 << 20, "{taken} bytes were taken; 128 MiB are read, and sockets buffer some");
    let begun = now();
    refused().pour(b"x", Duration::from_millis(100));
    assert!(begun.elapsed() < Duration::from_secs(15), "a trickle goes on for five seconds at most");
    assert_eq!(upstream.count(), 0);
}

fn delayed(server: &Server) -> u64 {
    let page = server.get("/metrics");
    let line = page.text().lines().find_map(|line| line.strip_prefix("tollgate_guard_delayed "));
    line.expect("the gateway counts them").parse().unwrap()
}

#[test]
fn at_shutdown_the_gateway_answers_all_requests_and_closes_connections() {
    let upstream = Upstream::answering(|asked| if asked.target == "/login" { 401 } else { 200 });
    let home = Home::with(&config(&upstream));
    let server = home.start();
    let login = "POST /login HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 8\r\n\r\nuser=ada";
    let paced = "GET /paced HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut waiting = Vec::new();
    for request in [login, paced] {
        let mut first = server.gateway();
        first.send(request.as_bytes());
        assert!(first.reply().unwrap().status < 429);
        let mut second = server.gateway();
        second.send(request.as_bytes());
        waiting.push(second);
    }
    wait_until("the login is held back", || delayed(&server) == 1);
    wait_until("the other one waits for its turn", || {
        server
            .get("/metrics")
            .text()
            .lines()
            .any(|line| line.starts_with("tollgate_paced_waiting{") && line.ends_with(" 1"))
    });
    let before = upstream.count();
    let asking: Vec<_> = (0..32)
        .map(|_| {
            let mut connection = server.gateway();
            thread::spawn(move || {
                loop {
                    connection.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
                    let reply = connection.reply().expect("an answer, and not the end of the connection");
                    assert_eq!(reply.status, 200);
                    if reply.header("connection") == Some("close") {
                        return;
                    }
                    // Most clients pause between two requests.
                    pause(Duration::from_millis(20));
                }
            })
        })
        .collect();
    wait_until("they are busy", || upstream.count() > before + 500);
    server.signal(Signal::TERM);
    for mut connection in waiting {
        let reply = connection.reply().expect("an answer");
        assert_eq!((reply.status, reply.header("connection")), (503, Some("close")), "{}", reply.text());
    }
    for client in asking {
        client.join().expect("a client that saw no answer");
    }
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}
