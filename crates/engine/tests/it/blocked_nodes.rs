//! Lists that several nodes share: an entry that one node sets applies on all, also across outages.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{decide, policies, rule};
use futures_lite::future::{block_on, poll_once};
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Author, Origin, Policies, Records, Span, Stance};
use tollgate_engine::{ListFault, Wish};

fn base() -> Policies {
    policies(vec![rule::rejecting("ip", &["ip"], &["100/hour"])], &[("api", &["ip"])])
}

fn block(node: &Node, target: &str, lasts: Option<u64>) -> Result<(), ListFault> {
    let wish = Wish {
        target: node.engine.lists.target(target).unwrap(),
        stance: Stance::Block,
        lasts: lasts.map(Span::from_secs),
        reason: "".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    };
    block_on(node.engine.lists.put(vec![wish])).map(drop)
}

fn is_blocked(node: &Node, ip: &str) -> bool {
    node.decide("api", &[("ip", ip)]).1 == Origin::Blocked
}

/// Lets three quarters of a second pass.
fn a_while(node: &Node) {
    for _ in 0..3 {
        node.advance(Span::from_millis(250));
        node.tend();
    }
}

fn recorded(centre: &Centre) -> Vec<String> {
    let changes = block_on(centre.memory.changes(Namespace::Lists, None)).unwrap();
    changes.entries.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn all_nodes_follow_set_and_removed_entries_within_a_second() {
    let centre = Centre::new();
    let [one, other] = [(); 2].map(|()| centre.node(base()));
    block(&one, "203.0.113.0/24", None).unwrap();
    assert!(is_blocked(&one, "203.0.113.7"), "on its own node at once");
    assert!(!is_blocked(&other, "203.0.113.7"));
    a_while(&other);
    assert!(is_blocked(&other, "203.0.113.7"));
    let target = other.engine.lists.target("203.0.113.0/24").unwrap();
    assert_eq!(block_on(other.engine.lists.remove(&target)), Ok(true));
    assert!(!is_blocked(&other, "203.0.113.7") && is_blocked(&one, "203.0.113.7"));
    a_while(&one);
    assert!(!is_blocked(&one, "203.0.113.7"));
}

#[test]
fn the_last_word_on_a_target_counts_on_every_node() {
    let centre = Centre::new();
    let [one, other] = [(); 2].map(|()| centre.node(base()));
    block(&one, "203.0.113.7", Some(10)).unwrap();
    block(&other, "203.0.113.7", Some(1_000)).unwrap();
    a_while(&one);
    one.advance(Span::from_secs(20));
    assert!(is_blocked(&one, "203.0.113.7") && is_blocked(&other, "203.0.113.7"));
}

#[test]
fn entries_end_by_the_stores_time_whatever_the_nodes_is() {
    let centre = Centre::new();
    let one = centre.node(base());
    block(&one, "203.0.113.7", Some(100)).unwrap();
    let pinned = one.engine.pin();
    let decision = decide(&one.engine, &pinned, "api", &[("ip", "203.0.113.7")]).unwrap();
    assert_eq!(decision.wait(), Some(Span::from_secs(100)));
    one.advance(Span::from_secs(99));
    assert!(is_blocked(&one, "203.0.113.7"));
    one.advance(Span::from_secs(1));
    assert!(!is_blocked(&one, "203.0.113.7"));
}

#[test]
fn bans_hold_during_an_outage_and_missed_ones_are_read_before_it_ends() {
    let centre = Centre::new();
    let [one, other] = [(); 2].map(|()| centre.node(base()));
    block(&one, "203.0.113.7", Some(1_000)).unwrap();
    one.link.set(Mode::Unreachable);
    while one.decide("api", &[("ip", "192.0.2.1")]).1 == Origin::Store {}
    assert!(is_blocked(&one, "203.0.113.7"), "without the store too");
    assert!(matches!(block(&one, "203.0.113.8", None), Err(ListFault::Store(_))), "nothing can be set then");
    assert!(!is_blocked(&one, "203.0.113.8"));
    block(&other, "203.0.113.9", None).unwrap();
    one.link.set(Mode::Up);
    for _ in 0..5 {
        one.tend_later();
        let (_, origin) = one.decide("api", &[("ip", "203.0.113.9")]);
        assert_ne!(origin, Origin::Store, "not decided by the store before its lists are known");
    }
    assert!(is_blocked(&one, "203.0.113.9"));
}

#[test]
fn an_engine_that_starts_without_its_store_learns_the_lists_later() {
    let centre = Centre::new();
    let one = centre.node(base());
    block(&one, "203.0.113.7", Some(1_000)).unwrap();
    let late = centre.node_behind(base(), Mode::Unreachable);
    assert!(!is_blocked(&late, "203.0.113.7"));
    late.link.set(Mode::Up);
    late.tend_later();
    late.tend_later();
    assert!(is_blocked(&late, "203.0.113.7"));
}

#[test]
fn an_ended_entry_is_removed_on_every_node_and_a_renewed_one_stays() {
    let centre = Centre::new();
    let [one, other] = [(); 2].map(|()| centre.node(base()));
    block(&one, "203.0.113.7", Some(10)).unwrap();
    block(&one, "203.0.113.8", Some(10)).unwrap();
    block(&one, "203.0.113.9", None).unwrap();
    a_while(&other);
    one.advance(Span::from_secs(9));
    // The other node sets it again before it ends.
    block(&other, "203.0.113.8", Some(1_000)).unwrap();
    a_while(&one);
    assert!(!is_blocked(&one, "203.0.113.7"), "it has ended");
    a_while(&other);
    assert_eq!(recorded(&centre), ["203.0.113.8", "203.0.113.9"]);
    for node in [&one, &other] {
        assert_eq!(node.engine.lists.meters.entries(), (2, 0));
        assert!(is_blocked(node, "203.0.113.8"));
    }
}

#[test]
fn lists_that_lost_entries_are_read_anew() {
    let centre = Centre::new();
    let node = centre.node(base());
    for number in 0..5 {
        block(&node, &format!("203.0.113.{number}"), None).unwrap();
    }
    a_while(&node);
    // Without a new version, as after a failover to a lagging replica.
    *node.link.lost.lock() = Some("203.0.113.3".to_owned());
    a_while(&node);
    a_while(&node);
    assert!(!is_blocked(&node, "203.0.113.3") && is_blocked(&node, "203.0.113.4"));
}

#[test]
fn an_entry_that_cannot_be_read_is_left_out_and_does_not_stand_in_the_way() {
    let centre = Centre::new();
    let node = centre.node(base());
    let edits = [
        Edit::put("203.0.113.1", "gibberish"),
        Edit::put("no target", "block"),
        Edit::put("203.0.113.2", "block\nsince 1"),
    ];
    block_on(centre.memory.change(Namespace::Lists, &edits)).unwrap();
    let late = centre.node(base());
    for node in [&node, &late] {
        a_while(node);
        a_while(node);
        assert!(!is_blocked(node, "203.0.113.1") && is_blocked(node, "203.0.113.2"));
    }
    let calls = node.calls();
    a_while(&node);
    a_while(&node);
    assert!(
        node.calls() - calls <= 3 * Namespace::ALL.len(),
        "it is not read again and again: {}",
        node.calls() - calls
    );
}

#[test]
fn a_slow_read_does_not_undo_an_entry_set_meanwhile() {
    let centre = Centre::new();
    let [one, other] = [(); 2].map(|()| centre.node(base()));
    block(&other, "203.0.113.7", None).unwrap();
    one.advance(Span::from_millis(500));
    one.link.set(Mode::Hangs);
    let mut tending = Box::pin(one.engine.tend());
    assert!(block_on(poll_once(&mut tending)).is_none());
    one.link.set(Mode::Up);
    block(&one, "203.0.113.8", None).unwrap();
    assert!(is_blocked(&one, "203.0.113.7") && is_blocked(&one, "203.0.113.8"), "the news of both");
    block_on(tending);
    assert!(is_blocked(&one, "203.0.113.7") && is_blocked(&one, "203.0.113.8"));
}
