//! Limits on requests in flight at gateways of the real program: on a file, and on Redis.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{Arc, Condvar, Mutex};

use crate::program::{Connection, Home, Server, Signal, request, wait_until};
use crate::upstream::Upstream;
use tollgate_testbed::Server as Redis;

/// Slow responses, which continue when the test says so.
#[derive(Default)]
struct Slow {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    came: usize,
    may_leave: usize,
}

impl Slow {
    /// An upstream that is slow at `/slow`.
    fn start() -> (Arc<Self>, Upstream) {
        let slow = Arc::new(Self::default());
        let own = Arc::clone(&slow);
        let upstream = Upstream::answering(move |asked| {
            if asked.target == "/slow" {
                own.hold();
            }
            200
        });
        (slow, upstream)
    }

    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        state.came += 1;
        let mut state = self.changed.wait_while(state, |state| state.may_leave == 0).unwrap();
        state.may_leave -= 1;
    }

    /// Starts a slow request, and waits until it has arrived.
    fn begin(&self, server: &Server) -> Connection {
        let before = self.state.lock().unwrap().came;
        let mut connection = server.gateway();
        connection.send(&request("GET", "/slow", &[], None));
        wait_until("it has come", || self.state.lock().unwrap().came > before);
        connection
    }

    fn go_on(&self, requests: usize) {
        self.state.lock().unwrap().may_leave += requests;
        self.changed.notify_all();
    }
}

fn config(upstream: &Upstream, store: &str, limit: &str, connections: &str) -> String {
    format!(
        "store: {store}
log: {{ format: json }}
rules: {{ busy: {{ limits: {limit} }}, one: {{ limits: 1 at once for 1h }}, open: {{ limits: {connections} at once for 1h }} }}
policies: {{ busy: [busy], one: [one], open: [open] }}
gateway:
  listen: 127.0.0.1:0
  workers: 2
  connections: open
  upstreams: {{ app: {} }}
  routes: {{ one: {{ path: /one, upstream: app, policy: one }}, all: {{ upstream: app, policy: busy }} }}
",
        upstream.address
    )
}

fn status(server: &Server, path: &str) -> u16 {
    server.gateway().ask("GET", path, &[], None).status
}

#[test]
fn a_request_holds_its_place_for_as_long_as_it_is_under_way() {
    let (slow, upstream) = Slow::start();
    let home = Home::with(&config(&upstream, "{ file: counts.redb }", "2 at once for 1h", "50"));
    let server = home.start();
    let (mut first, mut second) = (slow.begin(&server), slow.begin(&server));
    assert_eq!((status(&server, "/"), server.remaining("busy", "busy")), (429, 0));
    slow.go_on(2);
    assert_eq!((first.reply().unwrap().status, second.reply().unwrap().status), (200, 200));
    drop((first, second));
    assert_eq!((status(&server, "/"), server.remaining("busy", "busy")), (200, 2));
    drop(slow.begin(&server));
    wait_until("the place of a client that went away is free", || server.remaining("busy", "busy") == 2);
    for number in 0..600 {
        assert_eq!(status(&server, "/one"), 200, "the {number}th over its own connection");
    }
    let mut connection = server.gateway();
    for number in 0..100 {
        let reply = connection.ask("GET", "/one", &[], None);
        assert_eq!(reply.status, 200, "the {number}th over one connection");
    }
    drop(connection);
    wait_until("every connection has ended", || server.remaining("open", "open") == 50);
    let mut under_way = slow.begin(&server);
    server.signal(Signal::TERM);
    slow.go_on(2);
    assert_eq!(under_way.reply().unwrap().status, 200);
    assert_eq!(server.ended().status.code(), Some(0));
    let again = home.start();
    assert_eq!((again.remaining("busy", "busy"), again.remaining("open", "open")), (2, 50));
}

#[test]
fn gateways_on_one_redis_share_requests_in_flight_and_release_them() {
    let (redis, (slow, upstream)) = (Redis::redis().start(), Slow::start());
    let store = format!("{{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}", redis.url());
    let config = config(&upstream, &store, "2 at once for 1h", "1000");
    let homes = [Home::with(&config), Home::with(&config)];
    let [one, other] = homes.each_ref().map(Home::start);
    for _ in 0..3 {
        let (mut first, mut second) = (slow.begin(&one), slow.begin(&other));
        assert_eq!((status(&one, "/"), status(&other, "/")), (429, 429));
        slow.go_on(2);
        assert_eq!((first.reply().unwrap().status, second.reply().unwrap().status), (200, 200));
        assert_eq!(other.remaining("busy", "busy"), 2, "both places are free");
        wait_until("the denial is forgotten", || status(&one, "/") == 200 && status(&other, "/") == 200);
    }
    let mut connection = one.gateway();
    for number in 0..100 {
        let reply = connection.ask("GET", "/one", &[], None);
        assert_eq!(reply.status, 200, "the {number}th over one connection");
        assert_eq!(status(&one, "/one"), 200, "the {number}th over its own connection");
        assert_eq!(status(&other, "/one"), 200, "the {number}th at the other gateway");
    }
    drop(slow.begin(&one));
    wait_until("the place of a client that went away is free", || other.remaining("busy", "busy") == 2);
    slow.go_on(1);
    for node in [&one, &other] {
        let lost = node.get("/metrics");
        assert!(lost.text().contains("\ntollgate_leases_lost_total 0\n"), "{}", lost.text());
    }
}

#[test]
fn the_hold_of_a_killed_gateway_expires() {
    let (redis, (slow, upstream)) = (Redis::redis().start(), Slow::start());
    let store = format!("{{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}", redis.url());
    let config = config(&upstream, &store, "1 at once for 3s", "1000");
    let homes = [Home::with(&config), Home::with(&config)];
    let [killed, other] = homes.each_ref().map(Home::start);
    let _under_way = slow.begin(&killed);
    killed.end_by(Signal::KILL);
    wait_until("its place is free", || status(&other, "/") == 200);
    slow.go_on(1);
}
