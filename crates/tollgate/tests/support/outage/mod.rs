//! What every shared store promises while it cannot be used: decisions come in time, each says how and why it
//! was made, the log tells it once, and the store is used again by itself.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::nodes::{attempt, comes_back, metric, origin, readiness, store_lines, wait_until_it_is};
use crate::program::{Home, Server, now, pause, wait_until};

/// Distinguishes a hang from a decision that is late on a busy machine. The promise is a little more than the
/// time-out.
pub const HANGS: Duration = Duration::from_secs(1);

pub const RULES: [(&str, &str); 4] = [
    ("half", "by: user, limits: 1000000/day"),
    ("open", "by: user, limits: 1000000/day, on_outage: allow"),
    ("shut", "by: user, limits: 1000000/day, on_outage: deny"),
    ("log", "by: user, limits: 1000000/day sliding by 1h"),
];

/// The results of continuous requests.
#[derive(Default)]
pub struct Seen {
    pub origins: BTreeMap<(String, String), usize>,
    pub degraded: usize,
    pub slowest: Duration,
    /// When the breaker opened, counted from the first failure.
    pub opened: Option<Duration>,
}

impl Seen {
    /// Sends requests to every policy in turn for this long, and records the responses.
    pub fn during(server: &Server, lasts: Duration) -> Self {
        let mut seen = Self::default();
        let mut connection = server.connect();
        let (start, mut failed) = (now(), None);
        while start.elapsed() < lasts {
            for (policy, _) in RULES {
                let asked = now();
                let reply = connection.ask("POST", "/api/v1/check", &[], Some(&attempt(policy, "ada")));
                seen.slowest = seen.slowest.max(asked.elapsed());
                let (origin, reason) = origin(&reply);
                let expected = match (policy, origin.as_str()) {
                    (_, "store") => 200,
                    ("open", "outage") | ("half" | "log", "local") => 200,
                    ("shut", "outage") => 503,
                    _ => panic!("{policy}: {}", reply.text()),
                };
                assert_eq!(reply.status, expected, "{policy}: {}", reply.text());
                assert_eq!(reason.is_none(), origin == "store", "every degraded answer says why");
                if let Some(reason) = reason {
                    seen.degraded += 1;
                    let since = *failed.get_or_insert(asked);
                    if reason == "open" {
                        seen.opened.get_or_insert(since.elapsed());
                    }
                    *seen.origins.entry((origin, reason)).or_default() += 1;
                }
            }
            pause(Duration::from_millis(2));
        }
        seen
    }

    pub fn check(&self, what: &str) {
        let Self { origins, slowest, opened, .. } = self;
        println!("{what}: {origins:?}, slowest {slowest:?}, open after {opened:?}");
        assert!(*slowest < HANGS, "{what}: a decision took {slowest:?}");
        assert!(opened.is_some_and(|opened| opened < Duration::from_secs(1 + 1)), "{what}: {opened:?}");
    }
}

/// A node without an earlier outage: one soon after another would look like flapping.
pub fn started(home: &Home) -> Server {
    let server = home.start();
    comes_back(&server, "half");
    server
}

/// Causes trouble and ends it, and checks the promises during and after it.
pub fn survives(server: &Server, what: &str, begin: impl FnOnce(), end: impl FnOnce()) {
    let degraded = metric(server, "tollgate_degraded_total");
    let told = store_lines(&server.log()).len();
    wait_until_it_is(server, "ready");
    begin();
    let seen = Seen::during(server, Duration::from_millis(1_500));
    assert_eq!(readiness(server), "degraded");
    assert_eq!(metric(server, "tollgate_store_up"), 0.0);
    let counted = metric(server, "tollgate_degraded_total") - degraded;
    assert_eq!(counted, seen.degraded as f64, "{what}: the metric counts every one of them");
    seen.check(what);
    end();
    let took = comes_back(server, "half");
    println!("{what}: back after {took:?}");
    wait_until_it_is(server, "ready");
    assert_eq!(metric(server, "tollgate_store_up"), 1.0);
    wait_until("the log says so", || store_lines(&server.log()).len() >= told + 2);
    let lines = store_lines(&server.log());
    // The server's own message is a further line, if it arrives later.
    let turns = lines[told..].iter().filter(|(_, message)| !message.contains("is still down"));
    let levels: Vec<&str> = turns.map(|(level, _)| level.as_str()).collect();
    assert_eq!(levels, ["warn", "info"], "{what}: {lines:?}");
}
