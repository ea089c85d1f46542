//! The API gateway example: buckets by route and client, by consumer, and an outage of Redis, through the
//! real program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Reply, Server, now, wait_until};
use crate::upstream::Upstream;
use tollgate_testbed::{Proxy, Server as Redis};

const KEY: &str = "acme knows this and nobody else";

struct Gateway {
    orders: [Upstream; 2],
    users: Upstream,
    server: Server,
    _home: Home,
}

impl Gateway {
    fn open(variables: &[(&str, &str)]) -> Self {
        let (orders, users) = ([Upstream::start(), Upstream::start()], Upstream::start());
        let addresses = format!("[{}, {}]", orders[0].address, orders[1].address);
        let mut home = Home::with(include_str!("../../../../../examples/gateway-routes.yaml"))
            .variable("ACME_API_KEY", KEY)
            .variable("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0")
            .variable("TOLLGATE__GATEWAY__WORKERS", "1")
            .variable("TOLLGATE__GATEWAY__UPSTREAMS__ORDERS", &addresses)
            .variable("TOLLGATE__GATEWAY__UPSTREAMS__USERS", &users.address.to_string());
        for (name, value) in variables {
            home = home.variable(name, value);
        }
        let server = home.start();
        Self { orders, users, server, _home: home }
    }

    fn status(&self, path: &str) -> u16 {
        self.server.gateway().ask("GET", path, &[], None).status
    }

    /// Sends requests until one is denied. Returns how many passed, and how many of these may be due to the
    /// refill at `rate` a second meanwhile.
    fn until_refused(&self, path: &str, rate: u64) -> Passed {
        let (mut connection, start) = (self.server.gateway(), now());
        for count in 0..5000 {
            let reply = connection.ask("GET", path, &[("x-correlation-id", "abc-123-def")], None);
            if reply.status == 429 {
                let since = (start.elapsed().as_secs_f64() * rate as f64) as usize + 1;
                return Passed { count, since, refusal: reply };
            }
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        panic!("nothing is ever refused");
    }
}

struct Passed {
    count: usize,
    since: usize,
    refusal: Reply,
}

impl Passed {
    /// Whether the initial burst had this size.
    fn was(&self, burst: usize) -> bool {
        (burst..=burst + self.since).contains(&self.count)
    }
}

#[test]
fn the_burst_passes_and_then_the_rate() {
    let gateway = Gateway::open(&[]);
    let passed = gateway.until_refused("/api/orders/1", 10);
    assert!(passed.was(50), "burstSize=50, and what comes in the meantime: {}", passed.count);
    let shares = gateway.orders.each_ref().map(Upstream::count);
    assert!(shares[0].abs_diff(shares[1]) <= 1, "they take turns: {shares:?}");
    assert_eq!(gateway.status("/api/users/1"), 200, "another route has a bucket of its own");
}

#[test]
fn an_answer_tells_what_is_left_and_a_refusal_reads_as_it_is_written() {
    let gateway = Gateway::open(&[]);
    let mut connection = gateway.server.gateway();
    let first = connection.ask("GET", "/api/search", &[], None);
    let told = |name: &str| first.header(name);
    assert_eq!(
        (told("x-ratelimit-limit"), told("x-ratelimit-burst"), told("x-ratelimit-remaining")),
        (Some("5"), Some("5"), Some("4"))
    );
    let reset: u64 = told("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(reset > 1_700_000_000 && told("retry-after").is_none());
    assert_eq!(told("x-ratelimit-type"), Some("route"));
    let refused = gateway.until_refused("/api/search", 5).refusal;
    assert_eq!(
        refused.text(),
        r#"{
    "type": "https://api.gateway/errors/rate-limit-exceeded",
    "title": "Too Many Requests",
    "status": 429,
    "detail": "Rate limit exceeded. Try again in 1 seconds.",
    "correlationId": "abc-123-def"
}"#
    );
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[test]
fn a_route_without_policy_passes_untouched_and_without_headers() {
    let gateway = Gateway::open(&[]);
    let reply = gateway.server.gateway().ask("GET", "/status", &[], None);
    assert_eq!(reply.status, 200);
    assert!(!reply.headers.iter().any(|(name, _)| name.starts_with("x-ratelimit")), "{:?}", reply.headers);
}

#[test]
fn a_consumer_is_limited_over_all_routes_and_both_or_none_are_charged() {
    let gateway = Gateway::open(&[]);
    let key = [("x-api-key", KEY)];
    let mut connection = gateway.server.gateway();
    let mut ask = |path: &str| connection.ask("GET", path, &key, None);
    let mut passed = 0;
    let refused = loop {
        // Neither route's bucket of 50 is empty when the consumer's of 60 is.
        let reply = ask(if passed % 2 == 0 { "/api/orders/1" } else { "/api/users/1" });
        if reply.status == 429 {
            break reply;
        }
        passed += 1;
    };
    assert!((60..90).contains(&passed), "{passed}");
    assert_eq!(
        (refused.header("x-ratelimit-type"), refused.header("x-ratelimit-limit")),
        (Some("consumer"), Some("20"))
    );
    let arrived: usize = gateway.orders.iter().map(Upstream::count).sum::<usize>() + gateway.users.count();
    assert_eq!(arrived, passed);
    let wrong = gateway.server.gateway().ask("GET", "/api/users/1", &[("x-api-key", "guessed")], None);
    assert_eq!(wrong.status, 401);
}

#[test]
fn without_redis_half_of_the_policy_passes_and_the_log_warns_once() {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let store = format!("{{ redis: '{}', command_timeout: 500ms }}", proxy.url());
    let gateway = Gateway::open(&[("TOLLGATE__STORE", &store), ("TOLLGATE__LOG__FORMAT", "json")]);
    let shared = gateway.until_refused("/api/orders/1", 10);
    assert!(shared.was(50), "{}", shared.count);
    proxy.cut();
    let local = gateway.until_refused("/api/users/1", 5);
    assert!(local.was(25), "half of the burst, and what comes in the meantime: {}", local.count);
    let search = gateway.until_refused("/api/search", 2);
    assert!(search.was(2), "half of five: {}", search.count);
    let unusable = "the store is down";
    let warned = |server: &Server| server.log().lines().filter(|line| line.contains(unusable)).count();
    wait_until("the warning", || warned(&gateway.server) > 0);
    assert_eq!(warned(&gateway.server), 1, "{}", gateway.server.log());
    proxy.heal();
    gateway.server.wait_for_log("the store is up again");
}
