//! Concurrent guarded logins at the gateway of the real program: parallel guesses, on one node and on
//! several, and a reload while some are delayed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::program::{Connection, Home, Server, now, wait_until};
use crate::upstream::Upstream;
use serde_json::json;
use tollgate_testbed::Server as Redis;

/// A gateway with a guarded route.
fn config(upstream: &Upstream, store: &str, ladder: &str, max_delay: &str) -> String {
    format!(
        "store: {store}
rules: {{ login: {{ by: user, limits: {ladder} }} }}
policies: {{ login: [login] }}
guards: {{ login: {{ policy: login }} }}
gateway:
  listen: 127.0.0.1:0
  workers: 2
  upstreams: {{ shop: {} }}
  routes:
    login:
      path: /login
      upstream: shop
      guard: {{ name: login, fields: {{ user: query.user }}, success: [200, 303], max_delay: {max_delay} }}
    rest: {{ upstream: shop }}
",
        upstream.address
    )
}

const GUESS: &[u8] = b"POST /login?user=ada HTTP/1.1\r\nhost: shop\r\n\r\n";

fn guess(connection: &mut Connection) -> u16 {
    connection.send(GUESS);
    connection.reply().expect("the gateway answers").status
}

/// Sends this many guesses at once, each over its own connection. Returns how often each status occurred.
fn guess_at_once(servers: &[&Server], times: usize) -> BTreeMap<u16, usize> {
    let connections = (0..times).map(|number| servers[number % servers.len()].gateway());
    let guessing: Vec<_> =
        connections.map(|mut connection| thread::spawn(move || guess(&mut connection))).collect();
    let mut statuses = BTreeMap::new();
    for guessing in guessing {
        *statuses.entry(guessing.join().unwrap()).or_default() += 1;
    }
    statuses
}

fn delayed(server: &Server) -> u64 {
    let page = server.get("/metrics");
    let line = page.text().lines().find_map(|line| line.strip_prefix("tollgate_guard_delayed "));
    line.expect("the gateway counts them").parse().unwrap()
}

#[test]
fn a_hundred_guesses_at_once_reach_the_service_as_often_as_the_ladder_lets_them() {
    let upstream = Upstream::answering(|_| 401);
    let home = Home::with(&config(&upstream, "memory", "ladder 4 +1s then 6 +1h", "5s"));
    let server = home.start();
    let start = now();
    let statuses = guess_at_once(&[&server], 100);
    assert_eq!(statuses, BTreeMap::from([(401, 6), (429, 94)]));
    assert_eq!(upstream.count(), 6, "four at once, and one after a second, and one after another");
    assert!(start.elapsed() >= Duration::from_millis(1_980), "{:?}", start.elapsed());
    assert_eq!(delayed(&server), 0);
}

#[test]
fn guesses_at_two_gateways_that_share_a_redis_are_counted_together() {
    let (redis, upstream) = (Redis::redis().start(), Upstream::answering(|_| 401));
    let store = format!("{{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}", redis.url());
    let config = config(&upstream, &store, "ladder 4 +1s then 6 +1h", "5s");
    let homes = [Home::with(&config), Home::with(&config)];
    let nodes = homes.each_ref().map(Home::start);
    let statuses = guess_at_once(&nodes.each_ref(), 60);
    assert_eq!((statuses, upstream.count()), (BTreeMap::from([(401, 6), (429, 54)]), 6));
}

#[test]
fn a_success_at_one_gateway_lets_the_next_login_in_at_another() {
    let redis = Redis::redis().start();
    let upstream = Upstream::answering(|asked| if asked.target.contains("right") { 200 } else { 401 });
    let store = format!("{{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}", redis.url());
    let config = config(&upstream, &store, "ladder 3 lock 15m", "none");
    let homes = [Home::with(&config), Home::with(&config)];
    let [one, other] = homes.each_ref().map(Home::start);
    assert_eq!([guess(&mut one.gateway()), guess(&mut other.gateway())], [401, 401]);
    let right = one.gateway().ask("POST", "/login?user=ada&right", &[], None);
    assert_eq!(right.status, 200);
    // The gateway reports to the store in the background.
    wait_until("it is cleared", || one.remaining("login", "ada") == 3);
    for _ in 0..3 {
        assert_eq!(guess(&mut other.gateway()), 401);
    }
    assert_eq!([guess(&mut one.gateway()), guess(&mut other.gateway())], [429, 429]);
}

/// Holds responses back until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (open, opened) = &*self.0;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[test]
fn a_login_of_a_disconnected_client_counts_as_failed_whatever_the_response() {
    let gate = Gate::default();
    let upstream = Upstream::answering({
        let gate = gate.clone();
        move |_| {
            gate.pass();
            200
        }
    });
    let home = Home::with(&config(&upstream, "memory", "ladder 2 lock 15m", "none"));
    let server = home.start();
    for left in [1, 0] {
        let mut connection = server.gateway();
        connection.send(GUESS);
        wait_until("it has begun", || server.remaining("login", "ada") == left);
        drop(connection);
    }
    let gone = "tollgate_gateway_requests_total{route=\"login\",status=\"499\"} 2";
    wait_until("both ends are seen", || server.get("/metrics").text().contains(gone));
    assert_eq!(server.remaining("login", "ada"), 0);
    gate.open();
    assert_eq!(server.gateway().ask("GET", "/", &[], None).status, 200, "a client that stays is answered");
    assert_eq!(guess(&mut server.gateway()), 429);
}

#[test]
fn a_worker_with_many_delayed_logins_serves_others_and_drops_disconnected_ones() {
    let upstream = Upstream::answering(|asked| if asked.target.starts_with("/login") { 401 } else { 200 });
    let home = Home::with(&config(&upstream, "memory", "ladder 1 +50s", "60s"));
    let server = home.start();
    assert_eq!(guess(&mut server.gateway()), 401);
    let waiting: Vec<Connection> = (0..50)
        .map(|_| {
            let mut connection = server.gateway();
            connection.send(GUESS);
            connection
        })
        .collect();
    wait_until("all are held back", || delayed(&server) == 50);
    for _ in 0..20 {
        assert_eq!(server.gateway().ask("GET", "/", &[], None).status, 200);
    }
    assert_eq!(delayed(&server), 50, "other requests do not wait for them");
    drop(waiting);
    wait_until("none is left", || delayed(&server) == 0);
    assert_eq!(upstream.count(), 21);
}

#[test]
fn a_login_that_is_held_back_during_a_reload_ends_as_it_began() {
    let upstream = Upstream::answering(|_| 401);
    let text = config(&upstream, "memory", "ladder 1 +6s", "20s");
    let home = Home::with(&text);
    let server = home.start();
    let start = now();
    assert_eq!(guess(&mut server.gateway()), 401);
    let mut waiting = server.gateway();
    waiting.send(GUESS);
    wait_until("it is held back", || delayed(&server) == 1);
    // The guard is removed, and its policy with it.
    let bare = text.replace("guards: { login: { policy: login } }", "");
    let bare =
        bare.replace("login: { by: user, limits: ladder 1 +6s }", "other: { by: user, limits: 9/day }");
    let bare = bare.replace("policies: { login: [login] }", "policies: { other: [other] }");
    let (head, tail) = bare.split_once("      guard:").unwrap();
    let (_, tail) = tail.split_once('\n').unwrap();
    home.configure(&format!("{head}{tail}"));
    server.post("/api/v1/reload", &json!(null)).ok();
    assert_eq!(guess(&mut server.gateway()), 401, "nothing guards it any more");
    assert_eq!(waiting.reply().map(|reply| reply.status), Some(401));
    assert!(start.elapsed() >= Duration::from_millis(5_940), "not before its time: {:?}", start.elapsed());
    assert_eq!((delayed(&server), upstream.count()), (0, 3));
}

#[test]
fn guards_change_under_load_and_no_login_is_lost() {
    let upstream = Upstream::answering(|_| 200);
    let with = |name: &str| {
        config(&upstream, "memory", "ladder 900 lock 15m", "none")
            .replace("guards: { login:", &format!("guards: {{ {name}:"))
            .replace("guard: { name: login,", &format!("guard: {{ name: {name},"))
    };
    let home = Home::with(&with("first"));
    let server = home.start();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asking = {
        let (done, mut connection) = (Arc::clone(&done), server.gateway());
        thread::spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(guess(&mut connection), 200);
            }
        })
    };
    for round in 0..10 {
        home.configure(&with(&format!("guard-{round}")));
        server.post("/api/v1/reload", &json!(null)).ok();
        let before = upstream.count();
        wait_until("logins go on", || upstream.count() > before + 5);
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    asking.join().unwrap();
}

/// How much of unfinished login bodies one worker keeps, in bodies of 60,000 bytes.
const BODIES: usize = (16 << 20) / 60_000;

#[test]
fn login_bodies_of_all_connections_share_a_bound() {
    let upstream = Upstream::answering(|_| 401);
    let config = config(&upstream, "memory", "ladder 1000 +1s", "1s");
    let home = Home::with(&config.replace("query.user", "form.user").replace("workers: 2", "workers: 1"));
    let server = home.start();
    // All but the last byte comes, so that the gateway keeps the rest.
    let unfinished = || {
        let mut connection = server.gateway();
        let body = format!("user=ada&note={}", "x".repeat(59_986));
        let head = "POST /login HTTP/1.1\r\nhost: shop\r\ncontent-type: application/x-www-form-urlencoded";
        connection.send(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len() + 1).as_bytes());
        connection
    };
    let mut kept: Vec<Connection> = (0..BODIES).map(|_| unfinished()).collect();
    wait_until("there is no room for another login", || {
        let mut connection = unfinished();
        connection.send(b"x");
        connection.reply().expect("the gateway answers").status == 503
    });
    for connection in &mut kept {
        connection.send(b"x");
        assert_eq!(connection.reply().expect("its body was kept").status, 401);
    }
    let mut connection = unfinished();
    connection.send(b"x");
    assert_eq!(connection.reply().expect("the gateway answers").status, 401, "there is room again");
}
