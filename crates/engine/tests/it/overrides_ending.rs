//! Limits of a key that end by themselves: on every node, also while the store is down, and without a change
//! of the counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{
    self,
    cluster::{Centre, Mode, Node},
};
use crate::support::{Stand, decide, policies, rule, start};
use futures_lite::future::block_on;
use tollgate_core::{Policies, Span};
use tollgate_engine::Engine;

const KEY: &str = "192.0.2.1";
const HOUR: Span = Span::from_secs(3_600);

fn base() -> Policies {
    let rules = vec![rule::rejecting("ip", &["ip"], &["2/day"]), rule::rejecting("all", &[], &["99/day"])];
    policies(rules, &[("api", &["ip", "all"])])
}

fn set(engine: &Engine, limit: &str, lasts: Option<Span>) {
    block_on(engine.config.set_override_for("ip", KEY, vec![limit.parse().unwrap()], lasts)).unwrap();
}

/// The number in force at the key.
fn limit(engine: &Engine) -> u64 {
    engine.pin().policies.rule("ip").unwrap().plan_at(KEY).limits()[0].number()
}

fn allowed(engine: &Engine) -> bool {
    decide(engine, &engine.pin(), "api", &[("ip", KEY)]).unwrap().allowed()
}

fn a_second(node: &Node) {
    for _ in 0..4 {
        node.advance(Span::from_millis(250));
        node.tend();
    }
}

#[test]
fn the_rule_applies_again_when_an_override_ends_and_the_counts_stay() {
    let stand = Stand::new(base());
    set(&stand.engine, "5/day", Some(HOUR));
    let end = stand.engine.config.override_end("ip", KEY).unwrap();
    assert_eq!((end.at, end.after), (support::START + HOUR, HOUR));
    assert_eq!((0..9).filter(|_| allowed(&stand.engine)).count(), 5);
    stand.clock.advance(Span::from_micros(HOUR.as_micros() - 1));
    block_on(stand.engine.tend());
    assert_eq!(limit(&stand.engine), 5);
    assert_eq!(stand.engine.config.override_ends("ip")[0].1.after, Span::from_micros(1));

    let restarted = start(base(), &stand.store);
    assert_eq!((limit(&restarted), restarted.config.override_end("ip", KEY).unwrap().at), (5, end.at));
    stand.clock.advance(Span::from_micros(1));
    for engine in [&*stand.engine, &restarted] {
        block_on(engine.tend());
        assert_eq!(limit(engine), 2);
        assert!(!engine.config.is_overridden("ip", KEY) && engine.config.override_end("ip", KEY).is_none());
        assert!(engine.config.override_ends("ip").is_empty());
        let pinned = engine.pin();
        let rule = pinned.policies.rule("ip").unwrap();
        let looked = block_on(engine.counters.look(rule.plan_at(KEY), KEY)).unwrap();
        assert_eq!(looked.readings[0].remaining, 0, "five were counted, and two may");
        assert_eq!(block_on(engine.config.remove_override("ip", KEY)), Ok(None), "nothing is left to remove");
    }
    assert_eq!(limit(&start(base(), &stand.store)), 2);
}

#[test]
fn a_later_override_replaces_the_end_of_an_earlier_one() {
    let stand = Stand::new(base());
    set(&stand.engine, "5/day", Some(HOUR));
    set(&stand.engine, "6/day", None);
    assert_eq!(stand.engine.config.override_end("ip", KEY), None);
    stand.clock.advance(HOUR);
    block_on(stand.engine.tend());
    assert_eq!(limit(&stand.engine), 6, "it lasts until it is removed");
    set(&stand.engine, "7/day", Some(HOUR));
    stand.clock.advance(HOUR);
    block_on(stand.engine.tend());
    assert_eq!(limit(&stand.engine), 2, "not the one before");
    block_on(stand.engine.config.set_override_for("all", "all", Vec::new(), Some(HOUR))).unwrap();
    assert!(start(base(), &stand.store).config.is_overridden("all", "all"), "no limit at all can end too");
}

#[test]
fn every_node_ends_it_and_an_outage_does_not_prolong_it() {
    let centre = Centre::new();
    let (first, second) = (centre.node(base()), centre.node(base()));
    set(&first.engine, "4/day", Some(HOUR));
    a_second(&second);
    assert_eq!(limit(&second.engine), 4);
    assert_eq!(second.engine.config.override_end("ip", KEY).unwrap().after, Span::from_secs(3_599));
    second.link.set(Mode::Unreachable);
    for _ in 0..8 {
        second.decide("api", &[("ip", KEY)]);
    }
    second.advance(HOUR);
    for node in [&first, &second] {
        a_second(node);
        assert_eq!(limit(&node.engine), 2);
    }
    second.link.set(Mode::Up);
    second.tend_later();
    a_second(&second);
    assert_eq!(limit(&second.engine), 2);
    assert!(!second.engine.config.is_overridden("ip", KEY));
}
