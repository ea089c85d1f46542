//! Rules that count only some outcomes, over a shared store that may be down.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::Ordering;

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{decide, policies, rule, taken};
use futures_lite::future::{block_on, poll_once};
use tollgate_core::{Attempt, Origin, OutcomeClass, Policies, Reason, Span};
use tollgate_engine::{Health, Taken};

const ADA: [(&str, &str); 1] = [("guesses", "ada")];

fn login(limit: &str) -> Policies {
    policies(vec![rule::counting("guesses", &[limit], "401")], &[("login", &["guesses"])])
}

fn took(node: &Node) -> Taken {
    taken(&node.engine, "login", &ADA)
}

/// What remains, according to the store or, in an outage, to this node.
fn left(node: &Node) -> u64 {
    let pinned = node.engine.pin();
    let look = Attempt { policy: "login", fields: &ADA, cost: 0, id: None };
    block_on(node.engine.peek(&pinned, &look)).unwrap().outcome.readings[0].remaining
}

#[test]
fn the_shared_store_is_told_and_every_node_sees_it() {
    let centre = Centre::new();
    let (one, other) = (centre.node(login("5/hour")), centre.node(login("5/hour")));
    let calls = one.calls();
    assert!(took(&one).settle(OutcomeClass(401)).is_made(), "what counts needs no store");
    assert_eq!((one.calls() - calls, left(&other)), (1, 4), "but for the take");
    let refunding = took(&one).settle(OutcomeClass(200));
    assert!(!refunding.is_made(), "a store far away is waited for");
    block_on(refunding).unwrap();
    assert_eq!(left(&other), 4);
}

#[test]
fn a_denial_that_was_remembered_ends_when_something_is_given_back() {
    let node = Centre::new().node(login("1/hour"));
    let mut first = took(&node);
    assert_eq!(node.decide("login", &ADA), (false, Origin::Store));
    assert_eq!(node.decide("login", &ADA), (false, Origin::Store));
    assert_eq!(node.engine.counters.store_meters().unwrap().denied_locally(), 1);
    block_on(first.settle(OutcomeClass(200))).unwrap();
    assert_eq!(node.decide("login", &ADA), (true, Origin::Store));
}

#[test]
fn a_charge_on_the_local_share_is_refunded_there() {
    let node = Centre::new().node(login("10/hour"));
    node.link.set(Mode::Unreachable);
    let (mut early, mut late) = (took(&node), took(&node));
    assert_eq!(left(&node), 3, "a share of five");
    assert!(early.settle(OutcomeClass(200)).is_made(), "what is in this process answers at once");
    assert_eq!(left(&node), 4);
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!((node.engine.counters.health(), left(&node)), (Health::Up, 10));
    block_on(late.settle(OutcomeClass(200))).unwrap();
    assert_eq!(left(&node), 10, "the store was never charged");
    node.link.set(Mode::Unreachable);
    assert_eq!(node.decide("login", &ADA), (true, Origin::Local(Reason::Unreachable)));
    assert_eq!(left(&node), 4);
}

#[test]
fn a_failed_refund_is_retried_and_made_once() {
    for mode in [Mode::Unreachable, Mode::LosesQuestions, Mode::LosesAnswers] {
        let node = Centre::new().node(login("10/hour"));
        let all = [took(&node), took(&node), took(&node)];
        node.link.set(mode);
        for mut taken in all {
            assert!(block_on(taken.settle(OutcomeClass(200))).is_err(), "{mode:?}");
        }
        node.link.set(Mode::Up);
        node.tend_later();
        assert_eq!((node.engine.counters.health(), left(&node)), (Health::Up, 10), "{mode:?}");
        decide(&node.engine, &node.engine.pin(), "login", &ADA).unwrap();
        node.tend_later();
        assert_eq!(left(&node), 9, "{mode:?}: nothing is given back twice");
    }
}

#[test]
fn a_refund_that_fails_for_its_key_keeps_no_other_waiting() {
    let node = Centre::new().node(login("10/hour"));
    let all = [took(&node), took(&node), took(&node)];
    node.link.set(Mode::Busy);
    for mut taken in all {
        assert!(block_on(taken.settle(OutcomeClass(200))).is_err());
    }
    let asked = node.link.refunds.load(Ordering::SeqCst);
    node.tend_later();
    assert!(node.link.refunds.load(Ordering::SeqCst) - asked >= 3, "each of them is tried");
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!(left(&node), 10);
}

#[test]
fn a_refund_after_an_outage_returns_only_charges_that_still_count() {
    let centre = Centre::new();
    let (node, other) = (centre.node(login("10/min")), centre.node(login("10/min")));
    let mut first = took(&node);
    node.link.set(Mode::Unreachable);
    assert!(block_on(first.settle(OutcomeClass(200))).is_err());
    node.advance(Span::from_secs(61));
    assert_eq!(other.decide("login", &ADA), (true, Origin::Store));
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!((node.engine.counters.health(), left(&node)), (Health::Up, 9), "that was another window");
}

#[test]
fn a_refund_is_made_even_if_its_caller_leaves() {
    let node = Centre::new().node(login("10/hour"));
    let mut first = took(&node);
    node.link.set(Mode::Hangs);
    {
        let mut telling = Box::pin(first.settle(OutcomeClass(200)));
        assert!(block_on(poll_once(&mut telling)).is_none());
    }
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!(left(&node), 10);
}

#[test]
fn a_refund_is_made_even_if_its_future_is_dropped() {
    let node = Centre::new().node(login("10/hour"));
    drop(took(&node).settle(OutcomeClass(200)));
    assert_eq!(left(&node), 9);
    node.tend_later();
    assert_eq!(left(&node), 10);
}

#[test]
fn a_bounded_number_is_kept_to_be_offered_again() {
    let node = Centre::new().node(login("20000/hour"));
    let all: Vec<Taken> = (0..10_003).map(|_| took(&node)).collect();
    node.link.set(Mode::Unreachable);
    for mut taken in all {
        assert!(block_on(taken.settle(OutcomeClass(200))).is_err());
    }
    assert_eq!(node.engine.counters.store_meters().unwrap().refunds_dropped(), 3);
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!(left(&node), 20_000 - 10_003 + 256, "not all at once: there is more to do");
    for _ in 0..40 {
        node.tend_later();
    }
    assert_eq!(left(&node), 20_000 - 3, "three stay counted");
}
