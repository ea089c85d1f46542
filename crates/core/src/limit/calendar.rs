//! A fixed window on the clock's own boundaries: the minute, hour, day, week or month of a zone.
//!
//! Where those boundaries fall is the business of whoever knows time zones. A charge brings the
//! boundaries around the present along; the store picks by its own time, and answers *stale* when
//! its time lies outside of them.

use alloc::sync::Arc;
use core::fmt;

use super::Draft;
use super::window::{Tally, room};
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// At most `max` per calendar period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    pub(crate) max: u64,
    pub(crate) period: Period,
}

/// A calendar period in a time zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Period {
    /// Which part of the calendar.
    pub unit: Unit,
    /// The IANA name of the zone; UTC if there is none.
    pub zone: Option<Arc<str>>,
}

/// The calendar periods there are. Weeks start on Monday.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Unit {
    Minute,
    Hour,
    Day,
    Week,
    Month,
}

/// Three successive boundaries of one calendar period: two whole periods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Whose boundaries these are.
    pub period: Period,
    /// The start of a period, its end, and the end of the one after it.
    pub edges: [Timestamp; 3],
}

impl Calendar {
    /// The most that one period admits.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The period counted.
    pub fn period(&self) -> &Period {
        &self.period
    }

    /// Forgets a period that is over. One that ends later than the present one was begun before
    /// the clock went back: its count is this one's now.
    pub(super) fn freshen(&self, tally: Tally, draft: &Draft<'_>) -> Option<Tally> {
        let edge = draft.end_of(&self.period);
        (tally.edge >= edge).then_some(Tally { edge, ..tally })
    }

    pub(super) fn when(&self, tally: Option<Tally>, draft: &Draft<'_>) -> When {
        let wipe = draft.end_of(&self.period).since(draft.now);
        room(self.max, tally.map_or(0, |tally| tally.count), draft.cost, wipe)
    }

    pub(super) fn take(&self, tally: Option<Tally>, draft: &Draft<'_>) -> Tally {
        let count = tally.map_or(0, |tally| tally.count);
        Tally { edge: draft.end_of(&self.period), count: count + draft.cost }
    }

    pub(super) fn read(&self, tally: Option<Tally>, when: When, draft: &Draft<'_>) -> Reading {
        Reading {
            capacity: self.max,
            remaining: self.max.saturating_sub(tally.map_or(0, |tally| tally.count)),
            reset: Some(draft.end_of(&self.period)),
            when,
        }
    }

    /// Only the period that was charged, the one around `taken_at`, is credited.
    pub(super) fn give(&self, tally: Tally, cost: u64, end_when_taken: Timestamp) -> Tally {
        let back = if tally.edge == end_when_taken { cost } else { 0 };
        Tally { count: tally.count.saturating_sub(back), ..tally }
    }
}

impl Page {
    /// The end of the period around `now`, if this page knows it.
    pub fn end_at(&self, now: Timestamp) -> Option<Timestamp> {
        let [start, middle, end] = self.edges;
        (start <= now && now < end).then_some(if now < middle { middle } else { end })
    }
}

impl Unit {
    /// How long it lasts, if that is always the same away from clock changes.
    pub fn length(self) -> Option<Span> {
        match self {
            Self::Minute => Some(Span::from_secs(60)),
            Self::Hour => Some(Span::from_secs(3_600)),
            Self::Day => Some(Span::from_secs(86_400)),
            Self::Week => Some(Span::from_secs(604_800)),
            Self::Month => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minute => "min",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        })
    }
}
