//! Compares decisions on PostgreSQL with `pgbench` and a hand-written upsert, on a server of its own.
//!
//! `cargo run --release -p tollgate-postgres --example throughput [-- nosync]`
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement that fails ends")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::{Charges, Outcome, Plan, Store, Ticket};
use tollgate_postgres::{PostgresStore, Settings};
use tollgate_testbed::Postgres;

const TIME: Duration = Duration::from_secs(5);

/// What was measured.
struct Figures {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

fn plan(rule: &str, limits: &str) -> Arc<Plan> {
    Arc::new(Plan::new(rule.into(), vec![limits.parse().unwrap()]).unwrap())
}

async fn node(server: &Postgres) -> Arc<PostgresStore> {
    let settings =
        Settings { command_timeout: Duration::from_secs(5), ..Settings::parse(&server.url()).unwrap() };
    Arc::new(PostgresStore::start(settings).await.unwrap())
}

/// Decides for a while, with so many callers on each node, at a key drawn from so many.
async fn decide(nodes: &[Arc<PostgresStore>], callers: usize, plans: &[Arc<Plan>], keys: u64) -> Figures {
    static TICKET: AtomicU64 = AtomicU64::new(1);
    let start = Instant::now();
    let mut running = Vec::new();
    for caller in 0..callers * nodes.len() {
        let (node, plans) = (Arc::clone(&nodes[caller % nodes.len()]), plans.to_vec());
        running.push(tokio::spawn(async move {
            let (mut times, mut dice) = (Vec::new(), caller as u64 + 1);
            while start.elapsed() < TIME {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = format!("key {}", (dice >> 33) % keys);
                let mut charges = Charges::new(Ticket(TICKET.fetch_add(1, Ordering::Relaxed)), 1, None);
                plans.iter().for_each(|plan| charges.push(plan, &key, true));
                let asked = Instant::now();
                let mut outcome = Outcome::default();
                node.take(&charges, &mut outcome).await.unwrap();
                times.push(asked.elapsed());
            }
            times
        }));
    }
    let mut times = Vec::new();
    for task in running {
        times.extend(task.await.unwrap());
    }
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let per_second = times.len() as f64 / start.elapsed().as_secs_f64();
    Figures { per_second, p50: at(0.5), p99: at(0.99) }
}

/// The rate of an upsert, with so many clients at a key drawn from so many.
fn upsert(server: &Postgres, clients: usize, keys: u64) -> (f64, f64) {
    let script = std::env::temp_dir().join("tollgate-upsert.sql");
    let text = format!(
        "\\set k random(1, {keys})\nINSERT INTO upsert VALUES ('key ' || :k, 1) \
         ON CONFLICT (key) DO UPDATE SET n = upsert.n + 1;\n"
    );
    std::fs::write(&script, text).unwrap();
    let output = Command::new("pgbench")
        .args(["-n", "-M", "extended", "-h", "127.0.0.1", "-U", "postgres", "-p", &server.port().to_string()])
        .args(["-c", &clients.to_string(), "-j", "1", "-T", &TIME.as_secs().to_string(), "-f"])
        .arg(&script)
        .arg("postgres")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |line: &str| -> f64 {
        let line = text.lines().find(|it| it.starts_with(line)).unwrap_or_else(|| panic!("{output:?}"));
        line.split(" = ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    (number("tps"), number("latency average"))
}

fn show(name: &str, figures: &Figures, base: f64) {
    let Figures { per_second, p50, p99 } = figures;
    let ratio = per_second / base;
    println!("{name:<46} {per_second:>8.0}/s  p50 {p50:>9.1?}  p99 {p99:>9.1?}  {ratio:>5.2} x");
}

#[tokio::main]
async fn main() {
    let sync = std::env::args().nth(1).is_none();
    let server = Postgres::start_with(if sync { "" } else { "synchronous_commit = off" });
    println!("synchronous_commit {}", if sync { "on" } else { "off" });
    server.sql("CREATE TABLE upsert (key text PRIMARY KEY, n bigint) WITH (fillfactor = 70)");
    let (uniform, _) = upsert(&server, 8, 10_000);
    let (one_client, latency) = upsert(&server, 1, 10_000);
    let (hot, _) = upsert(&server, 32, 1);
    println!(
        "upsert: 8 clients {uniform:.0}/s, 1 client {one_client:.0}/s ({latency} ms), 32 on one key {hot:.0}/s"
    );
    let one = [node(&server).await];
    let window = plan("window", "1000000000/day");
    show("8 callers, uniform keys", &decide(&one, 8, std::slice::from_ref(&window), 10_000).await, uniform);
    show("1 caller", &decide(&one, 1, std::slice::from_ref(&window), 10_000).await, one_client);
    let ten: Vec<_> = (0..10).map(|n| plan(&format!("ten{n}"), "1000000000/day")).collect();
    show("8 callers, ten limits each", &decide(&one, 8, &ten, 10_000).await, uniform);
    show(
        "32 callers of one node, one hot key",
        &decide(&one, 32, std::slice::from_ref(&window), 1).await,
        hot,
    );
    let mut nodes = Vec::new();
    for _ in 0..8 {
        nodes.push(node(&server).await);
    }
    show(
        "4 nodes x 8 callers, one hot key",
        &decide(&nodes[..4], 8, std::slice::from_ref(&window), 1).await,
        hot,
    );
    show("8 nodes x 4 callers, one hot key", &decide(&nodes, 4, std::slice::from_ref(&window), 1).await, hot);
    let (fresh, full) = (plan("fresh", "50000/day sliding"), plan("full", "50000/day sliding"));
    let before = decide(&one, 1, std::slice::from_ref(&fresh), 1).await;
    show("1 caller, log that begins empty", &before, one_client);
    let mut charges = Charges::new(Ticket(u64::MAX), 1, None);
    charges.push(&full, "key 0", true);
    one[0].take(&charges, &mut Outcome::default()).await.unwrap();
    server.sql(
        "INSERT INTO tollgate.entry SELECT c.id, n, e.at, n, 1 FROM tollgate.counter c \
         JOIN tollgate.entry e ON e.counter = c.id, generate_series(1, 20000) n WHERE c.rule = 'full'; \
         UPDATE tollgate.counter SET seq = 20001, used = '{20001}' WHERE rule = 'full'",
    );
    show(
        "1 caller, log of 20,000 entries",
        &decide(&one, 1, std::slice::from_ref(&full), 1).await,
        before.per_second,
    );
}
