//! What a cluster admits at most while the store goes up and down, over random schedules.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use proptest::prelude::*;
use support::cluster::{Centre, Mode, Node};
use support::{decide, policies, rule};
use tollgate_core::{Origin, Share, Span, Timestamp};

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
