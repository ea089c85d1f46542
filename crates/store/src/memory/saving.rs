//! What a store in memory offers to the file store: its changes in bounded steps, and a way to restore them.

use std::sync::Arc;

use tollgate_core::limit::State;
use tollgate_core::{Plan, Timestamp};

use super::records::RecordMaps;
use super::shard::Change;
use super::spent::Mark;
use super::{KeyHash, MemoryStore, SHARDS, shard_of};

/// Whether changes are tracked for saving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saving {
    On,
    Off,
}

/// The name of no rule. Under it is saved when a key of any rule was last evicted.
const ANY: &str = "";

/// How much is done under one lock, so that no decision waits long.
const STEP: usize = 512;

impl MemoryStore {
    /// Removes every idle key. This has no effect other than the free room.
    pub fn sweep(&self) {
        for shard in self.shards.iter() {
            let mut from = Some(0);
            while let Some(start) = from {
                let mut shard = shard.lock();
                from = shard.sweep(start, STEP, self.clock.now());
            }
        }
    }

    /// Passes all changes to `save`, in steps. The shards are unlocked between them.
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

    /// Marks drained keys as changed again, because they could not be saved.
    pub(crate) fn not_saved(&self, keys: impl IntoIterator<Item = KeyHash>) {
        for key in keys {
            self.shards[shard_of(key)].lock().not_saved(key);
        }
    }

    /// The refund marks to save, and the time up to which none need be kept.
    pub(crate) fn drain_spent(&self) -> (Vec<Mark>, Timestamp) {
        self.spent.lock().changed()
    }

    /// The times until which single rules were forgotten, if they must be saved.
    pub(crate) fn drain_forgotten(&self) -> Vec<(Box<str>, Timestamp)> {
        let evicted = self.shards.iter().map(|shard| shard.lock().evicted()).max().unwrap_or_default();
        let mut spent = self.spent.lock();
        if evicted > Timestamp::ZERO && spent.remembers(ANY, evicted) {
            spent.forget(Some(ANY), evicted);
        }
        spent.changed_rules()
    }

    /// The time until which nothing can be refunded.
    pub(crate) fn horizon(&self) -> Timestamp {
        self.spent.lock().horizon()
    }

    /// Restores the time until which a rule was forgotten.
    pub(crate) fn restore_forgotten(&mut self, rule: &str, forgotten: Timestamp) {
        if rule == ANY {
            self.shards.iter_mut().for_each(|shard| shard.get_mut().restore_evicted(forgotten));
        }
        self.spent.get_mut().restore_rule(rule, forgotten);
    }

    /// Returns drained marks that could not be saved.
    pub(crate) fn spent_not_saved(&self, marks: Vec<Mark>) {
        self.spent.lock().not_saved(marks);
    }

    pub(crate) fn record_maps(&self) -> &RecordMaps {
        &self.records
    }

    /// Restores a key from the file.
    pub(crate) fn restore(&mut self, key: KeyHash, plan: &Arc<Plan>, states: &[State]) {
        self.shards[shard_of(key)].get_mut().restore(key, plan, states);
    }

    /// Restores refund marks from the file.
    pub(crate) fn restore_spent(&mut self, horizon: Timestamp, marks: impl IntoIterator<Item = Mark>) {
        self.spent.get_mut().restore(horizon, marks);
    }

    /// Evicts keys beyond `max_keys`, after more were restored.
    pub(crate) fn trim(&mut self) {
        let (most, now) = (self.max_keys.div_ceil(SHARDS), self.clock.now());
        self.shards.iter_mut().for_each(|shard| shard.get_mut().trim(most, now));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::store::Refunded;
    use tollgate_core::{Charges, Outcome, Ticket};

    use super::*;
    use crate::ManualClock;

    #[test]
    fn a_refund_to_an_evicted_key_is_too_old_after_a_restart_too() {
        let now = Timestamp::from_micros(1_760_000_045_000_000);
        let store = || {
            let clock = Arc::new(ManualClock::at(now));
            MemoryStore::with(clock, 1, [1, 2], [0; 32], Saving::On)
        };
        let limit = "10/hour burst 10".parse().expect("a limit");
        let plan = Arc::new(Plan::new("rule".into(), vec![limit]).expect("a plan"));
        let first = store();
        let mut outcome = Outcome::default();
        // One key for each shard, and many more keys than shards.
        for ticket in 0..1_000 {
            let key = ticket.to_string();
            let mut charges = Charges::new(Ticket(ticket), 1, None);
            charges.push(&plan, &key, true);
            first.take_now(&charges, &mut outcome).expect("there is room for one");
        }
        let forgotten = first.drain_forgotten();
        assert_eq!(forgotten, [(ANY.into(), now)]);
        assert!(first.drain_forgotten().is_empty(), "it is saved once");
        let mut second = store();
        forgotten.iter().for_each(|(rule, at)| second.restore_forgotten(rule, *at));
        let mut charges = Charges::new(Ticket(1), 1, None);
        charges.push(&plan, "1", true);
        assert_eq!(second.refund_now(&charges, now), Ok(Refunded::TooOld));
        charges.ticket = Ticket(2_000);
        assert_eq!(
            second.refund_now(&charges, now + tollgate_core::Span::from_micros(1)),
            Ok(Refunded::Done)
        );
    }
}
