//! `POST /api/v1/check` beside a bare axum handler that reads and answers the same JSON, in one run.
//!
//! `cargo bench -p tollgate-doors --bench check` prints requests a second of both, over loopback
//! and without any network, and the ratio. Rounds alternate, so that a busy machine slows both.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use axum::routing::post;
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_core::key::FieldKind;
use tollgate_core::store::Answer;
use tollgate_core::{Field, OnExceed, Plan, Policies, Policy, Records, Rule};
use tollgate_doors::{HttpParts, router};
use tollgate_engine::{Engine, Parts};
use tollgate_store::{MemoryStore, SystemClock};
use tower::ServiceExt;

const BODY: &str = r#"{"policy":"orders","fields":{"ip":"10.0.0.1"},"cost":1}"#;
const CONNECTIONS: usize = 32;
const ROUND: Duration = Duration::from_millis(200);
const ROUNDS: usize = 41;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let ours = door().await;
        let bare = Router::new().route("/api/v1/check", post(bare));
        println!("answer: {}", text(&ours).await);
        println!("  bare: {}", text(&bare).await);
        compare("without network", &bare, &ours, calls).await;
        let (bare, ours) = (listen(bare).await, listen(ours).await);
        compare("loopback", &bare, &ours, load).await;
    });
}

/// Measures both by turns, and prints what the middle round of each came to.
async fn compare<T>(what: &str, bare: &T, ours: &T, measure: impl AsyncFn(&T) -> f64) {
    let (mut bares, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (bare, ours) = (measure(bare).await, measure(ours).await);
        bares.push(bare);
        theirs.push(ours);
        ratios.push(ours / bare);
    }
    let (bare, ours) = (median(bares), median(theirs));
    println!("{what}: bare {bare:.0}/s, tollgate {ours:.0}/s, median ratio {:.3}", median(ratios));
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// What a bare handler reads.
#[derive(Deserialize)]
struct BareBody {
    policy: String,
    fields: HashMap<String, String>,
    cost: u64,
}

#[derive(Serialize)]
struct BareAnswer {
    allowed: bool,
    verdict: &'static str,
    policy: String,
    origin: &'static str,
    repeated: bool,
    rules: Vec<BareRule>,
    receipt: &'static str,
}

#[derive(Serialize)]
struct BareRule {
    rule: &'static str,
    key: Option<String>,
    limit: &'static str,
    capacity: u64,
    remaining: u64,
    reset_after: u64,
    reset_after_ms: u64,
    exceeded: bool,
    observed: bool,
    limits: Vec<BareLimit>,
}

#[derive(Serialize)]
struct BareLimit {
    limit: &'static str,
    capacity: u64,
    remaining: u64,
    reset_after_ms: u64,
    retry_after_ms: Option<u64>,
}

async fn bare(Json(mut body): Json<BareBody>) -> Json<BareAnswer> {
    let limit = "1000000000/hour";
    let remaining = 1_000_000_000 - body.cost;
    let shown = BareLimit {
        limit,
        capacity: 1_000_000_000,
        remaining,
        reset_after_ms: 3_599_000,
        retry_after_ms: None,
    };
    let rule = BareRule {
        rule: "ip",
        key: body.fields.remove("ip"),
        limit,
        capacity: 1_000_000_000,
        remaining,
        reset_after: 3_599,
        reset_after_ms: 3_599_000,
        exceeded: false,
        observed: false,
        limits: vec![shown],
    };
    Json(BareAnswer {
        allowed: true,
        verdict: "allow",
        policy: body.policy,
        origin: "store",
        repeated: false,
        rules: vec![rule],
        receipt: "AZbKDmAc6vyxAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAgBpcAgAMTAuMC4wLjGrq6urq6urq6urq6urq6ur",
    })
}

async fn door() -> Router {
    let limit = "1000000000/hour".parse().expect("a limit");
    let rule = Rule {
        name: "ip".into(),
        by: [Field { name: "ip".into(), kind: FieldKind::of_name("ip") }].into(),
        plan: Arc::new(Plan::new("ip".into(), vec![limit]).expect("a plan")),
        overrides: Default::default(),
        on_exceed: OnExceed::Reject,
        enabled: true,
        secret: false,
    };
    let rules = vec![Arc::new(rule)];
    let policy = Policy::new("orders".into(), rules.clone(), false);
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 1_000_000));
    let parts = Parts { store, records: Arc::new(NoRecords), secret: [7; 32] };
    let engine = Engine::start(Policies::new(true, rules, vec![policy]), parts).await.expect("an engine");
    let reload = Arc::new(|| Ok(()));
    router(HttpParts { engine: Arc::new(engine), keys: Vec::new(), reload, registry: Registry::default() })
}

struct NoRecords;

impl Records for NoRecords {
    fn put<'a>(&'a self, _: &'a str, _: &'a [u8]) -> Answer<'a, ()> {
        Answer::ready(Ok(()))
    }

    fn delete<'a>(&'a self, _: &'a str) -> Answer<'a, ()> {
        Answer::ready(Ok(()))
    }

    fn all(&self) -> Answer<'_, Vec<(String, Vec<u8>)>> {
        Answer::ready(Ok(Vec::new()))
    }
}

fn request() -> Request<Body> {
    let request = Request::post("/api/v1/check").header(header::CONTENT_TYPE, "application/json");
    request.body(Body::from(BODY)).expect("a request")
}

async fn text(router: &Router) -> String {
    let response = router.clone().oneshot(request()).await.expect("an answer");
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Calls a second, one after the other.
async fn calls(router: &Router) -> f64 {
    let clock = quanta::Clock::new();
    let start = clock.now();
    let mut count = 0_u32;
    while start.elapsed() < ROUND {
        for _ in 0..1_000 {
            let response = router.clone().oneshot(request()).await.expect("an answer");
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            assert!(bytes.len() > 200);
        }
        count += 1_000;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

async fn listen(router: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Requests a second over connections that stay open.
async fn load(address: &SocketAddr) -> f64 {
    let address = *address;
    let clock = quanta::Clock::new();
    let start = clock.now();
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| tokio::spawn(talk(address, start))).collect();
    let mut count = 0;
    for connection in connections {
        count += connection.await.expect("a connection");
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

async fn talk(address: SocketAddr, start: quanta::Instant) -> u32 {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("an open socket");
    let length = BODY.len();
    let head = "POST /api/v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {length}\r\n\r\n{BODY}");
    let mut buffer = vec![0; 4_096];
    let mut count = 0;
    while start.elapsed() < ROUND {
        stream.write_all(request.as_bytes()).await.expect("a peer");
        let mut have = 0;
        loop {
            have += stream.read(&mut buffer[have..]).await.expect("a peer");
            // Both answers end like this and hold it nowhere else.
            if buffer[..have].ends_with(b"\"}") {
                break;
            }
        }
        assert!(buffer.starts_with(b"HTTP/1.1 200"));
        count += 1;
    }
    count
}
