//! The records of a namespace whose values the engine keeps by name and reads only on demand.

use std::collections::BTreeMap;
use std::ops::Bound;

use tollgate_core::versioned_map::{Changes, Scope};

use crate::followed::{Entries, Followed};

/// All records of one namespace.
#[derive(Default)]
pub(crate) struct NamedRecords {
    pub(crate) followed: Followed,
    by_name: BTreeMap<Box<str>, Vec<u8>>,
}

impl NamedRecords {
    /// Applies changes of the namespace.
    pub(crate) fn follow(&mut self, known: Option<u64>, changes: &Changes) -> Entries {
        if !self.followed.accept(known, changes) {
            return Entries::Complete;
        }
        if changes.scope == Scope::All {
            self.by_name.clear();
        }
        for (name, value) in &changes.entries {
            match value {
                Some(value) => drop(self.by_name.insert(name.as_str().into(), value.clone())),
                None => drop(self.by_name.remove(name.as_str())),
            }
        }
        self.followed.check_size(changes, self.by_name.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Every name with its record.
    pub(crate) fn all(&self) -> Vec<(String, Vec<u8>)> {
        self.by_name.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    /// The record of a name.
    pub(crate) fn at(&self, name: &str) -> Option<&[u8]> {
        self.by_name.get(name).map(Vec::as_slice)
    }

    /// Records whose names begin with `start`, after the name `after`.
    pub(crate) fn page(&self, start: &str, after: Option<&str>, most: usize) -> Vec<(String, Vec<u8>)> {
        let from = after.filter(|after| *after > start).map_or(Bound::Included(start), Bound::Excluded);
        let range = self.by_name.range::<str, _>((from, Bound::Unbounded));
        let own = range.take_while(|(name, _)| name.starts_with(start)).take(most);
        own.map(|(name, value)| (name.to_string(), value.clone())).collect()
    }
}
