//! What a cluster admits at most while the store goes up and down, over random schedules; and how often a node
//! leaves the store and comes back to it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{decide, policies, rule};
use proptest::prelude::*;
use tollgate_core::{Origin, Share, Span, Timestamp};
use tollgate_engine::Health;
use tollgate_engine::breaker::Breaker;

#[derive(Clone, Debug)]
enum Event {
    Attempt(usize),
    Link(usize, Mode),
    Tend(usize),
    Wait(u64),
}

/// An attempt that was admitted.
struct Admitted {
    at: Timestamp,
    node: usize,
    origin: Origin,
}

const WINDOW: Span = Span::from_secs(10);

fn event(nodes: usize) -> impl Strategy<Value = Event> {
    let mode = prop_oneof![
        3 => Just(Mode::Up),
        1 => Just(Mode::LosesAnswers),
        1 => Just(Mode::LosesQuestions),
        2 => Just(Mode::Unreachable),
        1 => Just(Mode::Full),
    ];
    prop_oneof![
        12 => (0..nodes).prop_map(Event::Attempt),
        2 => (0..nodes, mode).prop_map(|(node, mode)| Event::Link(node, mode)),
        3 => (0..nodes).prop_map(Event::Tend),
        4 => (0..2_500_u64).prop_map(Event::Wait),
    ]
}

fn run(nodes: &[Node], events: Vec<Event>) -> Vec<Admitted> {
    let mut admitted = Vec::new();
    for event in events {
        match event {
            Event::Wait(millis) => nodes[0].advance(Span::from_millis(millis)),
            Event::Tend(number) => nodes[number].tend(),
            Event::Link(number, mode) => nodes[number].link.set(mode),
            Event::Attempt(number) => {
                let node = &nodes[number];
                let pinned = node.engine.pin();
                let decision = decide(&node.engine, &pinned, "api", &[("ip", "192.0.2.1")]).unwrap();
                if decision.allowed() {
                    admitted.push(Admitted {
                        at: decision.outcome.now,
                        node: number,
                        origin: decision.origin,
                    });
                }
            }
        }
    }
    admitted
}

/// The most attempts selected by `count` that fall into one window.
fn most(admitted: &[Admitted], count: impl Fn(&Admitted) -> bool) -> u64 {
    let counted: Vec<&Admitted> = admitted.iter().filter(|one| count(one)).collect();
    let from =
        |start: Timestamp| counted.iter().filter(|one| start <= one.at && one.at < start + WINDOW).count();
    counted.iter().map(|one| from(one.at) as u64).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn no_window_holds_more_than_the_limit_and_every_nodes_share(
        (nodes, events) in (1..4_usize).prop_flat_map(|nodes| {
            (Just(nodes), prop::collection::vec(event(nodes), 1..250))
        }),
        limit in 1..9_u64, percent in 1..=100_u64,
    ) {
        let text = format!("{limit}/10s sliding");
        let set = || {
            let rule = rule::without_store("ip", &[&text], &format!("local {percent}%"));
            policies(vec![rule], &[("api", &["ip"])])
        };
        let centre = Centre::new();
        let cluster: Vec<Node> = (0..nodes).map(|_| centre.node(set())).collect();
        let admitted = run(&cluster, events);
        let share = Share::percent(percent).unwrap().of(limit);
        let local = |one: &Admitted| matches!(one.origin, Origin::Local(_));
        prop_assert!(most(&admitted, |one| !local(one)) <= limit, "the store's own limit holds");
        for node in 0..nodes {
            prop_assert!(most(&admitted, |one| local(one) && one.node == node) <= share, "node {node}");
        }
        let all = most(&admitted, |_| true);
        prop_assert!(all <= limit + nodes as u64 * share, "{all} of {limit} and {nodes} times {share}");
    }
}

/// Attempts and probes every 50 ms, as `mode` has the store at each step. Returns when the node left the store or
/// came back to it, in microseconds.
fn changes(node: &Node, steps: u64, mut mode: impl FnMut(u64, Health) -> Mode) -> Vec<u64> {
    let (mut changes, mut before) = (Vec::new(), node.engine.counters.health());
    for step in 0..steps {
        node.link.set(mode(step, before));
        let pinned = node.engine.pin();
        decide(&node.engine, &pinned, "api", &[("ip", "192.0.2.1")]).unwrap();
        let mut note = |now: Health| {
            if (now == Health::Up) != (before == Health::Up) {
                changes.push(step * 50_000);
            }
            before = now;
        };
        // An attempt may open the breaker, and a probe close it.
        note(node.engine.counters.health());
        node.tend();
        note(node.engine.counters.health());
        node.advance(Span::from_millis(50));
    }
    changes
}

/// In any time t at most 3 + t / 5 s changes: leaving the store, coming back within 3 s, and leaving it at once
/// when it fails again are three. After that no two returns are closer together than ten seconds.
fn check_changes(changes: &[u64]) {
    for (first, start) in changes.iter().enumerate() {
        for (count, end) in (1..).zip(&changes[first..]) {
            let most = 3 + (end - start) / 5_000_000;
            assert!(count <= most, "{count} changes in {} us: {changes:?}", end - start);
        }
    }
}

fn flapping_node() -> Node {
    let rule = rule::without_store("ip", &["1000000/day"], "local 50%");
    Centre::new().node(policies(vec![rule], &[("api", &["ip"])]))
}

/// The worst store: it fails as soon as it is used, and answers as soon as it is not.
#[test]
fn a_store_that_fails_whenever_it_is_used_is_left_and_found_again_once_in_five_seconds() {
    for fault in [Mode::Unreachable, Mode::LosesQuestions, Mode::LosesAnswers] {
        let node = flapping_node();
        let changes = changes(&node, 3_000, |_, health| if health == Health::Up { fault } else { Mode::Up });
        check_changes(&changes);
        assert!(changes.len() >= 9, "it is tried again: {changes:?}");
        assert!(changes[1] - changes[0] <= 3_000_000, "back within three seconds at first: {changes:?}");
        let returns: Vec<u64> = changes.iter().skip(1).step_by(2).copied().collect();
        let hold_off = Breaker::FLAP_WITHIN.as_micros();
        assert!(returns.windows(2).all(|pair| pair[1] - pair[0] >= hold_off), "{returns:?}");
    }
}

proptest! {
    // Each case is about a minute of attempts.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_store_that_comes_and_goes_changes_little(
        spells in prop::collection::vec((1..150_u64, prop::bool::ANY), 1..25), fault in prop::sample::select(vec![Mode::Unreachable, Mode::LosesQuestions]),
    ) {
        let node = flapping_node();
        let modes: Vec<Mode> = spells
            .iter()
            .flat_map(|(steps, up)| std::iter::repeat_n(if *up { Mode::Up } else { fault }, *steps as usize))
            .collect();
        let changes = changes(&node, modes.len() as u64, |step, _| modes[step as usize]);
        check_changes(&changes);
    }
}
