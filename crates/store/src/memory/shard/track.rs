//! Tracks which keys have changed since they were last saved.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use hashbrown::HashSet;
use tollgate_core::limit::State;
use tollgate_core::{Plan, Timestamp};

use super::{KeyHash, Place, Shard, StateRow, Tag};

/// The changed keys, and the saved ones that are gone. A key that comes and goes between two savings leaves
/// no trace, so there are never more than stored and saved keys.
pub(crate) type Dirty = HashSet<KeyHash, BuildHasherDefault<Already>>;

/// A change of one key.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: KeyHash,
    /// Its limits and states; `None` if it is gone.
    pub(crate) now: Option<(Arc<Plan>, Vec<State>)>,
}

/// Uses keys as they are, since they are already hashes.
#[derive(Default)]
pub(crate) struct Already(u64);

impl Hasher for Already {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes.rchunks(8).next().unwrap_or_default() {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_usize(&mut self, _length: usize) {}
}

impl Shard {
    /// Marks the key at a place as changed since it was last saved.
    #[inline]
    pub(crate) fn touch_at(&mut self, place: Place, key: KeyHash) {
        if self.dirty.is_some() && !self.tag(place).is_dirty() {
            self.mark(place, key);
        }
    }

    #[cold]
    fn mark(&mut self, place: Place, key: KeyHash) {
        let Some(dirty) = &mut self.dirty else { return };
        // A key that is tracked but not marked was saved, removed, and inserted again.
        let returned = !dirty.insert(key);
        let tag = self.tag_mut(place);
        *tag = if returned { tag.dirty().once_saved() } else { tag.dirty() };
    }

    /// Marks a moved key, with the marks of its old place.
    pub(super) fn carry_mark(&mut self, place: Place, key: KeyHash, old: Tag) {
        if old.is_saved() {
            let tag = self.tag_mut(place);
            *tag = tag.once_saved();
        }
        if old.is_dirty() {
            let tag = self.tag_mut(place);
            *tag = tag.dirty();
        }
        self.touch_at(place, key);
    }

    pub(super) fn note_gone(&mut self, key: KeyHash, tag: Tag) {
        let Some(dirty) = &mut self.dirty else { return };
        if tag.is_saved() {
            dirty.insert(key);
        } else {
            dirty.remove(&key);
        }
    }

    /// Restores a key from the file.
    pub(crate) fn restore(&mut self, key: KeyHash, plan: &Arc<Plan>, states: &[State]) {
        let place = self.insert(key, plan, states);
        let tag = self.tag_mut(place);
        *tag = tag.saved();
    }

    /// Removes changes, up to about `most` entries of states, and marks them as saved. The second value says
    /// whether there are more.
    pub(crate) fn changed(&mut self, most: usize) -> (Vec<Change>, bool) {
        let Some(dirty) = &self.dirty else { return (Vec::new(), false) };
        let keys: Vec<KeyHash> = dirty.iter().take(most).copied().collect();
        let mut changes = Vec::with_capacity(keys.len());
        let mut weight = 0;
        for key in keys {
            if weight >= most {
                break;
            }
            let now = self.copy_saved(key);
            weight += now.as_ref().map_or(1, |(_, states)| states.iter().map(entries).sum());
            if let Some(dirty) = &mut self.dirty {
                dirty.remove(&key);
            }
            changes.push(Change { key, now });
        }
        (changes, self.dirty.as_ref().is_some_and(|dirty| !dirty.is_empty()))
    }

    /// Marks a key as changed again, because it could not be saved.
    pub(crate) fn not_saved(&mut self, key: KeyHash) {
        match self.find(key) {
            Some(place) => self.touch_at(place, key),
            None => {
                if let Some(dirty) = &mut self.dirty {
                    dirty.insert(key);
                }
            }
        }
    }

    fn copy_saved(&mut self, key: KeyHash) -> Option<(Arc<Plan>, Vec<State>)> {
        let place = self.find(key)?;
        let plan = Arc::clone(self.plans.plan(self.tag(place).plan()));
        let tag = self.tag_mut(place);
        *tag = tag.saved();
        let mut row = StateRow::new();
        self.load(place, &plan, &mut row);
        let copy = row.to_vec();
        self.save(place, &plan, &mut row);
        Some((plan, copy))
    }

    /// Evicts keys beyond `most`.
    pub(crate) fn trim(&mut self, most: usize, now: Timestamp) {
        while self.len() > most && self.make_room(now, &[]) {}
    }
}

/// The number of entries of a state to copy.
fn entries(state: &State) -> usize {
    match state {
        State::Log(log) => log.entries().len(),
        State::Slots(slots) => slots.counts().len(),
        State::Holds(holds) => holds.iter().len(),
        State::Failures(failures) => failures.iter().len(),
        State::Fresh | State::Tally(_) | State::Level(_) | State::Total(_) => 1,
    }
}
