//! A fixed window on calendar boundaries: the minute, hour, day, week or month of a time zone.
//!
//! The engine knows time zones and sends the boundaries around the present with a charge. The store selects
//! by its own time, and answers *stale* if its time is outside of them.

use alloc::sync::Arc;
use core::fmt;

use super::kind::{Kind, LONGEST_MATTER, Nature};
use super::window::{Tally, room, when_in_window};
use super::{Draft, Identity, Idle, Limit, Refund, State};
use crate::outage::Share;
use crate::reading::{Reading, Stock, When};
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

/// The units of calendar periods. Weeks start on Monday.
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
    /// The period of these boundaries.
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
}

impl Kind for Calendar {
    const NATURE: Nature = Nature { names_takes: false, keeps_tickets: false, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::Calendar(&self.period)
    }

    fn number(&self) -> u64 {
        self.max
    }

    fn period(&self) -> Option<Span> {
        self.period.unit.length()
    }

    /// A day or week is a little longer when clocks are put back.
    fn matters_for(&self) -> Span {
        let twice = |length: Span| Span::from_micros(length.as_micros() * 2);
        self.period.unit.length().map_or(LONGEST_MATTER, twice)
    }

    fn calendar(&self) -> Option<&Period> {
        Some(&self.period)
    }

    /// Forgets a period that is over. One that ends later than the present one was begun before
    /// the clock went back: its count is this one's now.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        let edge = draft.end_of(&self.period);
        let current = state.tally().filter(|tally| tally.edge >= edge);
        *state = current.map(|tally| Tally { edge, ..tally }).into();
    }

    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        let wipe = draft.end_of(&self.period).since(draft.now);
        room(self.max, state.tally().map_or(0, |tally| tally.count), draft.cost, wipe)
    }

    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        let count = state.tally().map_or(0, |tally| tally.count);
        *state = State::Tally(Tally { edge: draft.end_of(&self.period), count: count + draft.cost });
    }

    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock {
        Stock {
            capacity: self.max,
            remaining: self.max.saturating_sub(state.tally().map_or(0, |tally| tally.count)),
            reset: Some(draft.end_of(&self.period)),
        }
    }

    fn when_greater(&self, reading: Reading, cost: u64, now: Timestamp) -> Option<When> {
        when_in_window(reading, cost, now)
    }

    /// Only the charged period, the one around `taken_at`, is credited.
    fn refund(&self, state: &mut State, draft: &Draft<'_>, Refund { taken_at, amount }: Refund) {
        let page = draft.calendar.iter().find(|page| page.period == self.period);
        let charged = page.and_then(|page| page.end_at(taken_at));
        if let State::Tally(tally) = state
            && charged == Some(tally.edge)
        {
            tally.count = tally.count.saturating_sub(amount);
        }
    }

    /// A state alone has only the count, not the next boundary.
    fn denies(&self, state: &State, _: &Draft<'_>) -> bool {
        state.tally().is_some_and(|tally| tally.count >= self.max)
    }

    fn adopt(&self, _: &Limit, state: State, _: Timestamp) -> State {
        state
    }

    fn share(&self, share: Share) -> Option<Limit> {
        Some(Limit::Calendar(Self { max: share.of(self.max), period: self.period.clone() }))
    }

    fn idle(&self, state: &State) -> Idle {
        Idle::At(state.tally().map_or(Timestamp::ZERO, |tally| tally.edge))
    }
}

impl Page {
    /// The end of the period around `now`, if this page covers it.
    pub fn end_at(&self, now: Timestamp) -> Option<Timestamp> {
        let [start, middle, end] = self.edges;
        (start <= now && now < end).then_some(if now < middle { middle } else { end })
    }
}

impl Unit {
    /// Its length, if it is fixed apart from clock changes.
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
