//! Counters on PostgreSQL, beside `pgbench -M extended` with an upsert as an application would write it
//! that needs one counter and nothing else, and beside a function in the server that decides itself. Everything is
//! measured twice: with commits that wait for the disk, and without.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Charges, Outcome, Span, Store, Ticket};
use tollgate_engine::{Engine, Fallback, Parts};
use tollgate_postgres::{PostgresStore, Settings};
use tollgate_store::{MemoryStore, SteadyClock, SystemClock};
use tollgate_testbed::Postgres;

use crate::contenders::policies;
use crate::nodes::{self, Figures, Load, UNBOUNDED, plans, seconds};
use crate::rounds::{is_chosen, line, measure, median, ratio};
use crate::shared::decide_many;

const ROUNDS: usize = 3;
const KEYS: u64 = 10_000;
const UPSERT: &str = "INSERT INTO upsert VALUES ('key ' || :k, 1) \
    ON CONFLICT (key) DO UPDATE SET n = upsert.n + 1;";
const SPIKE: &str = "SELECT spike.take(ARRAY['window key ' || :k], 1000000000, '1 day');";
const SPIKE_TEN: &str = "SELECT spike.take(ARRAY(SELECT 'ten' || n || ' key ' || :k FROM generate_series(0, 9) n), \
    1000000000, '1 day');";

/// What `synchronous_commit` is, and what that makes of the bounds.
struct Mode {
    config: &'static str,
    /// On the command line.
    word: &'static str,
    name: &'static str,
    one: &'static str,
    ten: &'static str,
}

const MODES: [Mode; 2] = [
    Mode { config: "", word: "sync", name: "sync", one: "≥ 0.70", ten: "≥ 0.50" },
    Mode { config: "synchronous_commit = off\n", word: "no-sync", name: "no sync", one: "≥ 0.50", ten: "≥ 0.35" },
];

pub fn run() {
    for mode in MODES.into_iter().filter(|mode| is_chosen(&MODES.map(|mode| mode.word), mode.word)) {
        let server = Postgres::start_with(mode.config);
        server.sql("CREATE TABLE upsert (key text PRIMARY KEY, n bigint) WITH (fillfactor = 70)");
        server.sql(include_str!("spike.sql"));
        let beside = upserts(&server, &mode);
        let parts: [(&str, fn(&Postgres, &Mode, &Beside)); 5] =
            [("spread", spread), ("nodes", several_nodes), ("hot", hot), ("log", log), ("denied", denied)];
        for (_, part) in parts.iter().filter(|(name, _)| is_chosen(&parts.map(|(name, _)| name), name)) {
            part(&server, &mode, &beside);
        }
    }
}

/// What the server does by itself, round for round.
struct Beside {
    uniform: Vec<f64>,
    hot: Vec<f64>,
    one_p50: Vec<f64>,
}

fn upserts(server: &Postgres, mode: &Mode) -> Beside {
    let mut beside = Beside { uniform: Vec::new(), hot: Vec::new(), one_p50: Vec::new() };
    let (mut uniform, mut ten, mut hot, mut one_p50) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        beside.uniform.push(pgbench(server, UPSERT, 8, KEYS).per_second);
        uniform.push(pgbench(server, SPIKE, 8, KEYS).per_second);
        ten.push(pgbench(server, SPIKE_TEN, 8, KEYS).per_second);
        beside.hot.push(pgbench(server, UPSERT, 32, 1).per_second);
        hot.push(pgbench(server, SPIKE, 32, 1).per_second);
        beside.one_p50.push(pgbench(server, UPSERT, 1, KEYS).p50);
        one_p50.push(pgbench(server, SPIKE, 1, KEYS).p50);
    }
    let rates = |what: &str, own: &[f64], other: &[f64]| {
        rate_line(&format!("{what}, a function in the server"), mode, own, other, "");
    };
    rates("one window, 8 callers", &uniform, &beside.uniform);
    rates("ten limits, 8 callers", &ten, &beside.uniform);
    rates("one hot key, 32 callers", &hot, &beside.hot);
    p50_line("one caller, p50, a function in the server", mode, &one_p50, &beside.one_p50, "");
    beside
}

fn rounds(count: usize, load: Load<'_>) -> Vec<Figures> {
    (0..ROUNDS).map(|_| nodes::run(count, load)).collect()
}

fn rates(figures: &[Figures]) -> Vec<f64> {
    figures.iter().map(|figures| figures.per_second).collect()
}

fn spread(server: &Postgres, mode: &Mode, beside: &Beside) {
    let url = server.url();
    let window = Load { url: &url, callers: 8, rules: "window", keys: KEYS, most: UNBOUNDED };
    let one = rates(&rounds(1, window));
    rate_line("one window, 8 callers", mode, &one, &beside.uniform, mode.one);
    let five = rates(&rounds(1, Load { rules: "five", ..window }));
    rate_line("five rules, ten limits, 8 callers", mode, &five, &beside.uniform, mode.ten);
    let ten = rates(&rounds(1, Load { rules: "ten", ..window }));
    rate_line("ten rules of one limit, 8 callers", mode, &ten, &beside.uniform, mode.ten);
    let p50: Vec<f64> =
        rounds(1, Load { callers: 1, ..window }).iter().map(|figures| figures.at(0.5)).collect();
    p50_line("one caller, p50", mode, &p50, &beside.one_p50, "≤ 2.5");
}

/// Nodes that share the server, each with as many callers.
fn several_nodes(server: &Postgres, mode: &Mode, _beside: &Beside) {
    let url = server.url();
    let window = Load { url: &url, callers: 8, rules: "window", keys: KEYS, most: UNBOUNDED };
    let one = rates(&rounds(1, window));
    for count in [2, 4] {
        let several = rates(&rounds(count, window));
        let (rate, single) = (median(several.clone()), median(one.clone()));
        let what = format!("PostgreSQL, {}: {count} nodes, 8 callers each", mode.name);
        line(&what, &format!("{rate:.0}/s"), &format!("1 node {single:.0}/s"), ratio(&several, &one), "");
    }
}

fn hot(server: &Postgres, mode: &Mode, beside: &Beside) {
    let url = server.url();
    let load = Load { url: &url, callers: 32, rules: "window", keys: 1, most: UNBOUNDED };
    rate_line("one hot key, 32 callers", mode, &rates(&rounds(1, load)), &beside.hot, "≥ 3");
    let four = rates(&rounds(4, Load { callers: 8, ..load }));
    rate_line("one hot key, 4 nodes of 8 callers", mode, &four, &beside.hot, "≥ 1.0");
    let eight = rounds(8, Load { callers: 4, ..load });
    let p99 = median(eight.iter().map(|figures| figures.at(0.99) / 1_000.0).collect());
    let what = format!("PostgreSQL, {}: one hot key, 8 nodes of 4 callers, p99", mode.name);
    line(&what, &format!("{p99:.1} ms"), "50 ms", p99 / 50.0, "< 1");
}

/// A log of 20,000 entries beside one that begins empty.
fn log(server: &Postgres, mode: &Mode, _beside: &Beside) {
    let url = server.url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let full = &plans("full")[0];
    let mut charges = Charges::new(Ticket(u64::MAX), 20_000, None);
    charges.push(full, "key 0", true);
    runtime.block_on(async {
        let store = PostgresStore::start(Settings::parse(&url).expect("an address")).await.expect("a store");
        // One entry of 20,000 becomes as many of one.
        store.take(&charges, &mut Outcome::default()).await.expect("an answer");
    });
    server.sql(
        "INSERT INTO tollgate.entry SELECT e.counter, 0, n, e.at, n, 1 FROM tollgate.entry e \
         JOIN tollgate.counter c ON c.id = e.counter, generate_series(2, 20000) n WHERE c.rule = 'full'; \
         UPDATE tollgate.entry e SET cost = 1 FROM tollgate.counter c WHERE c.id = e.counter AND c.rule = 'full'; \
         UPDATE tollgate.counter SET seq = 20001 WHERE rule = 'full'",
    );
    server.sql("VACUUM ANALYZE tollgate.entry");
    let one =
        |rules: &str| nodes::run(1, Load { url: &url, callers: 1, rules, keys: 1, most: 2_000 }).at(0.5);
    // Each round has a log of its own that begins empty.
    let empty: Vec<f64> = (0..ROUNDS).map(|round| one(&format!("empty{round}"))).collect();
    let long: Vec<f64> = (0..ROUNDS).map(|_| one("full")).collect();
    let what = format!("PostgreSQL, {}: `50000/day sliding` with 20,000 entries, p50", mode.name);
    let beside = format!("an empty log {:.0} µs", median(empty.clone()));
    line(&what, &format!("{:.0} µs", median(long.clone())), &beside, ratio(&long, &empty), "≤ 1.5");
}

/// Decisions about a key that is denied, beside decisions that ask the server.
fn denied(server: &Postgres, mode: &Mode, _beside: &Beside) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let settings = Settings::parse(&server.url()).expect("an address");
    // A busy machine is not an outage.
    let settings = Settings { command_timeout: Duration::from_secs(5), ..settings };
    let store = Arc::new(runtime.block_on(PostgresStore::start(settings)).expect("a store"));
    let fallback = Fallback {
        store: Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 1_000)),
        clock: Arc::new(SteadyClock::new()),
        probe_every: Span::from_secs(10),
    };
    let parts = Parts { store: Arc::clone(&store) as _, records: store as _, fallback: Some(fallback) };
    let engine = Arc::new(runtime.block_on(Engine::start(policies(), parts)).expect("the server"));
    let asked = 1_000 * usize::try_from(seconds()).expect("a few");
    let times = measure(
        ROUNDS,
        &mut [&mut || decide_many(&runtime, &engine, "api", asked), &mut || {
            decide_many(&runtime, &engine, "narrow", asked * 50)
        }],
    );
    let rate = |at: usize| format!("{:.0}/s", 1e9 / times.nanos(at));
    let what = format!("PostgreSQL, {}: denied again, 50 callers", mode.name);
    line(&what, &rate(1), &format!("asking the server {}", rate(0)), times.ratio(0, 1), "≥ 20");
}

fn rate_line(what: &str, mode: &Mode, own: &[f64], upsert: &[f64], bound: &str) {
    let (rate, beside) = (median(own.to_vec()), median(upsert.to_vec()));
    let what = format!("PostgreSQL, {}: {what}", mode.name);
    line(
        &what,
        &format!("{rate:.0}/s"),
        &format!("pgbench, upsert {beside:.0}/s"),
        ratio(own, upsert),
        bound,
    );
}

fn p50_line(what: &str, mode: &Mode, own: &[f64], upsert: &[f64], bound: &str) {
    let (time, beside) = (median(own.to_vec()), median(upsert.to_vec()));
    let what = format!("PostgreSQL, {}: {what}", mode.name);
    line(
        &what,
        &format!("{time:.0} µs"),
        &format!("pgbench, upsert {beside:.0} µs"),
        ratio(own, upsert),
        bound,
    );
}

/// What pgbench measured.
struct Bench {
    per_second: f64,
    /// In microseconds.
    p50: f64,
}

fn pgbench(server: &Postgres, sql: &str, clients: usize, keys: u64) -> Bench {
    // On a busy machine connecting may take longer than a short run.
    let mut tries =
        [1, 4, 16].into_iter().map(|times| pgbench_for(seconds() * times, server, sql, clients, keys));
    tries.find_map(|bench| bench).expect("pgbench makes a transaction")
}

/// What pgbench measured within this time; `None` if it made no transaction.
fn pgbench_for(seconds: u64, server: &Postgres, sql: &str, clients: usize, keys: u64) -> Option<Bench> {
    let directory = std::env::temp_dir().join(format!("tollgate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let script = directory.join("script.sql");
    std::fs::write(&script, format!("\\set k random(1, {keys})\n{sql}\n")).expect("a file");
    let output = Command::new("pgbench")
        .current_dir(&directory)
        .args(["-n", "-M", "extended", "-h", "127.0.0.1", "-U", "postgres", "-p", &server.port().to_string()])
        .args(["-c", &clients.to_string(), "-j", "1", "-T", &seconds.to_string(), "--log", "-f"])
        .args([&*script.to_string_lossy(), "postgres"])
        .output()
        .expect("pgbench, of Debian's postgresql-contrib");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let per_second = tps.and_then(|tps| tps.split(' ').next()?.parse().ok());
    let micros = latencies(&directory);
    std::fs::remove_dir_all(&directory).expect("our directory");
    per_second.filter(|_| !micros.is_empty()).map(|per_second| Bench { per_second, p50: median(micros) })
}

/// How long each transaction took, in microseconds: the third column of pgbench's log.
fn latencies(directory: &Path) -> Vec<f64> {
    let files = std::fs::read_dir(directory).expect("our directory").flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("pgbench_log"));
    let texts: Vec<String> = logs.map(|log| std::fs::read_to_string(log.path()).expect("a log")).collect();
    let column =
        |line: &str| line.split(' ').nth(2).and_then(|number| number.parse().ok()).expect("a number");
    texts.iter().flat_map(|text| text.lines().map(column)).collect()
}
