//! Whether the shared store is called at all: a state machine without clock, lock or randomness. Time and
//! randomness are arguments.
//!
//! Closed, every attempt asks the store. The breaker opens after three time-outs one after the other with no success
//! between them, or at once when the store cannot be reached. A time-out counts only if its call began after the
//! latest news of the store: calls that wait side by side see the same silence, and count once. So a hiccup shorter
//! than three time-outs never opens the breaker, however many callers it meets.
//!
//! Open, only probes ask, one at a time. The breaker closes when [`Breaker::PROBES`] in a row have succeeded. If it
//! opened within [`Breaker::FLAP_WITHIN`] of closing, the store flaps: then it does not close earlier than
//! [`Breaker::FLAP_WITHIN`] after it last closed, nor within [`Breaker::LEAST_OPEN`] of opening. The first distance
//! doubles for each time in a row that the store failed within [`Breaker::STEADY_AFTER`] of being used, up to
//! [`Breaker::MOST_APART`]. A long outage takes up that time by itself, so the recovery from it is not held off. Two
//! closings are never closer together than `FLAP_WITHIN`, so in any time t the breaker opens and closes at most
//! 3 + t / 5 s times. A smaller bound would delay an opening, and callers would wait for time-outs, or delay the
//! first closing.

use tollgate_core::{Reason, Span, Timestamp};

/// The state of the circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    /// The number of changes between open and closed. After a change, results of calls that began before it are
    /// ignored.
    turns: u64,
    /// The number of events that told it something about the store: a counted failure, the success after one, or
    /// a change between open and closed.
    news: u64,
    /// The value of `news` at its latest change.
    turned_at: u64,
    /// The number of times in a row that the store failed as soon as it was used.
    relapses: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// `since` is `None` as long as it has never opened.
    Closed { failures: u32, since: Option<Timestamp> },
    Open {
        since: Timestamp,
        reason: Reason,
        probe: Probe,
        /// The number of probes in a row that have succeeded.
        run: u32,
        /// The earliest time at which it may close.
        closes_from: Timestamp,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Probe {
    Due(Timestamp),
    InFlight {
        /// Whether the breaker closes if it succeeds.
        last: bool,
    },
}

/// Permission to call the store, valid until the breaker opens or closes. It has the value of `news` when the
/// call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass(pub(crate) u64);

/// A change of the breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The store is no longer called.
    Opened(Reason),
    /// The store is called again, after an outage of this length.
    Closed(Span),
}

impl Breaker {
    /// This many time-outs one after the other open the breaker.
    pub const FAILURES: u32 = 3;
    /// The longest time between two probes while they fail; the shortest is half of it.
    pub const PROBE_WITHIN: Span = Span::from_secs(1);
    /// This many probes in a row must succeed before the breaker closes.
    pub const PROBES: u32 = 3;
    /// The time between two probes after one has succeeded.
    pub const CONFIRM_IN: Span = Span::from_millis(100);
    /// The breaker flaps if it opens again within this time after it closed. It is also the least time between two
    /// closings.
    pub const FLAP_WITHIN: Span = Span::from_secs(10);
    /// If the store flaps, the breaker stays open for at least this long.
    pub const LEAST_OPEN: Span = Span::from_secs(5);
    /// A store that fails earlier than this after closing failed because it was used.
    pub const STEADY_AFTER: Span = Span::from_secs(1);
    /// The longest time that must pass between two closings.
    pub const MOST_APART: Span = Span::from_secs(60);

    /// A breaker that lets every attempt call the store.
    pub fn closed() -> Self {
        let state = State::Closed { failures: 0, since: None };
        Self { state, turns: 0, news: 0, turned_at: 0, relapses: 0 }
    }

    /// Permission to call the store; `None` while the breaker is open.
    pub fn pass(&self) -> Option<Pass> {
        matches!(self.state, State::Closed { .. }).then_some(Pass(self.news))
    }

    /// The number of changes between open and closed.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The value that a pass has if it is given now. An earlier pass has another value if the breaker has learned
    /// something since.
    pub(crate) fn news(&self) -> u64 {
        self.news
    }

    /// Whether a success would change the breaker's state.
    pub fn strained(&self) -> bool {
        matches!(self.state, State::Closed { failures: 1.., .. })
    }

    /// The time at which the breaker opened, and the reason; `None` while it is closed.
    pub fn outage(&self) -> Option<(Timestamp, Reason)> {
        match self.state {
            State::Open { since, reason, .. } => Some((since, reason)),
            State::Closed { .. } => None,
        }
    }

    /// The store answered a caller that had a pass.
    pub fn succeeded(&mut self, pass: Pass) {
        if let State::Closed { failures: failures @ 1.., .. } = &mut self.state
            && pass.0 >= self.turned_at
        {
            *failures = 0;
            self.news += 1;
        }
    }

    /// The store failed a caller that had a pass. `chance` is a random number.
    pub fn failed(&mut self, pass: Pass, reason: Reason, now: Timestamp, chance: u64) -> Option<Turned> {
        let State::Closed { failures, since } = &mut self.state else { return None };
        let unreachable = reason == Reason::Unreachable;
        // Unless the connection is gone, a call that began before the latest news has none.
        if pass.0 < self.turned_at || (pass.0 < self.news && !unreachable) {
            return None;
        }
        *failures += 1;
        self.news += 1;
        if *failures < Self::FAILURES && !unreachable {
            return None;
        }
        let closed = *since;
        let closes_from = self.closes_from(closed, now);
        let probe = Probe::Due(next(now, chance));
        self.turn_to(State::Open { since: now, reason, probe, run: 0, closes_from });
        Some(Turned::Opened(reason))
    }

    /// The earliest time at which it may close again, if it opens now.
    fn closes_from(&mut self, closed: Option<Timestamp>, now: Timestamp) -> Timestamp {
        let Some(closed) = closed.filter(|closed| now.since(*closed) < Self::FLAP_WITHIN) else {
            self.relapses = 0;
            return now;
        };
        let relapsed = now.since(closed) < Self::STEADY_AFTER;
        self.relapses = if relapsed { self.relapses.saturating_add(1) } else { 0 };
        let apart = Self::FLAP_WITHIN.as_micros() << self.relapses.saturating_sub(1).min(16);
        let apart = Span::from_micros(apart.min(Self::MOST_APART.as_micros()));
        (closed + apart).max(now + Self::LEAST_OPEN)
    }

    fn turn_to(&mut self, state: State) {
        self.state = state;
        self.turns += 1;
        self.news += 1;
        self.turned_at = self.news;
    }

    /// Begins a probe, if one is due and none is in flight. The caller reports how it ended.
    pub fn begin_probe(&mut self, now: Timestamp) -> bool {
        match &mut self.state {
            State::Open { probe, run, closes_from, .. } if probe.is_due(now) => {
                *probe = Probe::InFlight { last: *run + 1 >= Self::PROBES && now >= *closes_from };
                true
            }
            _ => false,
        }
    }

    /// Whether it closes if the probe in flight succeeds.
    pub fn would_close(&self) -> bool {
        matches!(self.state, State::Open { probe: Probe::InFlight { last: true }, .. })
    }

    /// The probe in flight succeeded. `chance` is a random number.
    pub fn probe_succeeded(&mut self, now: Timestamp, chance: u64) -> Option<Turned> {
        let State::Open { since, probe, run, closes_from, .. } = &mut self.state else { return None };
        let Probe::InFlight { last } = *probe else { return None };
        if last {
            let lasted = now.since(*since);
            self.turn_to(State::Closed { failures: 0, since: Some(now) });
            return Some(Turned::Closed(lasted));
        }
        *run = run.saturating_add(1).min(Self::PROBES);
        // The last probes follow each other sooner. Until it may close, they keep the ordinary interval.
        *probe = Probe::Due(if now >= *closes_from { now + Self::CONFIRM_IN } else { next(now, chance) });
        None
    }

    /// The probe in flight failed or was abandoned. `chance` is a random number.
    pub fn probe_failed(&mut self, now: Timestamp, chance: u64) {
        if let State::Open { probe: probe @ Probe::InFlight { .. }, run, .. } = &mut self.state {
            *probe = Probe::Due(next(now, chance));
            *run = 0;
        }
    }
}

impl Probe {
    fn is_due(&self, now: Timestamp) -> bool {
        matches!(self, Self::Due(at) if *at <= now)
    }
}

/// The time of the next probe. It is random, so that nodes that lost a store together do not return to it together.
fn next(now: Timestamp, chance: u64) -> Timestamp {
    let half = Breaker::PROBE_WITHIN.as_micros() / 2;
    now + Span::from_micros(half + chance % (half + 1))
}

#[cfg(test)]
mod tests;
