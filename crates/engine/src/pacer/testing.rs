//! Waiting without [`Pinned::admit`](crate::Pinned::admit), for tests and benchmarks: the feature `testing`
//! adds it, which no door enables.

use std::sync::Arc;

use tollgate_core::{Decision, Span};

use super::scheduler::Arrived;
use super::waiting::Waiting;
use super::{Ask, Paced, Pacer, Unpaced};
use crate::engine::Engine;

/// Permission to proceed: everything was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// How long it had to wait.
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
        let arrived = self.scheduler.arrive(&self.scheduler.engine.pin(), &ask, see);
        match arrived.map_err(Unpaced::Fault)? {
            Arrived::Answered(answer) => answer,
            Arrived::Queued(seated) => Waiting::new(&self.scheduler, seated).answer().await,
        }
    }
}
