//! `POST /api/v1/check` over loopback, beside a bare axum handler that reads and answers the same
//! JSON.

pub mod peer;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use axum::routing::post;
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tollgate_core::Clock;
use tollgate_doors::{HttpParts, Live, router};
use tollgate_engine::{Admissions, Leases, Pacer, PacerOptions};
use tollgate_store::{SteadyClock, SystemClock};

use crate::contenders::engine;
use crate::rounds::{line, measure};

const ONE: &str = r#"{"policy":"api","fields":{"user":"user-00000007"},"cost":1}"#;
const FIVE: &str = r#"{"policy":"mail","fields":{"domain":"example.com","sender":"a@example.com","ip":"10.0.0.1","api_key":"k-1"},"cost":1}"#;
const CONNECTIONS: usize = 16;
const REQUESTS: usize = 8_000;
const BATCH: usize = 100;

pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let own = runtime.block_on(serve());
    let bare = runtime.block_on(listen(Router::new().route("/api/v1/check", post(answer))));
    let batch = format!(r#"{{"attempts":[{}]}}"#, vec![ONE; BATCH].join(","));
    let times = measure(
        15,
        &mut [
            &mut || load(bare, ONE, REQUESTS),
            &mut || load(own, ONE, REQUESTS),
            &mut || load(own, FIVE, REQUESTS),
            &mut || load(own, &batch, REQUESTS / 20) * BATCH,
        ],
    );
    let rate = |at: usize| format!("{:.0}/s", 1e9 / times.nanos(at));
    line("`POST /api/v1/check`, one rule", &rate(1), &format!("bare axum handler {}", rate(0)), times.ratio(0, 1), "≥ 0.85");
    line("`POST /api/v1/check`, five rules, ten limits", &rate(2), &format!("one rule {}", rate(1)), times.ratio(1, 2), "≥ 0.70");
    line("attempts in batches of 100", &rate(3), &format!("single calls {}", rate(1)), times.ratio(1, 3), "≥ 15");
}

/// Serves the API with the engine of the benchmarks.
pub async fn serve() -> SocketAddr {
    let engine = Arc::new(engine());
    let leases = Leases::new(Arc::clone(&engine), Arc::new(SteadyClock::new()));
    let pacer = Pacer::new(Arc::clone(&engine), PacerOptions::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let live = Live::new(Arc::clone(&engine), pacer.clone(), None, Arc::clone(&clock));
    let parts = HttpParts {
        pacer,
        admissions: Admissions { engine, pacer: None, leases: Arc::new(leases) },
        keys: Arc::default(),
        reload: Arc::new(|| Ok(())),
        routes: Arc::new(Vec::new),
        forward_auth: Arc::default(),
        relay: None,
        live: Arc::new(live),
        clock,
        registry: Registry::default(),
    };
    listen(router(parts)).await
}

async fn listen(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Sends so many requests over connections that stay open, one each in flight.
fn load(address: SocketAddr, body: &str, requests: usize) -> usize {
    let head = "POST /api/v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    let mut buffer = vec![0; 256 * 1024];
    for _ in 0..requests / CONNECTIONS {
        for stream in &mut streams {
            stream.write_all(request.as_bytes()).expect("a peer");
        }
        for stream in &mut streams {
            read_answer(stream, &mut buffer);
        }
    }
    requests / CONNECTIONS * CONNECTIONS
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("an open socket");
    stream
}

/// Reads one answer to its end, which its head tells.
fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) {
    let mut have = 0;
    loop {
        let read = stream.read(&mut buffer[have..]).expect("a peer");
        assert!(read > 0, "the peer answers");
        have += read;
        let text = &buffer[..have];
        let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&text[..end]).expect("a head is text");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        if have >= end + 4 + length.parse::<usize>().expect("a number") {
            return;
        }
    }
}

#[derive(Deserialize)]
struct Asked {
    policy: String,
    fields: HashMap<String, String>,
    cost: u64,
}

#[derive(Serialize)]
struct Answered {
    allowed: bool,
    verdict: &'static str,
    policy: String,
    origin: &'static str,
    repeated: bool,
    rules: Vec<Rule>,
    receipt: &'static str,
}

#[derive(Serialize)]
struct Rule {
    rule: &'static str,
    key: Option<String>,
    limit: &'static str,
    capacity: u64,
    remaining: u64,
    reset_after: u64,
    reset_after_ms: u64,
    exceeded: bool,
    observed: bool,
    limits: Vec<Limit>,
}

#[derive(Serialize)]
struct Limit {
    limit: &'static str,
    capacity: u64,
    remaining: u64,
    reset_after_ms: u64,
    retry_after_ms: Option<u64>,
}

/// What anybody would write first: parse, and answer as much.
async fn answer(Json(mut asked): Json<Asked>) -> Json<Answered> {
    let limit = "100000000/s burst 100000000";
    let (capacity, remaining) = (100_000_000, 100_000_000 - asked.cost);
    let limits = vec![Limit { limit, capacity, remaining, reset_after_ms: 1, retry_after_ms: None }];
    let key = asked.fields.remove("user");
    let rule = Rule {
        rule: "api",
        key,
        limit,
        capacity,
        remaining,
        reset_after: 1,
        reset_after_ms: 1,
        exceeded: false,
        observed: false,
        limits,
    };
    Json(Answered {
        allowed: true,
        verdict: "allow",
        policy: asked.policy,
        origin: "store",
        repeated: false,
        rules: vec![rule],
        receipt: "AZbKDmAc6vyxAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAgBpcAgAMTAuMC4wLjGrq6urq6urq6urq6urq6ur",
    })
}
