//! Whether the shared store is asked at all: a state machine without a clock, a lock or luck of its
//! own. Time and chance are arguments.
//!
//! Closed, everybody asks the store. It opens after three failures with no success between them, or
//! at once when the store cannot be reached. Open, nobody asks but one probe at a time; the first
//! that succeeds closes it.

use tollgate_core::{Reason, Span, Timestamp};

/// The state of the way to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    /// How often it has opened or closed: what was asked before says nothing about after.
    turn: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { since: Timestamp, reason: Reason, probe: Probe },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Probe {
    Due(Timestamp),
    InFlight,
}

/// Leave to ask the store, for as long as the breaker does not turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass(pub(crate) u64);

/// How the breaker turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The store is no longer asked.
    Opened(Reason),
    /// The store is asked again, after so long.
    Closed(Span),
}

impl Breaker {
    /// How many failures in a row open it.
    pub const FAILURES: u32 = 3;
    /// The longest time between two probes; the shortest is half of it.
    pub const PROBE_WITHIN: Span = Span::from_secs(1);

    /// A breaker that lets everybody ask.
    pub fn closed() -> Self {
        Self { state: State::Closed { failures: 0 }, turn: 0 }
    }

    /// Leave to ask the store; `None` while it is open.
    pub fn pass(&self) -> Option<Pass> {
        matches!(self.state, State::Closed { .. }).then_some(Pass(self.turn))
    }

    /// How often it has opened or closed.
    pub fn turns(&self) -> u64 {
        self.turn
    }

    /// Whether a success would be news.
    pub fn strained(&self) -> bool {
        matches!(self.state, State::Closed { failures: 1.. })
    }

    /// Since when it is open, and why.
    pub fn outage(&self) -> Option<(Timestamp, Reason)> {
        match self.state {
            State::Open { since, reason, .. } => Some((since, reason)),
            State::Closed { .. } => None,
        }
    }

    /// The store answered somebody who had leave to ask.
    pub fn succeeded(&mut self, pass: Pass) {
        if let (State::Closed { failures }, true) = (&mut self.state, pass.0 == self.turn) {
            *failures = 0;
        }
    }

    /// The store failed somebody who had leave to ask. `chance` is any number.
    pub fn failed(&mut self, pass: Pass, reason: Reason, now: Timestamp, chance: u64) -> Option<Turned> {
        let State::Closed { failures } = &mut self.state else { return None };
        if pass.0 != self.turn {
            return None;
        }
        *failures += 1;
        if *failures < Self::FAILURES && reason != Reason::Unreachable {
            return None;
        }
        self.state = State::Open { since: now, reason, probe: Probe::Due(next(now, chance)) };
        self.turn += 1;
        Some(Turned::Opened(reason))
    }

    /// Begins a probe, if it is time for one and none is in flight. Whoever begins it says how it
    /// ended.
    pub fn begin_probe(&mut self, now: Timestamp) -> bool {
        match &mut self.state {
            State::Open { probe, .. } if *probe <= Probe::Due(now) => {
                *probe = Probe::InFlight;
                true
            }
            _ => false,
        }
    }

    /// The probe in flight was answered.
    pub fn probe_succeeded(&mut self, now: Timestamp) -> Option<Turned> {
        let State::Open { since, probe: Probe::InFlight, .. } = self.state else { return None };
        self.state = State::Closed { failures: 0 };
        self.turn += 1;
        Some(Turned::Closed(now.since(since)))
    }

    /// The probe in flight failed, or was given up. `chance` is any number.
    pub fn probe_failed(&mut self, now: Timestamp, chance: u64) {
        if let State::Open { probe: probe @ Probe::InFlight, .. } = &mut self.state {
            *probe = Probe::Due(next(now, chance));
        }
    }
}

/// When to probe next: nodes that lost a store together do not come back to it together.
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
mod tests {
    //! Laws of the breaker over every order of events.

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Event {
        Ask,
        Answer { which: usize, success: bool, reason: Reason },
        Probe,
        ProbeEnds { success: bool },
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        let reason = prop_oneof![9 => Just(Reason::Timeout), 1 => Just(Reason::Unreachable)];
        prop_oneof![
            4 => Just(Event::Ask),
            4 => (0..8_usize, prop::bool::weighted(0.3), reason)
                .prop_map(|(which, success, reason)| Event::Answer { which, success, reason }),
            2 => Just(Event::Probe),
            1 => any::<bool>().prop_map(|success| Event::ProbeEnds { success }),
            2 => (0..700_000_u64).prop_map(Event::Wait),
        ]
    }

    /// What is known of a run beside the breaker itself.
    #[derive(Default)]
    struct Run {
        now: u64,
        asked: Vec<Pass>,
        probing: bool,
        /// Failures since the last success or turn, of passes given since that turn.
        failures: u32,
        opened: u32,
        closed: u32,
        last_probe: Option<u64>,
    }

    proptest! {
        #[test]
        fn it_opens_on_three_failures_in_a_row_and_closes_on_one_probe_at_a_time(
            events in prop::collection::vec(event(), 1..200), chance: u64,
        ) {
            let mut breaker = Breaker::closed();
            let mut run = Run::default();
            for event in events {
                let at = Timestamp::from_micros(run.now);
                let open = breaker.outage().is_some();
                prop_assert_eq!(breaker.pass().is_none(), open);
                match event {
                    Event::Wait(micros) => run.now += micros,
                    Event::Ask => run.asked.extend(breaker.pass()),
                    Event::Answer { which, success, reason } if !run.asked.is_empty() => {
                        let pass = run.asked.swap_remove(which % run.asked.len());
                        let current = breaker.pass() == Some(pass);
                        if success {
                            breaker.succeeded(pass);
                            run.failures = if current { 0 } else { run.failures };
                            prop_assert_eq!(breaker.outage().is_some(), open, "only probes close it");
                        } else {
                            let turned = breaker.failed(pass, reason, at, chance);
                            run.failures += u32::from(current);
                            let due = current && (run.failures >= 3 || reason == Reason::Unreachable);
                            prop_assert_eq!(turned, due.then_some(Turned::Opened(reason)));
                            run.opened += u32::from(due);
                            run.last_probe = if due { Some(run.now) } else { run.last_probe };
                        }
                    }
                    Event::Answer { .. } => {}
                    Event::Probe => {
                        let begun = breaker.begin_probe(at);
                        prop_assert!(!begun || (open && !run.probing), "one at a time, and only when open");
                        let waited = run.now - run.last_probe.unwrap_or(run.now);
                        if open && !run.probing {
                            prop_assert!(!begun || waited >= 500_000, "after {waited} us");
                            prop_assert!(begun || waited < 1_000_000, "not after {waited} us");
                        }
                        run.probing |= begun;
                    }
                    Event::ProbeEnds { success } if run.probing => {
                        run.probing = false;
                        run.last_probe = Some(run.now);
                        if success {
                            let turned = breaker.probe_succeeded(at);
                            prop_assert!(matches!(turned, Some(Turned::Closed(_))));
                            (run.closed, run.failures) = (run.closed + 1, 0);
                        } else {
                            breaker.probe_failed(at, chance);
                            prop_assert!(breaker.outage().is_some());
                        }
                    }
                    Event::ProbeEnds { success } => {
                        let before = breaker.clone();
                        if success {
                            prop_assert_eq!(breaker.probe_succeeded(at), None, "there was none");
                        } else {
                            breaker.probe_failed(at, chance);
                        }
                        prop_assert_eq!(&breaker, &before);
                    }
                }
                let balance = run.opened - run.closed;
                prop_assert_eq!(balance, u32::from(breaker.outage().is_some()), "it turns to and fro");
            }
        }
    }

    #[test]
    fn a_failure_from_before_it_turned_says_nothing_about_after() {
        let mut breaker = Breaker::closed();
        let at = Timestamp::from_micros;
        let early = breaker.pass().unwrap();
        assert_eq!(
            breaker.failed(early, Reason::Unreachable, at(1), 0),
            Some(Turned::Opened(Reason::Unreachable))
        );
        assert!(breaker.begin_probe(at(500_001)));
        assert_eq!(breaker.probe_succeeded(at(500_002)), Some(Turned::Closed(Span::from_micros(500_001))));
        assert_eq!(breaker.failed(early, Reason::Unreachable, at(500_003), 0), None);
        assert!(breaker.pass().is_some());
    }
}
