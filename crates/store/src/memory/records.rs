//! Records in memory: what was configured at run time, by name.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tollgate_core::Timestamp;
use tollgate_core::ledger::{Changes, Edit, PREFIX};
use tollgate_core::store::{Answer, Records};

use super::ledger::Ledger;
use super::{MemoryStore, Saving};

/// All records.
pub(crate) struct RecordBook(Mutex<Pages>);

struct Pages {
    by_name: BTreeMap<String, Vec<u8>>,
    ledger: Ledger,
    /// The names of those that have changed since they were last saved, if somebody saves them. The
    /// ledger's begin with its prefix.
    dirty: Option<BTreeSet<String>>,
}

impl RecordBook {
    pub(crate) fn new(saving: Saving) -> Self {
        let dirty = (saving == Saving::On).then(BTreeSet::new);
        Self(Mutex::new(Pages { by_name: BTreeMap::new(), ledger: Ledger::default(), dirty }))
    }

    /// Writes a record, or removes it.
    pub(crate) fn set(&self, name: &str, value: Option<&[u8]>) {
        self.0.lock().set(name, value);
    }

    /// Writes a record, or removes it, if what is there is `from`; answers whether it was.
    pub(crate) fn swap(&self, name: &str, from: Option<&[u8]>, to: Option<&[u8]>) -> bool {
        let pages = &mut *self.0.lock();
        let expected = pages.by_name.get(name).map(Vec::as_slice) == from;
        if expected {
            pages.set(name, to);
        }
        expected
    }

    /// Changes the ledger.
    pub(crate) fn enter(&self, edits: &[Edit]) {
        let pages = &mut *self.0.lock();
        for edit in edits {
            if let (true, Some(dirty)) = (pages.ledger.edit(edit), &mut pages.dirty) {
                dirty.insert(format!("{PREFIX}{}", edit.name));
            }
        }
    }

    /// What has changed in the ledger since a version, or all of it.
    pub(crate) fn changes(&self, since: Option<u64>, now: Timestamp) -> Changes {
        self.0.lock().ledger.changes(since, now)
    }

    /// Puts in a record as it was saved.
    pub(crate) fn restore(&self, name: &str, value: &[u8]) {
        let pages = &mut *self.0.lock();
        match name.strip_prefix(PREFIX) {
            Some(name) => pages.ledger.restore(name, value),
            None => drop(pages.by_name.insert(name.to_owned(), value.to_owned())),
        }
    }

    pub(crate) fn all(&self) -> Vec<(String, Vec<u8>)> {
        self.0.lock().by_name.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Takes out what has changed, and holds it for saved.
    pub(crate) fn changed(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let pages = &mut *self.0.lock();
        let names = pages.dirty.as_mut().map(std::mem::take).unwrap_or_default();
        names
            .into_iter()
            .map(|name| {
                let value = match name.strip_prefix(PREFIX) {
                    Some(name) => pages.ledger.value(name),
                    None => pages.by_name.get(&name),
                };
                let value = value.cloned();
                (name, value)
            })
            .collect()
    }

    /// Notes again that a record has changed: it could not be saved.
    pub(crate) fn not_saved(&self, names: impl IntoIterator<Item = String>) {
        if let Some(dirty) = &mut self.0.lock().dirty {
            dirty.extend(names);
        }
    }
}

impl Pages {
    fn set(&mut self, name: &str, value: Option<&[u8]>) {
        match value {
            Some(value) => drop(self.by_name.insert(name.to_owned(), value.to_owned())),
            None => drop(self.by_name.remove(name)),
        }
        if let Some(dirty) = &mut self.dirty {
            dirty.insert(name.to_owned());
        }
    }
}

impl Records for MemoryStore {
    fn put<'a>(&'a self, name: &'a str, value: &'a [u8]) -> Answer<'a, ()> {
        self.records.set(name, Some(value));
        Answer::ready(Ok(()))
    }

    fn delete<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        self.records.set(name, None);
        Answer::ready(Ok(()))
    }

    fn swap<'a>(&'a self, name: &'a str, from: Option<&'a [u8]>, to: Option<&'a [u8]>) -> Answer<'a, bool> {
        Answer::ready(Ok(self.records.swap(name, from, to)))
    }

    fn all(&self) -> Answer<'_, Vec<(String, Vec<u8>)>> {
        Answer::ready(Ok(self.records.all()))
    }

    fn enter<'a>(&'a self, edits: &'a [Edit]) -> Answer<'a, ()> {
        self.records.enter(edits);
        Answer::ready(Ok(()))
    }

    fn changes(&self, since: Option<u64>) -> Answer<'_, Changes> {
        Answer::ready(Ok(self.records.changes(since, self.clock.now())))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::ready(Ok(Self::secret(self)))
    }
}
