//! What was kept and dropped since somebody looked: two lists that are only ever added to or taken
//! away as a whole, so that nobody who adds to them waits for work to be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use smallvec::SmallVec;
use tollgate_core::{Plan, Timestamp};

use crate::receipt::Home;

/// Where leases are kept and dropped.
pub(crate) struct Inbox {
    letters: Mutex<Letters>,
    next: AtomicU64,
    /// How many leases are alive and looked after, and how many may be.
    live: AtomicUsize,
    most: usize,
    /// How many holds ran out, or will, though what they stand for lasts.
    pub(crate) lost: Counter,
}

/// What is new.
#[derive(Default)]
pub(super) struct Letters {
    pub(super) kept: Vec<(u64, Kept)>,
    pub(super) dropped: Vec<u64>,
}

/// A lease as it began.
pub(super) struct Kept {
    pub(super) id: Arc<str>,
    pub(super) weight: u64,
    pub(super) home: Home,
    pub(super) at: Timestamp,
    /// The limits and the key of each hold.
    pub(super) sites: SmallVec<[(Arc<Plan>, Arc<str>); 2]>,
}

impl Inbox {
    pub(super) fn new(most: usize) -> Self {
        let (letters, next, live, lost) = Default::default();
        Self { letters, next, live, most, lost }
    }

    /// Begins to look after a lease, if there is room for one more, and gives it a number.
    pub(super) fn keep(&self, kept: Kept) -> Option<u64> {
        if self.live.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.live.fetch_sub(1, Ordering::Relaxed);
            self.lost.inc_by(kept.sites.len() as u64);
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.letters.lock().kept.push((number, kept));
        Some(number)
    }

    pub(super) fn drop_lease(&self, number: u64) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.letters.lock().dropped.push(number);
    }

    /// Takes everything out.
    pub(super) fn empty(&self) -> Letters {
        std::mem::take(&mut *self.letters.lock())
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}
