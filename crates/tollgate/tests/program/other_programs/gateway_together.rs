//! Gateways of the real program: several on one Redis, one that is reconfigured while it serves, and counting
//! by the response.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::program::{Connection, Home, Server, wait_until};
use crate::upstream::Upstream;
use serde_json::json;
use tollgate_testbed::Server as Redis;

/// A gateway with these rules and routes, in front of one upstream.
fn config(upstream: &Upstream, store: &str, rules: &str, policies: &str, routes: &str) -> String {
    format!(
        "store: {store}
rules: {{ {rules} }}
policies: {{ {policies} }}
clients: {{ trusted_proxies: 192.0.2.0/24 }}
gateway:
  listen: 127.0.0.1:0
  workers: 2
  upstreams: {{ shop: {} }}
  routes: {{ {routes} }}
",
        upstream.address
    )
}

fn status(connection: &mut Connection, path: &str) -> u16 {
    connection.ask("GET", path, &[], None).status
}

#[test]
fn two_gateways_on_one_redis_share_every_limit() {
    let (redis, upstream) = (Redis::redis().start(), Upstream::start());
    let store = format!("{{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}", redis.url());
    let config = config(
        &upstream,
        &store,
        "route: { by: [route, ip], limits: 30/day }, all: { limits: 1000/day }",
        "p: [route, all]",
        "a: { path: /a, upstream: shop, policy: p }, b: { path: /b, upstream: shop, policy: p }",
    );
    let homes = [Home::with(&config), Home::with(&config)];
    let nodes = homes.each_ref().map(Home::start);
    let mut passed = 0;
    thread::scope(|scope| {
        let asking = nodes.iter().flat_map(|node| (0..2).map(move |_| node)).map(|node| {
            scope.spawn(|| {
                let mut connection = node.gateway();
                (0..20).filter(|_| status(&mut connection, "/a") == 200).count()
            })
        });
        let asking: Vec<_> = asking.collect();
        passed = asking.into_iter().map(|asking| asking.join().unwrap()).sum();
    });
    assert_eq!(passed, 30, "eighty were asked at two gateways");
    assert_eq!(upstream.count(), 30);
    assert_eq!(status(&mut nodes[1].gateway(), "/b"), 200, "another route");
    assert_eq!(nodes[0].remaining("all", "all"), 1000 - 31, "what was refused was charged nowhere");
}

#[test]
fn routes_and_policies_change_under_load_and_no_request_is_dropped() {
    let upstream = Upstream::start();
    let with = |name: &str| {
        let rules = format!("{name}: {{ by: ip, limits: 1000000/day }}");
        let routes = format!("all: {{ upstream: shop, policy: {name} }}");
        config(&upstream, "memory", &rules, &format!("{name}: [{name}]"), &routes)
    };
    let home = Home::with(&with("first"));
    let server = home.start();
    let done = Arc::new(AtomicBool::new(false));
    let asking: Vec<_> = (0..2)
        .map(|_| {
            let (done, mut connection) = (Arc::clone(&done), server.gateway());
            thread::spawn(move || {
                let mut asked = 0;
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(status(&mut connection, "/"), 200);
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    for round in 0..10 {
        let name = format!("policy-{round}");
        home.configure(&with(&name));
        server.post("/api/v1/reload", &json!(null)).ok();
        wait_until("the new policy counts", || {
            let shown = server.get(&format!("/api/v1/counters/{name}/127.0.0.1"));
            shown.status == 200 && shown.ok()["limits"][0]["used"].as_u64() > Some(0)
        });
    }
    done.store(true, Ordering::Relaxed);
    let asked: usize = asking.into_iter().map(|asking| asking.join().unwrap()).sum();
    assert_eq!(upstream.count(), asked, "every request was passed on once");
}

#[test]
fn logins_that_fail_are_counted_and_others_are_not() {
    let upstream = Upstream::answering(|asked| match asked.target.as_str() {
        "/login?wrong" => 401,
        "/login?broken" => 500,
        _ => 200,
    });
    let rules = "guesses: { by: ip, limits: 3/day, count_when: [401, 403] }";
    let routes = "login: { path: /login, upstream: shop, policy: login }";
    let home = Home::with(&config(&upstream, "memory", rules, "login: [guesses]", routes));
    let server = home.start();
    let mut connection = server.gateway();
    for _ in 0..10 {
        assert_eq!(status(&mut connection, "/login"), 200);
        assert_eq!(status(&mut connection, "/login?broken"), 500);
    }
    for _ in 0..3 {
        assert_eq!(status(&mut connection, "/login?wrong"), 401);
    }
    assert_eq!(status(&mut connection, "/login?wrong"), 429);
    assert_eq!(status(&mut connection, "/login"), 429, "the right password does not help a guesser");
}

#[test]
fn forwarding_headers_of_an_untrusted_client_are_ignored() {
    let upstream = Upstream::start();
    let rules = "ip: { by: ip, limits: 2/day }";
    let home =
        Home::with(&config(&upstream, "memory", rules, "p: [ip]", "all: { upstream: shop, policy: p }"));
    let server = home.start();
    let ask = |address: &str| {
        let headers =
            [("x-forwarded-for", address), ("forwarded", "for=198.51.100.9"), ("x-real-ip", address)];
        server.gateway().ask("GET", "/", &headers, None).status
    };
    assert_eq!([ask("198.51.100.1"), ask("198.51.100.2"), ask("198.51.100.3")], [200, 200, 429]);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("127.0.0.1"), "nor is it passed on");
}

#[test]
fn a_policy_that_is_assigned_over_the_api_holds_for_its_route() {
    let upstream = Upstream::start();
    let rules = "ip: { by: ip, limits: 100/day }";
    let home = Home::with(&config(
        &upstream,
        "memory",
        rules,
        "p: [ip]",
        "shop: { upstream: shop, policy: p }, free: { path: /free, upstream: shop }",
    ));
    let server = home.start();
    let made = json!({ "name": "slow", "requestsPerSecond": 1, "burstSize": 2 });
    assert_eq!(server.post("/api/v1/policies", &made).status, 201);
    let assigned = server.ask("PUT", "/api/v1/routes/free/rate-limit", Some(&json!({ "policy": "slow" })));
    assert_eq!(assigned.status, 200, "{}", assigned.text());
    let reply = server.gateway().ask("GET", "/free", &[], None);
    assert_eq!((reply.status, reply.header("x-ratelimit-burst")), (200, Some("2")));
    assert_eq!(reply.header("x-ratelimit-type"), Some("route"));
    assert_eq!(server.ask("DELETE", "/api/v1/policies/slow", None).status, 409, "a route passes it");
    server.ask("DELETE", "/api/v1/routes/free/rate-limit", None).ok();
    assert_eq!(server.gateway().ask("GET", "/free", &[], None).header("x-ratelimit-burst"), None);
    assert_eq!(server.ask("DELETE", "/api/v1/policies/slow", None).status, 200);
    let gone = |server: &Server| server.get("/api/v1/policies/slow").status;
    assert_eq!(gone(&server), 404);
}
