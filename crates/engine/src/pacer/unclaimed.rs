//! A take for a caller that may be gone. Unless the caller claims it, it is refunded.

use tokio::runtime::Handle;
use tollgate_core::Decision;

use super::scheduler::Scheduler;
use crate::admit::Unsettled;
use crate::taken::Taken;

/// A take that its caller has not claimed yet.
pub(super) struct Unclaimed {
    taken: Taken,
    /// The runtime that awaits a refund that is not made at once.
    runtime: Option<Handle>,
}

impl Unclaimed {
    /// A take without anything.
    pub(super) fn nothing() -> Self {
        Self { taken: Taken::default(), runtime: None }
    }

    pub(super) fn new(scheduler: &Scheduler, decision: &Decision<'_>) -> Self {
        let taken = Taken::new(&scheduler.engine.counters, decision, None, Unsettled::Refund);
        Self { taken, runtime: scheduler.runtime() }
    }

    /// Marks the take as received by the caller.
    pub(super) fn claim(mut self) {
        self.taken.keep();
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let refunding = self.taken.refund();
        if !refunding.is_made()
            && let Some(runtime) = &self.runtime
        {
            runtime.spawn(refunding);
        }
    }
}
