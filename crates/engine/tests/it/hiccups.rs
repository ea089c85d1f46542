//! A store that stands still for a moment, simulated with many callers at once: how many decisions are made
//! without it, and how soon a silent one is no longer called.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::pin::Pin;

use crate::support::cluster::{Centre, Mode, Node, TIMEOUT};
use crate::support::{policies, rule};
use futures_lite::future::{block_on, poll_once};
use proptest::prelude::*;
use tollgate_core::{Attempt, Origin, Span};
use tollgate_engine::Health;

/// The step of the simulation, in milliseconds.
const STEP: u64 = 5;

/// A decision: when the caller asked and was answered, in milliseconds, and how it was decided.
struct Decided {
    asked: u64,
    answered: u64,
    origin: Origin,
}

impl Decided {
    fn is_local(&self) -> bool {
        matches!(self.origin, Origin::Local(_))
    }
}

type Running<'n, T> = Pin<Box<dyn Future<Output = T> + 'n>>;

fn node() -> Node {
    let rule = rule::without_store("ip", &["1000000000/day"], "local 50%");
    Centre::new().node(policies(vec![rule], &[("api", &["ip"])]))
}

/// Starts `callers` attempts in each step, while the store stands still whenever `stopped` says so. Returns all
/// decisions, and when the node left the store or came back.
fn simulate(
    node: &Node,
    lasts: u64,
    callers: usize,
    stopped: impl Fn(u64) -> bool,
) -> (Vec<Decided>, Vec<u64>) {
    let (mut decided, mut changes, mut before) = (Vec::new(), Vec::new(), Health::Up);
    let mut running: Vec<(u64, Running<'_, Origin>)> = Vec::new();
    let mut tending: Option<Running<'_, ()>> = None;
    for now in (0..lasts).step_by(STEP as usize) {
        node.link.set(if stopped(now) { Mode::Stopped } else { Mode::Up });
        running.extend((0..callers).map(|_| (now, Box::pin(ask(node)) as Running<'_, Origin>)));
        running.retain_mut(|(asked, attempt)| {
            let answer = block_on(poll_once(attempt));
            decided.extend(answer.map(|origin| Decided { asked: *asked, answered: now, origin }));
            answer.is_none()
        });
        if tending.is_none() && now % 250 == 0 {
            tending = Some(Box::pin(node.engine.tend()));
        }
        if tending.as_mut().is_some_and(|tending| block_on(poll_once(tending)).is_some()) {
            tending = None;
        }
        let health = node.engine.counters.health();
        if health != before {
            (before, _) = (health, changes.push(now));
        }
        node.advance(Span::from_millis(STEP));
    }
    (decided, changes)
}

async fn ask(node: &Node) -> Origin {
    let pinned = node.engine.pin();
    let attempt = Attempt { policy: "api", fields: &[("ip", "192.0.2.1")], cost: 1, id: None };
    node.engine.decide(&pinned, &attempt).await.unwrap().origin
}

#[test]
fn a_store_that_stands_still_for_90_ms_every_6_s_decides_nearly_everything() {
    for callers in [1, 3, 20] {
        let node = node();
        let (decided, changes) = simulate(&node, 42_000, callers, |now| now % 6_000 < 90);
        let local = decided.iter().filter(|one| one.is_local()).count();
        // Only calls that begin early in a stop wait longer than the time-out: 40 of 6,000 ms.
        assert!(local * 100 <= decided.len(), "{local} of {} with {callers} callers", decided.len());
        assert_eq!(changes, [], "with {callers} callers");
    }
}

#[test]
fn a_stop_soon_after_a_failover_does_not_take_the_store_away_again() {
    let node = node();
    // The old server is gone for five seconds. The new one stands still once, while its replica copies it.
    let (decided, changes) = simulate(&node, 30_000, 5, |now| now < 5_000 || (7_500..7_590).contains(&now));
    let last = decided.iter().filter(|one| one.is_local()).map(|one| one.asked).max().unwrap();
    assert_eq!(changes.len(), 2, "left once, back once: {changes:?}");
    assert!(changes[1] <= 5_000 + 3_000, "{changes:?}");
    assert!(last < 7_590, "the last local decision was asked for at {last}");
}

#[test]
fn a_store_that_stood_still_too_long_twice_is_used_again_ten_seconds_after_the_first_return() {
    let node = node();
    let stopped = |now| (1_000..1_200).contains(&now) || (6_000..6_200).contains(&now);
    let (_, changes) = simulate(&node, 40_000, 5, stopped);
    let [left, back, again, returned] = changes[..] else { panic!("{changes:?}") };
    assert!(left < 1_200 && back < 1_200 + 3_000 && again < 6_200, "{changes:?}");
    // A probe comes at least once a second, and the periodic work four times.
    assert!((back + 10_000..=back + 11_500).contains(&returned), "{changes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn stops_shorter_than_three_time_outs_never_take_the_store_away(
        stops in prop::collection::vec((STEP..=140, 60..3_000_u64), 1..8), callers in 1..8_usize,
    ) {
        let node = node();
        let mut until = Vec::new();
        let mut end = 0;
        for (lasts, pause) in &stops {
            until.push((end + pause, end + pause + lasts));
            end += pause + lasts;
        }
        let stopped = |now| until.iter().any(|(from, to)| (*from..*to).contains(&now));
        let (decided, changes) = simulate(&node, end + 500, callers, stopped);
        prop_assert_eq!(changes, Vec::<u64>::new());
        let early = |one: &Decided| until.iter().any(|(from, to)| *from <= one.asked && one.asked < *to);
        prop_assert!(decided.iter().filter(|one| one.is_local()).all(early), "only calls in a stop are local");
    }

    #[test]
    fn a_silent_store_is_left_after_three_time_outs_whatever_the_traffic(
        start in 0..500_u64, callers in 1..8_usize,
    ) {
        let node = node();
        let (decided, changes) = simulate(&node, start + 2_000, callers, |now| now >= start);
        let three = 3 * (TIMEOUT.as_micros() / 1_000 + STEP);
        prop_assert!(changes.len() == 1 && changes[0] <= start + three + STEP, "{:?} from {}", changes, start);
        for one in &decided {
            prop_assert!(one.answered - one.asked <= TIMEOUT.as_micros() / 1_000, "no caller waits longer");
            prop_assert!(one.asked <= changes[0] || one.answered == one.asked, "nor at all after that");
        }
    }
}
