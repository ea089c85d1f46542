//! What was taken for a caller that may be gone: unless the caller claims it, it is refunded.

use std::sync::Arc;
use std::task::{Context, Waker};

use tollgate_core::{Charges, Decision, Origin, StoreError, Ticket, Timestamp};

use super::Scheduler;
use crate::calendar::page;
use crate::engine::{Engine, Snapshot};
use crate::owned_attempt::OwnedAttempt;

/// A take that its caller has not claimed yet.
pub(super) struct Unclaimed(Option<(Arc<Scheduler>, Take)>);

/// What was taken, and where.
struct Take {
    ask: Arc<OwnedAttempt>,
    ticket: Ticket,
    at: Timestamp,
    /// Bit `i` is set if charge `i` was taken.
    taken: u32,
    /// Whether it was taken from the counters of this process, because the store could not be used.
    local: bool,
}

impl Unclaimed {
    /// Nothing was taken.
    pub(super) fn nothing() -> Self {
        Self(None)
    }

    pub(super) fn new(scheduler: &Arc<Scheduler>, ask: &Arc<OwnedAttempt>, decision: &Decision<'_>) -> Self {
        let take = (decision.outcome.taken != 0).then(|| Take {
            ask: Arc::clone(ask),
            ticket: decision.charges.ticket,
            at: decision.outcome.now,
            taken: decision.outcome.taken,
            local: matches!(decision.origin, Origin::Local(_)),
        });
        Self(take.map(|take| (Arc::clone(scheduler), take)))
    }

    /// The caller has received it.
    pub(super) fn claim(mut self) {
        self.0 = None;
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let Some((scheduler, take)) = self.0.take() else { return };
        let runtime = scheduler.runtime();
        let mut giving = Box::pin(refund(scheduler, take));
        // An in-process store is refunded at once, wherever this is dropped.
        let now = giving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if now.is_pending()
            && let Some(runtime) = runtime
        {
            runtime.spawn(giving);
        }
    }
}

async fn refund(scheduler: Arc<Scheduler>, take: Take) {
    let fields = take.ask.fields();
    let attempt = take.ask.attempt(&fields);
    let pinned = scheduler.engine.pin();
    let Ok(policy) = pinned.policies.find(attempt.policy) else { return };
    let Ok(charges) = policy.charges(&attempt, take.ticket) else { return };
    // What cannot be refunded stays counted.
    let _ = scheduler.engine.refund_taken(&pinned, &take, &charges).await;
}

impl Engine {
    /// Refunds those charges of an attempt that were taken.
    async fn refund_taken(
        &self,
        pinned: &Snapshot,
        take: &Take,
        all: &Charges<'_>,
    ) -> Result<(), StoreError> {
        let policies = if take.local { pinned.local.as_ref() } else { None }.unwrap_or(&pinned.policies);
        let mut charges = Charges::new(take.ticket, all.cost, all.id);
        for (_, charge) in all.iter().enumerate().filter(|(index, _)| take.taken & (1 << index) != 0) {
            if let Some(rule) = policies.rule(charge.plan.rule()) {
                let key = all.key(charge);
                charges.push_costing(rule.plan_at(key), key, true, charge.cost);
            }
        }
        charges.calendar = charges.periods().map(|period| page(period, take.at)).collect();
        if take.local {
            self.refund_local(&charges, take.at).await?;
        } else {
            self.ask(self.store.refund(&charges, take.at)).await?;
        }
        self.freed(&charges);
        Ok(())
    }
}
