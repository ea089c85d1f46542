//! A fixed window that starts with the key's first accepted attempt; its end never moves.

use super::kind::{Kind, Nature, Refill};
use super::{Draft, Identity, Idle, Limit, Refund, State};
use crate::outage::Share;
use crate::reading::{Reading, Stock, When};
use crate::time::{Span, Timestamp};

/// At most `max` per window of length `period`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    pub(crate) max: u64,
    pub(crate) period: Span,
}

/// The count of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The window's edge: its start for an anchored window, its end for a calendar one.
    pub edge: Timestamp,
    /// The count within it.
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

    /// Forgets a window that is over. A start in the future, after the clock went back, counts as now.
    #[inline]
    fn current(&self, tally: Tally, now: Timestamp) -> Option<Tally> {
        let edge = tally.edge.min(now);
        (now < edge + self.period).then_some(Tally { edge, ..tally })
    }
}

impl Kind for Window {
    const NATURE: Nature = Nature { names_takes: false, keeps_tickets: false, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::Window(self.period)
    }

    fn number(&self) -> u64 {
        self.max
    }

    fn period(&self) -> Option<Span> {
        Some(self.period)
    }

    fn refill(&self) -> Option<Refill> {
        Some(Refill { number: self.max, period: self.period, burst: None })
    }

    fn matters_for(&self) -> Span {
        self.period
    }

    #[inline]
    fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        let State::Tally(tally) = state else { return state.wipe() };
        match self.current(*tally, draft.now) {
            Some(current) => *tally = current,
            None => state.wipe(),
        }
    }

    #[inline]
    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        let tally = state.tally();
        let end = tally.map_or(draft.now, |tally| tally.edge + self.period);
        room(self.max, tally.map_or(0, |tally| tally.count), draft.cost, end.since(draft.now))
    }

    #[inline]
    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        let Tally { edge, count } = state.tally().unwrap_or(Tally { edge: draft.now, count: 0 });
        *state = State::Tally(Tally { edge, count: count + draft.cost });
    }

    #[inline]
    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock {
        let tally = state.tally();
        Stock {
            capacity: self.max,
            remaining: self.max.saturating_sub(tally.map_or(0, |tally| tally.count)),
            reset: Some(tally.map_or(draft.now, |tally| tally.edge + self.period)),
        }
    }

    fn when_greater(&self, reading: Reading, cost: u64, now: Timestamp) -> Option<When> {
        when_in_window(reading, cost, now)
    }

    /// Only the charged window is credited.
    fn refund(&self, state: &mut State, _: &Draft<'_>, Refund { taken_at, amount }: Refund) {
        if let State::Tally(tally) = state
            && tally.edge <= taken_at
            && taken_at < tally.edge + self.period
        {
            tally.count = tally.count.saturating_sub(amount);
        }
    }

    fn adopt(&self, _: &Limit, state: State, _: Timestamp) -> State {
        state
    }

    fn share(&self, share: Share) -> Option<Limit> {
        Some(Limit::Window(Self { max: share.of(self.max), ..*self }))
    }

    fn idle(&self, state: &State) -> Idle {
        Idle::At(state.tally().map_or(Timestamp::ZERO, |tally| tally.edge + self.period))
    }
}

/// When a cost greater than that of the reading conforms: all units of a window come back at its end.
pub(super) fn when_in_window(reading: Reading, cost: u64, now: Timestamp) -> Option<When> {
    match reading.reset {
        _ if cost > reading.capacity => Some(When::Never),
        _ if cost <= reading.remaining => Some(When::Now),
        Some(reset) if reset > now => Some(When::After(reset.since(now))),
        // The window is over. Only the store knows what the next one holds.
        _ => None,
    }
}

/// When `cost` fits beside `count`, if the count is cleared after `wipe`.
pub(super) fn room(max: u64, count: u64, cost: u64, wipe: Span) -> When {
    if cost == 0 || (cost <= max && count <= max - cost) {
        When::Now
    } else if cost > max {
        When::Never
    } else {
        When::After(wipe)
    }
}
