//! The records of a namespace whose values the engine keeps by name and reads only on demand.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_core::versioned_map::{Changes, Namespace, Scope};

use crate::followed::{Entries, Followed, Replica};

/// All records of one namespace. Watchers are notified when records change, on this node or on another one.
pub(crate) struct NamedRecords {
    space: Namespace,
    known: Mutex<Known>,
    /// Counts the changes.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    followed: Followed,
    by_name: BTreeMap<Box<str>, Vec<u8>>,
}

impl NamedRecords {
    pub(crate) fn new(space: Namespace) -> Self {
        Self { space, known: Mutex::default(), changed: watch::Sender::new(0) }
    }

    /// Returns a receiver that is notified when records change.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn len(&self) -> usize {
        self.known.lock().by_name.len()
    }

    /// Every name with its record.
    pub(crate) fn all(&self) -> Vec<(String, Vec<u8>)> {
        self.known.lock().by_name.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    /// The record of a name.
    pub(crate) fn at(&self, name: &str) -> Option<Vec<u8>> {
        self.known.lock().by_name.get(name).cloned()
    }

    /// Records whose names begin with `start`, after the name `after`.
    pub(crate) fn page(&self, start: &str, after: Option<&str>, most: usize) -> Vec<(String, Vec<u8>)> {
        let from = after.filter(|after| *after > start).map_or(Bound::Included(start), Bound::Excluded);
        let known = self.known.lock();
        let range = known.by_name.range::<str, _>((from, Bound::Unbounded));
        let own = range.take_while(|(name, _)| name.starts_with(start)).take(most);
        own.map(|(name, value)| (name.to_string(), value.clone())).collect()
    }
}

impl Replica for NamedRecords {
    fn space(&self) -> Namespace {
        self.space
    }

    fn version(&self) -> Option<u64> {
        self.known.lock().followed.version()
    }

    fn has_entries(&self) -> bool {
        self.known.lock().followed.has_entries()
    }

    fn apply(&self, known: Option<u64>, changes: &Changes) -> Entries {
        let Known { followed, by_name } = &mut *self.known.lock();
        if !followed.accept(known, changes) {
            return Entries::Complete;
        }
        if changes.scope == Scope::All {
            by_name.clear();
        }
        for (name, value) in &changes.entries {
            match value {
                Some(value) => drop(by_name.insert(name.as_str().into(), value.clone())),
                None => drop(by_name.remove(name.as_str())),
            }
        }
        if changes.scope == Scope::All || !changes.entries.is_empty() {
            self.changed.send_modify(|times| *times += 1);
        }
        followed.check_size(changes, by_name.len())
    }
}
