//! What a store in memory offers to somebody who saves its keys: what has changed, in bounded steps,
//! and a way to put it in again.

use std::sync::Arc;

use tollgate_core::limit::State;
use tollgate_core::{Plan, Ticket, Timestamp};

use super::records::RecordBook;
use super::shard::Change;
use super::{KeyHash, MemoryStore, SHARDS, shard_of};

/// Whether changes are noted for somebody who saves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saving {
    On,
    Off,
}

/// How much is done under one lock, so that no decision waits long for it.
const STEP: usize = 512;

impl MemoryStore {
    /// Forgets every key that is as good as new. Nobody can tell, except by the room it makes.
    pub fn sweep(&self) {
        for shard in self.shards.iter() {
            let mut from = Some(0);
            while let Some(start) = from {
                let mut shard = shard.lock();
                from = shard.sweep(start, STEP, self.clock.now());
            }
        }
    }

    /// Hands over everything that has changed, in steps between which the shards are free.
    pub(crate) fn drain<E>(&self, mut save: impl FnMut(Vec<Change>) -> Result<(), E>) -> Result<(), E> {
        for shard in self.shards.iter() {
            loop {
                let (changes, more) = shard.lock().changed(STEP);
                if !changes.is_empty() {
                    save(changes)?;
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes back keys that were drained and could not be saved.
    pub(crate) fn not_saved(&self, keys: impl IntoIterator<Item = KeyHash>) {
        for key in keys {
            self.shards[shard_of(key)].lock().not_saved(key);
        }
    }

    /// The tickets to be saved, and the moment up to which none need be kept.
    pub(crate) fn drain_spent(&self) -> (Vec<(Timestamp, Ticket)>, Timestamp) {
        self.spent.lock().changed()
    }

    /// The moments up to which single rules were forgotten, if they are to be saved.
    pub(crate) fn drain_forgotten(&self) -> Vec<(Box<str>, Timestamp)> {
        self.spent.lock().changed_rules()
    }

    /// The moment up to which nothing can be given back.
    pub(crate) fn horizon(&self) -> Timestamp {
        self.spent.lock().horizon()
    }

    /// Puts in up to when a rule was forgotten.
    pub(crate) fn restore_forgotten(&mut self, rule: &str, forgotten: Timestamp) {
        self.spent.get_mut().restore_rule(rule, forgotten);
    }

    /// Takes back tickets that were drained and could not be saved.
    pub(crate) fn spent_not_saved(&self, tickets: Vec<(Timestamp, Ticket)>) {
        self.spent.lock().not_saved(tickets);
    }

    pub(crate) fn record_book(&self) -> &RecordBook {
        &self.records
    }

    /// Puts in a key as it was saved.
    pub(crate) fn restore(&mut self, key: KeyHash, plan: &Arc<Plan>, states: &[State]) {
        self.shards[shard_of(key)].get_mut().restore(key, plan, states);
    }

    /// Puts in the tickets that were saved as given back.
    pub(crate) fn restore_spent(
        &mut self,
        horizon: Timestamp,
        tickets: impl IntoIterator<Item = (Timestamp, Ticket)>,
    ) {
        self.spent.get_mut().restore(horizon, tickets);
    }

    /// Forgets what is beyond `max_keys`, after more was put in.
    pub(crate) fn trim(&mut self) {
        let (most, now) = (self.max_keys.div_ceil(SHARDS), self.clock.now());
        self.shards.iter_mut().for_each(|shard| shard.get_mut().trim(most, now));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
