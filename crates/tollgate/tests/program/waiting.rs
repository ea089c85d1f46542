//! Waiting for a turn, through the real program: over the API, at the gateway, and on the command line; and
//! what a reload and a shutdown mean for waiting calls.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes;
use std::time::Duration;

use crate::program::{self, Connection, Home, Server, Signal, request, text, wait_until};
use crate::upstream::Upstream;
use serde_json::{Value, json};

const CONFIG: &str = "
store: { file: ./state.redb, flush_interval: 1h }
log: { format: json }
rules: { chat: { by: chat, limits: 1/s sliding, on_exceed: wait 1h } }
policies: { send: [chat] }
";

fn to(chat: &str) -> Value {
    json!({ "policy": "send", "fields": { "chat": chat } })
}

/// A server with a paused policy, and a request that waits for it.
fn waits(home: &Home) -> (Server, Connection) {
    let server = home.start();
    server.post("/api/v1/paced/send/retry-after", &json!({ "retry_after": "50s" })).ok();
    let mut waiting = server.connect();
    waiting.send(&request("POST", "/api/v1/acquire", &[], Some(&to("a"))));
    wait_until("it waits", || waiting_at(&server) == 1);
    (server, waiting)
}

fn waiting_at(server: &Server) -> u64 {
    server.get("/api/v1/paced/send").ok()["waiting"].as_u64().unwrap()
}

fn go_on(server: &Server) {
    server.ask("DELETE", "/api/v1/paced/send/retry-after", None).ok();
}

#[test]
fn waiting_requests_get_503_at_shutdown_and_take_nothing() {
    let home = Home::with(CONFIG);
    let (server, mut waiting) = waits(&home);
    server.signal(Signal::TERM);
    let reply = waiting.reply().expect("it is answered, and not cut");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
    assert_eq!(reply.json()["type"], "/problems/unavailable");
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!ended.log.contains("still open and are cut"), "{}", ended.log);
    let server = home.start();
    assert_eq!(server.remaining("chat", "a"), 1);
    assert_eq!(server.get("/api/v1/paced/send").ok()["pauses"].as_array().unwrap().len(), 1, "it lasts");
}

#[test]
fn a_disconnected_client_leaves_the_queue_despite_pipelined_bytes() {
    let home = Home::with(CONFIG);
    let server = home.start();
    server.post("/api/v1/paced/send/retry-after", &json!({ "retry_after": "50s" })).ok();
    let asks = request("POST", "/api/v1/acquire", &[], Some(&to("a")));
    let checks = request("POST", "/api/v1/check", &[], Some(&to("a")));
    for after in [&b""[..], b"\r\n", b"GET", &asks, &checks] {
        let mut waiting = server.connect();
        waiting.send(&[&asks, after].concat());
        wait_until("it waits", || waiting_at(&server) == 1);
        drop(waiting);
        wait_until("it does not", || waiting_at(&server) == 0);
    }
    go_on(&server);
    assert_eq!(server.remaining("chat", "a"), 1, "nothing was taken");
}

#[test]
fn requests_pipelined_behind_a_waiting_one_are_answered_after_it() {
    let home = Home::with(CONFIG);
    let (server, mut waiting) = waits(&home);
    waiting.send(&request("POST", "/api/v1/check", &[], Some(&to("b"))));
    waiting.send(&request("GET", "/api/v1/paced/send", &[], None));
    go_on(&server);
    assert!(waiting.reply().unwrap().ok()["waited_ms"].is_u64());
    assert_eq!(waiting.reply().unwrap().ok()["rules"][0]["key"], "b");
    assert_eq!(waiting.reply().unwrap().ok()["waiting"], 0);
}

#[test]
fn a_reload_keeps_waiting_requests() {
    let home = Home::with(CONFIG);
    let (server, mut waiting) = waits(&home);
    home.configure(&CONFIG.replace("1/s", "2/s"));
    server.wait_for_log("the configuration was reloaded");
    assert_eq!(waiting_at(&server), 1);
    go_on(&server);
    let answer = waiting.reply().unwrap().ok();
    assert_eq!(answer["rules"][0]["limit"], "2/s sliding", "and the new limits hold for them");
}

/// A gateway whose requests wait for their turn.
fn gateway(upstream: &Upstream) -> Home {
    Home::with(&format!(
        "store: memory
rules: {{ chat: {{ by: ip, limits: 1/s sliding, on_exceed: wait 1h }} }}
policies: {{ send: [chat] }}
gateway:
  listen: 127.0.0.1:0
  upstreams: {{ bot: {} }}
  routes: {{ all: {{ upstream: bot, policy: send }} }}
",
        upstream.address
    ))
}

#[test]
fn requests_at_the_gateway_wait_in_the_same_queue() {
    let upstream = Upstream::start();
    let home = gateway(&upstream);
    let server = home.start();
    server.post("/api/v1/paced/send/retry-after", &json!({ "retry_after": 50 })).ok();
    let mut at_gateway = server.gateway();
    at_gateway.send(&request("GET", "/", &[], None));
    wait_until("it waits", || waiting_at(&server) == 1);
    let mut over_api = server.connect();
    let body = json!({ "policy": "send", "fields": { "ip": "127.0.0.1" } });
    over_api.send(&request("POST", "/api/v1/acquire", &[], Some(&body)));
    wait_until("both wait", || waiting_at(&server) == 2);
    go_on(&server);
    assert_eq!(at_gateway.reply().unwrap().status, 200);
    let answer = over_api.reply().unwrap().ok();
    assert!(answer["waited_ms"].as_u64().unwrap() >= 1_000, "a second after the first: {answer}");
    assert_eq!(nodes::metric(&server, "tollgate_paced_total{policy=\"send\",outcome=\"passed\"}"), 2.0);
}

#[test]
fn a_request_that_waits_at_the_gateway_is_told_when_the_server_ends() {
    let upstream = Upstream::start();
    let home = gateway(&upstream);
    let server = home.start();
    server.post("/api/v1/paced/send/retry-after", &json!({ "retry_after": 50 })).ok();
    let mut waiting = server.gateway();
    waiting.send(&request("GET", "/", &[], None));
    wait_until("it waits", || waiting_at(&server) == 1);
    server.signal(Signal::TERM);
    let reply = waiting.reply().expect("it is answered, and not cut");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

/// The holds last longer than any test waits.
const HELD: &str = "
store: memory
rules: { job: { by: job, limits: 2 at once for 1h, on_exceed: wait 1h } }
policies: { send: [job] }
";

#[test]
fn a_released_or_refunded_hold_admits_the_next_waiter() {
    let server = Home::with(HELD).start();
    let job = |id: &str| json!({ "policy": "send", "fields": { "job": "a" }, "id": id });
    let acquire = |id: &str| server.post("/api/v1/acquire", &job(id)).ok();
    let waits = |id: &str| {
        let mut waiting = server.connect();
        waiting.send(&request("POST", "/api/v1/acquire", &[], Some(&job(id))));
        wait_until("it waits", || waiting_at(&server) == 1);
        waiting
    };
    acquire("1");
    let second = acquire("2");
    let mut third = waits("3");
    assert_eq!(server.ask("DELETE", "/api/v1/holds/job/a/1", None).ok()["released"], true);
    assert_eq!(third.reply().unwrap().ok()["allowed"], true);
    let mut fourth = waits("4");
    server.post("/api/v1/refund", &json!({ "receipt": second["receipt"] })).ok();
    assert_eq!(fourth.reply().unwrap().ok()["allowed"], true);
    let brief = json!({ "policy": "send", "fields": { "job": "a" }, "id": "5", "max_wait": "100ms" });
    let reply = server.post("/api/v1/acquire", &brief);
    assert_eq!((reply.status, &reply.json()["error"]), (429, &json!("wait too long")));
}

#[test]
fn the_command_line_waits_and_says_at_once_when_it_would_be_too_long() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let run = |arguments: &[&str]| {
        let output = home.run(&server, arguments);
        (output.status.code(), text(&output.stdout).to_owned() + text(&output.stderr))
    };
    let (code, said) = run(&["acquire", "send", "chat=a"]);
    assert!(code == Some(0) && said.starts_with("allowed immediately\nreceipt "), "{code:?} {said}");
    let (code, said) = run(&["acquire", "send", "chat=a", "--max-wait", "1m"]);
    assert!(code == Some(0) && said.starts_with("allowed "), "{code:?} {said}");
    assert_eq!(
        run(&["pause", "send", "chat=a", "--for", "1h"]),
        (Some(0), "1 key is paused for 1h\n".into())
    );
    let (code, said) = run(&["acquire", "send", "chat=a", "--max-wait", "5s"]);
    assert!(code == Some(1) && said.starts_with("told to wait, retry in "), "{code:?} {said}");
    let (code, said) = run(&["acquire", "send", "chat=b", "--max-wait", "0s", "--priority", "-5"]);
    assert!(code == Some(0), "{code:?} {said}");
    let (code, said) = run(&["pause", "send", "--show"]);
    assert!(code == Some(0) && said.starts_with("0 waiting\nchat a is paused for "), "{code:?} {said}");
    assert_eq!(run(&["pause", "send", "--for", "7s"]), (Some(0), "send is paused for 7s\n".into()));
    assert_eq!(run(&["pause", "send", "--end"]), (Some(0), "2 pauses ended\n".into()));
    assert_eq!(run(&["pause", "send", "--end"]), (Some(0), "nothing was paused\n".into()));
    let (code, said) = run(&["acquire", "sent", "chat=a"]);
    assert!(code == Some(2) && said.contains("did you mean `send`?"), "{code:?} {said}");
    let (code, said) = run(&["acquire", "send", "chat=a", "--max-wait", "2m"]);
    assert!(code == Some(2) && said.contains("the maximum is `1m`"), "{code:?} {said}");
    for wrong in [&["pause", "send"][..], &["pause", "send", "chat=a", "--end"]] {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn the_command_line_is_patient_for_as_long_as_it_waits() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let begun = program::now();
    let pause = json!({ "retry_after": 2.5, "fields": { "chat": "a" } });
    server.post("/api/v1/paced/send/retry-after", &pause).ok();
    let output = home.run(&server, &["acquire", "send", "chat=a", "--max-wait", "30s", "--timeout", "2s"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("allowed "), "{}", text(&output.stdout));
    assert!(begun.elapsed() >= Duration::from_millis(2_500), "{:?}", begun.elapsed());
}
