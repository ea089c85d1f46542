//! A store in memory that a test watches: how many takes there were, and how many of them were asked to be durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tollgate_core::store::{Counter, Forget, HoldsOrder, HoldsReport, Refunded, SaveMark};
use tollgate_core::{Answer, Charges, Clock, Outcome, Store, StoreError, Timestamp};
use tollgate_store::{ManualClock, MemoryStore};

pub(crate) struct Watched {
    inner: MemoryStore,
    /// Called at every take, with its number.
    on_take: Box<dyn Fn(usize) + Send + Sync>,
    pub(crate) taken: AtomicUsize,
    /// How many takes there were before the mark of the last caller that waited for durable counts.
    pub(crate) durable: AtomicUsize,
    /// Whether counts cannot be made durable.
    pub(crate) fails: AtomicBool,
}

impl Watched {
    pub(crate) fn new(clock: &Arc<ManualClock>, on_take: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let inner = MemoryStore::new(Arc::clone(clock) as Arc<dyn Clock>, 1_000);
        let (taken, durable) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { inner, on_take: Box::new(on_take), taken, durable, fails: AtomicBool::new(false) }
    }
}

impl Store for Watched {
    fn now(&self) -> Answer<'_, Timestamp> {
        self.inner.now()
    }

    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        (self.on_take)(self.taken.fetch_add(1, Ordering::SeqCst) + 1);
        self.inner.take(charges, outcome)
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        self.inner.peek(charges, outcome)
    }

    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded> {
        self.inner.refund(charges, taken_at)
    }

    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()> {
        self.inner.retract(charges)
    }

    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        self.inner.holds(counter, order)
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        self.inner.forget(what)
    }

    fn mark(&self) -> SaveMark {
        SaveMark(self.taken.load(Ordering::SeqCst) as u64)
    }

    fn durable(&self, SaveMark(taken): SaveMark) -> Answer<'_, ()> {
        if self.fails.load(Ordering::SeqCst) {
            return Answer::ready(Err(StoreError::Unavailable { reason: "EIO".to_owned() }));
        }
        self.durable.store(usize::try_from(taken).unwrap(), Ordering::SeqCst);
        Answer::ready(Ok(()))
    }
}
