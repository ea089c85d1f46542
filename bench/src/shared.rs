//! Counters on Redis, beside what the server itself can do: `redis-benchmark` with the barest script
//! of one bucket, over as many connections with as many commands in flight.

use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tollgate_core::{Attempt, Charges, Decision, Outcome, Plan, Span, Store, Ticket};
use tollgate_engine::{Engine, Fallback, Parts};
use tollgate_redis::{Address, RedisStore, Settings, Topology};
use tollgate_store::{MemoryStore, SteadyClock, SystemClock};
use tollgate_testbed::Server;

use crate::contenders::{bucket_plan, policies};
use crate::nodes::{self, Load, UNBOUNDED};
use crate::rounds::{is_chosen, line, measure, median, ratio};

/// The script of an application that needs one bucket and nothing else.
const BARE: &str = include_str!("bare.lua");
const CALLERS: usize = 50;
const CONNECTIONS: usize = 2;
const CALLS: usize = 60_000;
const ROUNDS: usize = 9;

pub fn run() {
    let server = Server::redis().start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let settings = Settings {
        connections: CONNECTIONS,
        command_timeout: Duration::from_secs(5),
        ..Settings::new(Topology::Single(Address::Tcp { host: "127.0.0.1".into(), port: server.port() }))
    };
    let store = Arc::new(runtime.block_on(RedisStore::start(settings)).expect("settings that can be followed"));
    let bare = server.command(&["SCRIPT", "LOAD", BARE]).text();
    let (one, five) = (vec![bucket_plan()], level_plans());
    let parts: [(&str, &dyn Fn()); 5] = [
        ("throughput", &|| throughput(&server, &runtime, &store, &bare, &one, &five)),
        ("scripts", &|| script_times(&server, &runtime, &store, &bare, &one, &five)),
        ("latency", &|| latency(&server, &runtime, &store, &bare, &one)),
        ("denied", &|| denied(&runtime, &store)),
        ("nodes", &|| several_nodes(&server)),
    ];
    for (_, part) in parts.iter().filter(|(name, _)| is_chosen(&parts.map(|(name, _)| name), name)) {
        part();
    }
}

/// Nodes that share the server, each a process of its own, with 50 callers.
fn several_nodes(server: &Server) {
    let url = server.url();
    let load = Load { url: &url, callers: CALLERS, rules: "window", keys: 10_000, most: UNBOUNDED };
    let rates = |count: usize| -> Vec<f64> { (0..3).map(|_| nodes::run(count, load).per_second).collect() };
    let one = rates(1);
    let single = format!("1 node {:.0}/s", median(one.clone()));
    for count in [2, 4] {
        let several = rates(count);
        let what = format!("Redis: {count} nodes, 50 callers each");
        line(&what, &format!("{:.0}/s", median(several.clone())), &single, ratio(&several, &one), "");
    }
}

/// Five rules with an hour and a day window each.
fn level_plans() -> Vec<Arc<Plan>> {
    let limits = || ["1000000000/hour", "4000000000/day"].map(|limit| limit.parse().unwrap()).to_vec();
    let names = ["global", "domain", "sender", "ip", "api_key"];
    names.map(|name| Arc::new(Plan::new(name.into(), limits()).unwrap())).to_vec()
}

fn throughput(server: &Server, runtime: &Runtime, store: &Arc<RedisStore>, bare: &str, one: &[Arc<Plan>], five: &[Arc<Plan>]) {
    let times = measure(
        ROUNDS,
        &mut [
            &mut || redis_benchmark(server, bare),
            &mut || take_many(runtime, store, one, CALLS),
            &mut || take_many(runtime, store, five, CALLS / 2),
        ],
    );
    let rate = |at: usize| format!("{:.0}/s", 1e9 / times.nanos(at));
    let beside = format!("redis-benchmark, bare script {}", rate(0));
    line("Redis, one bucket, 50 callers", &rate(1), &beside, times.ratio(0, 1), "≥ 0.80");
    line("Redis, five rules, ten limits, 50 callers", &rate(2), &beside, times.ratio(0, 2), "≥ 0.33");
}

/// What the server itself measures of each script.
fn script_times(server: &Server, runtime: &Runtime, store: &Arc<RedisStore>, bare: &str, one: &[Arc<Plan>], five: &[Arc<Plan>]) {
    let usec = |work: &mut dyn FnMut()| {
        let mut least = f64::MAX;
        for _ in 0..5 {
            server.command(&["CONFIG", "RESETSTAT"]);
            work();
            let stats = server.command(&["INFO", "commandstats"]).text();
            let evalsha = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("it ran");
            let usec = evalsha.split("usec_per_call=").nth(1).and_then(|rest| rest.split(',').next());
            least = least.min(usec.expect("a figure").parse().expect("a number"));
        }
        least
    };
    let bare_usec = usec(&mut || _ = redis_benchmark(server, bare));
    let one_usec = usec(&mut || _ = take_many(runtime, store, one, CALLS));
    let five_usec = usec(&mut || _ = take_many(runtime, store, five, CALLS / 2));
    let shown = |usec: f64| format!("{usec:.1} µs");
    let beside = format!("bare script {}", shown(bare_usec));
    line("script of one bucket, in the server", &shown(one_usec), &beside, one_usec / bare_usec, "");
    line("script of five rules, in the server", &shown(five_usec), &beside, five_usec / bare_usec, "≤ 4.5");
}

/// One caller, one call at a time, beside a bare socket on the same runtime. (A thread that blocks on
/// its socket is woken sooner than one that waits for many, with any client.)
fn latency(server: &Server, runtime: &Runtime, store: &Arc<RedisStore>, bare: &str, one: &[Arc<Plan>]) {
    let words = ["EVALSHA", bare, "1", "latency", "1", "100000000", "1"];
    let mut command = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| command.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    let (port, store, one) = (server.port(), Arc::clone(store), one.to_vec());
    let measured = runtime.spawn(async move {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
        socket.set_nodelay(true).expect("a socket");
        let (mut raw, mut own) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            for _ in 0..100 {
                let start = Instant::now();
                socket.write_all(command.as_bytes()).await.expect("the server");
                read_pair(&mut socket).await;
                raw.push(start.elapsed());
            }
            for _ in 0..100 {
                let start = Instant::now();
                take_once(&store, &one, "latency").await;
                own.push(start.elapsed());
            }
        }
        (raw, own)
    });
    let (mut raw, mut own) = runtime.block_on(measured).expect("a caller");
    raw.sort();
    own.sort();
    let (raw, own) = (raw[raw.len() / 2], own[own.len() / 2]);
    let beside = format!("bare socket {raw:.1?}");
    line("one call at a time, p50", &format!("{own:.1?}"), &beside, own.as_secs_f64() / raw.as_secs_f64(), "≤ 1.30");
}

/// Reads `*2` and two numbers.
async fn read_pair(socket: &mut TcpStream) {
    let mut bytes = Vec::new();
    while bytes.iter().filter(|byte| **byte == b'\n').count() < 3 {
        assert_ne!(socket.read_buf(&mut bytes).await.expect("a reply"), 0);
    }
    assert!(bytes.starts_with(b"*2"), "{bytes:?}");
}

/// Decisions about a key that is denied, beside decisions that ask the server.
fn denied(runtime: &Runtime, store: &Arc<RedisStore>) {
    let fallback = Fallback {
        store: Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 1_000)),
        clock: Arc::new(SteadyClock::new()),
        probe_every: Span::from_secs(10),
    };
    let parts = Parts { store: Arc::clone(store) as _, records: Arc::clone(store) as _, fallback: Some(fallback) };
    let engine = Arc::new(runtime.block_on(Engine::start(policies(), parts)).expect("the server"));
    let times = measure(
        ROUNDS,
        &mut [
            &mut || decide_many(runtime, &engine, "api", CALLS),
            &mut || decide_many(runtime, &engine, "narrow", CALLS * 10),
        ],
    );
    let rate = |at: usize| format!("{:.0}/s", 1e9 / times.nanos(at));
    line("denied again, 50 callers", &rate(1), &format!("asking the server {}", rate(0)), times.ratio(0, 1), "≥ 20");
}

pub fn decide_many(runtime: &Runtime, engine: &Arc<Engine>, policy: &'static str, calls: usize) -> usize {
    spread(runtime, calls, |count| {
        let engine = Arc::clone(engine);
        async move {
            let pinned = engine.pin();
            let pinned = Arc::clone(&pinned);
            let fields = [("user", "user-00000007")];
            let attempt = Attempt { policy, fields: &fields, cost: 1, id: None };
            while count.fetch_sub(1, Ordering::Relaxed) as isize > 0 {
                let mut decision = Decision::blank();
                engine.decide_into(&pinned, &attempt, &mut decision).await.expect("a decision");
            }
        }
    })
}

fn take_many(runtime: &Runtime, store: &Arc<RedisStore>, plans: &[Arc<Plan>], calls: usize) -> usize {
    spread(runtime, calls, |count| {
        let (store, plans) = (Arc::clone(store), plans.to_vec());
        async move {
            while count.fetch_sub(1, Ordering::Relaxed) as isize > 0 {
                take_once(&store, &plans, "user-00000007").await;
            }
        }
    })
}

async fn take_once(store: &RedisStore, plans: &[Arc<Plan>], key: &str) {
    let mut charges = Charges::new(Ticket(7), 1, None);
    plans.iter().for_each(|plan| charges.push(plan, key, true));
    let mut outcome = Outcome::default();
    store.take(&charges, &mut outcome).await.expect("an answer");
    assert!(outcome.allowed);
}

/// Spreads calls over the callers, each a task of its own.
fn spread<F>(runtime: &Runtime, calls: usize, caller: impl Fn(Arc<AtomicUsize>) -> F) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let count = Arc::new(AtomicUsize::new(calls));
    let tasks: Vec<_> = (0..CALLERS).map(|_| runtime.spawn(caller(Arc::clone(&count)))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("a caller");
        }
    });
    calls
}

/// As many connections, and as many commands in flight in all as there are callers.
fn redis_benchmark(server: &Server, script: &str) -> usize {
    let depth = (CALLERS / CONNECTIONS).to_string();
    let (port, calls, connections) = (server.port().to_string(), CALLS.to_string(), CONNECTIONS.to_string());
    let options = ["-p", &port, "-n", &calls, "-c", &connections, "-P", &depth, "-q"];
    let script = ["evalsha", script, "1", "tollgate:{api:user-00000009}", "1", "100000000", "1"];
    let mut child = Command::new("redis-benchmark")
        .args(options)
        .args(script)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("redis-benchmark, of Debian's redis-tools");
    let mut said = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("an end").success(), "{said}");
    CALLS
}
