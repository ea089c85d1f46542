//! A store in memory that a test watches: how many takes there were, and how many of them were asked to be durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tollgate_core::store::SaveMark;
use tollgate_core::{Clock, Store, StoreError};
use tollgate_store::faulty::{Call, Faults, FaultyStore, Meeting};
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

    /// As a store.
    pub(crate) fn as_store(self: &Arc<Self>) -> Arc<dyn Store> {
        Arc::new(FaultyStore(Arc::clone(self)))
    }
}

impl Faults for Watched {
    fn store(&self) -> &dyn Store {
        &self.inner
    }

    fn meet(&self, call: Call<'_>) -> Meeting<'_> {
        match call {
            Call::Take => (self.on_take)(self.taken.fetch_add(1, Ordering::SeqCst) + 1),
            Call::Durable(_) if self.fails.load(Ordering::SeqCst) => {
                return Meeting::Fail(StoreError::Unavailable { reason: "EIO".to_owned() });
            }
            Call::Durable(SaveMark(taken)) => {
                self.durable.store(usize::try_from(taken).unwrap(), Ordering::SeqCst);
            }
            _ => {}
        }
        Meeting::Pass
    }

    fn mark(&self) -> SaveMark {
        SaveMark(self.taken.load(Ordering::SeqCst) as u64)
    }
}
