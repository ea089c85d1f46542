//! When wait keys are due: at the timer's precision, or exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::time::Instant;

use super::ids::WaitKeyId;

/// The due times of wait keys. An entry stays until its time, so the caller that takes it out must check
/// whether it is still valid.
#[derive(Default)]
pub(super) struct Timetable {
    coarse: Heap,
    precise: Heap,
}

/// How late the due time of a wait key may be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// By a tick of the timer.
    Tick,
    /// Not at all.
    Dot,
}

type Heap = BinaryHeap<Reverse<(Instant, WaitKeyId)>>;

/// What to do until the next wait key is due, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rest {
    /// Go on.
    Go,
    /// Stay awake: a wait key is due in a moment, and the timer would be late.
    Linger,
    /// Sleep until then.
    Sleep(Instant),
}

/// The precision of the timer.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// How long before an exact due time the timer is no longer trusted: it works in ticks, and so does the
/// system's.
const LEAD: Duration = Duration::from_micros(2_100);

impl Timetable {
    pub(super) fn add(&mut self, at: Instant, wait_key: WaitKeyId, precision: Precision) {
        let heap = match precision {
            Precision::Tick => &mut self.coarse,
            Precision::Dot => &mut self.precise,
        };
        heap.push(Reverse((at, wait_key)));
    }

    /// How many due times it has, valid or not.
    pub(super) fn len(&self) -> usize {
        self.coarse.len() + self.precise.len()
    }

    /// Keeps the due times that are still valid.
    pub(super) fn retain(&mut self, holds: impl Fn(Instant, WaitKeyId) -> bool) {
        self.coarse.retain(|Reverse((at, wait_key))| holds(*at, *wait_key));
        self.precise.retain(|Reverse((at, wait_key))| holds(*at, *wait_key));
    }

    /// The next wait key that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, WaitKeyId)> {
        let due = |heap: &Heap| heap.peek().is_some_and(|Reverse((at, _))| *at <= now);
        let heap = [&mut self.precise, &mut self.coarse].into_iter().find(|heap| due(heap))?;
        heap.pop().map(|Reverse(entry)| entry)
    }

    /// The first due time, valid or not.
    pub(super) fn first(&self) -> Option<Instant> {
        let first = |heap: &Heap| heap.peek().map(|Reverse((at, _))| *at);
        first(&self.precise).into_iter().chain(first(&self.coarse)).min()
    }

    /// What to do until a wait key is due; `None` if there is none. From `calm` on there is time to stay
    /// awake for the last tick before that.
    pub(super) fn rest(&self, now: Instant, calm: Instant) -> Option<Rest> {
        let until =
            |at: Instant, lead| at.checked_sub(lead).filter(|at| *at > now).map_or(Rest::Linger, Rest::Sleep);
        let first = |heap: &Heap| heap.peek().map(|Reverse((at, _))| *at);
        let precise = first(&self.precise).map(|at| until(at, LEAD));
        let coarse = first(&self.coarse).map(|at| if at < calm { Rest::Sleep(at) } else { until(at, TICK) });
        precise.into_iter().chain(coarse).min()
    }
}
