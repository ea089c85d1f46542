//! The leases kept and dropped since the last round. Entries are only added, or taken out all at once, so
//! that no caller waits for work on the store.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};
use tollgate_core::store::HoldsOrder;
use tollgate_core::{Plan, Timestamp, store};

use crate::admit::at_first_poll;
use crate::counters::Counters;
use crate::receipt::Home;

/// Collects the leases that are kept and dropped, until the next round.
pub(crate) struct Inbox {
    counters: Arc<Counters>,
    letters: Mutex<Letters>,
    /// Notified when a dropped lease is still to be released.
    pub(super) stirred: Notify,
    next: AtomicU64,
    /// The number of live leases, and the most that are allowed.
    live: AtomicUsize,
    most: usize,
    /// The number of holds that expired, or will expire, although their lease lives.
    pub(crate) lost: Counter,
}

/// The leases kept and dropped since the last round.
#[derive(Default)]
pub(super) struct Letters {
    pub(super) kept: HashMap<u64, Arc<Kept>>,
    pub(super) dropped: HashSet<u64>,
    /// Callers that wait for a release. Dropping the senders notifies them.
    pub(super) waiting: Vec<DropWaiter>,
}

/// A caller that waits for a release.
pub(super) type DropWaiter = oneshot::Sender<Infallible>;

/// A lease as it began.
pub(super) struct Kept {
    /// The number of the lease; `None` if there were too many leases.
    pub(super) number: Option<u64>,
    pub(super) id: Arc<str>,
    pub(super) home: Home,
    pub(super) at: Timestamp,
    pub(super) sites: SmallVec<[KeptSite; 2]>,
}

/// One hold of a lease.
pub(super) struct KeptSite {
    pub(super) plan: Arc<Plan>,
    pub(super) key: Arc<str>,
    /// The amount of the limit that the hold uses.
    pub(super) weight: u64,
}

impl Inbox {
    pub(super) fn new(counters: Arc<Counters>, most: usize) -> Self {
        let (letters, stirred, next, live, lost) = Default::default();
        Self { counters, letters, stirred, next, live, most, lost }
    }

    /// Keeps a lease, if there is room for one more.
    pub(super) fn keep(&self, kept: Kept) -> Arc<Kept> {
        if self.live.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.live.fetch_sub(1, Ordering::Relaxed);
            self.lost.inc_by(kept.sites.len() as u64);
            return Arc::new(kept);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let kept = Arc::new(Kept { number: Some(number), ..kept });
        self.letters.lock().kept.insert(number, Arc::clone(&kept));
        kept
    }

    /// Releases a lease: here, if its holds are in this process, and otherwise by waking
    /// [`Leases::run`](super::Leases::run). `waiting` is notified after the release.
    pub(super) fn drop_lease(&self, kept: &Kept, waiting: Option<DropWaiter>) {
        let here = self.releases_here(kept);
        // The lease is marked as dropped first: a renewal that misses the hold from here on finds the mark.
        let waiting = waiting.filter(|_| !here);
        let marked = kept.number.is_some_and(|number| self.tell_dropped(number, here, waiting));
        if here {
            let pinned = self.counters.pin();
            for KeptSite { plan, key, .. } in &kept.sites {
                let current = pinned.policies_of(kept.home).rule(plan.rule());
                let plan = current.map_or(plan, |rule| rule.plan_at(key));
                let (counter, ids) = (store::Counter { plan, key }, [&*kept.id]);
                // Ready at once in this process; what is damaged or gone holds nothing.
                let _ =
                    at_first_poll(self.counters.order_at(kept.home, &counter, HoldsOrder::ReleaseMany(&ids)));
            }
        }
        // A hold taken here may meanwhile be in the shared store.
        if marked && (!here || self.counters.are_shared()) {
            self.stirred.notify_one();
        }
    }

    /// Whether the holds of a lease are released as soon as it is dropped.
    pub(super) fn releases_here(&self, kept: &Kept) -> bool {
        self.counters.release_at_once(kept.home)
    }

    /// Marks a lease as dropped. Returns whether a release is still to be done: none is if the lease was
    /// released before the next round saw it.
    fn tell_dropped(&self, number: u64, released: bool, waiting: Option<DropWaiter>) -> bool {
        self.live.fetch_sub(1, Ordering::Relaxed);
        let mut letters = self.letters.lock();
        let unread = released && letters.kept.remove(&number).is_some();
        if !unread {
            letters.dropped.insert(number);
            letters.waiting.extend(waiting);
        }
        !unread
    }

    /// Whether a lease was dropped since the last round.
    pub(super) fn has_dropped(&self, number: u64) -> bool {
        self.letters.lock().dropped.contains(&number)
    }

    /// Takes everything out.
    pub(super) fn empty(&self) -> Letters {
        std::mem::take(&mut *self.letters.lock())
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}
