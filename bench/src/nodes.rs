//! Nodes that share a store, each a process of its own, so that they share nothing but the server.
//!
//! The benchmark starts itself once for each node. A node connects, says so, waits for a line, decides for a
//! while, and prints how long each decision took.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::{Charges, Outcome, Plan, Store, Ticket};
use tollgate_postgres::PostgresStore;
use tollgate_redis::RedisStore;

/// The argument that makes the benchmark a node.
pub const NODE: &str = "--node";

/// What every caller of every node decides.
#[derive(Clone, Copy)]
pub struct Load<'l> {
    /// The address of the server.
    pub url: &'l str,
    /// How many tasks of each node decide, one decision at a time.
    pub callers: usize,
    /// One limit for each rule: `window`, `ten`, or a name for a `50000/day sliding` log.
    pub rules: &'l str,
    /// How many keys are drawn from.
    pub keys: u64,
    /// How many decisions each caller makes at most.
    pub most: u64,
}

/// What was measured.
pub struct Figures {
    pub per_second: f64,
    /// How long each decision took, in microseconds, sorted.
    micros: Vec<u64>,
}

impl Figures {
    /// The time that this share of the decisions took no longer than, in microseconds.
    pub fn at(&self, share: f64) -> f64 {
        self.micros[((self.micros.len() - 1) as f64 * share) as usize] as f64
    }
}

/// How long everything is measured, for each round.
pub fn seconds() -> u64 {
    std::env::var("TOLLGATE_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// As many decisions as there is time for.
pub const UNBOUNDED: u64 = u64::MAX;

/// Lets so many nodes decide side by side.
pub fn run(count: usize, load: Load<'_>) -> Figures {
    let mut nodes: Vec<Child> = (0..count).map(|number| start(number, load)).collect();
    let mut outputs: Vec<_> =
        nodes.iter_mut().map(|node| BufReader::new(node.stdout.take().expect("a pipe"))).collect();
    for output in &mut outputs {
        let mut line = String::new();
        output.read_line(&mut line).expect("a node");
        assert_eq!(line, "ready\n", "a node does not start");
    }
    for node in &mut nodes {
        node.stdin.take().expect("a pipe").write_all(b"go\n").expect("a node");
    }
    let mut micros = Vec::new();
    for (output, node) in outputs.iter_mut().zip(&mut nodes) {
        let mut text = String::new();
        output.read_to_string(&mut text).expect("text");
        assert!(node.wait().expect("an end").success(), "a node failed");
        micros.extend(text.lines().map(|line| line.parse::<u64>().expect("a number")));
    }
    micros.sort_unstable();
    Figures { per_second: micros.len() as f64 / seconds() as f64, micros }
}

fn start(number: usize, load: Load<'_>) -> Child {
    let Load { url, callers, rules, keys, most } = load;
    Command::new(std::env::current_exe().expect("this program"))
        .args([
            NODE,
            url,
            &callers.to_string(),
            rules,
            &keys.to_string(),
            &most.to_string(),
            &number.to_string(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts")
}

/// Is a node, with these arguments.
pub fn be_one(arguments: &[String]) {
    let [url, callers, rules, keys, most, number] = arguments else { panic!("a node has six arguments") };
    let [callers, keys, most, number] =
        [callers, keys, most, number].map(|text| text.parse::<u64>().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(connect(url));
    let plans = plans(rules);
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    let time = Duration::from_secs(seconds());
    let decide = |caller| {
        let (store, plans, seed) = (Arc::clone(&store), plans.clone(), number << 8 | caller);
        decide(store, plans, keys, seed, (time, most))
    };
    let tasks: Vec<_> = (0..callers).map(|caller| runtime.spawn(decide(caller))).collect();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for task in tasks {
        for micros in runtime.block_on(task).expect("a caller") {
            writeln!(out, "{micros}").expect("a pipe");
        }
    }
}

async fn connect(url: &str) -> Arc<dyn Store> {
    let patience = Duration::from_secs(5);
    if url.starts_with("postgres:") {
        let settings = tollgate_postgres::Settings::parse(url).expect("an address");
        let settings = tollgate_postgres::Settings { command_timeout: patience, ..settings };
        let store = Arc::new(PostgresStore::start(settings).await.expect("a store"));
        store.now().await.expect("an answer");
        return store;
    }
    let settings = tollgate_redis::Settings::parse(url).expect("an address");
    let settings = tollgate_redis::Settings { command_timeout: patience, ..settings };
    let store = Arc::new(RedisStore::start(settings).await.expect("a store"));
    store.now().await.expect("an answer");
    store
}

/// The limits that a name stands for, each of a rule of its own.
pub fn plans(rules: &str) -> Vec<Arc<Plan>> {
    let plan = |rule: &str, limits: &[&str]| {
        let limits = limits.iter().map(|limit| limit.parse().expect("a limit")).collect();
        Arc::new(Plan::new(rule.into(), limits).expect("distinct limits"))
    };
    let hour_and_day = ["1000000000/hour", "4000000000/day"];
    match rules {
        "window" => vec![plan("window", &["1000000000/day"])],
        "five" => (0..5).map(|number| plan(&format!("five{number}"), &hour_and_day)).collect(),
        "ten" => (0..10).map(|number| plan(&format!("ten{number}"), &["1000000000/day"])).collect(),
        log => vec![plan(log, &["50000/day sliding"])],
    }
}

/// Decides one after the other, and answers how long each took, in microseconds.
async fn decide(
    store: Arc<dyn Store>,
    plans: Vec<Arc<Plan>>,
    keys: u64,
    seed: u64,
    (time, most): (Duration, u64),
) -> Vec<u64> {
    static TICKET: AtomicU64 = AtomicU64::new(1);
    let (mut taken, mut dice, start) = (Vec::new(), seed + 1, Instant::now());
    while start.elapsed() < time && (taken.len() as u64) < most {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("key {}", (dice >> 33) % keys);
        let ticket = seed << 40 | TICKET.fetch_add(1, Ordering::Relaxed);
        let mut charges = Charges::new(Ticket(ticket), 1, None);
        plans.iter().for_each(|plan| charges.push(plan, &key, true));
        let (asked, mut outcome) = (Instant::now(), Outcome::default());
        store.take(&charges, &mut outcome).await.expect("an answer");
        taken.push(asked.elapsed().as_micros() as u64);
    }
    taken
}
