//! The latest decisions, for people who want to know why.
//!
//! Bounded twice: in how many are kept, and in how many are written a second, so that a flood costs
//! next to nothing. Denials have a budget of their own, so that a flood of allowed attempts does not
//! drown them.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tollgate_core::{Code, Origin, Span, Timestamp, Verdict, When};

use crate::trickle::Trickle;

/// The latest decisions, newest last.
pub struct Journal {
    entries: Mutex<VecDeque<Entry>>,
    allowed: Trickle,
    refused: Trickle,
}

/// One decision, in a form that outlives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The store's time.
    pub at: Timestamp,
    /// The policy that decided.
    pub policy: String,
    /// What was decided.
    pub verdict: Verdict,
    /// How it was reached.
    pub origin: Origin,
    /// The rule that is named, if it was not allowed.
    pub rule: Option<String>,
    /// Its code, if it has one.
    pub code: Option<Code>,
    /// The key of that rule, or of the first one that applied.
    pub key: Option<String>,
    /// How much was asked for.
    pub cost: u64,
    /// When to ask again, as the caller was told.
    pub retry: When,
    /// For how long, where this is not a decision but a ban by the rule.
    pub banned: Option<Span>,
    /// For how long, where this is not a decision but a lock by a ladder of the rule.
    pub locked: Option<Span>,
}

const KEPT: usize = 1_000;

impl Default for Journal {
    fn default() -> Self {
        Self {
            entries: Mutex::new(VecDeque::with_capacity(KEPT)),
            allowed: Trickle::new(Span::from_micros(10_000), 100),
            refused: Trickle::new(Span::from_micros(1_000), 100),
        }
    }
}

impl Journal {
    /// Writes a decision down, if the pace allows it.
    #[inline]
    pub(crate) fn record(&self, verdict: Verdict, now: Timestamp, entry: impl FnOnce() -> Entry) {
        let trickle = if verdict == Verdict::Allow { &self.allowed } else { &self.refused };
        if trickle.admits(now) {
            self.write(entry());
        }
    }

    #[cold]
    pub(crate) fn write(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// The latest decisions, newest first.
    pub fn latest(&self, most: usize) -> Vec<Entry> {
        self.latest_of(most, |_| true)
    }

    /// The latest decisions among those that are wanted, newest first.
    pub fn latest_of(&self, most: usize, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.entries.lock().iter().rev().filter(|entry| wanted(entry)).take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: Timestamp) -> Entry {
        Entry {
            at,
            policy: "p".into(),
            verdict: Verdict::Allow,
            origin: Origin::Store,
            rule: None,
            code: None,
            key: None,
            cost: 1,
            retry: When::Now,
            banned: None,
            locked: None,
        }
    }

    #[test]
    fn a_flood_is_written_at_its_pace_and_the_newest_are_kept() {
        let journal = Journal::default();
        let mut written = 0;
        for micros in 0..1_000_000 {
            let at = Timestamp::from_micros(1_000_000_000 + micros);
            journal.record(Verdict::Allow, at, || {
                written += 1;
                entry(at)
            });
        }
        assert!((150..=250).contains(&written), "{written} in a second");
        for second in 0..2_000 {
            let at = Timestamp::from_micros(2_000_000_000 + second * 1_000_000);
            journal.record(Verdict::Deny, at, || entry(at));
        }
        assert_eq!(journal.latest(usize::MAX).len(), KEPT);
        assert_eq!(journal.latest(1)[0].at, Timestamp::from_micros(2_000_000_000 + 1_999 * 1_000_000));
    }
}
