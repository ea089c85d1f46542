//! Records in memory: a versioned map for each namespace.

use parking_lot::Mutex;
use tollgate_core::Timestamp;
use tollgate_core::store::{Answer, Records, StoreError};
use tollgate_core::versioned_map::{Changes, Edit, Namespace, Scope, Value, VersionedMap};

use super::MemoryStore;

/// The maps of all namespaces.
pub(crate) struct RecordMaps([Mutex<Shelf>; Namespace::ALL.len()]);

struct Shelf {
    map: VersionedMap,
    /// The version in the file, if there is one.
    saved: u64,
}

/// The changes that are not in the file yet.
pub(crate) struct Unsaved {
    /// The version of the file once these are saved.
    pub(crate) version: u64,
    /// Whether these are all entries of the namespace.
    pub(crate) scope: Scope,
    pub(crate) entries: Vec<(String, Option<Value>)>,
}

impl RecordMaps {
    pub(crate) fn new() -> Self {
        Self(Namespace::ALL.map(|space| Mutex::new(Shelf { map: VersionedMap::new(space), saved: 0 })))
    }

    fn shelf(&self, space: Namespace) -> &Mutex<Shelf> {
        &self.0[space as usize]
    }

    pub(crate) fn change(
        &self,
        space: Namespace,
        edits: &[Edit],
        now: Timestamp,
    ) -> Result<Vec<bool>, StoreError> {
        self.shelf(space).lock().map.change(edits, now)
    }

    pub(crate) fn changes(&self, space: Namespace, since: Option<u64>, now: Timestamp) -> Changes {
        self.shelf(space).lock().map.changes(since, now)
    }

    /// Inserts an entry from the file.
    pub(crate) fn restore(&self, space: Namespace, name: &str, value: Value) {
        self.shelf(space).lock().map.restore(name, value);
    }

    /// Whether a version is in the file.
    pub(crate) fn is_saved(&self, space: Namespace, version: u64) -> bool {
        self.shelf(space).lock().saved >= version
    }

    /// The unsaved changes of a namespace; `None` if there are none.
    pub(crate) fn unsaved(&self, space: Namespace) -> Option<Unsaved> {
        let shelf = self.shelf(space).lock();
        let version = shelf.map.version();
        if shelf.saved == version {
            return None;
        }
        let (scope, entries) = shelf.map.entries_since(Some(shelf.saved));
        let entries = entries.into_iter().map(|(name, value)| (name.clone(), value.cloned())).collect();
        Some(Unsaved { version, scope, entries })
    }

    /// Records that the file has a version.
    pub(crate) fn note_saved(&self, space: Namespace, version: u64) {
        self.shelf(space).lock().saved = version;
    }
}

impl Records for MemoryStore {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        Answer::ready(self.records.change(space, edits, self.clock.now()))
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        Answer::ready(Ok(self.records.changes(space, since, self.clock.now())))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::ready(Ok(Self::secret(self)))
    }
}
