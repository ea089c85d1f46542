//! The blocklist and the allowlist in force: the configured entries, and those set at run time on any node.
//!
//! Deciding reads them without a lock. Entries set at run time are stored in the records; every node follows
//! their changes, and the store removes ended entries.

mod book;
mod record;
mod setting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tollgate_core::{Attempt, Decision, Listing, Lists, Policies, Target, Ticket, Timestamp};

pub use setting::{ListFault, MOST_SET, Wish};

use crate::engine::{Engine, Fault, Snapshot};
use crate::meter::ListMeters;
use crate::shared_store::time_of;
use book::ListBook;
pub(crate) use book::ListCounts;

/// The lists and their source.
pub(crate) struct LiveLists {
    in_force: ArcSwap<Lists>,
    /// The fields that the lists need and that every attempt may have.
    wanted: ArcSwap<Vec<Arc<str>>>,
    /// Whether the lists have any entry.
    any: AtomicBool,
    book: Mutex<ListBook>,
    /// How far a shared store's clock is ahead of this node's, in microseconds; [`UNKNOWN`] until the store
    /// has told its time.
    ahead: AtomicI64,
    pub(crate) meters: ListMeters,
}

const UNKNOWN: i64 = i64::MIN;

impl LiveLists {
    pub(crate) fn new(policies: &Policies) -> Self {
        let live_lists = Self {
            in_force: ArcSwap::default(),
            wanted: ArcSwap::default(),
            any: AtomicBool::new(false),
            book: Mutex::new(ListBook::default()),
            ahead: AtomicI64::new(UNKNOWN),
            meters: ListMeters::default(),
        };
        live_lists.configure(policies);
        live_lists
    }

    /// Puts the configured entries in force, besides those set at run time.
    pub(crate) fn configure(&self, policies: &Policies) {
        let mut book = self.book.lock();
        let lists = book.configure(policies);
        self.put_in_force(lists, &book);
    }

    fn put_in_force(&self, lists: Lists, book: &ListBook) {
        let any = !lists.is_empty();
        let wanted = lists.fields().into_iter().filter(|name| book.accepts(name));
        self.wanted.store(Arc::new(book.with_sources(wanted.collect())));
        self.in_force.store(Arc::new(lists));
        self.any.store(any, Ordering::Release);
        self.meters.set_entries(book.counts());
    }

    /// The version of the records that was read.
    pub(crate) fn version(&self) -> Option<u64> {
        self.book.lock().followed.version()
    }

    /// Records a shared store's time.
    pub(crate) fn learn(&self, told: Timestamp, here: Timestamp) {
        let ahead = told.as_micros().cast_signed().wrapping_sub(here.as_micros().cast_signed());
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

/// An attempt without a policy that the blocklist blocks.
#[must_use = "what is blocked has to be noted"]
pub struct BlockedAttempt<'e> {
    engine: &'e Engine,
    listing: Arc<Listing>,
}

impl BlockedAttempt<'_> {
    /// Records it in the metrics, the journal and the log. `correlation` is the caller's id of the attempt.
    /// Returns the entry that blocks it.
    pub fn note(self, correlation: &str) -> Arc<Listing> {
        self.engine.note_barred_elsewhere(&self.listing, correlation, self.engine.store_time());
        self.listing
    }
}

impl Engine {
    /// The metrics of the lists.
    pub fn list_meters(&self) -> &ListMeters {
        &self.live_lists.meters
    }

    /// The entry set at run time for a target.
    pub(crate) fn listed(&self, target: &Target) -> Option<Arc<Listing>> {
        self.live_lists.book.lock().find(target).cloned()
    }

    /// The fields that the lists need besides those of the policy, and that every attempt may have; `None`
    /// while the lists are empty. A door that knows such a field adds it to the attempt.
    #[inline]
    pub fn wanted(&self) -> Option<Arc<Vec<Arc<str>>>> {
        self.live_lists.any.load(Ordering::Acquire).then(|| self.live_lists.wanted.load_full())
    }

    /// Checks the blocklist for an attempt without a policy. [`BlockedAttempt::note`] records a blocked attempt and
    /// returns its entry.
    pub fn bars(&self, fields: &[(&str, &str)]) -> Option<BlockedAttempt<'_>> {
        if !self.has_lists() {
            return None;
        }
        let pinned = self.pin();
        if !pinned.policies.enabled {
            return None;
        }
        let completed = pinned.policies.roster().kinds().complete(fields);
        let fields = completed.as_deref().unwrap_or(fields);
        let listing = self.lists().bar(fields, || self.store_time()).cloned()?;
        Some(BlockedAttempt { engine: self, listing })
    }

    /// The lists in force.
    pub fn lists(&self) -> Guard<Arc<Lists>> {
        self.live_lists.in_force.load()
    }

    /// Whether anything is on a list.
    #[inline]
    pub(crate) fn has_lists(&self) -> bool {
        self.live_lists.any.load(Ordering::Acquire)
    }

    /// Blocks an attempt that is on the blocklist. Returns whether it did.
    #[inline(never)]
    pub(crate) fn bar<'a>(
        &self,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        ticket: Ticket,
        decision: &mut Decision<'a>,
    ) -> Result<bool, Fault> {
        if !pinned.policies.enabled {
            return Ok(false);
        }
        let lists = self.live_lists.in_force.load();
        let completed = pinned.policies.roster().kinds().complete(attempt.fields);
        let fields = completed.as_deref().unwrap_or(attempt.fields);
        let Some(listing) = lists.bar(fields, || self.store_time()) else { return Ok(false) };
        let policy = pinned.policies.find(attempt.policy).map_err(Fault::Mistake)?;
        decision.open(policy, ticket, attempt.cost, attempt.id);
        decision.bar(Arc::clone(listing), self.store_time());
        decision.barred_fields = attempt.fields;
        Ok(true)
    }

    /// The store's time. A store that answers at once is asked; the time of a shared store is computed from
    /// its latest reply.
    pub(crate) fn store_time(&self) -> Timestamp {
        let Some(shared) = &self.shared else { return time_of(&*self.store) };
        match self.live_lists.ahead.load(Ordering::Relaxed) {
            UNKNOWN => time_of(&*shared.fallback),
            ahead => Timestamp::from_micros(shared.gate.now().as_micros().saturating_add_signed(ahead)),
        }
    }
}
