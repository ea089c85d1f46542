//! The gateway beside nginx: the real program, the same upstream and load, one worker each.
//!
//! Both proxies have one core for themselves; the upstream, which is nginx too, and the load share
//! the other one. CPU time is what the kernel counted for the proxy's threads.

mod load;
pub mod servers;

use std::net::TcpStream;
use std::time::Duration;

use crate::rounds::{line, median, ratio};
use load::{BURST, burst, p99, wrk};
use servers::{Nginx, Running, Tollgate, Upstream};

/// Rounds of a second each.
const ROUNDS: usize = 40;
/// Rounds of a moment each, for what differs by a few hundredths.
const CLOSE_ROUNDS: usize = 200;
const LATENCY_ROUNDS: usize = 30;
const IDLE: usize = 10_000;

/// Something to ask, of which server.
struct Target<'s> {
    server: &'s Running,
    url: String,
}

pub fn run() {
    let upstream = Upstream::start();
    let nginx = Nginx::start(upstream.0.port);
    let tollgate = Tollgate::start(upstream.0.port);
    rates(&[
        Target::new(&nginx.0, "/plain"),
        Target::new(&tollgate.0, "/plain"),
        Target::new(&tollgate.0, "/ip"),
        Target::new(&tollgate.0, "/deny"),
    ]);
    costs(&[
        Target::new(&nginx.0, "/ip"),
        Target::new(&nginx.0, "/plain"),
        Target::new(&tollgate.0, "/plain"),
        Target::new(&tollgate.0, "/ip"),
        Target::new(&tollgate.0, "/five"),
    ]);
    latency(&[Target::new(&upstream.0, "/plain"), Target::new(&nginx.0, "/ip"), Target::new(&tollgate.0, "/ip")]);
    idle(&tollgate.0);
}

impl<'s> Target<'s> {
    fn new(server: &'s Running, path: &str) -> Self {
        Self { server, url: format!("http://127.0.0.1:{}{path}", server.port) }
    }

    /// CPU time that its server spends on one request of a burst, in microseconds.
    fn cost(&self) -> f64 {
        let before = self.server.cpu();
        burst(&self.url);
        (self.server.cpu() - before).as_secs_f64() * 1e6 / BURST as f64
    }
}

/// Measures every target in every round, and turns the order round each time: what slows the machine down
/// for a while slows all of them, and none is always the first.
fn measure(rounds: usize, targets: &[Target<'_>], measure: impl Fn(&Target<'_>) -> f64) -> Vec<Vec<f64>> {
    let mut measured = vec![Vec::new(); targets.len()];
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

/// How many requests go through in a second.
fn rates(targets: &[Target<'_>; 4]) {
    let measured = measure(ROUNDS, targets, |target| wrk(&target.url, Duration::from_secs(1)));
    let [nginx, plain, limited, denied] = &*measured else { unreachable!("four targets") };
    let shown = |rates: &[f64]| format!("{:.0}/s", median(rates.to_vec()));
    let beside = |name: &str, rates: &[f64]| format!("{name} {}", shown(rates));
    line("gateway without limits, requests", &shown(plain), &beside("nginx", nginx), ratio(plain, nginx), "≥ 0.70, aim 1.0");
    line("429s, requests", &shown(denied), &beside("proxied 200s", limited), ratio(denied, limited), "≥ 2");
}

/// What one request costs the proxy.
fn costs(targets: &[Target<'_>; 5]) {
    let measured = measure(CLOSE_ROUNDS, targets, |target| target.cost());
    let [nginx_limited, nginx, plain, limited, five] = &*measured else { unreachable!("five targets") };
    let shown = |costs: &[f64]| format!("{:.1} µs CPU", median(costs.to_vec()));
    let beside = |name: &str, costs: &[f64]| format!("{name} {}", shown(costs));
    line("gateway without limits, CPU", &shown(plain), &beside("nginx", nginx), ratio(plain, nginx), "");
    line("a limit by address, CPU", &shown(limited), &beside("without", plain), ratio(limited, plain), "≤ 1.05");
    line("five rules, ten limits, CPU", &shown(five), &beside("without", plain), ratio(five, plain), "≤ 1.10");
    line("nginx with `limit_req`, CPU", &shown(nginx_limited), &beside("without", nginx), ratio(nginx_limited, nginx), "");
}

/// What a proxy adds to the slowest of a hundred answers, while there is little to do. All are asked at the
/// same time: what makes a machine stand still for a moment hits all of them, and is most of what there is to
/// see among the slowest.
fn latency(targets: &[Target<'_>; 3]) {
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
fn idle(server: &Running) {
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
