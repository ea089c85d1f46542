//! Engines that share a real server: leases and refunds count for all of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{START, admissions, policies, rule};
use tokio::runtime::Runtime;
use tollgate_core::{Attempt, Clock, Origin, OutcomeClass, Policies, Records, Span, Store};
use tollgate_engine::engine::RefundPart;
use tollgate_engine::{Engine, Fallback, Lease, Leases, Parts, Terms};
use tollgate_redis::{RedisStore, Settings};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_testbed::Server;

/// A server, the clock that all nodes use, and their runtime.
struct Site {
    server: Server,
    clock: Arc<ManualClock>,
    runtime: Runtime,
}

struct Node<'s> {
    engine: Arc<Engine>,
    leases: Leases,
    site: &'s Site,
}

impl Site {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self { server: Server::redis().start(), clock, runtime: Runtime::new().unwrap() }
    }

    fn node(&self, policies: Policies) -> Node<'_> {
        let settings = Settings {
            // A slow machine must not look like an outage.
            command_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            ..Settings::parse(&self.server.url()).unwrap()
        };
        let clock = || Arc::clone(&self.clock) as Arc<dyn Clock>;
        let store = self.runtime.block_on(RedisStore::start(settings)).unwrap().with_clock(clock());
        let store = Arc::new(store);
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: store as Arc<dyn Records>,
            fallback: Some(Fallback {
                store: Arc::new(MemoryStore::new(clock(), 1_000)),
                clock: clock(),
                probe_every: Span::from_secs(10),
            }),
        };
        let engine = Arc::new(self.runtime.block_on(Engine::start(policies, parts)).unwrap());
        let leases = Leases::new(Arc::clone(&engine), clock());
        Node { engine, leases, site: self }
    }

    fn keys(&self) -> usize {
        self.server.command(&["KEYS", "tollgate:{*"]).parts().len()
    }
}

impl Node<'_> {
    fn connect(&self, id: &str) -> Option<Lease> {
        let pinned = self.engine.pin();
        let attempt = Attempt { policy: "connect", fields: &[("ip", "192.0.2.1")], cost: 1, id: Some(id) };
        let decision = self.site.runtime.block_on(self.engine.decide(&pinned, &attempt)).unwrap();
        assert_eq!(decision.origin, Origin::Store);
        decision.allowed().then(|| self.leases.keep(&decision, id))
    }

    fn tend(&self) {
        self.site.runtime.block_on(self.leases.tend());
    }

    fn left(&self, policy: &str, fields: &[(&str, &str)]) -> Vec<u64> {
        let pinned = self.engine.pin();
        let look = Attempt { policy, fields, cost: 0, id: None };
        let decision = self.site.runtime.block_on(self.engine.peek(&pinned, &look)).unwrap();
        decision.outcome.readings.iter().map(|reading| reading.remaining).collect()
    }
}

#[test]
fn nodes_share_leases_and_a_killed_one_frees_its_own() {
    let limited = || {
        let rules = vec![
            rule::rejecting("ip", &["ip"], &["50 at once for 30s"]),
            rule::rejecting("all", &[], &["100 at once for 30s"]),
        ];
        policies(rules, &[("connect", &["ip", "all"])])
    };
    let fields = [("ip", "192.0.2.1")];
    let site = Site::new();
    let (one, killed) = (site.node(limited()), site.node(limited()));
    let mine: Vec<Lease> = (0..30).map(|number| one.connect(&format!("one {number}")).unwrap()).collect();
    let lost: Vec<Lease> =
        (0..20).map(|number| killed.connect(&format!("other {number}")).unwrap()).collect();
    assert!(one.connect("too many").is_none() && killed.connect("too many").is_none());
    for _ in 0..8 {
        site.clock.advance(Span::from_secs(10));
        one.tend();
        killed.tend();
    }
    assert_eq!(one.left("connect", &fields), [0, 50], "all of them outlived their time");
    for _ in 0..3 {
        site.clock.advance(Span::from_secs(10));
        one.tend();
    }
    assert_eq!(one.left("connect", &fields), [20, 70], "the other leases were not renewed");
    killed.tend();
    assert_eq!(
        (one.left("connect", &fields), killed.leases.meters().lost()),
        (vec![0, 50], 40),
        "it was only slow"
    );
    drop(lost);
    killed.tend();
    assert_eq!(one.left("connect", &fields), [20, 70]);
    site.runtime.block_on(one.leases.end());
    assert_eq!(one.left("connect", &fields), [50, 100]);
    assert_eq!(site.keys(), 0, "nothing is left behind");
    drop(mine);
}

#[test]
fn an_answer_that_does_not_count_is_given_back_for_all_nodes() {
    let login = || {
        let rules = vec![
            rule::rejecting("all", &["all"], &["50/hour"]),
            rule::counting("guesses", &["5/15m sliding", "20/day calendar"], "[401, 403]"),
            rule::counting("work", &["10/s burst 20"], "not 5xx"),
        ];
        policies(rules, &[("login", &["all", "guesses", "work"])])
    };
    let fields = [("all", "x"), ("guesses", "ada"), ("work", "ada")];
    let site = Site::new();
    let (one, other) = (site.node(login()), site.node(login()));
    let table = [(200, [49, 5, 20, 19]), (401, [48, 4, 19, 18]), (500, [47, 4, 19, 18])];
    for (status, expected) in table {
        let attempt = Attempt { policy: "login", fields: &fields, cost: 1, id: None };
        let admit = admissions(&one.engine).pin().admit(&attempt, Terms::default(), Engine::receipt);
        let mut admission = site.runtime.block_on(admit).unwrap();
        let receipt = admission.seen.unwrap();
        site.runtime.block_on(admission.taken.settle(OutcomeClass(status))).unwrap();
        assert_eq!(other.left("login", &fields), expected, "{status}");
        if status == 500 {
            let rest = site
                .runtime
                .block_on(other.engine.refund(&other.engine.pin(), &receipt, RefundPart::All))
                .unwrap();
            assert_eq!(rest, tollgate_core::store::Refunded::Done);
            assert_eq!(one.left("login", &fields), [48, 4, 19, 18], "what was left of it");
        }
    }
}
