//! The latest decisions, for operators.
//!
//! The journal bounds how many decisions it keeps, how many bytes they take, and how many it writes a second,
//! so that a flood costs next to nothing. It is fair between keys: the denials of a key have a pace of their own, and
//! when there is no room, the key with the most loses its oldest decision. Allowed attempts get at most a quarter of
//! the room while there are denials. A flood over many keys still displaces older decisions.

mod pages;

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use tollgate_core::{Code, Listing, Origin, Span, Timestamp, Verdict, When};

use crate::log_limiter::{KeyedLimiter, LogLimiter};
use pages::Pages;

/// The latest decisions, newest last.
pub struct Journal {
    pages: Mutex<Pages>,
    allowed: LogLimiter,
    refused: LogLimiter,
    /// The pace of each key that is denied.
    paces: KeyedLimiter,
    hasher: DefaultHashBuilder,
}

/// Stands for a key, whose decisions share the room that the key gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyMark(u64);

/// The decisions that share one part of the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Ordinary decisions, of which a sample is enough.
    Allowed,
    /// Denials, attempts that an observed rule would have denied, bans and locks.
    Refused,
}

/// The extent of a journal, for operators who look for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalExtent {
    /// The number of decisions.
    pub decisions: usize,
    /// The time of its oldest decision.
    pub oldest: Option<Timestamp>,
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

/// The number of decisions that a journal keeps by default.
pub const USUAL_MOST: usize = 1_000;

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
            pages: Mutex::new(Pages::new(USUAL_MOST)),
            allowed: LogLimiter::new(Span::from_micros(10_000), 100),
            refused: LogLimiter::new(Span::from_micros(1_000), 1_000),
            paces: KeyedLimiter::new(Span::from_micros(100_000), 100),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl Journal {
    /// Sets how many decisions it keeps from now on.
    pub fn keep(&self, most: usize) {
        self.pages.lock().keep(most);
    }

    /// The mark of a key, or of whatever its decisions are found by.
    #[inline]
    pub(crate) fn mark(&self, of: impl Hash) -> KeyMark {
        KeyMark(self.hasher.hash_one(of))
    }

    /// Records an allowed attempt, if the rate allows it.
    #[inline]
    pub(crate) fn record_allowed(&self, now: Timestamp, entry: impl FnOnce() -> (KeyMark, Entry)) {
        if self.allowed.admits(now) {
            let (mark, entry) = entry();
            self.pages.lock().write(Class::Allowed, mark, entry);
        }
    }

    /// Records a denial, if the rate of its key and the rate of all allow it.
    pub(crate) fn record_refused(&self, mark: KeyMark, now: Timestamp, entry: impl FnOnce() -> Entry) {
        if self.paces.admits(mark.0, now) && self.refused.admits(now) {
            self.pages.lock().write(Class::Refused, mark, entry());
        }
    }

    /// Records a ban or a lock. Its key's denials do not displace it.
    #[cold]
    pub(crate) fn write(&self, entry: Entry) {
        let mark = self.mark(("notice", &entry.rule, &entry.key));
        self.pages.lock().write(Class::Refused, mark, entry);
    }

    /// The latest decisions, newest first.
    pub fn latest(&self, most: usize) -> Vec<Entry> {
        self.latest_of(most, |_| true)
    }

    /// The latest decisions that `wanted` selects, newest first.
    pub fn latest_of(&self, most: usize, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.pages.lock().newest_first().filter(|entry| wanted(entry)).take(most).cloned().collect()
    }

    /// The number of decisions in the journal, and the time of the oldest.
    pub fn extent(&self) -> JournalExtent {
        let pages = self.pages.lock();
        JournalExtent { decisions: pages.len(), oldest: pages.oldest().map(|entry| entry.at) }
    }
}

#[cfg(test)]
mod tests;
