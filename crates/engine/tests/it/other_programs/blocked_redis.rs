//! The lists over a real Redis: a blocked attempt is not counted, and two engines have the same entries.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{policies, rule};
use tokio::runtime::Runtime;
use tollgate_core::{Attempt, Author, Origin, Policies, Rule, Span, Stance};
use tollgate_engine::{Engine, Fallback, Parts, Wish};
use tollgate_redis::{RedisStore, Settings};
use tollgate_store::{MemoryStore, SteadyClock, SystemClock};
use tollgate_testbed::{Server, wait_until};

fn base() -> Policies {
    let ban = Some("after 3 denials in 10m ban 1h".parse().unwrap());
    let rules = vec![
        rule::rejecting("all", &[], &["1000/day"]),
        Rule { ban, ..rule::rejecting("login", &["user", "ip"], &["2/day"]) },
    ];
    policies(rules, &[("login", &["all", "login"])])
}

async fn start(redis: &Server) -> Engine {
    let patient = Duration::from_secs(10);
    let settings = Settings {
        command_timeout: patient,
        connect_timeout: patient,
        ..Settings::parse(&redis.url()).unwrap()
    };
    let store = Arc::new(RedisStore::start(settings).await.unwrap());
    let local = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 1_000));
    let clock = Arc::new(SteadyClock::new());
    let fallback = Fallback { store: local, clock, probe_every: Span::from_secs(10) };
    let parts = Parts { store: Arc::clone(&store) as _, records: store, fallback: Some(fallback) };
    Engine::start(base(), parts).await.unwrap()
}

async fn decide(engine: &Engine, user: &str, ip: &str) -> (bool, Origin) {
    let pinned = engine.pin();
    let fields = [("user", user), ("ip", ip)];
    let attempt = Attempt { policy: "login", fields: &fields, cost: 1, id: None };
    let decision = engine.decide(&pinned, &attempt).await.unwrap();
    (decision.allowed(), decision.origin)
}

/// How much of the shared rule is used.
async fn used(engine: &Engine) -> u64 {
    let pinned = engine.pin();
    let outcome = engine.counters.look(&pinned.policies.rule("all").unwrap().plan, "all").await.unwrap();
    1_000 - outcome.readings[0].remaining
}

#[test]
fn both_nodes_refuse_a_blocked_client_and_count_nothing_in_redis() {
    let redis = Server::redis().start();
    let runtime = Runtime::new().unwrap();
    let [one, other] = runtime.block_on(async { [start(&redis).await, start(&redis).await] });
    let wish = Wish {
        target: one.lists.target("203.0.113.0/24").unwrap(),
        stance: Stance::Block,
        lasts: Some(Span::from_secs(3_600)),
        reason: "".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    };
    runtime.block_on(one.lists.put(vec![wish])).unwrap();
    assert_eq!(runtime.block_on(decide(&one, "bob", "198.51.100.1")), (true, Origin::Store));
    let blocked =
        |engine: &Engine| runtime.block_on(decide(engine, "bob", "203.0.113.7")) == (false, Origin::Blocked);
    wait_until("the other node blocks them", || {
        runtime.block_on(other.tend());
        blocked(&other)
    });
    let before = runtime.block_on(used(&one));
    for _ in 0..10 {
        assert!(blocked(&one) && blocked(&other));
    }
    assert_eq!(runtime.block_on(used(&one)), before);
}

#[test]
fn denials_on_both_nodes_make_one_ban_that_redis_keeps() {
    let redis = Server::redis().start();
    let runtime = Runtime::new().unwrap();
    let [one, other] = runtime.block_on(async { [start(&redis).await, start(&redis).await] });
    let knock = |engine: &Engine| runtime.block_on(decide(engine, "bob", "203.0.113.7"));
    assert!(knock(&one).0 && knock(&other).0);
    for engine in [&one, &one, &other] {
        assert_eq!(knock(engine), (false, Origin::Store));
    }
    runtime.block_on(one.tend());
    assert_eq!(knock(&one), (false, Origin::Store), "two are not enough");
    runtime.block_on(other.tend());
    assert_eq!(knock(&other), (false, Origin::Blocked));
    let late = runtime.block_on(start(&redis));
    assert_eq!(knock(&late), (false, Origin::Blocked));
    let kept = redis.command(&["HGET", "tollgate/{lists}", "entry:ip=203.0.113.7,user=bob"]).text();
    assert!(kept.starts_with("block\nsince ") && kept.contains("\nrule login"), "{kept}");
}
