//! Whether the shared store is called at all: a state machine without clock, lock or randomness. Time and
//! randomness are arguments.
//!
//! Closed, every attempt asks the store. The breaker opens after three failures with no success between
//! them, or at once when the store cannot be reached. Open, only probes ask, one at a time. It closes
//! after several probes in a row have succeeded: [`Breaker::PROBES`] of them after a clean outage. If it
//! opens again within [`Breaker::FLAP_WITHIN`] of closing, the store flaps, and the next run of
//! successful probes must last longer: [`Breaker::HOLD_OFF`], then twice that, up to
//! [`Breaker::MOST_HOLD_OFF`]. So two closings are never closer together than `FLAP_WITHIN`, and in any time t it
//! opens and closes at most 3 + t / 5 s times. A smaller bound would delay an opening, and callers would wait for
//! time-outs, or delay the first closing.

use tollgate_core::{Reason, Span, Timestamp};

/// The state of the circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    /// How often it has opened or closed. Results of calls begun before a change are ignored after it.
    turn: u64,
    /// How often in a row it opened again soon after it had closed.
    flaps: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// `since` is `None` as long as it has never opened.
    Closed {
        failures: u32,
        since: Option<Timestamp>,
    },
    Open {
        since: Timestamp,
        reason: Reason,
        probe: Probe,
        run: Option<Run>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Probe {
    Due(Timestamp),
    InFlight,
}

/// Consecutive successful probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    probes: u32,
    since: Timestamp,
}

/// Permission to call the store, valid until the breaker opens or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass(pub(crate) u64);

/// How the breaker changed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The store is no longer called.
    Opened(Reason),
    /// The store is called again, after an outage of this length.
    Closed(Span),
}

impl Breaker {
    /// How many failures in a row open it.
    pub const FAILURES: u32 = 3;
    /// The longest time between two probes while they fail; the shortest is half of it.
    pub const PROBE_WITHIN: Span = Span::from_secs(1);
    /// How many probes in a row must succeed before it closes.
    pub const PROBES: u32 = 3;
    /// The time between two probes after one has succeeded.
    pub const CONFIRM_IN: Span = Span::from_millis(100);
    /// How soon after closing an opening counts as flapping.
    pub const FLAP_WITHIN: Span = Span::from_secs(10);
    /// How long probes must go on succeeding after the first flap; twice that after each further one.
    pub const HOLD_OFF: Span = Self::FLAP_WITHIN;
    /// The longest that probes must go on succeeding.
    pub const MOST_HOLD_OFF: Span = Span::from_secs(60);

    /// A breaker that lets every attempt call the store.
    pub fn closed() -> Self {
        Self { state: State::Closed { failures: 0, since: None }, turn: 0, flaps: 0 }
    }

    /// Permission to call the store; `None` while the breaker is open.
    pub fn pass(&self) -> Option<Pass> {
        matches!(self.state, State::Closed { .. }).then_some(Pass(self.turn))
    }

    /// How often it has opened or closed.
    pub fn turns(&self) -> u64 {
        self.turn
    }

    /// Whether a success would change the breaker's state.
    pub fn strained(&self) -> bool {
        matches!(self.state, State::Closed { failures: 1.., .. })
    }

    /// Since when it is open, and why.
    pub fn outage(&self) -> Option<(Timestamp, Reason)> {
        match self.state {
            State::Open { since, reason, .. } => Some((since, reason)),
            State::Closed { .. } => None,
        }
    }

    /// How long probes must go on succeeding before it closes.
    fn hold_off(&self) -> Span {
        let doublings = self.flaps.saturating_sub(1).min(16);
        let grown = Self::HOLD_OFF.as_micros() << doublings;
        match self.flaps {
            0 => Span::ZERO,
            _ => Span::from_micros(grown.min(Self::MOST_HOLD_OFF.as_micros())),
        }
    }

    /// The store answered a caller that had a pass.
    pub fn succeeded(&mut self, pass: Pass) {
        if let (State::Closed { failures, .. }, true) = (&mut self.state, pass.0 == self.turn) {
            *failures = 0;
        }
    }

    /// The store failed a caller that had a pass. `chance` is a random number.
    pub fn failed(&mut self, pass: Pass, reason: Reason, now: Timestamp, chance: u64) -> Option<Turned> {
        let State::Closed { failures, since } = &mut self.state else { return None };
        if pass.0 != self.turn {
            return None;
        }
        *failures += 1;
        if *failures < Self::FAILURES && reason != Reason::Unreachable {
            return None;
        }
        let flaps = since.is_some_and(|closed| now.since(closed) < Self::FLAP_WITHIN);
        self.flaps = if flaps { self.flaps.saturating_add(1) } else { 0 };
        self.state = State::Open { since: now, reason, probe: Probe::Due(next(now, chance)), run: None };
        self.turn += 1;
        Some(Turned::Opened(reason))
    }

    /// Begins a probe, if one is due and none is in flight. The caller reports how it ended.
    pub fn begin_probe(&mut self, now: Timestamp) -> bool {
        match &mut self.state {
            State::Open { probe, .. } if *probe <= Probe::Due(now) => {
                *probe = Probe::InFlight;
                true
            }
            _ => false,
        }
    }

    /// Whether it closes if a probe succeeds now.
    pub fn would_close(&self, now: Timestamp) -> bool {
        match &self.state {
            State::Open { run, .. } => {
                let run = run.unwrap_or(Run { probes: 0, since: now });
                run.probes + 1 >= Self::PROBES && now.since(run.since) >= self.hold_off()
            }
            State::Closed { .. } => false,
        }
    }

    /// The probe in flight succeeded. `chance` is a random number.
    pub fn probe_succeeded(&mut self, now: Timestamp, chance: u64) -> Option<Turned> {
        let (closes, hold_off) = (self.would_close(now), self.hold_off());
        let State::Open { since, probe, run, .. } = &mut self.state else { return None };
        if *probe != Probe::InFlight {
            return None;
        }
        if closes {
            let lasted = now.since(*since);
            self.state = State::Closed { failures: 0, since: Some(now) };
            self.turn += 1;
            return Some(Turned::Closed(lasted));
        }
        let run = run.get_or_insert(Run { probes: 0, since: now });
        run.probes = run.probes.saturating_add(1).min(Self::PROBES);
        // Probes of a flapping store keep the ordinary interval. After a clean outage they come sooner.
        let due = if hold_off == Span::ZERO { now + Self::CONFIRM_IN } else { next(now, chance) };
        *probe = Probe::Due(due);
        None
    }

    /// The probe in flight failed or was abandoned. `chance` is a random number.
    pub fn probe_failed(&mut self, now: Timestamp, chance: u64) {
        if let State::Open { probe: probe @ Probe::InFlight, run, .. } = &mut self.state {
            *probe = Probe::Due(next(now, chance));
            *run = None;
        }
    }
}

/// When to probe next. It is random, so that nodes that lost a store together do not return to it together.
fn next(now: Timestamp, chance: u64) -> Timestamp {
    let half = Breaker::PROBE_WITHIN.as_micros() / 2;
    now + Span::from_micros(half + chance % (half + 1))
}

/// A probe in flight comes after every moment: it is never due.
impl PartialOrd for Probe {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        let key = |probe: &Self| match probe {
            Self::Due(at) => (0, *at),
            Self::InFlight => (1, Timestamp::ZERO),
        };
        key(self).partial_cmp(&key(other))
    }
}

#[cfg(test)]
mod tests;
