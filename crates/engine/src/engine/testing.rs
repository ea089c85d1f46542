//! Calls below [`Pinned::admit`](crate::Pinned::admit), for tests and benchmarks.
//!
//! They return the decision itself, keep no leases, and refund nothing when the caller disconnects. The
//! feature `testing` adds them. Only dev-dependencies and the benchmarks enable it, so no door can be built with them.

use tollgate_core::store::Answer;
use tollgate_core::{Attempt, Decision};

use super::{Engine, Fault, Manner};
use crate::live_config::Snapshot;

impl Engine {
    /// Decides an attempt: charges all its rules, or none.
    pub async fn decide<'a>(
        &self,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
    ) -> Result<Decision<'a>, Fault> {
        let mut decision = Decision::blank();
        self.decide_as(Manner::Take, pinned, attempt, &mut decision).await?;
        Ok(decision)
    }

    /// As [`Engine::decide`]. The decision is written in place.
    #[inline]
    pub fn decide_into<'d, 'a: 'd>(
        &'d self,
        pinned: &'a Snapshot,
        attempt: &'d Attempt<'a>,
        decision: &'d mut Decision<'a>,
    ) -> Answer<'d, (), Fault> {
        self.decide_as(Manner::Take, pinned, attempt, decision)
    }

    /// Returns what [`Engine::decide`] would, and takes nothing.
    pub async fn peek<'a>(&self, pinned: &'a Snapshot, attempt: &Attempt<'a>) -> Result<Decision<'a>, Fault> {
        let mut decision = Decision::blank();
        self.decide_as(Manner::Peek, pinned, attempt, &mut decision).await?;
        Ok(decision)
    }
}
