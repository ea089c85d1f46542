//! Following the records: each namespace is a map in the store, and the engine keeps its copy up to date by
//! asking what has changed. The node's own changes arrive in the same way.

use std::sync::Arc;

use tollgate_core::versioned_map::{Changes, Edit, Namespace, Scope};
use tollgate_core::{Records, StoreError};

use crate::counters::Counters;
use crate::receipt::Seals;

/// The progress of this node in reading one namespace.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The version that was read; `None` if everything has to be read.
    version: Option<u64>,
    /// The number of entries that the store has and this node has not. This node skips entries whose names are
    /// not text.
    surplus: Option<i64>,
    /// The number of entries that this node had after the last changes.
    entries: usize,
}

/// The part of a namespace to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The changes since the version that was read.
    Changes,
    /// All entries.
    Whole,
}

/// Whether the store still has the entries that this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    /// The store has them all, as far as this node can tell.
    Complete,
    /// The store lost some, without a change that removed them.
    Missing,
}

impl Followed {
    pub(crate) fn version(&self) -> Option<u64> {
        self.version
    }

    /// Whether this node knows any entry.
    pub(crate) fn has_entries(&self) -> bool {
        self.entries > 0
    }

    /// Whether these changes are new. If so, records their version. `known` is the version at the time of the
    /// request: another reply may have come in between.
    pub(crate) fn accept(&mut self, known: Option<u64>, changes: &Changes) -> bool {
        let changed = match changes.scope {
            Scope::All => self.version == known,
            Scope::Changes => self.version.is_some_and(|own| own <= changes.version && known <= Some(own)),
        };
        if changed {
            self.version = Some(changes.version);
        }
        changed
    }

    /// Compares the number of entries in the store with the number known here, after changes were applied. A
    /// failover may lose entries without changing the version; everything is read again then.
    pub(crate) fn check_size(&mut self, changes: &Changes, known: usize) -> Entries {
        self.entries = known;
        if changes.scope == Scope::All {
            // Changes made during the read of everything are not known yet.
            self.surplus = None;
            return Entries::Complete;
        }
        let surplus = i64::try_from(changes.size).unwrap_or(i64::MAX) - i64::try_from(known).unwrap_or(0);
        let before = *self.surplus.get_or_insert(surplus);
        if before != surplus {
            *self = Self::default();
        }
        if surplus < before { Entries::Missing } else { Entries::Complete }
    }
}

/// This node's copy of one namespace.
pub(crate) trait Replica: Send + Sync {
    /// The namespace.
    fn space(&self) -> Namespace;

    /// The version that was read; `None` if everything has to be read.
    fn version(&self) -> Option<u64>;

    /// Whether it has any entry.
    fn has_entries(&self) -> bool;

    /// Applies changes. `known` is the version at the time of the request.
    fn apply(&self, known: Option<u64>, changes: &Changes) -> Entries;
}

/// The records of the store, as the parts of an engine read and change them.
pub(crate) struct RecordStore {
    records: Arc<dyn Records>,
    counters: Arc<Counters>,
    seals: Arc<Seals>,
}

impl RecordStore {
    pub(crate) fn new(records: Arc<dyn Records>, counters: Arc<Counters>, seals: Arc<Seals>) -> Self {
        Self { records, counters, seals }
    }

    /// Changes records, and reads the result. Returns for each edit whether its condition held.
    pub(crate) async fn change(
        &self,
        replica: &dyn Replica,
        edits: &[Edit],
    ) -> Result<Vec<bool>, StoreError> {
        let held = self.counters.ask(self.records.change(replica.space(), edits)).await?;
        let learned = self.refresh(replica).await;
        if held.contains(&false) {
            // The caller tries again, and needs the current records.
            learned?;
        }
        // The change is made. If it cannot be read now, a later read finds it.
        Ok(held)
    }

    /// Changes records of a namespace that this node does not follow.
    pub(crate) async fn write(&self, space: Namespace, edits: &[Edit]) -> Result<Vec<bool>, StoreError> {
        self.counters.ask(self.records.change(space, edits)).await
    }

    /// Reads what has changed in a namespace, unless the circuit breaker is open.
    pub(crate) async fn refresh(&self, replica: &dyn Replica) -> Result<(), StoreError> {
        self.counters.ask(self.follow(replica, Extent::Changes)).await
    }

    /// Reads what has changed in a namespace, or everything in it.
    pub(crate) async fn follow(&self, replica: &dyn Replica, extent: Extent) -> Result<(), StoreError> {
        let (space, known) = (replica.space(), replica.version());
        let since = known.filter(|_| extent == Extent::Changes);
        let changes = self.records.changes(space, since).await;
        let shared = self.counters.shared.as_ref();
        if let Some(shared) = shared {
            shared.condition.note_records(about(space), &changes);
        }
        let changes = changes?;
        if let Some(shared) = shared {
            // The store may forget reports of nodes, so that their version starts again. Where there were no records,
            // none are missing.
            if space.idle_after().is_none() && replica.has_entries() {
                shared.condition.note_version(about(space), known, changes.version);
            }
            if changes.secret_was_missing {
                shared.condition.note_missing("secret");
            }
        }
        self.counters.learn_time(changes.now);
        if space == Namespace::Config && changes.scope == Scope::All {
            // A store that lost its records may have another secret.
            self.seals.share(self.records.secret().await?);
        }
        let entries = replica.apply(known, &changes);
        if let (Entries::Missing, Some(shared), None) = (entries, shared, space.idle_after()) {
            shared.condition.note_missing(about(space));
        }
        Ok(())
    }
}

/// The name of a namespace's records in the log.
fn about(space: Namespace) -> &'static str {
    match space {
        Namespace::Config => "overrides, policies and their assignments",
        Namespace::Lists => "lists",
        Namespace::Pauses => "pauses",
        Namespace::Locks => "locks",
        Namespace::Accounts => "accounts",
        Namespace::Nodes => "reports of nodes",
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;

    fn changes(scope: Scope, version: u64, size: usize) -> Changes {
        Changes { now: Timestamp::ZERO, version, size, scope, entries: Vec::new(), secret_was_missing: false }
    }

    #[test]
    fn an_answer_that_another_one_overtook_is_not_applied() {
        let mut followed = Followed::default();
        assert!(!followed.accept(None, &changes(Scope::Changes, 3, 0)), "nothing is known yet");
        assert!(followed.accept(None, &changes(Scope::All, 5, 0)));
        assert!(!followed.accept(None, &changes(Scope::All, 4, 0)), "asked for before the other came");
        assert!(followed.accept(Some(5), &changes(Scope::Changes, 7, 0)));
        assert!(!followed.accept(Some(5), &changes(Scope::Changes, 6, 0)), "older than what is known");
        assert!(followed.accept(Some(5), &changes(Scope::Changes, 8, 0)), "tells more than is missing");
        assert!(!followed.accept(Some(9), &changes(Scope::Changes, 10, 0)), "tells less than is missing");
        assert!(followed.accept(Some(8), &changes(Scope::All, 2, 0)), "the store lost entries");
        assert_eq!(followed.version(), Some(2));
    }

    #[test]
    fn another_number_of_entries_makes_everything_be_read_again() {
        let mut followed = Followed::default();
        followed.accept(None, &changes(Scope::All, 5, 9));
        followed.check_size(&changes(Scope::All, 5, 9), 3);
        followed.check_size(&changes(Scope::Changes, 5, 5), 3);
        followed.check_size(&changes(Scope::Changes, 6, 6), 4);
        assert_eq!(followed.version(), Some(5), "the same two entries are not known here");
        assert_eq!(followed.check_size(&changes(Scope::Changes, 6, 5), 4), Entries::Missing);
        assert_eq!(followed.version(), None);
    }
}
