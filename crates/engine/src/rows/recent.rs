//! The latest counts, for rules that allow caching.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tollgate_core::{Span, Timestamp};

/// The latest counts by rule and key, each with its moment.
#[derive(Default)]
pub(super) struct Recent(Mutex<HashMap<RuleAndKey, (u64, Timestamp)>>);

type RuleAndKey = (Arc<str>, Box<str>);

/// The most counts in the cache.
const MOST: usize = 10_000;

impl Recent {
    /// The count at a key, if it is no older than this.
    pub(super) fn recall(&self, rule: &Arc<str>, key: &str, cache: Span, now: Timestamp) -> Option<u64> {
        if cache == Span::ZERO {
            return None;
        }
        let known = self.0.lock();
        let (rows, at) = known.get(&(Arc::clone(rule), key.into())).copied()?;
        // A moment in the future was recorded before the clock went back.
        (at <= now && now.since(at) < cache).then_some(rows)
    }

    pub(super) fn forget(&self, rule: Arc<str>, key: &str) {
        let mut known = self.0.lock();
        if !known.is_empty() {
            known.remove(&(rule, key.into()));
        }
    }

    pub(super) fn remember(&self, rule: Arc<str>, key: &str, rows: u64, now: Timestamp) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert((rule, key.into()), (rows, now));
    }
}
