//! The shutdown: complete requests are answered, counts are saved, and a slow client delays nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::program::{Connection, Home, Server, Signal, request, wait_until};
use serde_json::json;

const CONFIG: &str = "
store: { file: ./state.redb, flush_interval: 1h }
rules: { one: { by: user, limits: 1000/day } }
policies: { p: [one] }
";

/// The longest time for anything here.
const SOON: Duration = Duration::from_secs(5);

fn attempt() -> Vec<u8> {
    let body = json!({ "policy": "p", "fields": { "user": "ada" } });
    request("POST", "/api/v1/check", &[], Some(&body))
}

/// A request of which the server has the first part, and the missing part.
fn half_sent(server: &Server) -> (Connection, Vec<u8>) {
    let mut peer = server.connect();
    peer.send(&attempt());
    assert_eq!(peer.reply().unwrap().status, 200);
    let body = json!({ "policy": "p", "fields": { "user": "ada" } });
    let whole = request("POST", "/api/v1/check", &[("expect", "100-continue")], Some(&body));
    let (head, missing) = whole.split_at(whole.len() - body.to_string().len());
    peer.send(head);
    // The server asks for the rest as soon as it has started to read it.
    assert_eq!(peer.reply().unwrap().status, 100);
    (peer, missing.to_vec())
}

fn no_longer_listens(server: &Server) -> bool {
    std::net::TcpStream::connect(server.address).is_err()
}

fn ends_in_order(signal: Signal) {
    let home = Home::with(CONFIG);
    let server = home.start();
    let mut idle = server.connect();
    idle.ask("GET", "/livez", &[], None).ok();
    let (mut slow, missing) = half_sent(&server);
    server.signal(signal);
    wait_until("no new connections", || no_longer_listens(&server));
    assert_eq!(idle.rest(), b"", "an idle connection is ended at once");
    slow.send(&missing);
    assert_eq!(slow.reply().expect("a request in flight is answered").status, 200);
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.took < SOON, "{:?}", ended.took);
    let server = home.start();
    assert_eq!(server.remaining("one", "ada"), 998, "both were counted and saved");
}

#[test]
fn on_sigterm_the_server_answers_requests_in_flight_and_saves_everything() {
    ends_in_order(Signal::TERM);
}

#[test]
fn on_sigint_the_server_answers_requests_in_flight_and_saves_everything() {
    ends_in_order(Signal::INT);
}

#[test]
fn an_incomplete_request_does_not_delay_the_shutdown() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let (_slow, _) = half_sent(&server);
    let mut slower = server.connect();
    slower.send(b"POST /api/v1/check HT");
    let _silent = server.connect();
    let ended = server.end_by(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.took < SOON, "{:?}", ended.took);
    assert!(ended.log.contains("still open and are cut"), "{}", ended.log);
    let server = home.start();
    assert_eq!(server.remaining("one", "ada"), 999);
}

#[test]
fn drain_time_can_be_configured_and_reloaded() {
    let home = Home::with(&format!("drain: 10m\n{CONFIG}"));
    let server = home.start();
    let (_slow, _) = half_sent(&server);
    home.configure(&format!("drain: 0s\n{CONFIG}"));
    server.post("/api/v1/reload", &json!(null)).ok();
    let ended = server.end_by(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("still open and are cut"), "{}", ended.log);
}

#[test]
fn every_counted_request_is_answered_and_saved() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let mut peers: Vec<Connection> = (0..50).map(|_| server.connect()).collect();
    for peer in &mut peers {
        peer.ask("GET", "/livez", &[], None).ok();
        peer.send(&attempt());
    }
    server.signal(Signal::TERM);
    let answered = peers.iter_mut().filter_map(Connection::reply).filter(|reply| reply.status == 200).count();
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let server = home.start();
    let counted = 1000 - server.remaining("one", "ada");
    assert_eq!(counted, answered as u64, "what is counted was answered, and what was answered is saved");
    assert!(answered > 0);
}

/// Sends requests over one connection until the server closes it. Returns whether the last response announced
/// it.
fn asks_until_the_end(mut peer: Connection) -> bool {
    loop {
        let Ok(()) = peer.try_send(&attempt()) else { return false };
        let Some(reply) = peer.reply() else { return false };
        assert_eq!(reply.status, 200);
        if reply.header("connection") == Some("close") {
            return true;
        }
    }
}

#[test]
fn busy_keep_alive_clients_are_told_to_close_and_none_is_cut() {
    let config = CONFIG.replace("1000/day", "1000000000/day");
    let home = Home::with(&config);
    let server = home.start();
    let clients: Vec<_> = (0..64)
        .map(|_| {
            let mut peer = server.connect();
            peer.ask("GET", "/livez", &[], None).ok();
            thread::spawn(move || asks_until_the_end(peer))
        })
        .collect();
    server.signal(Signal::TERM);
    let told = clients.into_iter().map(|client| client.join().unwrap());
    assert_eq!(told.filter(|told| *told).count(), 64, "of 64 clients were told to close");
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

#[test]
fn clients_that_come_right_after_the_signal_are_still_answered() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let mut idle = server.connect();
    idle.ask("GET", "/livez", &[], None).ok();
    server.signal(Signal::TERM);
    server.wait_for_log("shutting down:");
    let reply = server.connect().ask("GET", "/livez", &[], None);
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert_eq!(server.ended().status.code(), Some(0));
}

const PACED: &str = "
drain: 10m
store: { file: ./state.redb, flush_interval: 1h }
rules: { slow: { limits: 1/30s, on_exceed: wait 1m } }
policies: { p: [slow] }
";

#[test]
fn waiting_calls_are_answered_when_the_shutdown_begins() {
    let home = Home::with(PACED);
    let server = home.start();
    server.post("/api/v1/acquire", &json!({ "policy": "p" })).ok();
    let mut waiting = server.connect();
    waiting.send(&request("POST", "/api/v1/acquire", &[], Some(&json!({ "policy": "p" }))));
    wait_until("a call that waits", || server.get("/api/v1/paced/p").ok()["waiting"] == 1);
    let ended = server.end_by(Signal::TERM);
    let reply = waiting.reply().expect("it is answered");
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("the server is ending"), "{}", reply.text());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.took < SOON, "{:?}", ended.took);
}

#[test]
fn a_second_signal_stops_the_server_immediately_and_saves_everything() {
    for second in [Signal::TERM, Signal::INT] {
        let home = Home::with(&format!("drain: 10m\n{CONFIG}"));
        let server = home.start();
        let (_slow, _) = half_sent(&server);
        server.signal(Signal::TERM);
        wait_until("no new connections", || no_longer_listens(&server));
        let ended = server.end_by(second);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        assert!(ended.took < SOON, "{:?}", ended.took);
        assert!(ended.log.contains("a second signal came"), "{}", ended.log);
        let server = home.start();
        assert_eq!(server.remaining("one", "ada"), 999, "what was counted is saved");
    }
}
