//! Three servers that share one Redis: limits hold for all of them together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Client, START, Stand, guarded, plain, policies, rule};
use tokio::runtime::Runtime;
use tollgate_core::{Clock, Policies, Records, Span, Store};
use tollgate_engine::{Fallback, Parts};
use tollgate_redis::{RedisStore, Settings};
use tollgate_relay::acceptance::AcceptTerms;
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_testbed::{Server, wait_until};

/// Three servers, and the Redis that they share.
struct Site {
    nodes: [Stand; 3],
    clock: Arc<ManualClock>,
    redis: Server,
}

impl Site {
    fn new(policies: impl Fn() -> Policies) -> Self {
        let redis = Server::redis().start();
        let clock = Arc::new(ManualClock::at(START));
        let nodes = [(); 3].map(|()| node(&redis, &clock, policies()));
        Self { nodes, clock, redis }
    }
}

fn node(redis: &Server, clock: &Arc<ManualClock>, policies: Policies) -> Stand {
    let runtime = Runtime::new().unwrap();
    let settings = Settings {
        // A busy machine is not an outage.
        command_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        ..Settings::parse(&redis.url()).unwrap()
    };
    let shared = || Arc::clone(clock) as Arc<dyn Clock>;
    let store = Arc::new(runtime.block_on(RedisStore::start(settings)).unwrap().with_clock(shared()));
    let parts = Parts {
        store: Arc::clone(&store) as Arc<dyn Store>,
        records: store as Arc<dyn Records>,
        fallback: Some(Fallback {
            store: Arc::new(MemoryStore::new(shared(), 1_000)),
            clock: shared(),
            probe_every: Span::from_secs(10),
        }),
    };
    Stand::on(runtime, policies, parts, Arc::clone(clock), |_| {})
}

/// How many of so many connections to each node are admitted, all of them at the same time.
fn admitted(site: &Site, each: usize) -> usize {
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for node in site.nodes.iter().flat_map(|node| [node, node]) {
            scope.spawn(|| {
                for _ in 0..each / 2 {
                    let mut client = node.client();
                    let greeting = client.reply();
                    if greeting.starts_with("220") {
                        admitted.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(client.ask("QUIT"), "221 2.0.0 Bye");
                    } else {
                        assert!(
                            greeting.starts_with("421 4.7.0 Too many connections from your address"),
                            "{greeting}"
                        );
                        assert!(client.is_closed());
                    }
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn three_nodes_admit_100_of_150_connections_a_minute_from_one_address() {
    let limits = || {
        let rules = vec![
            rule("rate", &["ip"], &["100/60s sliding"]),
            rule("per_ip", &["ip"], &["150 at once for 60s"]),
            rule("total", &[], &["1000 at once for 60s"]),
        ];
        policies(rules, &[("connect", &["rate", "per_ip", "total"])])
    };
    let site = Site::new(limits);
    assert_eq!(admitted(&site, 50), 100);
    assert_eq!(admitted(&site, 10), 0, "the window is full on every node");
    site.clock.advance(Span::from_secs(60));
    assert_eq!(admitted(&site, 50), 100, "a minute later there is room again");
}

#[test]
fn connections_at_once_count_for_all_nodes() {
    let limits =
        || policies(vec![rule("per_ip", &["ip"], &["6 at once for 60s"])], &[("connect", &["per_ip"])]);
    let site = Site::new(limits);
    let open = |node: &Stand| -> Vec<Client> { (0..2).map(|_| node.greeted()).collect() };
    let [one, two, three] = &site.nodes;
    let (mine, _others, _more) = (open(one), open(two), open(three));
    for node in &site.nodes {
        assert!(node.client().reply().starts_with("421 4.7.0"));
    }
    drop(mine);
    wait_until("both are released", || two.left("connect", &[("ip", "127.0.0.1")]) == [2]);
    three.greeted();
}

#[test]
fn messages_count_for_all_nodes_and_refunds_too() {
    let limits = || policies(vec![rule("sender", &["sender"], &["3/hour"])], &[("accept", &["sender"])]);
    let site = Site::new(limits);
    let [one, two, three] = &site.nodes;
    assert!(one.greeted().message("a@x.test", &["b@y.test"]).starts_with("250"));
    assert!(two.greeted().message("a@x.test", &["b@y.test"]).starts_with("250"));
    let mut aborted = three.greeted();
    assert!(aborted.announce("a@x.test", &["b@y.test"]).starts_with("354"));
    let refused = one.greeted().message("a@x.test", &["b@y.test"]);
    assert_eq!(refused, "451 4.7.1 Rate limit exceeded: sender a@x.test, 3/hour; try again in 3600 s");
    aborted.abort();
    wait_until("it is refunded", || one.left("accept", &[("sender", "a@x.test")]) == [1]);
    wait_until("the other node hears of it", || {
        two.greeted().message("a@x.test", &["b@y.test"]).starts_with("250")
    });
    assert!(one.greeted().message("a@x.test", &["b@y.test"]).starts_with("451"));
}

#[test]
fn failed_logins_climb_one_ladder_on_all_nodes() {
    let site = Site::new(|| guarded(vec![rule("account", &["user"], &["ladder 3 lock 15m"])], &["account"]));
    for node in &site.nodes {
        assert_eq!(node.secured().ask(&plain("app", "guess")), "535 5.7.8 Authentication failed");
    }
    for node in &site.nodes {
        let locked = node.secured().ask(&plain("app", "secret"));
        assert_eq!(locked, "454 4.7.0 Too many failed logins; try again in 900 s");
    }
}

#[test]
fn without_redis_each_rule_does_what_it_says() {
    let limits = || {
        let mut local = rule("sender", &["sender"], &["2/hour"]);
        local.on_outage = "local 100%".parse().unwrap();
        let mut strict = rule("domain", &["domain"], &["100/hour"]);
        strict.on_outage = "deny".parse().unwrap();
        policies(vec![local, strict], &[("accept", &["sender"]), ("strict", &["domain"])])
    };
    let mut site = Site::new(limits);
    let [one, two, three] = &site.nodes;
    assert!(one.greeted().message("a@x.test", &["b@y.test"]).starts_with("250"));
    let strict = AcceptTerms { policy: Some("strict".into()), ..AcceptTerms::new("relay.test") };
    three.doors.reload(strict);
    assert!(three.greeted().message("a@x.test", &["b@y.test"]).starts_with("250"));
    site.redis.kill9();
    let mut client = two.greeted();
    for _ in 0..2 {
        assert!(client.message("a@x.test", &["b@y.test"]).starts_with("250"), "counted on the node");
    }
    assert!(
        client
            .message("a@x.test", &["b@y.test"])
            .starts_with("451 4.7.1 Rate limit exceeded: sender a@x.test")
    );
    assert_eq!(three.greeted().message("a@x.test", &["b@y.test"]), "451 4.3.0 Temporary failure");
    assert_eq!((one.intake.count(), two.intake.count(), three.intake.count()), (1, 2, 1));
}
