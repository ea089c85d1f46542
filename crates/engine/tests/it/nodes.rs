//! What the nodes of a shared store report of themselves, and what one of them shows of all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{Stand, decide, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Policies, Records, Span};
use tollgate_engine::nodes::NodeReport;

fn base() -> Policies {
    policies(vec![rule::rejecting("ip", &["ip"], &["2/day"])], &[("api", &["ip"])])
}

fn reports(node: &Node) -> Vec<NodeReport> {
    block_on(node.engine.nodes.reports(20)).unwrap()
}

/// Lets seconds pass, with the periodic work of these nodes.
fn pass(seconds: usize, nodes: &[&Node]) {
    for _ in 0..seconds {
        nodes[0].advance(Span::from_secs(1));
        nodes.iter().for_each(|node| node.tend());
    }
}

fn allowed(report: &NodeReport) -> (u64, f64) {
    let found = report.totals.iter().find(|total| *total.outcome == *"allow").unwrap();
    (found.count, found.per_second)
}

#[test]
fn one_node_shows_all_and_one_that_has_ended_is_gone_soon() {
    let centre = Centre::new();
    let (first, second) = (centre.node(base()), centre.node(base()));
    pass(1, &[&first, &second]);
    for n in 0..10 {
        first.decide("api", &[("ip", &format!("192.0.2.{n}"))]);
    }
    for _ in 0..6 {
        second.decide("api", &[("ip", "198.51.100.1")]);
    }
    pass(5, &[&first, &second]);
    let shown = reports(&first);
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[0], first.engine.nodes.report(20), "its own comes first and is of this moment");
    let other = &shown[1];
    assert_eq!((allowed(other).0, other.offenders[0].count), (2, 4));
    assert_eq!(other.offenders[0].key, "198.51.100.1");
    assert_eq!(allowed(&shown[0]), (10, 2.0), "ten in five seconds");
    assert_ne!(other.id, shown[0].id);

    pass(16, &[&first]);
    assert_eq!(reports(&first).len(), 1, "the other one has not reported for long");
    pass(6, &[&first, &second]);
    assert_eq!(reports(&first).len(), 2, "it reports again");
    let kept = block_on(centre.memory.changes(Namespace::Nodes, None)).unwrap();
    assert_eq!(kept.size, 2, "one record for each node");
}

#[test]
fn reports_are_not_followed_and_an_outage_is_told() {
    let centre = Centre::new();
    let (first, second) = (centre.node(base()), centre.node(base()));
    pass(12, &[&first, &second]);
    first.link.set(Mode::Unreachable);
    assert!(block_on(first.engine.nodes.reports(20)).is_err());
    first.link.set(Mode::Up);
    pass(5, &[&first, &second]);
    assert_eq!(reports(&first).len(), 2);
}

#[test]
fn a_single_node_writes_no_reports() {
    let stand = Stand::new(base());
    for _ in 0..2 {
        stand.clock.advance(Span::from_secs(5));
        decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap();
        block_on(stand.engine.tend());
    }
    let shown = block_on(stand.engine.nodes.reports(20)).unwrap();
    assert_eq!((shown.len(), allowed(&shown[0])), (1, (2, 0.2)));
    assert_eq!(block_on(stand.store.changes(Namespace::Nodes, None)).unwrap().version, 0);
}
