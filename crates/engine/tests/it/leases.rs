//! Leases: holds that last as long as a connection or request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{Stand, decide, policies, rule, start};
use futures_lite::future::block_on;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use tollgate_core::store::{Counter, Forget, HoldsOrder};
use tollgate_core::{Attempt, Clock, Limit, Policies, Span};
use tollgate_engine::{Engine, Lease, Leases};
use tollgate_store::ManualClock;

/// An engine whose leases the test tends.
struct Keeper {
    clock: Arc<ManualClock>,
    engine: Arc<Engine>,
    leases: Leases,
}

impl Keeper {
    fn new(policies: Policies) -> Self {
        let Stand { clock, engine, .. } = Stand::new(policies);
        Self::of(clock, engine)
    }

    fn of(clock: Arc<ManualClock>, engine: Arc<Engine>) -> Self {
        let leases = Leases::new(Arc::clone(&engine), Arc::clone(&clock) as Arc<dyn Clock>);
        Self { clock, engine, leases }
    }

    /// A lease of this cost, if there is room.
    fn connect(&self, ip: &str, id: &str, cost: u64) -> Option<Lease> {
        let pinned = self.engine.pin();
        let attempt = Attempt { policy: "connect", fields: &[("ip", ip)], cost, id: Some(id) };
        let decision = block_on(self.engine.decide(&pinned, &attempt)).unwrap();
        decision.allowed().then(|| self.leases.keep(&decision, id))
    }

    fn tend(&self) {
        block_on(self.leases.tend());
    }

    /// Lets this many seconds pass, four rounds a second.
    fn pass(&self, secs: u64) {
        for _ in 0..secs * 4 {
            self.clock.advance(Span::from_millis(250));
            self.tend();
        }
    }

    /// How much remains for an address, and for all.
    fn left(&self, ip: &str) -> Vec<u64> {
        let pinned = self.engine.pin();
        let attempt = Attempt { policy: "connect", fields: &[("ip", ip)], cost: 0, id: None };
        let decision = block_on(self.engine.peek(&pinned, &attempt)).unwrap();
        decision.outcome.readings.iter().map(|reading| reading.remaining).collect()
    }

    fn held(&self, rule: &str, key: &str) -> Vec<String> {
        let pinned = self.engine.pin();
        let counter = Counter { plan: pinned.policies.rule(rule).unwrap().plan_at(key), key };
        let report = block_on(self.engine.counters.holds(&counter, HoldsOrder::List)).unwrap();
        report.holds.into_iter().map(|(id, _)| id).collect()
    }
}

fn limited(each: &str, all: &str) -> Policies {
    let rules = vec![rule::rejecting("ip", &["ip"], &[each]), rule::rejecting("all", &[], &[all])];
    policies(rules, &[("connect", &["ip", "all"])])
}

const ADA: &str = "192.0.2.1";

#[test]
fn any_task_may_keep_and_tend_them() {
    fn is_sent<T: Send>(value: T) -> T {
        value
    }
    let keeper = Keeper::new(limited("2 at once for 30s", "5 at once for 30s"));
    let lease = is_sent(keeper.connect(ADA, "a", 1).unwrap());
    std::thread::scope(|scope| scope.spawn(move || drop(lease)).join().unwrap());
    block_on(is_sent(keeper.leases.tend()));
    assert_eq!(keeper.left(ADA), [2, 5]);
    block_on(is_sent(keeper.leases.end()));
}

#[test]
fn a_dropped_lease_is_released_at_every_level() {
    let keeper = Keeper::new(limited("2 at once for 30s", "5 at once for 30s"));
    let (first, second) = (keeper.connect(ADA, "a", 1).unwrap(), keeper.connect(ADA, "b", 1).unwrap());
    assert!(keeper.connect(ADA, "c", 1).is_none());
    assert_eq!((keeper.left(ADA), keeper.leases.meters().live()), (vec![0, 3], 2));
    drop(first);
    assert_eq!(keeper.left(ADA), [1, 4], "there and then");
    assert_eq!((keeper.held("all", "all"), keeper.leases.meters().live()), (vec!["b".to_owned()], 1));
    keeper.tend();
    drop(second);
    assert_eq!(keeper.left(ADA), [2, 5], "also what was looked after meanwhile");
    keeper.tend();
    assert_eq!((keeper.left(ADA), keeper.leases.meters().lost()), (vec![2, 5], 0));
}

#[test]
fn a_dropped_lease_frees_its_place_at_once() {
    let keeper = Keeper::new(limited("1 at once for 30s", "1 at once"));
    for number in 0..600 {
        let id = keeper.leases.fresh_id();
        assert!(keeper.connect(ADA, &id, 1).is_some(), "the {number}th is refused without another lease");
        if number % 100 == 0 {
            keeper.tend();
        }
    }
    assert_eq!((keeper.leases.meters().live(), keeper.leases.meters().lost()), (0, 0));
}

#[test]
fn a_renewed_lease_outlives_its_expiry() {
    let keeper = Keeper::new(limited("2 at once for 30s", "5 at once for 9s"));
    let kept = keeper.connect(ADA, "kept", 1).unwrap();
    keeper.pass(40);
    let late = keeper.connect("192.0.2.2", "late", 1).unwrap();
    keeper.pass(100);
    assert_eq!((keeper.left(ADA), keeper.left("192.0.2.2")), (vec![1, 3], vec![1, 3]));
    assert_eq!(keeper.leases.meters().lost(), 0);
    drop((kept, late));
    keeper.tend();
    assert_eq!(keeper.left(ADA), [2, 5]);
}

#[test]
fn the_hold_of_a_killed_node_expires() {
    let stand = Stand::new(limited("1 at once for 30s", "5 at once for 30s"));
    let (clock, other) = (
        Arc::clone(&stand.clock),
        Arc::new(start(limited("1 at once for 30s", "5 at once for 30s"), &stand.store)),
    );
    let (killed, other) = (Keeper::of(stand.clock, stand.engine), Keeper::of(Arc::clone(&clock), other));
    let _lost = killed.connect(ADA, "a", 1).unwrap();
    killed.pass(20);
    for _ in 0..29 {
        clock.advance(Span::from_secs(1));
        other.tend();
        assert!(other.connect(ADA, "b", 1).is_none(), "it was renewed just before it was killed");
    }
    clock.advance(Span::from_secs(1));
    let next = other.connect(ADA, "b", 1);
    assert!(next.is_some(), "it has run out");
    assert_eq!(other.held("ip", ADA), ["b"]);
}

#[test]
fn a_lease_without_an_expiry_is_held_until_it_is_dropped() {
    let keeper = Keeper::new(limited("1 at once", "5 at once"));
    let kept = keeper.connect(ADA, "a", 1).unwrap();
    keeper.pass(60);
    assert!(keeper.connect(ADA, "b", 1).is_none());
    drop(kept);
    keeper.tend();
    assert_eq!(keeper.left(ADA), [1, 5]);
}

#[test]
fn an_expired_lease_is_counted_and_taken_again_where_there_is_room() {
    let keeper = Keeper::new(limited("4 at once for 30s", "9 at once for 30s"));
    let (mine, other) = (keeper.connect(ADA, "mine", 3).unwrap(), keeper.connect(ADA, "other", 1).unwrap());
    keeper.tend();
    // The process was suspended for a minute.
    keeper.clock.advance(Span::from_secs(60));
    let stranger = decide(&keeper.engine, &keeper.engine.pin(), "connect", &[("ip", ADA)]).unwrap().allowed();
    assert!(stranger, "nothing is held any more");
    keeper.tend();
    assert_eq!(keeper.leases.meters().lost(), 4, "two at each level");
    let (at_ip, at_all) = (keeper.held("ip", ADA), keeper.held("all", "all"));
    assert_eq!(at_ip.len(), 2, "the stranger and one of them");
    assert_eq!(at_all.len(), 3, "here is room for all of them");
    assert_eq!(keeper.left(ADA)[1], 9 - 5, "each weighs what it did");
    // The stranger's hold is never renewed. Once it has expired there is room again.
    keeper.pass(60);
    assert_eq!(
        (keeper.held("ip", ADA), keeper.left(ADA)),
        (vec!["mine".to_owned(), "other".to_owned()], vec![0, 5])
    );
    assert_eq!(keeper.leases.meters().lost(), 4);
    drop((mine, other));
    keeper.tend();
    assert_eq!(keeper.left(ADA), [4, 9]);
}

#[test]
fn a_lease_is_held_again_after_a_reset() {
    let keeper = Keeper::new(limited("4 at once for 30s", "9 at once for 30s"));
    let _kept = keeper.connect(ADA, "a", 1).unwrap();
    keeper.tend();
    block_on(keeper.engine.counters.forget(Forget::All)).unwrap();
    assert_eq!(keeper.left(ADA), [4, 9]);
    keeper.pass(10);
    assert_eq!(keeper.left(ADA), [3, 8]);
}

#[test]
fn other_limits_of_a_rule_are_charged_once() {
    let each = rule::rejecting("ip", &["ip"], &["4 at once for 30s", "10/hour"]);
    let keeper = Keeper::new(policies(vec![each], &[("connect", &["ip"])]));
    let kept = keeper.connect(ADA, "a", 1).unwrap();
    keeper.pass(60);
    keeper.clock.advance(Span::from_secs(60));
    keeper.tend();
    assert_eq!((keeper.left(ADA), keeper.leases.meters().lost()), (vec![3, 9], 1), "it is held again");
    drop(kept);
    keeper.tend();
    assert_eq!(keeper.left(ADA), [4, 9]);
}

#[test]
fn an_id_stays_with_the_lease_that_took_it_first() {
    let keeper = Keeper::new(limited("4 at once for 30s", "9 at once for 30s"));
    let first = keeper.connect(ADA, "same", 1).unwrap();
    let second = keeper.connect(ADA, "same", 1).unwrap();
    drop(second);
    keeper.pass(60);
    assert_eq!(keeper.held("ip", ADA), ["same"]);
    drop(first);
    keeper.tend();
    assert!(keeper.held("ip", ADA).is_empty());
}

#[test]
fn a_long_lease_is_renewed_while_others_come_and_go() {
    let keeper = Keeper::new(limited("4 at once for 30s", "9 at once for 30s"));
    let _kept = keeper.connect(ADA, "kept", 1).unwrap();
    for number in 0..30 {
        let other = keeper.connect(ADA, &format!("other {number}"), 1).unwrap();
        keeper.pass(2);
        drop(other);
        keeper.pass(1);
    }
    assert_eq!((keeper.held("ip", ADA), keeper.leases.meters().lost()), (vec!["kept".to_owned()], 0));
}

#[test]
fn limits_that_change_are_followed() {
    let keeper = Keeper::new(limited("4 at once for 30s", "9 at once for 30s"));
    let kept = keeper.connect(ADA, "a", 1).unwrap();
    keeper.pass(1);
    keeper.engine.reload(limited("4 at once for 3s", "9 at once for 3s"));
    keeper.pass(20);
    assert_eq!(
        (keeper.left(ADA), keeper.leases.meters().lost()),
        (vec![3, 8], 0),
        "it is renewed more often"
    );
    let none: Vec<Limit> = vec!["100/hour".parse().unwrap()];
    block_on(keeper.engine.config.set_override("ip", ADA, none)).unwrap();
    keeper.pass(20);
    assert_eq!(
        (keeper.left(ADA), keeper.leases.meters().lost()),
        (vec![100, 8], 0),
        "there is nothing to hold"
    );
    block_on(keeper.engine.config.remove_override("ip", ADA)).unwrap();
    keeper.pass(20);
    assert_eq!(keeper.left(ADA), [3, 8], "it is held again");
    drop(kept);
    keeper.tend();
    assert_eq!(keeper.left(ADA), [4, 9]);
}

#[test]
fn a_lease_is_released_even_if_its_rule_was_removed() {
    let keeper = Keeper::new(limited("4 at once", "9 at once for 30s"));
    let kept = keeper.connect(ADA, "a", 1).unwrap();
    keeper.tend();
    let without =
        policies(vec![rule::rejecting("all", &[], &["9 at once for 30s"])], &[("connect", &["all"])]);
    keeper.engine.reload(without);
    keeper.pass(60);
    drop(kept);
    keeper.tend();
    keeper.engine.reload(limited("4 at once", "9 at once for 30s"));
    assert_eq!((keeper.left(ADA), keeper.leases.meters().lost()), (vec![4, 9], 0));
}

#[test]
fn no_more_are_looked_after_than_there_is_room_for() {
    let Stand { clock, engine, .. } = Stand::new(limited("9 at once for 30s", "9 at once for 30s"));
    let Keeper { clock, engine, leases } = Keeper::of(clock, engine);
    let keeper = Keeper { clock, engine, leases: leases.with_most(2) };
    let all = ["a", "b", "c"].map(|id| keeper.connect(ADA, id, 1).unwrap());
    assert_eq!((keeper.leases.meters().live(), keeper.leases.meters().lost()), (2, 2), "one at two levels");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(keeper.leases.meters()));
    let mut page = String::new();
    encode_registry(&mut page, &registry).unwrap();
    assert!(
        page.contains("\ntollgate_leases 2\n") && page.contains("\ntollgate_leases_lost_total 2\n"),
        "{page}"
    );
    keeper.pass(40);
    assert_eq!(keeper.held("ip", ADA), ["a", "b"], "the third ran out by itself");
    drop(all);
    keeper.tend();
    assert_eq!((keeper.left(ADA), keeper.leases.meters().live()), (vec![9, 9], 0));
    let again = keeper.connect(ADA, "d", 1).unwrap();
    keeper.pass(40);
    assert_eq!(keeper.held("ip", ADA), ["d"], "there is room again");
    drop(again);
}

#[test]
fn everything_is_released_at_the_end() {
    let keeper = Keeper::new(limited("9 at once for 30s", "9 at once for 30s"));
    let tended = keeper.connect(ADA, "a", 1).unwrap();
    keeper.tend();
    let fresh = keeper.connect(ADA, "b", 1).unwrap();
    block_on(keeper.leases.end());
    assert_eq!(keeper.left(ADA), [9, 9], "though it still lasts");
    let stranger = keeper.connect(ADA, "c", 1).unwrap();
    drop((tended, fresh));
    keeper.tend();
    assert_eq!(keeper.held("ip", ADA), ["c"]);
    drop(stranger);
}
