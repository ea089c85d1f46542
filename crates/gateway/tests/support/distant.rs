//! A store that answers with a delay.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::store::{Answer, Counter, Forget, HoldsOrder, HoldsReport, Refunded, Store};
use tollgate_core::{Charges, Clock, Outcome, Timestamp};
use tollgate_store::{ManualClock, MemoryStore};

/// Counters in memory that behave like a remote store.
pub(crate) struct Distant(MemoryStore);

impl Distant {
    pub(crate) fn new(clock: &Arc<ManualClock>) -> Self {
        Self(MemoryStore::new(Arc::clone(clock) as Arc<dyn Clock>, 1_000))
    }
}

impl Store for Distant {
    fn now(&self) -> Answer<'_, Timestamp> {
        self.0.now()
    }

    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        self.0.take(charges, outcome)
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        self.0.peek(charges, outcome)
    }

    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded> {
        self.0.refund(charges, taken_at)
    }

    /// Orders take effect after a delay.
    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        if matches!(order, HoldsOrder::List) {
            return self.0.holds(counter, order);
        }
        Answer::Later(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            self.0.holds(counter, order).await
        }))
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        self.0.forget(what)
    }
}
