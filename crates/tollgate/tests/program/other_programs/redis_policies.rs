//! Two nodes on one Redis have one set of policies: one created on a node applies on the other within a
//! second, and of two concurrent creations of one name only one succeeds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crate::nodes::{self, PATIENT, STEADY, home};
use crate::program::{Home, Reply, Server, now, text, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

const ALL: &str = "/api/v1/policies";

fn redis() -> &'static Redis {
    static REDIS: OnceLock<Redis> = OnceLock::new();
    REDIS.get_or_init(|| Redis::redis().start())
}

fn nodes(prefix: &str) -> [(Home, Server); 2] {
    let settings = format!("key_prefix: {prefix}, {PATIENT}");
    [(); 2].map(|()| {
        let home = home(&redis().url(), &settings, &[("own", "by: user, limits: 2/day")]);
        let server = home.start();
        (home, server)
    })
}

fn check(server: &Server, policy: &str, route: &str, consumer: &str) -> Reply {
    let fields = json!({ "route": route, "ip": "192.0.2.1", "consumer": consumer });
    server.check(&json!({ "policy": policy, "fields": fields }))
}

fn put(server: &Server, path: &str, body: &Value) -> Reply {
    server.ask("PUT", path, Some(body))
}

#[test]
fn a_policy_of_one_node_applies_on_the_other_within_a_second_and_counts_once() {
    let [(home, one), (_, other)] = &nodes("made");
    let made = home.run(one, &["policies", "create", "partners", "3/day"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let start = now();
    put(one, "/api/v1/consumers/acme/rate-limit", &json!({ "limits": "4/day" })).ok();
    let there = |path: &str| other.get(path).status == 200;
    wait_until("the policy holds elsewhere", || there("/api/v1/policies/partners"));
    wait_until("the consumer is limited elsewhere", || there("/api/v1/consumers/acme/rate-limit"));
    let took = start.elapsed();
    println!("elsewhere after {took:?}");
    assert!(took < Duration::from_secs(1 + 3), "{took:?}");
    let statuses: Vec<u16> =
        [one, other, one, other].iter().map(|server| check(server, "partners", "a", "acme").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429], "three for the client, wherever it asks");
    assert_eq!(
        check(other, "partners", "b", "acme").status,
        200,
        "the refused one cost the consumer nothing"
    );
    let denied = check(one, "partners", "c", "acme");
    assert_eq!((denied.status, denied.json()["denied_by"].as_str()), (429, Some("consumer")));
    assert_eq!(one.remaining("partners", "c,192.0.2.1"), 3, "and that one cost the client nothing");

    put(other, "/api/v1/policies/partners", &json!({ "limits": "5/day" })).ok();
    wait_until("the change holds on the first", || {
        one.get("/api/v1/policies/partners").ok()["limits"] == json!(["5/day"])
    });
    assert_eq!(one.remaining("partners", "a,192.0.2.1"), 2);
    assert!(other.ask("DELETE", "/api/v1/policies/partners", None).status == 200);
    wait_until("it is gone on the first", || check(one, "partners", "a", "acme").status == 400);
}

#[test]
fn a_node_that_starts_later_knows_earlier_policies() {
    let [(_, one), (home, other)] = nodes("later");
    other.stop();
    one.post(ALL, &json!({ "name": "partners", "requestsPerSecond": 1, "burstSize": 2 }));
    let other = home.start();
    assert_eq!(other.get("/api/v1/policies/partners").ok()["burstSize"], 2);
    assert_eq!(check(&other, "partners", "a", "acme").status, 200);
}

#[test]
fn of_two_concurrent_creations_of_one_policy_one_succeeds() {
    let nodes = nodes("race");
    for round in 0..10 {
        let body = json!({ "name": format!("p{round}"), "limits": "3/day" });
        let statuses = thread::scope(|scope| {
            let asking = [0, 1, 0, 1].map(|node| {
                scope.spawn({
                    let (server, body) = (&nodes[node].1, &body);
                    move || server.post(ALL, body).status
                })
            });
            let mut statuses = asking.map(|asking| asking.join().unwrap());
            statuses.sort_unstable();
            statuses
        });
        assert_eq!(statuses, [201, 409, 409, 409], "round {round}");
    }
}

#[test]
fn if_match_is_compared_with_the_latest_version_of_any_node() {
    let [(_, one), (_, other)] = &nodes("tags");
    let made = one.post(ALL, &json!({ "name": "partners", "limits": "3/day" }));
    let tag = |reply: &Reply| reply.header("etag").unwrap().to_owned();
    let change = |server: &Server, tag: &str, limit: &str| {
        let (path, body) = ("/api/v1/policies/partners", json!({ "limits": limit }));
        server.connect().ask("PUT", path, &[("if-match", tag)], Some(&body))
    };
    let first = change(other, &tag(&made), "4/day");
    assert_eq!(first.status, 200, "the other knows it though it has not followed yet: {}", first.text());
    assert_eq!(change(one, &tag(&made), "5/day").status, 412);
    assert_eq!(change(one, &tag(&first), "5/day").status, 200);
}

#[test]
fn during_an_outage_a_node_uses_known_policies_and_creates_none() {
    let redis = Redis::redis().start();
    let home = home(&redis.url(), STEADY, &[("own", "by: user, limits: 2/day")]);
    let server = home.start();
    assert_eq!(server.post(ALL, &json!({ "name": "partners", "limits": "4/day" })).status, 201);
    drop(redis);
    wait_until("it is noticed", || nodes::readiness(&server) == "degraded");
    let statuses: Vec<u16> = (0..3).map(|_| check(&server, "partners", "a", "acme").status).collect();
    assert_eq!(statuses, [200, 200, 429], "half of four");
    assert_eq!(server.post(ALL, &json!({ "name": "more", "limits": "4/day" })).status, 503);
    assert_eq!(server.get(ALL).ok()["policies"].as_array().unwrap().len(), 1);
}

#[test]
fn a_consumer_without_limits_can_be_looked_at() {
    let [(_, one), _] = &nodes("unlimited");
    let shown = one.get("/api/v1/counters/consumer/acme").ok();
    assert_eq!((&shown["rule"], &shown["limits"]), (&json!("consumer"), &json!([])));
}
