//! The blocklist and the allowlist in force: what is configured, and what was set at run time, here or
//! on another node.
//!
//! Deciding reads them without a lock. What was set at run time is kept in the store's records; every node
//! follows their changes, and the store removes what has ended.

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

/// The lists, and what stands behind them.
pub(crate) struct Barrier {
    in_force: ArcSwap<Lists>,
    /// The fields that the lists look at and that every attempt may bring.
    wanted: ArcSwap<Vec<Arc<str>>>,
    /// Whether anybody is listed.
    any: AtomicBool,
    book: Mutex<ListBook>,
    /// How far the time of a shared store is ahead of this node's, in microseconds; [`UNKNOWN`] until
    /// it is known.
    ahead: AtomicI64,
    pub(crate) meters: ListMeters,
}

const UNKNOWN: i64 = i64::MIN;

impl Barrier {
    pub(crate) fn new(policies: &Policies) -> Self {
        let barrier = Self {
            in_force: ArcSwap::default(),
            wanted: ArcSwap::default(),
            any: AtomicBool::new(false),
            book: Mutex::new(ListBook::default()),
            ahead: AtomicI64::new(UNKNOWN),
            meters: ListMeters::default(),
        };
        barrier.configure(policies);
        barrier
    }

    /// Puts in force what is configured of the lists, beside what was set at run time.
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

    /// The version of the records that is known.
    pub(crate) fn version(&self) -> Option<u64> {
        self.book.lock().followed.version()
    }

    /// Learns a shared store's time from what it told just now.
    pub(crate) fn learn(&self, told: Timestamp, here: Timestamp) {
        let ahead = told.as_micros().cast_signed().wrapping_sub(here.as_micros().cast_signed());
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

/// An attempt that no policy is about, and that the blocklist blocks.
#[must_use = "what is blocked has to be noted"]
pub struct BlockedAttempt<'e> {
    engine: &'e Engine,
    listing: Arc<Listing>,
}

impl BlockedAttempt<'_> {
    /// Takes note of it in the meters, the journal and the log; the caller knows the attempt by this id.
    /// Answers the entry that blocks it.
    pub fn note(self, correlation: &str) -> Arc<Listing> {
        self.engine.note_barred_elsewhere(&self.listing, correlation, self.engine.store_time());
        self.listing
    }
}

impl Engine {
    /// What is counted about the lists.
    pub fn list_meters(&self) -> &ListMeters {
        &self.barrier.meters
    }

    /// What was set at run time for a target.
    pub(crate) fn listed(&self, target: &Target) -> Option<Arc<Listing>> {
        self.barrier.book.lock().find(target).cloned()
    }

    /// The fields that the lists look at, beyond those of its policy, and that every attempt may bring;
    /// `None` while the lists are empty. A door that knows such a field of an attempt brings it along.
    #[inline]
    pub fn wanted(&self) -> Option<Arc<Vec<Arc<str>>>> {
        self.barrier.any.load(Ordering::Acquire).then(|| self.barrier.wanted.load_full())
    }

    /// Checks the blocklist for an attempt that no policy is about. [`BlockedAttempt::note`] takes note of what it
    /// blocks and says which entry it was.
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
        self.barrier.in_force.load()
    }

    /// Whether anything is on a list.
    #[inline]
    pub(crate) fn has_lists(&self) -> bool {
        self.barrier.any.load(Ordering::Acquire)
    }

    /// Bars an attempt, if somebody it is from is on the blocklist. Answers whether they are.
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
        let lists = self.barrier.in_force.load();
        let completed = pinned.policies.roster().kinds().complete(attempt.fields);
        let fields = completed.as_deref().unwrap_or(attempt.fields);
        let Some(listing) = lists.bar(fields, || self.store_time()) else { return Ok(false) };
        let policy = pinned.policies.find(attempt.policy).map_err(Fault::Mistake)?;
        decision.open(policy, ticket, attempt.cost, attempt.id);
        decision.bar(Arc::clone(listing), self.store_time());
        decision.barred_fields = attempt.fields;
        Ok(true)
    }

    /// The store's time. It is asked for where it answers at once; a shared store's is worked out from
    /// what it told last.
    pub(crate) fn store_time(&self) -> Timestamp {
        let Some(shared) = &self.shared else { return time_of(&*self.store) };
        match self.barrier.ahead.load(Ordering::Relaxed) {
            UNKNOWN => time_of(&*shared.fallback),
            ahead => Timestamp::from_micros(shared.gate.now().as_micros().saturating_add_signed(ahead)),
        }
    }
}
