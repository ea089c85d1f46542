//! Several nodes with one run-time configuration: each follows the others within a second. If two change the
//! same entry at once, one succeeds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{START, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::{Policies, Span};
use tollgate_engine::runtime_config::{PolicyDraft, PolicySpec};
use tollgate_engine::{ChangeFault, Engine, Fallback, Parts};
use tollgate_store::{ManualClock, MemoryStore};

fn base() -> Policies {
    policies(vec![rule::rejecting("own", &["ip"], &["7/hour"])], &[("filed", &["own"])])
}

fn spec(name: &str, limit: &str) -> PolicySpec {
    let (by, limits) = (vec!["ip".to_owned()], vec![limit.parse().unwrap()]);
    PolicySpec::new(PolicyDraft { name: name.into(), by, limits, ..PolicyDraft::default() }).unwrap()
}

/// Lets a second pass, with all periodic work.
fn a_second(node: &Node) {
    for _ in 0..4 {
        node.advance(Span::from_millis(250));
        node.tend();
    }
}

fn limit(node: &Node, policy: &str) -> Option<String> {
    node.engine.pin().policies.named(policy).map(|policy| policy.rules[0].plan.to_string())
}

#[test]
fn every_node_follows_within_a_second() {
    let centre = Centre::new();
    let (first, second) = (centre.node(base()), centre.node(base()));
    block_on(first.engine.config.create_policy(spec("orders", "2/hour"))).unwrap();
    block_on(first.engine.config.assign("checkout", "orders")).unwrap();
    a_second(&second);
    assert_eq!(limit(&second, "orders").as_deref(), Some("2/hour"));
    assert_eq!(&*second.engine.pin().assigned_policy("checkout").unwrap().name, "orders");
    block_on(second.engine.config.change_policy(spec("orders", "3/hour"), None)).unwrap();
    block_on(second.engine.config.unassign("checkout")).unwrap();
    a_second(&first);
    assert_eq!(limit(&first, "orders").as_deref(), Some("3/hour"));
    assert!(first.engine.pin().assigned_policy("checkout").is_none());
    block_on(first.engine.config.delete_policy("orders", None, &[])).unwrap();
    a_second(&second);
    assert_eq!(limit(&second, "orders"), None);
}

#[test]
fn a_policy_is_stamped_by_the_clock_of_the_store_not_of_the_node() {
    let clock = Arc::new(ManualClock::at(START));
    let slow = Arc::new(ManualClock::at(START));
    let store = Arc::new(MemoryStore::new(clock.clone(), 1_000));
    let local = Arc::new(MemoryStore::new(slow.clone(), 1_000));
    clock.advance(Span::from_secs(3_600));
    let fallback = Fallback { store: local, clock: slow.clone(), probe_every: Span::from_secs(10) };
    let parts = Parts { store: store.clone(), records: store, fallback: Some(fallback) };
    let engine = block_on(Engine::start(base(), parts)).unwrap();
    let made = block_on(engine.config.create_policy(spec("orders", "2/hour"))).unwrap();
    assert_eq!(made.created, START + Span::from_secs(3_600));
    clock.advance(Span::from_secs(60));
    slow.advance(Span::from_secs(60));
    let change = block_on(engine.config.change_policy(spec("orders", "3/hour"), None)).unwrap();
    assert_eq!(change.after.updated, START + Span::from_secs(3_660));
}

#[test]
fn a_change_sees_what_another_node_changed_a_moment_before() {
    let centre = Centre::new();
    let (first, second) = (centre.node(base()), centre.node(base()));
    let made = block_on(first.engine.config.create_policy(spec("orders", "2/hour"))).unwrap();
    let again = block_on(second.engine.config.create_policy(spec("orders", "5/hour"))).unwrap_err();
    assert_eq!(again, ChangeFault::Taken { name: "orders".into() });
    assert_eq!(limit(&second, "orders").as_deref(), Some("2/hour"), "known from then on");
    block_on(first.engine.config.change_policy(spec("orders", "3/hour"), Some(&[made.tag()]))).unwrap();
    let stale = block_on(second.engine.config.change_policy(spec("orders", "5/hour"), Some(&[made.tag()])));
    assert_eq!(stale.unwrap_err(), ChangeFault::Changed { name: "orders".into() });
    block_on(first.engine.config.change_policy(spec("orders", "4/hour"), None)).unwrap();
    let change = block_on(second.engine.config.change_policy(spec("orders", "5/hour"), None)).unwrap();
    assert_eq!((change.before.version, change.before.spec.plan.to_string().as_str()), (3, "4/hour"));
    a_second(&first);
    block_on(second.engine.config.assign("checkout", "orders")).unwrap();
    let deleted = block_on(first.engine.config.delete_policy("orders", None, &[]));
    assert!(matches!(deleted, Err(ChangeFault::InUse { .. })), "{deleted:?}");
    block_on(second.engine.config.unassign("checkout")).unwrap();
    a_second(&first);
    block_on(second.engine.config.delete_policy("orders", None, &[])).unwrap();
    let assigned = block_on(first.engine.config.assign("checkout", "orders"));
    assert!(matches!(assigned, Err(ChangeFault::NoPolicy(_))), "{assigned:?}");
    let gone = block_on(first.engine.config.change_policy(spec("orders", "5/hour"), None)).unwrap_err();
    assert_eq!(gone, ChangeFault::Unknown { name: "orders".into() });
}

#[test]
fn creating_a_policy_that_another_node_has_created_removes_no_override() {
    let centre = Centre::new();
    let limits = |text: &str| vec![text.parse().unwrap()];
    // The configuration once had a rule of this name, with an override.
    let filed = policies(vec![rule::rejecting("orders", &["ip"], &["7/hour"])], &[("orders", &["orders"])]);
    let before = centre.node(filed);
    block_on(before.engine.config.set_override("orders", "192.0.2.1", limits("9/hour"))).unwrap();
    let (first, second) = (centre.node(base()), centre.node(base()));
    block_on(first.engine.config.create_policy(spec("orders", "2/hour"))).unwrap();
    block_on(first.engine.config.set_override("orders", "192.0.2.1", limits("8/hour"))).unwrap();
    let again = block_on(second.engine.config.create_policy(spec("orders", "5/hour"))).unwrap_err();
    assert_eq!(again, ChangeFault::Taken { name: "orders".into() });
    a_second(&first);
    let pinned = first.engine.pin();
    let own = pinned.policies.named("orders").unwrap().rules[0].plan_at("192.0.2.1").to_string();
    assert_eq!(own, "8/hour");
}

#[test]
fn a_change_whose_reply_was_lost_is_read_back_from_the_store() {
    let centre = Centre::new();
    let node = centre.node(base());
    node.link.set(Mode::LosesAnswers);
    let lost = block_on(node.engine.config.create_policy(spec("orders", "2/hour")));
    assert!(matches!(lost, Err(ChangeFault::Store(_))), "{lost:?}");
    assert_eq!(limit(&node, "orders"), None);
    node.link.set(Mode::Up);
    a_second(&node);
    a_second(&node);
    assert_eq!(limit(&node, "orders").as_deref(), Some("2/hour"));
}

#[test]
fn policies_that_were_made_decide_without_the_store_too() {
    let centre = Centre::new();
    let node = centre.node(base());
    block_on(node.engine.config.create_policy(spec("orders", "4/hour"))).unwrap();
    node.link.set(Mode::Unreachable);
    let allowed = (0..6).filter(|_| node.decide("orders", &[("ip", "192.0.2.1")]).0).count();
    assert_eq!(allowed, 2, "half of four");
    let fault = block_on(node.engine.config.create_policy(spec("more", "4/hour"))).unwrap_err();
    assert!(matches!(fault, ChangeFault::Store(_)), "{fault:?}");
}
