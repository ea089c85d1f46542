//! Who is locked, as the ledger has it: sealed, and with the time at which each lock ends before it, so
//! that whoever cannot read a record can still remove it when it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tollgate_core::Timestamp;
use tollgate_core::ledger::Entry;

/// Records of locks, by name.
#[derive(Default)]
pub(super) struct Locked {
    records: BTreeMap<Box<str>, Vec<u8>>,
    /// When they end.
    due: BTreeSet<(Timestamp, Box<str>)>,
}

/// One record of the ledger.
pub(crate) struct Ledgered {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

/// The start of the names of locks among those of the ledger. No target of a list has a slash there.
pub(crate) const PREFIX: &str = "lock/";

impl Locked {
    /// Whether a name of the ledger is that of a lock.
    pub(super) fn has(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// What is recorded under a name.
    pub(super) fn at(&self, name: &str) -> Option<&[u8]> {
        self.records.get(name).map(Vec::as_slice)
    }

    /// Makes a change as the ledger makes it.
    pub(super) fn edit(&mut self, name: &str, to: &Entry) {
        match to {
            Entry::Written(value) => self.put(name, Some(value.clone())),
            Entry::Removed => self.put(name, None),
            Entry::RemovedIf(value) if self.at(name) == Some(value) => self.put(name, None),
            Entry::RemovedIf(_) => {}
        }
    }

    /// Knows what is recorded under a name from now on.
    pub(super) fn put(&mut self, name: &str, value: Option<Vec<u8>>) {
        if let Some(old) = self.records.remove(name) {
            self.due.remove(&(end_of(&old), name.into()));
        }
        if let Some(value) = value {
            self.due.insert((end_of(&value), name.into()));
            self.records.insert(name.into(), value);
        }
    }

    /// The records of locks that are over.
    pub(super) fn over(&self, now: Timestamp) -> impl Iterator<Item = (String, Vec<u8>)> {
        let due = self.due.iter().take_while(move |(end, _)| *end <= now);
        due.filter_map(|(_, name)| Some((name.to_string(), self.records.get(name)?.clone())))
    }

    /// Records whose names begin so, behind one of them.
    pub(super) fn page(&self, start: &str, after: Option<&str>, most: usize) -> Vec<Ledgered> {
        let from = after.filter(|after| *after > start).map_or(Bound::Included(start), Bound::Excluded);
        let range = self.records.range::<str, _>((from, Bound::Unbounded));
        let own = range.take_while(|(name, _)| name.starts_with(start)).take(most);
        own.map(|(name, value)| Ledgered { name: name.to_string(), value: value.clone() }).collect()
    }
}

/// When a lock ends; what does not say so is over.
fn end_of(value: &[u8]) -> Timestamp {
    let text = std::str::from_utf8(value).ok();
    let end = text.and_then(|text| text.split_once('\n')?.0.parse().ok());
    end.map_or(Timestamp::ZERO, Timestamp::from_micros)
}
