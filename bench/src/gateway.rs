//! The gateway beside nginx: the real program, the same upstream and load, one worker each.
//!
//! Both proxies have one core for themselves; the upstream, which is nginx too, and the load share
//! the other one. CPU time is what the kernel counted for the proxy's threads.

mod load;
mod servers;

use std::net::TcpStream;
use std::time::Duration;

use crate::rounds::{line, median};
use load::{Load, p99, wrk};
use servers::{Nginx, Running, Tollgate, Upstream};

const ROUNDS: usize = 20;
const LATENCY_ROUNDS: usize = 5;
const IDLE: usize = 10_000;

pub fn run() {
    let upstream = Upstream::start();
    let nginx = Nginx::start(upstream.0.port);
    let tollgate = Tollgate::start(upstream.0.port);
    let at = |server: &Running, path: &str| format!("http://127.0.0.1:{}{path}", server.port);
    // What is compared is asked side by side, as far as that goes.
    let targets = [
        (&nginx.0, at(&nginx.0, "/ip")),
        (&nginx.0, at(&nginx.0, "/plain")),
        (&tollgate.0, at(&tollgate.0, "/plain")),
        (&tollgate.0, at(&tollgate.0, "/five")),
        (&tollgate.0, at(&tollgate.0, "/ip")),
        (&tollgate.0, at(&tollgate.0, "/deny")),
    ];
    for (_, url) in &targets {
        wrk(url, Duration::from_secs(1));
    }
    let mut loads: Vec<Vec<Load>> = vec![Vec::new(); targets.len()];
    for _ in 0..ROUNDS {
        for (index, (server, url)) in targets.iter().enumerate() {
            let before = server.cpu();
            let mut load = wrk(url, Duration::from_secs(1));
            load.cpu = server.cpu() - before;
            loads[index].push(load);
        }
    }
    report(&loads);
    latency(&at(&upstream.0, "/plain"), &at(&nginx.0, "/ip"), &at(&tollgate.0, "/ip"));
    idle(&tollgate.0);
}

fn report(loads: &[Vec<Load>]) {
    // Rounds are compared with their neighbours in time, so that what slows the machine slows both.
    let ratio = |of: usize, to: usize, what: fn(&Load) -> f64| {
        median(loads[of].iter().zip(&loads[to]).map(|(one, other)| what(one) / what(other)).collect())
    };
    let typical = |of: usize, what: fn(&Load) -> f64| median(loads[of].iter().map(what).collect());
    let rate = |of: usize| format!("{:.0}/s", typical(of, Load::rate));
    let micros = |of: usize| format!("{:.1} µs CPU", typical(of, Load::micros));
    let beside = |name: &str, figure: String| format!("{name} {figure}");
    let [nginx_limited, nginx, plain, five, limited, denied] = [0, 1, 2, 3, 4, 5];
    line("gateway without limits, requests", &rate(plain), &beside("nginx", rate(nginx)), ratio(plain, nginx, Load::rate), "≥ 0.70, aim 1.0");
    line("gateway without limits, CPU", &micros(plain), &beside("nginx", micros(nginx)), ratio(plain, nginx, Load::micros), "");
    line("a limit by address, CPU", &micros(limited), &beside("without", micros(plain)), ratio(limited, plain, Load::micros), "≤ 1.05");
    line("five rules, ten limits, CPU", &micros(five), &beside("without", micros(plain)), ratio(five, plain, Load::micros), "≤ 1.10");
    line("nginx with `limit_req`, CPU", &micros(nginx_limited), &beside("without", micros(nginx)), ratio(nginx_limited, nginx, Load::micros), "");
    line("429s, requests", &rate(denied), &beside("proxied 200s", rate(limited)), ratio(denied, limited, Load::rate), "≥ 2");
}

/// What a proxy adds to the slowest of a hundred answers, while there is little to do.
fn latency(direct: &str, nginx: &str, tollgate: &str) {
    let mut added = [Vec::new(), Vec::new()];
    for _ in 0..LATENCY_ROUNDS {
        let without = p99(direct);
        for (added, url) in added.iter_mut().zip([nginx, tollgate]) {
            added.push((p99(url) - without).max(0.0));
        }
    }
    let [nginx, own] = added.map(median);
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
