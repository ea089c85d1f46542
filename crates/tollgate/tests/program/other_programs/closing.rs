//! Refusals before the whole request was sent: ordinary clients can read them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;
use std::time::Duration;

use crate::program::{Connection, Home, Server, now, text};

const CONFIG: &str = "
store: memory
rules: { one: { by: user, limits: 1000000/day } }
policies: { p: [one] }
keys: [{ name: app, role: check, token_env: APP_TOKEN }]
";

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Sends a body of so many bytes with Python's own client, and prints the status and the kind of problem.
const SENDS_MUCH: &str = "
import json, sys, urllib.error, urllib.request
url, token, length = sys.argv[1:]
body = b' ' * int(length)
request = urllib.request.Request(url, data=body, headers={'Authorization': 'Bearer ' + token})
try:
    print(urllib.request.urlopen(request, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)['type'])
";

/// Sends two requests over one connection, if the first response leaves it open.
const ASKS_TWICE: &str = "
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=20)
for _ in range(2):
    connection.request('GET', '/livez', body=b'{}' * 100_000)
    answer = connection.getresponse()
    print(answer.status, answer.getheader('connection'))
    answer.read()
";

fn python(script: &str, arguments: &[&str]) -> String {
    let output = Command::new("python3").args(["-c", script]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

fn sends_much(server: &Server, path: &str, token: &str) -> String {
    sends(server, path, token, "5000000")
}

fn sends(server: &Server, path: &str, token: &str, length: &str) -> String {
    python(SENDS_MUCH, &[&format!("{}{path}", server.url()), token, length])
}

#[test]
fn a_client_that_still_sends_can_read_why_it_is_refused() {
    let home = Home::with(CONFIG).variable("APP_TOKEN", TOKEN);
    let server = home.start();
    for _ in 0..3 {
        assert_eq!(sends_much(&server, "/api/v1/check", TOKEN), "413 /problems/too-large");
        assert_eq!(sends_much(&server, "/api/v1/check", "wrong"), "401 /problems/unauthorized");
        assert_eq!(sends_much(&server, "/api/v1/check?x=1", TOKEN), "400 /problems/bad-request");
        assert_eq!(sends_much(&server, "/nowhere", TOKEN), "404 /problems/not-found");
        assert_eq!(sends_much(&server, "/livez", TOKEN), "405 /problems/method-not-allowed");
    }
    // More than the longest message that the relay takes.
    assert_eq!(sends(&server, "/api/v1/check", TOKEN, "70000000"), "413 /problems/too-large");
    assert_eq!(sends(&server, "/api/v1/messages", "wrong", "70000000"), "401 /problems/unauthorized");
}

#[test]
fn a_client_is_told_that_its_connection_ends_with_an_unread_body() {
    let home = Home::with(CONFIG).variable("APP_TOKEN", TOKEN);
    let server = home.start();
    assert_eq!(python(ASKS_TWICE, &[&server.address.to_string()]), "200 close\n200 close");
}

#[test]
fn a_head_that_is_refused_while_it_is_sent_is_answered_readably() {
    let home = Home::with(CONFIG).variable("APP_TOKEN", TOKEN);
    let server = home.start();
    for _ in 0..10 {
        let mut peer = server.connect();
        let endless = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}", "y".repeat(5_000_000));
        peer.send(endless.as_bytes());
        assert_eq!(peer.reply().expect("the answer can be read").status, 431);
    }
}

/// A request that the server refuses, with a body of a gibibyte to come.
fn refused(server: &Server) -> Connection {
    let mut peer = server.connect();
    peer.send(b"POST /api/v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1073741824\r\n\r\n");
    assert_eq!(peer.reply().expect("the answer comes first").status, 401);
    peer
}

#[test]
fn a_refused_client_that_sends_on_for_ever_is_cut_off() {
    let home = Home::with(CONFIG).variable("APP_TOKEN", TOKEN);
    let server = home.start();
    let taken = refused(&server).pour(&[b'x'; 65_536], Duration::ZERO);
    assert!(taken < 192 << 20, "{taken} bytes were taken; 128 MiB are read, and sockets buffer some");
    let begun = now();
    refused(&server).pour(b"x", Duration::from_millis(100));
    assert!(begun.elapsed() < Duration::from_secs(15), "a trickle goes on for five seconds at most");
}
