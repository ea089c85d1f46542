//! Failures, provoked with the configuration of a page.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tollgate_testbed::{Proxy, Server as Redis};

use crate::coming_from::{Made, SECRET};
use crate::nodes::STEADY;
use crate::program::{Home, Reply, Server, Signal, wait_until};

/// A directory with the configuration, and variables that override it.
pub(crate) fn home(made: &Made, variables: &[(&str, &str)]) -> Home {
    let mut home = Home::with(&made.config);
    for name in &made.variables {
        home = home.variable(name, SECRET);
    }
    if made.config.contains("\nrelay:\n") {
        home = home.variable("TOLLGATE__RELAY__LISTEN", "[{ smtp: '127.0.0.1:0' }]");
    }
    if made.config.contains("\ngateway:\n") {
        home = home.variable("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0");
    }
    if made.config.contains("\npostfix:\n") {
        home = home.variable("TOLLGATE__LISTEN__POSTFIX", "127.0.0.1:0");
    }
    variables.iter().fold(home, |home, (name, value)| home.variable(name, value))
}

/// As [`home`], with counters in memory.
pub(crate) fn in_memory(made: &Made) -> Home {
    home(made, &[("TOLLGATE__STORE", "memory")])
}

/// The configuration with other texts.
pub(crate) fn changed(made: &Made, changes: &[(&str, &str)]) -> Made {
    let mut config = made.config.clone();
    for (from, to) in changes {
        assert!(config.contains(from), "no `{from}` in\n{config}");
        config = config.replace(from, to);
    }
    Made { sample: None, config, variables: made.variables.clone(), findings: Vec::new() }
}

pub(crate) fn ask(server: &Server, policy: &str, fields: &Value, cost: u64) -> Reply {
    server.check(&json!({ "policy": policy, "fields": fields, "cost": cost }))
}

/// An attempt that is decided, and whether it is allowed.
pub(crate) fn allows(server: &Server, policy: &str, fields: &Value, cost: u64) -> bool {
    ask(server, policy, fields, cost).json()["allowed"] == true
}

/// The setting `store` for a Redis on this port.
pub(crate) fn on_redis(port: u16) -> String {
    format!("{{ redis: 'redis://localhost:{port}', {STEADY} }}")
}

/// Takes the store away and gives it back. Meanwhile the first rule has this capacity, or denies if there is none.
pub(crate) fn outage(
    made: &Made,
    on_outage: Option<&str>,
    policy: &str,
    fields: &Value,
    capacity: Option<u64>,
) -> String {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let store = on_redis(proxy.port());
    let mut variables = vec![("TOLLGATE__STORE", store.as_str())];
    variables.extend(on_outage.map(|on_outage| ("TOLLGATE__ON_OUTAGE", on_outage)));
    let home = home(made, &variables);
    let server = home.start();
    let origin = || ask(&server, policy, fields, 1).json()["origin"].clone();
    wait_until("the store decides", || origin() == "store");
    proxy.cut();
    wait_until("the node decides alone", || origin() != "store");
    let answer = ask(&server, policy, fields, 1).json();
    match capacity {
        Some(capacity) => assert_eq!(answer["rules"][0]["capacity"], capacity, "{answer}"),
        None => assert_eq!(answer["allowed"], false, "{answer}"),
    }
    server.wait_for_log("the store is down");
    proxy.heal();
    wait_until("the store decides again", || origin() == "store");
    server.wait_for_log("the store is up again");
    server.stop()
}

/// Counts something, ends the server by a signal, and starts it again. The count is as before.
pub(crate) fn restart(home: &Home, signal: Signal, counter: (&str, &str), count: impl Fn(&Server)) -> String {
    let server = home.start();
    count(&server);
    let before = server.remaining(counter.0, counter.1);
    let ended = server.end_by(signal);
    let server = home.start();
    assert_eq!(server.remaining(counter.0, counter.1), before);
    ended.log + &server.stop()
}

/// Two nodes on one Redis have one count.
pub(crate) fn two_nodes(made: &Made, policy: &str, fields: &Value, counter: (&str, &str)) -> String {
    let redis = Redis::redis().start();
    let store = on_redis(redis.port());
    let homes = [0, 1].map(|_| home(made, &[("TOLLGATE__STORE", &store)]));
    let [one, other] = homes.each_ref().map(Home::start);
    let before = other.remaining(counter.0, counter.1);
    assert!(allows(&one, policy, fields, 1));
    assert_eq!(other.remaining(counter.0, counter.1), before - 1);
    one.stop() + &other.stop()
}

/// A node on Redis whose own clock is moved two hours ahead; the bucket, which refills in an hour, stays empty.
pub(crate) fn wrong_clock(made: &Made, policy: &str, fields: &Value, capacity: u64) -> String {
    let redis = Redis::redis().start();
    let store = on_redis(redis.port());
    let home = home(made, &[("TOLLGATE__STORE", &store)]).with_moved_clock();
    let server = home.start();
    assert!(allows(&server, policy, fields, capacity) && !allows(&server, policy, fields, 1));
    home.shift_clock(7_200);
    assert!(!allows(&server, policy, fields, 1));
    server.stop();
    // Also a node that starts with such a clock.
    let server = home.start();
    assert!(!allows(&server, policy, fields, 1));
    server.stop()
}

/// A node dies with a hold whose time is short. The other one has the place again.
pub(crate) fn dead_node(made: &Made, fields: &Value, counter: (&str, &str)) -> String {
    let redis = Redis::redis().start();
    let store = on_redis(redis.port());
    let homes = [0, 1].map(|_| home(made, &[("TOLLGATE__STORE", &store)]));
    let [one, other] = homes.each_ref().map(Home::start);
    let all = other.remaining(counter.0, counter.1);
    let body = json!({ "policy": "smtp.connect", "fields": fields, "id": "connection" });
    one.post("/api/v1/holds", &body).ok();
    assert_eq!(other.remaining(counter.0, counter.1), all - 1);
    one.end_by(Signal::KILL);
    wait_until("the place is free", || other.remaining(counter.0, counter.1) == all);
    assert!(allows(&other, "smtp.connect", fields, 1));
    other.stop()
}

/// Sends a policy request as Postfix does. Returns the action.
pub(crate) fn policy_request(server: &Server, number: u32, more: &str) -> String {
    let mut door = TcpStream::connect(server.policy_door.unwrap()).unwrap();
    let request = format!(
        "request=smtpd_access_policy\nprotocol_state=DATA\nsender=app@here.test\nclient_address=192.0.2.7\n\
         recipient_count=1\ninstance=1.{number}\n{more}\n\n"
    );
    door.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 1_024];
    let length = door.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}
