//! The marketplace example behind the gateway, row by row, through the real program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Reply, Server, now};
use crate::upstream::Upstream;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;

const SECRET: &str = "the marketplace and its gateway know this";

struct Marketplace {
    upstream: Upstream,
    server: Server,
    _home: Home,
}

impl Marketplace {
    /// Serves the example, with its own upstream and ports.
    fn open() -> Self {
        let upstream = Upstream::start();
        let config = include_str!("../../../../examples/gateway-marketplace.yaml");
        let home = Home::with(config)
            .variable("MARKETPLACE_TOKEN_SECRET", SECRET)
            .variable("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0")
            .variable("TOLLGATE__GATEWAY__WORKERS", "1")
            .variable("TOLLGATE__GATEWAY__UPSTREAMS__MARKETPLACE", &upstream.address.to_string());
        let server = home.start();
        Self { upstream, server, _home: home }
    }

    fn ask(&self, method: &str, path: &str, user: Option<&str>) -> Reply {
        let token = user.map(|user| format!("Bearer {}", token(user)));
        let headers: Vec<(&str, &str)> =
            token.iter().map(|token| ("authorization", token.as_str())).collect();
        self.server.gateway().ask(method, path, &headers, None)
    }
}

fn token(user: &str) -> String {
    let claims = json!({ "sub": user, "exp": 4_000_000_000_u64 });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

/// One row of the table: the request, the user, and the limit.
struct Row {
    method: &'static str,
    path: &'static str,
    by_user: bool,
    number: u64,
    burst: usize,
}

const ROWS: [Row; 7] = [
    Row { method: "POST", path: "/api/v1/auth/validate", by_user: false, number: 5, burst: 3 },
    Row { method: "POST", path: "/api/v1/deals", by_user: true, number: 20, burst: 5 },
    Row { method: "GET", path: "/api/v1/deals/7", by_user: true, number: 60, burst: 20 },
    Row { method: "GET", path: "/api/v1/channels/search", by_user: true, number: 30, burst: 10 },
    Row { method: "POST", path: "/api/v1/deals/7/creative", by_user: true, number: 10, burst: 3 },
    Row { method: "POST", path: "/api/v1/deals/7/dispute", by_user: true, number: 5, burst: 2 },
    Row { method: "GET", path: "/api/v1/admin/users", by_user: true, number: 120, burst: 30 },
];

#[test]
fn every_tier_admits_its_burst_and_tells_its_rate() {
    for row in ROWS {
        // Each row has its own addresses and buckets.
        let (market, start) = (Marketplace::open(), now());
        let user = row.by_user.then_some("ada");
        let mut passed = 0;
        let refused = loop {
            let reply = market.ask(row.method, row.path, user);
            if reply.status == 429 {
                break reply;
            }
            assert_eq!(reply.status, 200, "{} {passed}: {}", row.path, reply.text());
            assert!(
                reply.header("x-ratelimit-limit").is_some() && reply.header("x-ratelimit-reset").is_some()
            );
            assert!(reply.header("x-ratelimit-remaining").is_some() && reply.header("retry-after").is_none());
            passed += 1;
        };
        let since = (start.elapsed().as_secs_f64() * row.number as f64 / 60.0) as usize + 1;
        assert!((row.burst..row.burst + since).contains(&passed), "{}: {passed} passed", row.path);
        assert_eq!(refused.header("x-ratelimit-limit"), Some(row.number.to_string().as_str()));
        assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
        assert!(refused.header("retry-after").is_some(), "{}", row.path);
        assert_eq!(market.upstream.count(), passed, "what is refused never arrives");
        if row.by_user {
            assert_eq!(market.ask(row.method, row.path, Some("bob")).status, 200, "another user");
        }
    }
}

#[test]
fn all_that_a_user_does_is_limited_together_and_a_refusal_costs_nothing() {
    let market = Marketplace::open();
    let status = |method: &str, path: &str| market.ask(method, path, Some("ada")).status;
    // Three tiers allow 35 together, and the user 30.
    let paths = [("GET", "/api/v1/deals/1", 18), ("GET", "/api/v1/channels/x", 9)];
    for (method, path, count) in paths {
        assert!((0..count).all(|_| status(method, path) == 200), "within the tier {path}");
    }
    let refused = loop {
        let reply = market.ask("GET", "/api/v1/admin/users", Some("ada"));
        if reply.status == 429 {
            break reply;
        }
    };
    assert_eq!(refused.header("x-ratelimit-type"), Some("user"), "by the user's limit");
    assert_eq!(refused.header("x-ratelimit-limit"), Some("120"));
    let left = |rule: &str| market.server.remaining(rule, "ada");
    let before = left("deals_write");
    assert_eq!(market.ask("POST", "/api/v1/deals", Some("ada")).status, 429);
    assert_eq!(
        (before, left("deals_write")),
        (5, 5),
        "the tier is not charged for what the user's limit refuses"
    );
}

#[test]
fn a_refusal_reads_as_the_marketplace_writes_it() {
    let market = Marketplace::open();
    for _ in 0..2 {
        assert_eq!(market.ask("POST", "/api/v1/deals/9/dispute", Some("ada")).status, 200);
    }
    let refused = market.ask("POST", "/api/v1/deals/9/dispute", Some("ada"));
    let retry = refused.header("retry-after").unwrap();
    assert_eq!(
        refused.text(),
        format!(
            r#"{{
  "type": "https://api.admarketplace.com/errors/rate-limit-exceeded",
  "title": "Rate Limit Exceeded",
  "status": 429,
  "detail": "You have exceeded the rate limit of 5 requests per minute",
  "retryAfter": {retry}
}}"#
        )
    );
    assert!((11..=12).contains(&retry.parse::<u64>().unwrap()), "5/min is one every 12 seconds: {retry}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
}

#[test]
fn addresses_are_limited_as_nginx_means_it() {
    let market = Marketplace::open();
    let mut logins = 0;
    while market.ask("POST", "/api/v1/auth/refresh", None).status == 200 {
        logins += 1;
    }
    assert_eq!(logins, 4, "rate=5r/m burst=3 nodelay");
    let (mut connection, start, mut first) = (market.server.gateway(), now(), 0);
    while connection.ask("GET", "/api/v1/catalog", &[], None).status == 200 {
        first += 1;
    }
    let since = (start.elapsed().as_secs_f64() * 30.0) as usize + 1;
    assert!(
        (51..51 + since).contains(&first),
        "rate=30r/s burst=50 nodelay admits 51 at once, and this {first}"
    );
    assert_eq!(market.ask("GET", "/health", None).header("x-ratelimit-limit"), None, "untouched");
}

#[test]
fn an_anonymous_client_is_limited_and_a_forged_token_refused() {
    let market = Marketplace::open();
    assert_eq!(market.ask("GET", "/api/v1/deals/1", None).status, 200, "the address is limited all the same");
    let lie = format!("Bearer {}x", token("ada"));
    let reply = market.server.gateway().ask("GET", "/api/v1/deals/1", &[("authorization", &lie)], None);
    assert_eq!(reply.status, 401, "{}", reply.text());
    assert_eq!(market.upstream.count(), 1);
}
