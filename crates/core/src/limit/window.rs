//! A fixed window that starts with the key's first accepted attempt; its end never moves.

use super::Draft;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// At most `max` per window of length `period`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    pub(crate) max: u64,
    pub(crate) period: Span,
}

/// What a window has counted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The window's edge: its start for an anchored window, its end for a calendar one.
    pub edge: Timestamp,
    /// What was taken inside it.
    pub count: u64,
}

impl Window {
    /// The most that one window admits.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// How long one window lasts.
    pub fn period(&self) -> Span {
        self.period
    }

    /// Forgets a window that is over. A start in the future (the clock went back) is now.
    #[inline]
    pub(super) fn freshen(&self, tally: Tally, now: Timestamp) -> Option<Tally> {
        let edge = tally.edge.min(now);
        (now < edge + self.period).then_some(Tally { edge, ..tally })
    }

    #[inline]
    pub(super) fn when(&self, tally: Option<Tally>, draft: &Draft<'_>) -> When {
        let end = tally.map_or(draft.now, |tally| tally.edge + self.period);
        room(self.max, tally.map_or(0, |tally| tally.count), draft.cost, end.since(draft.now))
    }

    #[inline]
    pub(super) fn take(&self, tally: Option<Tally>, draft: &Draft<'_>) -> Tally {
        let tally = tally.unwrap_or(Tally { edge: draft.now, count: 0 });
        Tally { count: tally.count + draft.cost, ..tally }
    }

    #[inline]
    pub(super) fn read(&self, tally: Option<Tally>, when: When, now: Timestamp) -> Reading {
        Reading {
            capacity: self.max,
            remaining: self.max.saturating_sub(tally.map_or(0, |tally| tally.count)),
            reset: Some(tally.map_or(now, |tally| tally.edge + self.period)),
            when,
        }
    }

    /// Freshens, weighs, takes if it conforms, and reads, in one go.
    #[inline]
    pub fn settle(&self, tally: Option<Tally>, draft: &Draft<'_>) -> (Option<Tally>, Reading) {
        let tally = tally.and_then(|tally| self.freshen(tally, draft.now));
        let when = self.when(tally, draft);
        let taken = when == When::Now && draft.cost > 0;
        let tally = if taken { Some(self.take(tally, draft)) } else { tally };
        (tally, self.read(tally, when, draft.now))
    }

    /// Only the window that was charged is credited.
    pub(super) fn give(&self, tally: Tally, cost: u64, taken_at: Timestamp) -> Tally {
        let same = tally.edge <= taken_at && taken_at < tally.edge + self.period;
        let back = if same { cost } else { 0 };
        Tally { count: tally.count.saturating_sub(back), ..tally }
    }
}

/// When `cost` fits beside `count` if the count is wiped out after `wipe`.
pub(super) fn room(max: u64, count: u64, cost: u64, wipe: Span) -> When {
    if cost == 0 || (cost <= max && count <= max - cost) {
        When::Now
    } else if cost > max {
        When::Never
    } else {
        When::After(wipe)
    }
}
