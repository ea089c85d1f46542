//! An exact sliding window: a log of takes, so that *any* interval of the period's length holds at most
//! `max`.

use alloc::collections::VecDeque;

use super::kind::{Kind, Nature, Refill};
use super::{Draft, Identity, Idle, Limit, Refund, State};
use crate::Ticket;
use crate::outage::Share;
use crate::reading::{Stock, When};
use crate::time::{Span, Timestamp};

/// At most `max` in any interval of length `period`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sliding {
    pub(crate) max: u64,
    pub(crate) period: Span,
}

/// The takes, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<Entry>,
    used: u64,
}

/// One take in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was taken.
    pub at: Timestamp,
    /// Its ticket, for a refund.
    pub ticket: Ticket,
    /// How much was taken.
    pub cost: u64,
}

impl Sliding {
    /// The largest limit of this kind, which bounds a key's log. The grammar refuses a larger one.
    pub const MOST: u64 = 100_000;

    /// The most in any interval.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The interval's length.
    pub fn period(&self) -> Span {
        self.period
    }
}

impl Kind for Sliding {
    const NATURE: Nature = Nature { names_takes: true, keeps_tickets: true, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::Sliding(self.period)
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

    /// Drops what no longer counts. What lies in the future (the clock went back) was now.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        let State::Log(log) = state else { return *state = State::Fresh };
        for entry in log.entries.iter_mut().rev().take_while(|entry| entry.at > draft.now) {
            entry.at = draft.now;
        }
        while let Some(gone) = log.entries.pop_front_if(|entry| entry.at + self.period <= draft.now) {
            log.used -= gone.cost;
        }
        if log.entries.is_empty() {
            *state = State::Fresh;
        }
    }

    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        if draft.cost == 0 {
            return When::Now;
        }
        if draft.cost > self.max {
            return When::Never;
        }
        let Some(log) = state.log() else { return When::Now };
        let mut excess = (log.used + draft.cost).saturating_sub(self.max);
        let mut when = When::Now;
        for entry in log.entries.iter() {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(entry.cost);
            when = When::After((entry.at + self.period).since(draft.now));
        }
        when
    }

    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        let entry = Entry { at: draft.now, ticket: draft.ticket, cost: draft.cost };
        let mut log = state.take_log();
        log.push(entry);
        *state = State::Log(log);
    }

    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock {
        let log = state.log();
        let newest = log.and_then(|log| log.entries.back());
        Stock {
            capacity: self.max,
            remaining: self.max.saturating_sub(log.map_or(0, |log| log.used)),
            reset: Some(newest.map_or(draft.now, |entry| entry.at + self.period)),
        }
    }

    fn refund(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        if let State::Log(log) = state {
            log.refund(draft, refund);
        }
    }

    fn adopt(&self, _: &Limit, state: State, _: Timestamp) -> State {
        state
    }

    fn share(&self, share: Share) -> Option<Limit> {
        Some(Limit::Sliding(Self { max: share.of(self.max), ..*self }))
    }

    fn idle(&self, state: &State) -> Idle {
        let newest = state.log().and_then(|log| log.entries.back());
        Idle::At(newest.map_or(Timestamp::ZERO, |entry| entry.at + self.period))
    }
}

impl Log {
    /// The takes, oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + '_ {
        self.entries.iter().copied()
    }

    fn refund(&mut self, draft: &Draft<'_>, refund: Refund) {
        let own = self.entries.iter_mut().filter(|entry| entry.ticket == draft.ticket);
        own.for_each(|entry| entry.cost = refund.rest_of(entry.cost, draft));
        self.entries.retain(|entry| entry.cost > 0);
        self.used = self.entries.iter().map(|entry| entry.cost).sum();
    }

    fn push(&mut self, entry: Entry) {
        self.used += entry.cost;
        if self.entries.len() == self.entries.capacity() {
            // By a quarter: doubling would leave up to half of the memory of all logs empty.
            self.entries.reserve_exact((self.entries.len() / 4).max(1));
        }
        self.entries.push_back(entry);
    }
}

impl FromIterator<Entry> for Log {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut log = Self::default();
        entries.into_iter().for_each(|entry| log.push(entry));
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_grows_by_a_quarter() {
        let mut log = Log::default();
        for count in 0..200 {
            let before = log.entries.capacity();
            log.push(Entry { at: Timestamp::from_micros(count), ticket: Ticket(count), cost: 1 });
            let grown = before + (before / 4).max(1);
            assert_eq!(log.entries.capacity(), if count == before as u64 { grown } else { before });
        }
    }
}
