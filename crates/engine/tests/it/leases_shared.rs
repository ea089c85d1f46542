//! Leases over a shared store that may be down.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::cluster::{Centre, Link, Mode, Node};
use crate::support::{policies, rule};
use futures_lite::future::{block_on, poll_once};
use tollgate_core::store::{Counter, HoldsOrder, Store};
use tollgate_core::{Attempt, Clock, Policies, Span};
use tollgate_engine::{Engine, Health, Lease, Leases};
use tollgate_store::{ManualClock, MemoryStore};

/// A node whose engine and leases the test tends.
struct Keeper {
    engine: Arc<Engine>,
    link: Arc<Link>,
    local: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    leases: Leases,
}

const IP: [(&str, &str); 1] = [("ip", "192.0.2.1")];

fn limited(limit: &str) -> Policies {
    policies(vec![rule::without_store("ip", &[limit], "local 50%")], &[("connect", &["ip"])])
}

impl Keeper {
    fn new(centre: &Arc<Centre>, limit: &str) -> Self {
        let Node { engine, link, local, clock } = centre.node(limited(limit));
        let leases = Leases::new(Arc::clone(&engine), Arc::clone(&clock) as Arc<dyn Clock>);
        Self { engine, link, local, clock, leases }
    }

    fn connect(&self, id: &str) -> Option<Lease> {
        let pinned = self.engine.pin();
        let attempt = Attempt { policy: "connect", fields: &IP, cost: 1, id: Some(id) };
        let decision = block_on(self.engine.decide(&pinned, &attempt)).unwrap();
        decision.allowed().then(|| self.leases.keep(&decision, id))
    }

    fn tend(&self) {
        block_on(self.engine.tend());
        block_on(self.leases.tend());
    }

    fn pass(&self, secs: u64) {
        for _ in 0..secs * 4 {
            self.clock.advance(Span::from_millis(250));
            self.tend();
        }
    }

    /// The ids that a store holds.
    fn held_in(&self, store: &dyn Store) -> Vec<String> {
        let pinned = self.engine.pin();
        let plan = pinned.policies.rule("ip").unwrap().plan_at(IP[0].1);
        let report = block_on(store.holds(&Counter { plan, key: IP[0].1 }, HoldsOrder::List)).unwrap();
        report.holds.into_iter().map(|(id, _)| id).collect()
    }

    fn in_store(&self) -> Vec<String> {
        self.held_in(&self.link.centre.memory)
    }

    fn in_process(&self) -> Vec<String> {
        self.held_in(&*self.local)
    }

    fn calls(&self) -> usize {
        self.link.calls.load(Ordering::SeqCst)
    }
}

#[test]
fn nodes_share_the_count_and_a_dead_one_frees_its_part() {
    let centre = Centre::new();
    let (one, other) = (Keeper::new(&centre, "4 at once for 30s"), Keeper::new(&centre, "4 at once for 30s"));
    let mine: Vec<_> = ["a", "b", "c"].map(|id| one.connect(id).unwrap()).into();
    let theirs = other.connect("d").unwrap();
    assert!(one.connect("e").is_none() && other.connect("f").is_none());
    for _ in 0..240 {
        centre.clock.advance(Span::from_millis(250));
        one.tend();
        other.tend();
    }
    assert_eq!(one.in_store(), ["a", "b", "c", "d"], "both renew theirs");
    other.pass(31);
    assert_eq!(other.in_store(), ["d"], "the first was not tended any more");
    drop((mine, theirs));
}

#[test]
fn thousands_of_leases_need_few_calls() {
    let keeper = Keeper::new(&Centre::new(), "30000 at once for 30s");
    let ids: Vec<String> = (0..12_000).map(|number| format!("connection {number}")).collect();
    let leases: Vec<_> = ids.iter().map(|id| keeper.connect(id).unwrap()).collect();
    let calls = || {
        let before = keeper.calls();
        block_on(keeper.leases.tend());
        keeper.calls() - before
    };
    assert_eq!(calls(), 0, "nothing is due");
    keeper.clock.advance(Span::from_secs(9));
    assert_eq!(calls(), 0, "nothing is due");
    keeper.clock.advance(Span::from_secs(1));
    assert_eq!(calls(), 2, "ten thousand at a time");
    keeper.clock.advance(Span::from_secs(20));
    assert_eq!((calls(), keeper.in_store().len()), (2, 12_000));
    drop(leases);
    assert_eq!((calls(), keeper.in_store().len()), (2, 0));
    assert_eq!(calls(), 0);
}

/// Lets all other tasks run as far as they can without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_wakes_the_lease_task() {
    let keeper = Keeper::new(&Centre::new(), "1 at once for 30s");
    let began = tokio::time::Instant::now();
    let told = async {
        for number in 0..10 {
            let lease = keeper.connect(&format!("connection {number}")).expect("there is no other lease");
            settle().await;
            assert_eq!(keeper.in_store().len(), 1);
            drop(lease);
            settle().await;
            assert!(keeper.in_store().is_empty(), "it is held though it has ended");
        }
        assert_eq!(began.elapsed(), std::time::Duration::ZERO, "it waited for the next time to look");
    };
    futures_lite::future::or(
        async {
            keeper.leases.run().await;
        },
        told,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_returns_when_it_is_done_or_cannot_be_done() {
    let keeper = Keeper::new(&Centre::new(), "1 at once for 30s");
    let told = async {
        for number in 0..10 {
            let lease = keeper.connect(&format!("request {number}")).expect("there is no other lease");
            lease.release().await;
            assert!(keeper.in_store().is_empty());
        }
        let lease = keeper.connect("last").unwrap();
        keeper.link.set(Mode::Unreachable);
        lease.release().await;
        assert_eq!(keeper.in_store(), ["last"], "the store could not be told");
        let here = keeper.connect("here").unwrap();
        assert_eq!(keeper.in_process(), ["here"]);
        assert!(poll_once(here.release()).await.is_some(), "a local release needs no waiting");
        assert!(keeper.in_process().is_empty());
    };
    let told = tokio::time::timeout(std::time::Duration::from_secs(10), told);
    let run = async {
        keeper.leases.run().await;
        unreachable!("it runs for ever")
    };
    futures_lite::future::or(run, told).await.expect("it is told");
}

#[tokio::test(start_paused = true)]
async fn leases_that_end_together_are_released_in_one_call() {
    let keeper = Keeper::new(&Centre::new(), "2000 at once for 30s");
    let all: Vec<_> = (0..1_000).map(|number| keeper.connect(&format!("{number}")).unwrap()).collect();
    let told = async {
        settle().await;
        let before = keeper.calls();
        drop(all);
        settle().await;
        assert_eq!((keeper.in_store().len(), keeper.calls() - before), (0, 1));
    };
    futures_lite::future::or(
        async {
            keeper.leases.run().await;
        },
        told,
    )
    .await;
}

#[test]
fn a_denial_that_was_remembered_ends_when_a_lease_does() {
    let keeper = Keeper::new(&Centre::new(), "1 at once for 30s");
    let first = keeper.connect("a").unwrap();
    assert!(keeper.connect("b").is_none());
    drop(first);
    block_on(keeper.leases.tend());
    assert!(keeper.connect("b").is_some());
}

#[test]
fn a_local_lease_is_renewed_and_released_locally() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 30s");
    keeper.link.set(Mode::Unreachable);
    let (first, second) = (keeper.connect("a").unwrap(), keeper.connect("b").unwrap());
    assert!(keeper.connect("c").is_none(), "half of four");
    keeper.pass(90);
    assert_eq!(keeper.in_process(), ["a", "b"]);
    drop(first);
    assert_eq!(keeper.in_process(), ["b"], "there and then");
    keeper.tend();
    assert_eq!((keeper.in_process(), keeper.in_store()), (vec!["b".to_owned()], vec![]));
    assert_eq!(keeper.leases.meters().lost(), 0);
    drop(second);
}

#[test]
fn local_leases_move_to_the_store_after_an_outage() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 30s");
    keeper.link.set(Mode::Unreachable);
    let (first, second) = (keeper.connect("a").unwrap(), keeper.connect("b").unwrap());
    keeper.pass(40);
    keeper.link.set(Mode::Up);
    keeper.pass(2);
    assert_eq!(keeper.engine.counters.health(), Health::Up);
    assert_eq!((keeper.in_store(), keeper.in_process().len()), (vec!["a".to_owned(), "b".to_owned()], 0));
    keeper.pass(60);
    drop(first);
    keeper.tend();
    assert_eq!((keeper.in_store(), keeper.leases.meters().lost()), (vec!["b".to_owned()], 0));
    drop(second);
}

#[test]
fn a_local_lease_stays_local_until_the_store_has_room() {
    let centre = Centre::new();
    let (keeper, other) =
        (Keeper::new(&centre, "2 at once for 30s"), Keeper::new(&centre, "2 at once for 30s"));
    let theirs = [other.connect("x").unwrap(), other.connect("y").unwrap()];
    keeper.link.set(Mode::Unreachable);
    let mine = keeper.connect("a").unwrap();
    keeper.link.set(Mode::Up);
    for _ in 0..400 {
        centre.clock.advance(Span::from_millis(250));
        keeper.tend();
        other.tend();
    }
    assert_eq!(
        (keeper.in_store(), keeper.in_process()),
        (vec!["x".to_owned(), "y".to_owned()], vec!["a".to_owned()])
    );
    let [first, second] = theirs;
    drop(first);
    for _ in 0..44 {
        centre.clock.advance(Span::from_millis(250));
        keeper.tend();
        other.tend();
    }
    assert_eq!((keeper.in_store(), keeper.in_process().len()), (vec!["a".to_owned(), "y".to_owned()], 0));
    assert_eq!(keeper.leases.meters().lost(), 0);
    drop((mine, second));
}

#[test]
fn a_short_outage_loses_nothing_and_a_long_one_is_made_up_for() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 30s");
    let (first, second) = (keeper.connect("a").unwrap(), keeper.connect("b").unwrap());
    keeper.pass(5);
    keeper.link.set(Mode::LosesQuestions);
    keeper.pass(20);
    keeper.link.set(Mode::Up);
    keeper.pass(2);
    assert_eq!((keeper.in_store().len(), keeper.leases.meters().lost()), (2, 0));
    // A separate outage, so that the store does not count as flapping.
    keeper.pass(10);
    keeper.link.set(Mode::Unreachable);
    keeper.pass(60);
    assert!(keeper.in_store().is_empty(), "it could not be renewed");
    keeper.link.set(Mode::Up);
    keeper.pass(2);
    assert_eq!((keeper.in_store().len(), keeper.leases.meters().lost()), (2, 2));
    drop((first, second));
    keeper.tend();
    assert!(keeper.in_store().is_empty());
}

#[test]
fn a_lease_dropped_during_an_outage_is_released_after_it() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 1h");
    let (first, second) = (keeper.connect("a").unwrap(), keeper.connect("b").unwrap());
    keeper.tend();
    keeper.link.set(Mode::Unreachable);
    drop(first);
    keeper.pass(60);
    assert_eq!(keeper.in_store(), ["a", "b"]);
    keeper.link.set(Mode::Up);
    keeper.pass(2);
    assert_eq!(keeper.in_store(), ["b"]);
    drop(second);
}

#[test]
fn a_changed_limit_changes_the_expiry_of_a_lease() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 30s");
    let lease = keeper.connect("a").unwrap();
    keeper.tend();
    keeper.engine.reload(limited("4 at once for 1h"));
    keeper.link.set(Mode::Unreachable);
    drop(lease);
    keeper.pass(60);
    keeper.link.set(Mode::Up);
    keeper.pass(2);
    assert!(keeper.in_store().is_empty(), "it would have been held for an hour");
}

#[test]
fn an_expired_lease_needs_no_release() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 30s");
    let lease = keeper.connect("a").unwrap();
    keeper.tend();
    keeper.link.set(Mode::Unreachable);
    drop(lease);
    keeper.pass(31);
    keeper.link.set(Mode::Up);
    for _ in 0..3 {
        keeper.clock.advance(Span::from_secs(1));
        block_on(keeper.engine.tend());
    }
    assert_eq!(keeper.engine.counters.health(), Health::Up);
    let before = keeper.calls();
    block_on(keeper.leases.tend());
    assert_eq!(keeper.calls() - before, 0);
}

#[test]
fn a_hanging_store_does_not_delay_dropping_a_lease() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 30s");
    let (first, second) = (keeper.connect("a").unwrap(), keeper.connect("b").unwrap());
    drop(first);
    keeper.link.set(Mode::Hangs);
    {
        let mut tending = Box::pin(keeper.leases.tend());
        assert!(block_on(poll_once(&mut tending)).is_none(), "it waits for the store");
        drop(second);
        assert_eq!(keeper.leases.meters().live(), 0);
        // The task that tended the leases is cancelled: nothing is lost by that.
    }
    keeper.link.set(Mode::Up);
    keeper.tend();
    assert!(keeper.in_store().is_empty());
}

#[test]
fn everything_is_released_at_the_end_wherever_it_is_held() {
    let keeper = Keeper::new(&Centre::new(), "4 at once for 30s");
    let in_store = keeper.connect("a").unwrap();
    keeper.link.set(Mode::LosesQuestions);
    let in_process = keeper.connect("b").unwrap();
    keeper.link.set(Mode::Up);
    assert_eq!((keeper.in_store().len(), keeper.in_process().len()), (1, 1));
    block_on(keeper.leases.end());
    assert_eq!((keeper.in_store().len(), keeper.in_process().len()), (0, 0));
    drop((in_store, in_process));
}
