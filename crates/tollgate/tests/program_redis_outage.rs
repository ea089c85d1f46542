//! What the program does during an outage of Redis: it decides in time, says how and why, logs it once, and
//! recovers by itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod nodes;
mod program;

use std::collections::BTreeMap;
use std::time::Duration;

use nodes::{HASTY, attempt, comes_back, home, metric, origin, readiness, store_lines, wait_until_it_is};
use program::{Home, Server, now, pause, wait_until};
use tollgate_testbed::{Proxy, Server as Redis};

/// Distinguishes a hang from a decision that is late on a busy machine. The promise is 110 ms.
const HANGS: Duration = Duration::from_secs(1);

const RULES: [(&str, &str); 4] = [
    ("half", "by: user, limits: 1000000/day"),
    ("open", "by: user, limits: 1000000/day, on_outage: allow"),
    ("shut", "by: user, limits: 1000000/day, on_outage: deny"),
    ("log", "by: user, limits: 1000000/day sliding by 1h"),
];

/// The results of continuous requests.
#[derive(Default)]
struct Seen {
    origins: BTreeMap<(String, String), usize>,
    degraded: usize,
    slowest: Duration,
    /// When the breaker opened, counted from the first failure.
    opened: Option<Duration>,
}

impl Seen {
    /// Sends requests to every policy in turn for this long, and records the responses.
    fn during(server: &Server, lasts: Duration) -> Self {
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

    fn check(&self, what: &str) {
        let Self { origins, slowest, opened, .. } = self;
        println!("{what}: {origins:?}, slowest {slowest:?}, open after {opened:?}");
        assert!(*slowest < HANGS, "{what}: a decision took {slowest:?}");
        assert!(opened.is_some_and(|opened| opened < Duration::from_secs(1 + 1)), "{what}: {opened:?}");
    }
}

/// A Redis, a proxy before it, and a node behind that.
fn node() -> (Redis, Proxy, Home, Server) {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let home = home(&proxy.url(), HASTY, &RULES);
    let server = home.start();
    comes_back(&server, "half");
    (redis, proxy, home, server)
}

/// A node without an earlier outage: one soon after another would look like flapping.
fn started(home: &Home) -> Server {
    let server = home.start();
    comes_back(&server, "half");
    server
}

/// Causes trouble and ends it, and checks the promises during and after it.
fn survives(server: &Server, what: &str, begin: impl FnOnce(), end: impl FnOnce()) {
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

#[test]
fn a_store_behind_a_black_hole_is_done_without() {
    let (_redis, proxy, _home, server) = node();
    survives(&server, "blackhole", || proxy.blackhole(), || proxy.heal());
}

#[test]
fn a_store_that_stands_still_is_done_without() {
    let (redis, _proxy, _home, server) = node();
    survives(&server, "paused", || redis.pause(), || redis.resume());
}

#[test]
fn a_store_that_is_slow_is_done_without_and_probed_by_one_at_a_time() {
    let (redis, proxy, _home, server) = node();
    let scripts = || {
        let stats = redis.command(&["INFO", "commandstats"]).text();
        let calls = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
        calls.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    proxy.delay(Duration::from_millis(200));
    let seen = Seen::during(&server, Duration::from_secs(1));
    seen.check("slow");
    let (before, start) = (scripts(), now());
    let seen = Seen::during(&server, Duration::from_millis(2_500));
    let (probes, lasted) = (scripts() - before, start.elapsed());
    println!("{probes} probes in {lasted:?}");
    assert_eq!(seen.origins.keys().filter(|(_, reason)| reason != "open").count(), 0, "{:?}", seen.origins);
    // At most one in half a second, and one that was in flight.
    assert!((1..=2 + lasted.as_millis() as u64 / 500).contains(&probes), "{probes}");
    proxy.heal();
    let took = comes_back(&server, "half");
    println!("slow: back after {took:?}");
    wait_until("the log says so", || store_lines(&server.log()).len() == 2);
}

#[test]
fn a_store_that_is_gone_is_looked_for_with_pauses() {
    let (mut redis, proxy, _home, server) = node();
    let before = proxy.connections();
    redis.kill9();
    let start = now();
    let seen = Seen::during(&server, Duration::from_secs(3));
    let (made, lasted) = (proxy.connections() - before, start.elapsed());
    println!("{made} connections in {lasted:?}");
    seen.check("gone");
    // A few soon after each other, and then one a second for both connections together.
    let most = 8 + lasted.as_secs();
    assert!((2..=most).contains(&made), "{made} connections, at most {most}");
    redis.start();
    println!("gone: back after {:?}", comes_back(&server, "half"));
    wait_until("both connections are there", || proxy.open_connections() == 2);
}

#[test]
fn whatever_a_server_says_instead_of_serving_is_the_outage_mode() {
    let redis = Redis::redis().args(["--busy-reply-threshold", "50"]).start();
    let home = home(&redis.url(), HASTY, &RULES);
    let order = |words: &[&str]| drop(redis.command(words).ok());
    survives(
        &started(&home),
        "READONLY",
        || order(&["REPLICAOF", "127.0.0.1", "1"]),
        || order(&["REPLICAOF", "NO", "ONE"]),
    );
    let mut wire = redis.wire();
    survives(
        &started(&home),
        "BUSY",
        || wire.send(&["EVAL", "while true do end", "0"]).unwrap(),
        || wait_until("the script is killed", || redis.command(&["SCRIPT", "KILL"]).text() == "OK"),
    );
}

#[test]
fn a_user_who_may_do_less_is_the_outage_mode_until_it_may_again() {
    let redis = Redis::redis().users("user default off\nuser limiter on >secret ~* &* +@all").start();
    let home = home(&redis.url_as("limiter", "secret"), HASTY, &RULES);
    let order = |words: &[&str]| drop(redis.command(words).ok());
    survives(
        &started(&home),
        "NOPERM",
        || order(&["ACL", "SETUSER", "limiter", "-evalsha", "-eval"]),
        || order(&["ACL", "SETUSER", "limiter", "+@all"]),
    );
    survives(
        &started(&home),
        "NOAUTH",
        || {
            order(&["ACL", "SETUSER", "limiter", "off"]);
            order(&["CLIENT", "KILL", "USER", "limiter"]);
        },
        || order(&["ACL", "SETUSER", "limiter", "on"]),
    );
}

#[test]
fn a_failure_of_the_store_is_noticed_where_nobody_asks() {
    let (_redis, proxy, _home, server) = node();
    proxy.cut();
    wait_until_it_is(&server, "degraded");
    proxy.heal();
    wait_until_it_is(&server, "ready");
}
