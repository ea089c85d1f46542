//! What the program does during an outage of Redis: it decides in time, says how and why, logs it once, and
//! recovers by itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::nodes::{HASTY, attempt, comes_back, home, origin, store_lines, wait_until_it_is};
use crate::outage::{RULES, Seen, started, survives};
use crate::program::{Home, Server, now, pause, wait_until};
use tollgate_testbed::{Proxy, Server as Redis};

/// A Redis, a proxy before it, and a node behind that.
fn node() -> (Redis, Proxy, Home, Server) {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let home = home(&proxy.url(), HASTY, &RULES);
    let server = home.start();
    comes_back(&server, "half");
    (redis, proxy, home, server)
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
fn a_store_that_stands_still_for_less_than_three_time_outs_stays_in_use_whatever_the_traffic() {
    let redis = Redis::redis().start();
    let home = home(&redis.url(), "command_timeout: 400ms, connect_timeout: 1s", &RULES);
    let server = started(&home);
    let (start, callers, stops) = (now(), 12, 4);
    let local = std::thread::scope(|scope| {
        let call = || {
            let (mut connection, mut local) = (server.connect(), 0);
            while start.elapsed() < Duration::from_secs(6) {
                let reply = connection.ask("POST", "/api/v1/check", &[], Some(&attempt("half", "ada")));
                local += usize::from(origin(&reply).0 == "local");
                pause(Duration::from_millis(2));
            }
            local
        };
        let calls: Vec<_> = (0..callers).map(|_| scope.spawn(call)).collect();
        for _ in 0..stops {
            pause(Duration::from_millis(700));
            redis.pause();
            pause(Duration::from_millis(550));
            redis.resume();
        }
        calls.into_iter().map(|call| call.join().unwrap()).sum::<usize>()
    });
    println!("{local} local decisions");
    assert!(local > 0, "the stops did nothing");
    // Each caller waits for one time-out in each stop, and then for the answer.
    assert!(local <= callers * stops, "{local} decisions without the store");
    assert_eq!(store_lines(&server.log()), [], "the store was never left");
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
fn revoked_rights_mean_outage_mode_until_they_are_granted_again() {
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
fn a_failure_of_the_store_is_noticed_without_traffic() {
    let (_redis, proxy, _home, server) = node();
    proxy.cut();
    wait_until_it_is(&server, "degraded");
    proxy.heal();
    wait_until_it_is(&server, "ready");
}
