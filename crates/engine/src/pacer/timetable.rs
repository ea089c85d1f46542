//! The times at which wait keys are due: at the timer's precision, or exactly.

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

/// The precision with which a due time must be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// It may be noticed up to a tick of the timer late.
    Tick,
    /// It must be noticed in time.
    Dot,
}

type Heap = BinaryHeap<Reverse<(Instant, WaitKeyId)>>;

/// The driver's rest until the next wait key is due, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rest {
    /// No rest.
    Go,
    /// Stay awake: a wait key is due in a moment, and the timer would be late.
    Linger,
    /// Sleep until this time.
    Sleep(Instant),
}

/// The precision of the timer.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// The timer is not trusted within this time before an exact due time: it works in ticks, and so does the
/// system's timer.
const LEAD: Duration = Duration::from_micros(2_100);

impl Timetable {
    pub(super) fn add(&mut self, at: Instant, wait_key: WaitKeyId, precision: Precision) {
        let heap = match precision {
            Precision::Tick => &mut self.coarse,
            Precision::Dot => &mut self.precise,
        };
        heap.push(Reverse((at, wait_key)));
    }

    /// The number of due times, valid or not.
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

    /// The driver's rest until a wait key is due; `None` if none is. From `calm` on, the driver has time to
    /// stay awake for the last tick before that.
    pub(super) fn rest(&self, now: Instant, calm: Instant) -> Option<Rest> {
        let until =
            |at: Instant, lead| at.checked_sub(lead).filter(|at| *at > now).map_or(Rest::Linger, Rest::Sleep);
        let first = |heap: &Heap| heap.peek().map(|Reverse((at, _))| *at);
        let precise = first(&self.precise).map(|at| until(at, LEAD));
        let coarse = first(&self.coarse).map(|at| if at < calm { Rest::Sleep(at) } else { until(at, TICK) });
        precise.into_iter().chain(coarse).min()
    }
}
