//! Waiting without [`Pinned::admit`](crate::Pinned::admit), for tests and benchmarks: the feature `testing`
//! adds it, which no door enables.

use std::sync::Arc;

use tollgate_core::{Attempt, Decision, Span};

use super::scheduler::Arrived;
use super::{Ask, Paced, Pacer, Unpaced};
use crate::engine::Engine;
use crate::live_config::Snapshot;

/// Permission to proceed: everything was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The time that the attempt waited.
    pub waited: Span,
    /// Refunds the attempt; `None` if nothing was taken.
    pub receipt: Option<String>,
}

impl Pacer {
    /// Waits until an attempt may pass, and then takes everything it asks for. If the caller drops the
    /// future, the attempt leaves the queue, and what was taken for it is refunded.
    pub async fn acquire(&self, ask: Ask<'_>) -> Result<Permit, Unpaced> {
        match self.acquire_with(ask, |engine, decision| engine.receipt(decision)).await {
            Ok(Paced { waited, seen }) => Ok(Permit { waited, receipt: seen }),
            Err(Unpaced::Denied { refusal, .. }) => Err(Unpaced::Denied { refusal, seen: () }),
            Err(Unpaced::TooLate { waited, wait, bound }) => Err(Unpaced::TooLate { waited, wait, bound }),
            Err(Unpaced::Full { waiting }) => Err(Unpaced::Full { waiting }),
            Err(Unpaced::Fault(fault)) => Err(Unpaced::Fault(fault)),
            Err(Unpaced::Ended) => Err(Unpaced::Ended),
        }
    }

    /// As [`Pacer::acquire`], for callers that need the decision that lets the attempt pass or denies it.
    /// `see` turns it into a part of the result. It runs in this call if the attempt need not wait, and
    /// otherwise in another task.
    pub async fn acquire_with<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        see: impl FnOnce(&Arc<Engine>, &Decision<'_>) -> T + Send + 'static,
    ) -> Result<Paced<T>, Unpaced<T>> {
        let arrived = {
            let pinned = self.scheduler.engine.pin();
            let mut decision = Decision::for_caller(ask.correlation);
            self.scheduler.arrive(&pinned, &ask, &mut decision, see).await
        };
        match arrived.map_err(Unpaced::Fault)? {
            Arrived::Answered(answer) => answer,
            Arrived::Queued(waiting) => waiting.answer().await,
        }
    }

    /// Whether an attempt would have to queue: attempts wait for the same keys or for one of them, or one of
    /// the keys is paused.
    pub fn is_waiting(&self, pinned: &Snapshot, attempt: &Attempt<'_>) -> bool {
        let now = self.scheduler.time.now();
        self.scheduler.may_have_to_queue(now)
            && self
                .scheduler
                .wait_path(pinned, attempt)
                .is_ok_and(|path| self.scheduler.must_queue(&path, now))
    }
}
