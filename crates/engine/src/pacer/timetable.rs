//! When wait_keys are due: at the timer's precision, or to the dot.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::time::Instant;

use super::ids::WaitKeyId;

/// Which wait_keys are due when. What was put in stays until its time, so whoever takes it out has to look
/// whether it still holds.
#[derive(Default)]
pub(super) struct Timetable {
    coarse: Heap,
    precise: Heap,
}

/// How late a wait_key may be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// By a tick of the timer.
    Tick,
    /// Not at all.
    Dot,
}

type Heap = BinaryHeap<Reverse<(Instant, WaitKeyId)>>;

/// What to do until the next wait_key is due, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rest {
    /// Go on.
    Go,
    /// Stay awake: something is due in a moment, and the timer would be late.
    Linger,
    /// Sleep until then.
    Sleep(Instant),
}

/// The precision of the timer.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// How long before something is due to the dot the timer is no longer trusted: it goes by ticks, and so
/// does the system's.
const LEAD: Duration = Duration::from_micros(2_100);

impl Timetable {
    pub(super) fn add(&mut self, at: Instant, wait_key: WaitKeyId, precision: Precision) {
        let heap = match precision {
            Precision::Tick => &mut self.coarse,
            Precision::Dot => &mut self.precise,
        };
        heap.push(Reverse((at, wait_key)));
    }

    /// How many times are in it, whether they hold or not.
    pub(super) fn len(&self) -> usize {
        self.coarse.len() + self.precise.len()
    }

    /// Keeps what still holds.
    pub(super) fn retain(&mut self, holds: impl Fn(Instant, WaitKeyId) -> bool) {
        self.coarse.retain(|Reverse((at, wait_key))| holds(*at, *wait_key));
        self.precise.retain(|Reverse((at, wait_key))| holds(*at, *wait_key));
    }

    /// The next wait_key whose time has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, WaitKeyId)> {
        let due = |heap: &Heap| heap.peek().is_some_and(|Reverse((at, _))| *at <= now);
        let heap = [&mut self.precise, &mut self.coarse].into_iter().find(|heap| due(heap))?;
        heap.pop().map(|Reverse(entry)| entry)
    }

    /// What to do until something is due; `None` if nothing is. From `calm` on there is time to stay awake
    /// for the last tick before that.
    pub(super) fn rest(&self, now: Instant, calm: Instant) -> Option<Rest> {
        let until =
            |at: Instant, lead| at.checked_sub(lead).filter(|at| *at > now).map_or(Rest::Linger, Rest::Sleep);
        let first = |heap: &Heap| heap.peek().map(|Reverse((at, _))| *at);
        let precise = first(&self.precise).map(|at| until(at, LEAD));
        let coarse = first(&self.coarse).map(|at| if at < calm { Rest::Sleep(at) } else { until(at, TICK) });
        precise.into_iter().chain(coarse).min()
    }
}
