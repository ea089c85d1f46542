//! The ledger in memory: entries by name, and the latest changes, so that others can follow them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tollgate_core::Timestamp;
use tollgate_core::ledger::{Changes, Edit, Entry, MOST_CHANGES, Scope};

/// All entries.
#[derive(Default)]
pub(crate) struct Ledger {
    by_name: BTreeMap<String, Vec<u8>>,
    version: u64,
    /// The names of the entries that changed last, oldest first.
    changed: VecDeque<String>,
}

impl Ledger {
    /// Makes a change, and says whether it was one.
    pub(crate) fn edit(&mut self, edit: &Edit) -> bool {
        let Edit { name, to } = edit;
        let made = match to {
            Entry::Written(value) => {
                self.by_name.insert(name.clone(), value.clone());
                true
            }
            Entry::Removed => self.by_name.remove(name).is_some(),
            Entry::RemovedIf(value) => {
                self.by_name.get(name) == Some(value) && self.by_name.remove(name).is_some()
            }
        };
        if made {
            self.version += 1;
            self.changed.push_back(name.clone());
            if self.changed.len() > MOST_CHANGES {
                self.changed.pop_front();
            }
        }
        made
    }

    /// Puts in an entry as it was saved.
    pub(crate) fn restore(&mut self, name: &str, value: &[u8]) {
        self.by_name.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn value(&self, name: &str) -> Option<&Vec<u8>> {
        self.by_name.get(name)
    }

    pub(crate) fn changes(&self, since: Option<u64>, now: Timestamp) -> Changes {
        let known = since.and_then(|since| self.version.checked_sub(since)).and_then(|missed| {
            let missed = usize::try_from(missed).ok()?;
            self.changed.len().checked_sub(missed)
        });
        let of = |name: &String| (name.clone(), self.by_name.get(name).cloned());
        let (scope, entries) = match known {
            Some(known) => {
                let names: BTreeSet<&String> = self.changed.range(known..).collect();
                (Scope::Changes, names.into_iter().map(of).collect())
            }
            None => (Scope::All, self.by_name.keys().map(of).collect()),
        };
        Changes { now: Some(now), version: self.version, size: Some(self.by_name.len()), scope, entries }
    }
}
