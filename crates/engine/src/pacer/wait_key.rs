//! One key that lanes wait for, and the time at which the next decision is worthwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::When;

use super::ids::{Blocked, LaneId};
use super::lane::Rank;
use super::pace::Pace;
use super::timetable::{Precision, TICK};

/// One rule at one key, or a whole policy, that keeps lanes from passing.
pub(super) struct WaitKey {
    /// The lanes that wait for it, in the order of their turns.
    pub(super) ring: BTreeMap<Rank, LaneId>,
    /// The number of lanes that have to pass it, wherever they wait.
    pub(super) lanes: usize,
    /// The number of its lanes that are being decided.
    pub(super) asked: usize,
    /// The most lanes that may be decided at once.
    pub(super) width: usize,
    /// The number of attempts that passed since one last had to wait.
    pub(super) passed: usize,
    /// Whether it is giving turns.
    pub(super) open: bool,
    /// The time of the next turn, if it is not open.
    pub(super) due: Option<Instant>,
    /// The end of the pause, if it is paused.
    pub(super) paused: Option<Instant>,
    /// The wait of the latest decision here.
    pub(super) earliest: Option<Earliest>,
    /// The number of the latest release here, in the count of all releases.
    pub(super) freed: u64,
}

/// The earliest time at which an attempt of `cost` could pass, and the pace of those after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earliest {
    pub(super) at: Instant,
    /// The time at which the holds expire, if they may be released earlier.
    ends: Option<Instant>,
    cost: u64,
    pace: Option<Pace>,
}

impl Default for WaitKey {
    fn default() -> Self {
        Self {
            ring: BTreeMap::new(),
            lanes: 0,
            asked: 0,
            width: 1,
            passed: 0,
            open: false,
            due: None,
            paused: None,
            earliest: None,
            freed: 0,
        }
    }
}

impl WaitKey {
    /// Whether attempts wait for it, or it is paused.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        !self.ring.is_empty() || self.asked > 0 || self.is_paused(now)
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused.is_some_and(|until| until > now)
    }

    /// Whether it has no state left.
    pub(super) fn is_idle(&self) -> bool {
        self.lanes == 0 && self.ring.is_empty() && self.asked == 0 && self.paused.is_none()
    }

    /// The earliest time of a turn.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        let paused = self.paused.unwrap_or(now);
        let due = self.due.map(|due| self.earliest.map_or(due, |earliest| due.min(earliest.at)));
        due.unwrap_or(now).max(paused).max(now)
    }

    /// The earliest time at which an attempt of `cost` passes, if `ahead` units are taken before it, `first` of
    /// them by the first attempt.
    pub(super) fn earliest(&self, first: u64, ahead: u64, cost: u64, now: Instant) -> Instant {
        let ready = self.ready_at(now);
        // The number of units that accumulate during a pause is unknown.
        match &self.earliest {
            Some(earliest) if ahead > 0 && !self.is_paused(now) => {
                let units = ahead.saturating_add(cost);
                let after = earliest.pace.map_or(Duration::ZERO, |pace| pace.after(first, units).into());
                earliest.at.checked_add(after).map_or(ready, |at| at.max(ready))
            }
            _ => ready,
        }
    }

    /// Records the wait of an attempt.
    pub(super) fn tell(&mut self, blocked: &Blocked, now: Instant) {
        let at = now + blocked.surely.into();
        let ends = match blocked.when {
            When::After(span) if span > blocked.surely => Some(now + span.into()),
            _ => None,
        };
        self.earliest = Some(Earliest { at, ends, cost: blocked.cost, pace: blocked.pace });
    }

    /// The time at which enough holds expire, if only holds block.
    pub(super) fn ends_by_itself(&self) -> Option<Instant> {
        self.earliest.and_then(|earliest| earliest.ends)
    }

    /// The precision of the next turn: finer than a tick of the timer if lateness would cost rate.
    pub(super) fn precision(&self) -> Precision {
        let slack = self.earliest.and_then(|earliest| earliest.pace.map(|pace| pace.slack(earliest.cost)));
        if slack.is_some_and(|slack| Duration::from(slack) < TICK) { Precision::Dot } else { Precision::Tick }
    }

    /// Whether an attempt of this cost may pass earlier than the recorded time.
    pub(super) fn may_pass_earlier(&self, cost: u64) -> bool {
        self.due.is_some() && self.earliest.is_some_and(|earliest| cost < earliest.cost)
    }
}
