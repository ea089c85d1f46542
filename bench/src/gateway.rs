//! The gateway beside nginx: the real program, the same upstream and load, one worker each.
//!
//! Both proxies have one core for themselves; the upstream, which is nginx too, and the load share
//! the other one. CPU time is what the kernel counted for the proxy's threads.

pub mod load;
pub mod servers;

use std::net::TcpStream;
use std::time::Duration;

use tollgate_testbed::Server;

use crate::rounds::{line, median, ratio};
use load::{Burst, p99, wrk};
use servers::{MEMORY, Running, build, earlier, nginx, on_core_one, proxy, upstream};

/// Rounds of a second each.
const ROUNDS: usize = 40;
/// Rounds of a moment each, for what differs by a few hundredths.
const CLOSE_ROUNDS: usize = 200;
const LATENCY_ROUNDS: usize = 30;
const IDLE: usize = 10_000;

/// Something to ask, of which server.
pub struct Target<'s> {
    server: &'s Running,
    url: String,
    burst: Burst,
}

impl<'s> Target<'s> {
    /// Something that is answered with a body.
    pub fn new(server: &'s Running, path: &str) -> Self {
        Self::with(server, path, Burst::default())
    }

    /// Something that is asked, or answered, in another way.
    pub fn with(server: &'s Running, path: &str, burst: Burst) -> Self {
        Self { server, url: format!("http://127.0.0.1:{}{path}", server.port), burst }
    }

    fn refusal(server: &'s Running, path: &str) -> Self {
        Self::with(server, path, Burst { refused: true, ..Burst::default() })
    }

    /// CPU time that its server spends on one request of a burst, in microseconds.
    pub fn cost(&self) -> f64 {
        let before = self.server.cpu();
        self.burst.send(&self.url);
        (self.server.cpu() - before).as_secs_f64() * 1e6 / Burst::REQUESTS as f64
    }
}

/// Measures every target in every round, and turns the order round each time: what slows the machine down
/// for a while slows all of them, and none is always the first.
pub fn measure<const N: usize>(
    rounds: usize,
    targets: &[Target<'_>; N],
    measure: impl Fn(&Target<'_>) -> f64,
) -> [Vec<f64>; N] {
    let mut measured = [const { Vec::new() }; N];
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..targets.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let value = measure(&targets[index]);
            // The first round only warms up.
            if round > 0 {
                measured[index].push(value);
            }
        }
    }
    measured
}

fn per_second(rates: &[f64]) -> String {
    format!("{:.0}/s", median(rates.to_vec()))
}

pub fn micros(costs: &[f64]) -> String {
    format!("{:.1} µs CPU", median(costs.to_vec()))
}

/// How many requests go through in a second.
pub fn rates() {
    let upstream = upstream();
    let (nginx, tollgate) = (nginx(upstream.port), proxy("tollgate", &build(), MEMORY, upstream.port));
    let targets = [Target::new(&nginx, "/plain"), Target::new(&tollgate, "/plain")];
    let [peer, own] = measure(ROUNDS, &targets, |target| wrk(&target.url, Duration::from_secs(1)));
    let beside = format!("nginx {}", per_second(&peer));
    line("gateway without limits, requests", &per_second(&own), &beside, ratio(&own, &peer), "≥ 1.0");
}

/// What one request costs the proxy.
pub fn costs() {
    let upstream = upstream();
    let (nginx, tollgate) = (nginx(upstream.port), proxy("tollgate", &build(), MEMORY, upstream.port));
    let targets = [
        Target::new(&nginx, "/ip"),
        Target::new(&nginx, "/plain"),
        Target::new(&tollgate, "/plain"),
        Target::new(&tollgate, "/ip"),
        Target::new(&tollgate, "/five"),
    ];
    let [nginx_limited, nginx, plain, limited, five] = measure(CLOSE_ROUNDS, &targets, |target| target.cost());
    let beside = |name: &str, costs: &[f64]| format!("{name} {}", micros(costs));
    line("gateway without limits, CPU", &micros(&plain), &beside("nginx", &nginx), ratio(&plain, &nginx), "");
    line("a limit by address, CPU", &micros(&limited), &beside("without", &plain), ratio(&limited, &plain), "≤ 1.06");
    line("five rules, ten limits, CPU", &micros(&five), &beside("without", &plain), ratio(&five, &plain), "≤ 1.12");
    line("nginx with `limit_req`, CPU", &micros(&nginx_limited), &beside("without", &nginx), ratio(&nginx_limited, &nginx), "");
}

/// What one refusal costs the proxy.
pub fn refusals() {
    let upstream = upstream();
    let (nginx, tollgate) = (nginx(upstream.port), proxy("tollgate", &build(), MEMORY, upstream.port));
    let targets = [Target::refusal(&nginx, "/deny"), Target::refusal(&tollgate, "/deny")];
    let [peer, own] = measure(CLOSE_ROUNDS, &targets, |target| target.cost());
    let beside = format!("nginx with `limit_req` {}", micros(&peer));
    line("a 429, CPU", &micros(&own), &beside, ratio(&own, &peer), "≤ 1.5");
}

/// The gateway with its counters on Redis: beside its counters in memory, and beside an earlier build of the
/// program, if there is one.
pub fn on_redis() {
    let upstream = upstream();
    let server = Server::redis().start();
    on_core_one(server.pid());
    let store = server.url();
    let program = build();
    let memory = proxy("memory", &program, MEMORY, upstream.port);
    let redis = proxy("redis", &program, &store, upstream.port);
    let older = earlier().map(|program| proxy("earlier", &program, &store, upstream.port));
    let older = older.as_ref().unwrap_or(&memory);
    for (what, path) in [("a limit by address", "/ip"), ("five rules, ten limits", "/five")] {
        let targets = [Target::new(&memory, path), Target::new(older, path), Target::new(&redis, path)];
        let [memory, older_costs, own] = measure(CLOSE_ROUNDS / 2, &targets, |target| target.cost());
        let beside = format!("in memory {}", micros(&memory));
        line(&format!("gateway on Redis, {what}, CPU"), &micros(&own), &beside, ratio(&own, &memory), "");
        let [_, older_rates, rates] = measure(ROUNDS / 2, &targets, |target| wrk(&target.url, Duration::from_secs(1)));
        if older.port != targets[0].server.port {
            let beside = format!("earlier {}", micros(&older_costs));
            line(&format!("gateway on Redis, {what}, CPU"), &micros(&own), &beside, ratio(&own, &older_costs), "");
            let beside = format!("earlier {}", per_second(&older_rates));
            line(&format!("gateway on Redis, {what}, requests"), &per_second(&rates), &beside, ratio(&rates, &older_rates), "");
        }
    }
}

/// What a proxy adds to the slowest of a hundred answers, while there is little to do. All are asked at the
/// same time: what makes a machine stand still for a moment hits all of them, and is most of what there is to
/// see among the slowest.
pub fn latency() {
    let upstream = upstream();
    let (nginx, tollgate) = (nginx(upstream.port), proxy("tollgate", &build(), MEMORY, upstream.port));
    let targets = [Target::new(&upstream, "/plain"), Target::new(&nginx, "/ip"), Target::new(&tollgate, "/ip")];
    let rounds: Vec<[f64; 3]> = (0..LATENCY_ROUNDS)
        .map(|_| {
            std::thread::scope(|scope| {
                let asking = targets.each_ref().map(|target| scope.spawn(|| p99(&target.url, target.server.port)));
                asking.map(|asking| asking.join().expect("h2load ends"))
            })
        })
        .collect();
    let added = |of: usize| median(rounds.iter().map(|round| (round[of] - round[0]).max(0.0)).collect());
    let (nginx, own) = (added(1), added(2));
    let shown = |micros: f64| format!("{micros:.0} µs");
    line("p99 added to the upstream's", &shown(own), &format!("nginx {}", shown(nginx)), own / nginx, "≤ 1.5");
}

/// What connections cost that ask nothing.
pub fn idle() {
    let upstream = upstream();
    let server = proxy("tollgate", &build(), MEMORY, upstream.port);
    let before = server.memory();
    let connections: Vec<TcpStream> = (0..IDLE).map(|_| load::ask_once(server.port, "/ip")).collect();
    let after = server.memory();
    let mebibytes = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let each = (after - before) as f64 / connections.len() as f64 / 1024.0;
    let bound = f64::from(200 << 20);
    line(
        &format!("{IDLE} idle connections, all memory"),
        &mebibytes(after),
        &format!("{each:.1} KiB each, bound 200 MiB"),
        after as f64 / bound,
        "≤ 1.0",
    );
}
