//! The blocklist and the allowlist in force: the configured entries, and those set at run time on any node.
//!
//! Deciding reads them without a lock. Entries set at run time are stored in the records; every node follows
//! their changes, and the store removes ended entries.

mod known;
mod record;
mod setting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tollgate_core::versioned_map::{Changes, Namespace};
use tollgate_core::{Attempt, Decision, Listing, Lists, Policies, Target, Ticket};

pub use setting::{ListFault, MOST_SET, Wish};

use crate::counters::Counters;
use crate::engine::{Engine, Fault};
use crate::followed::{Entries, RecordStore, Replica};
use crate::live_config::Snapshot;
use crate::meter::ListMeters;
use known::KnownEntries;
pub(crate) use known::ListCounts;

/// The lists in force, and the way to change them.
pub struct LiveLists {
    in_force: ArcSwap<Lists>,
    /// The fields that the lists need and that every attempt may have.
    wanted: ArcSwap<Vec<Arc<str>>>,
    /// Whether the lists have any entry.
    any: AtomicBool,
    known: Mutex<KnownEntries>,
    records: Arc<RecordStore>,
    counters: Arc<Counters>,
    /// The metrics of the lists.
    pub meters: ListMeters,
}

impl LiveLists {
    pub(crate) fn new(policies: &Policies, records: Arc<RecordStore>, counters: Arc<Counters>) -> Self {
        let lists = Self {
            in_force: ArcSwap::default(),
            wanted: ArcSwap::default(),
            any: AtomicBool::new(false),
            known: Mutex::new(KnownEntries::default()),
            records,
            counters,
            meters: ListMeters::default(),
        };
        lists.configure(policies);
        lists
    }

    /// Puts the configured entries in force, besides those set at run time.
    pub(crate) fn configure(&self, policies: &Policies) {
        let mut listed = self.known.lock();
        let lists = listed.configure(policies);
        self.put_in_force(lists, &listed);
    }

    fn put_in_force(&self, lists: Lists, listed: &KnownEntries) {
        let any = !lists.is_empty();
        let wanted = lists.fields().into_iter().filter(|name| listed.accepts(name));
        self.wanted.store(Arc::new(listed.with_sources(wanted.collect())));
        self.in_force.store(Arc::new(lists));
        self.any.store(any, Ordering::Release);
        self.meters.set_entries(listed.counts());
    }

    /// The entry set at run time for a target.
    pub fn set_for(&self, target: &Target) -> Option<Arc<Listing>> {
        self.known.lock().find(target).cloned()
    }

    /// The fields that the lists need besides those of the policy, and that every attempt may have; `None`
    /// while the lists are empty. A door that knows such a field adds it to the attempt.
    #[inline]
    pub fn wanted(&self) -> Option<Arc<Vec<Arc<str>>>> {
        self.have_entries().then(|| self.wanted.load_full())
    }

    /// The lists in force.
    pub fn in_force(&self) -> Guard<Arc<Lists>> {
        self.in_force.load()
    }

    /// Whether anything is on a list.
    #[inline]
    pub(crate) fn have_entries(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The blocklist entry that blocks an attempt with these fields.
    fn blocking(&self, pinned: &Snapshot, fields: &[(&str, &str)]) -> Option<Arc<Listing>> {
        let completed = pinned.policies.roster().kinds().complete(fields);
        let fields = completed.as_deref().unwrap_or(fields);
        self.in_force.load().block(fields, || self.counters.time()).cloned()
    }
}

impl Replica for LiveLists {
    fn space(&self) -> Namespace {
        Namespace::Lists
    }

    fn version(&self) -> Option<u64> {
        self.known.lock().followed.version()
    }

    fn has_entries(&self) -> bool {
        self.known.lock().followed.has_entries()
    }

    fn apply(&self, known: Option<u64>, changes: &Changes) -> Entries {
        let mut listed = self.known.lock();
        let (lists, entries) = listed.follow(known, changes, &self.in_force.load());
        if let Some(lists) = lists {
            self.put_in_force(lists, &listed);
        }
        if let Some(shared) = &self.counters.shared {
            shared.condition.note_unreadable(listed.take_unreadable());
        }
        entries
    }
}

/// An attempt without a policy that the blocklist blocks.
#[must_use = "a blocked attempt must be recorded"]
pub struct BlockedAttempt<'e> {
    engine: &'e Engine,
    listing: Arc<Listing>,
}

impl BlockedAttempt<'_> {
    /// Records it in the metrics, the journal and the log. `correlation` is the caller's id of the attempt.
    /// Returns the entry that blocks it.
    pub fn note(self, correlation: &str) -> Arc<Listing> {
        let Engine { observer, counters, .. } = self.engine;
        observer.note_blocked_elsewhere(&self.listing, correlation, counters.time());
        self.listing
    }
}

impl Engine {
    /// Checks the blocklist by fields alone. Below [`Pinned::blocks`](crate::Pinned::blocks).
    pub(crate) fn blocks(&self, pinned: &Snapshot, fields: &[(&str, &str)]) -> Option<BlockedAttempt<'_>> {
        if !self.lists.have_entries() || !pinned.policies.enabled {
            return None;
        }
        let listing = self.lists.blocking(pinned, fields)?;
        Some(BlockedAttempt { engine: self, listing })
    }

    /// Blocks an attempt that is on the blocklist. Returns whether it did.
    #[inline(never)]
    pub(crate) fn block<'a>(
        &self,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        ticket: Ticket,
        decision: &mut Decision<'a>,
    ) -> Result<bool, Fault> {
        if !pinned.policies.enabled {
            return Ok(false);
        }
        let Some(listing) = self.lists.blocking(pinned, attempt.fields) else { return Ok(false) };
        let policy = pinned.policies.find(attempt.policy).map_err(Fault::Mistake)?;
        decision.open(policy, ticket, attempt.cost, attempt.id);
        decision.block(listing, self.counters.time());
        decision.blocked_fields = attempt.fields;
        Ok(true)
    }
}
