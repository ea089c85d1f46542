//! A store that answers with a delay.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::store::{HoldsOrder, Store};
use tollgate_store::faulty::{Call, FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};

/// Counters in memory that behave like a remote store: orders about holds take effect after a delay.
pub(crate) fn distant(clock: &Arc<ManualClock>) -> impl Store + use<> {
    let memory = Arc::new(MemoryStore::new(Arc::clone(clock) as _, 1_000));
    FaultyStore::over(memory, |call| match call {
        Call::Holds(HoldsOrder::List) => Meeting::Pass,
        Call::Holds(_) => Meeting::after(tokio::time::sleep(Duration::from_millis(3))),
        _ => Meeting::Pass,
    })
}
