//! An exact sliding window: a log of what was taken when, so that *any* interval of the period's
//! length holds at most `max`.

use alloc::collections::VecDeque;

use super::Draft;
use crate::Ticket;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// At most `max` in any interval of length `period`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sliding {
    pub(crate) max: u64,
    pub(crate) period: Span,
}

/// What was taken, oldest first.
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
    /// By whom, so that it can be given back.
    pub ticket: Ticket,
    /// How much was taken.
    pub cost: u64,
}

impl Sliding {
    /// The most that a key's log may hold: a higher limit is refused where it is written.
    pub const MOST: u64 = 100_000;

    /// The most in any interval.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The interval's length.
    pub fn period(&self) -> Span {
        self.period
    }

    /// Drops what no longer counts. What lies in the future (the clock went back) was now.
    pub(super) fn freshen(&self, log: &mut Log, now: Timestamp) {
        for entry in log.entries.iter_mut().rev().take_while(|entry| entry.at > now) {
            entry.at = now;
        }
        while let Some(gone) = log.entries.pop_front_if(|entry| entry.at + self.period <= now) {
            log.used -= gone.cost;
        }
    }

    pub(super) fn when(&self, log: Option<&Log>, draft: &Draft<'_>) -> When {
        if draft.cost == 0 {
            return When::Now;
        }
        if draft.cost > self.max {
            return When::Never;
        }
        let Some(log) = log else { return When::Now };
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

    pub(super) fn read(&self, log: Option<&Log>, when: When, now: Timestamp) -> Reading {
        let newest = log.and_then(|log| log.entries.back());
        Reading {
            capacity: self.max,
            remaining: self.max.saturating_sub(log.map_or(0, |log| log.used)),
            reset: Some(newest.map_or(now, |entry| entry.at + self.period)),
            when,
        }
    }
}

impl Log {
    /// The takes, oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + '_ {
        self.entries.iter().copied()
    }

    pub(super) fn take(&mut self, draft: &Draft<'_>) {
        self.push(Entry { at: draft.now, ticket: draft.ticket, cost: draft.cost });
    }

    pub(super) fn give(&mut self, ticket: Ticket) {
        self.entries.retain(|entry| entry.ticket != ticket);
        self.used = self.entries.iter().map(|entry| entry.cost).sum();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn newest(&self) -> Timestamp {
        self.entries.back().map_or(Timestamp::ZERO, |entry| entry.at)
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
