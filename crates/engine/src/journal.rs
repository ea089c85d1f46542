//! The latest decisions, for operators.
//!
//! The journal bounds how many decisions it keeps, how many bytes they take, and how many it writes a second,
//! so that a flood costs next to nothing. Denials have a budget of their own, so that a flood of allowed
//! attempts does not displace them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::{Code, Listing, Origin, Span, Timestamp, Verdict, When};

use crate::log_limiter::LogLimiter;

/// The latest decisions, newest last.
pub struct Journal {
    pages: Mutex<Pages>,
    allowed: LogLimiter,
    refused: LogLimiter,
}

/// The entries, and the bytes of their texts.
#[derive(Default)]
struct Pages {
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// One decision, in a form that outlives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The store's time.
    pub at: Timestamp,
    /// The policy that decided.
    pub policy: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The way in which the decision was reached.
    pub origin: Origin,
    /// The rule that a refusal names.
    pub rule: Option<String>,
    /// Its code, if it has one.
    pub code: Option<Code>,
    /// The key of that rule, or of the first one that applied.
    pub key: Option<String>,
    /// Every rule that applied or would have, and its key, as operators may see them.
    pub keys: Vec<(Arc<str>, String)>,
    /// The id by which the caller knows the attempt: its own, or the one that a refusal gave it.
    pub correlation: Option<String>,
    /// The blocklist entry that blocked the attempt, or that a ban by the rule created.
    pub listing: Option<Arc<Listing>>,
    /// The cost of the attempt.
    pub cost: u64,
    /// When to retry, as the caller was told.
    pub retry: When,
    /// The observed rules that would have denied the attempt.
    pub observed: Vec<Arc<str>>,
    /// The token that shows the readings of its rules later; `None` if the entry is no decision by a policy.
    pub token: Option<String>,
    /// The length of a ban by the rule, if this is a ban and not a decision.
    pub banned: Option<Span>,
    /// The length of a lock by a ladder of the rule, if this is a lock and not a decision.
    pub locked: Option<Span>,
}

/// The budget of writes that a decision uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// The budget of ordinary decisions, of which a sample is enough.
    Allowed,
    /// The budget of denials, and of attempts that an observed rule would have denied.
    Denied,
}

const KEPT: usize = 1_000;
/// The most bytes that the texts of all entries take together. Usual entries take far less.
const MOST_BYTES: usize = 4 << 20;

impl Entry {
    /// The size of its texts in bytes.
    fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let keys: usize = self.keys.iter().map(|(_, key)| key.len()).sum();
        let texts = [&self.rule, &self.key, &self.correlation, &self.token].map(length);
        self.policy.len() + texts.iter().sum::<usize>() + keys
    }

    /// Whether the entry has this key, at any rule.
    pub fn is_about(&self, key: &str) -> bool {
        self.key.as_deref() == Some(key) || self.keys.iter().any(|(_, own)| own == key)
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            pages: Mutex::default(),
            allowed: LogLimiter::new(Span::from_micros(10_000), 100),
            refused: LogLimiter::new(Span::from_micros(1_000), 100),
        }
    }
}

impl Journal {
    /// Records a decision, if the rate allows it.
    #[inline]
    pub(crate) fn record(&self, budget: Budget, now: Timestamp, entry: impl FnOnce() -> Entry) {
        let limiter = match budget {
            Budget::Allowed => &self.allowed,
            Budget::Denied => &self.refused,
        };
        if limiter.admits(now) {
            self.write(entry());
        }
    }

    #[cold]
    pub(crate) fn write(&self, entry: Entry) {
        let mut pages = self.pages.lock();
        pages.bytes += entry.bytes();
        pages.entries.push_back(entry);
        while pages.entries.len() > KEPT || pages.bytes > MOST_BYTES {
            let Some(oldest) = pages.entries.pop_front() else { break };
            pages.bytes -= oldest.bytes();
        }
    }

    /// The latest decisions, newest first.
    pub fn latest(&self, most: usize) -> Vec<Entry> {
        self.latest_of(most, |_| true)
    }

    /// The latest decisions that `wanted` selects, newest first.
    pub fn latest_of(&self, most: usize, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.pages.lock().entries.iter().rev().filter(|entry| wanted(entry)).take(most).cloned().collect()
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
            keys: Vec::new(),
            correlation: None,
            listing: None,
            cost: 1,
            retry: When::Now,
            observed: Vec::new(),
            token: None,
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
            journal.record(Budget::Allowed, at, || {
                written += 1;
                entry(at)
            });
        }
        assert!((150..=250).contains(&written), "{written} in a second");
        for second in 0..2_000 {
            let at = Timestamp::from_micros(2_000_000_000 + second * 1_000_000);
            journal.record(Budget::Denied, at, || entry(at));
        }
        assert_eq!(journal.latest(usize::MAX).len(), KEPT);
        assert_eq!(journal.latest(1)[0].at, Timestamp::from_micros(2_000_000_000 + 1_999 * 1_000_000));
    }

    #[test]
    fn long_keys_leave_room_for_fewer_entries_and_one_key_of_many_is_enough_to_be_found() {
        let journal = Journal::default();
        let long = |second: u64| {
            let at = Timestamp::from_micros(second * 1_000_000);
            let keys =
                (0..16).map(|rule| (Arc::from("rule"), format!("{second}-{rule}-{}", "x".repeat(8_000))));
            Entry { keys: keys.collect(), ..entry(at) }
        };
        for second in 1..=1_000 {
            journal.write(long(second));
        }
        let kept = journal.latest(usize::MAX);
        let bytes: usize = kept.iter().map(Entry::bytes).sum();
        assert!(bytes <= MOST_BYTES && bytes > MOST_BYTES / 2, "{bytes} bytes in {} entries", kept.len());
        let last = long(1_000).keys[15].1.clone();
        assert_eq!(journal.latest_of(9, |entry| entry.is_about(&last)).len(), 1);
    }
}
