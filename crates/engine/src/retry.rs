//! Calls to a shared store that are still to be made: failed refunds, ends of guarded attempts, and the undoing
//! of takes without a reply.
//!
//! All are retried until the store has answered. A ticket is refunded or ended once and undone once, however
//! often the store is called.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tollgate_core::{Span, StoreError, Timestamp};

use crate::counters::Counters;
use crate::engine::Engine;
use crate::guard::UnreportedEnd;
use crate::retract::Retraction;
use crate::shared_store::SharedStore;
use crate::taken::{Pending, Refund};

/// One call to be made.
pub(crate) enum Retry {
    /// A refund.
    Refund(Pending),
    /// The end of a guarded attempt.
    End(UnreportedEnd),
    /// Undo a take, if it was made.
    Retract(Retraction),
}

/// The calls to be made, by due time.
#[derive(Default)]
pub(crate) struct Retries {
    queue: Mutex<Queue>,
    /// The number of retractions that were dropped because too many calls were pending.
    pub(crate) retractions_dropped: Counter,
    /// The number of refunds and ends of guarded attempts that were dropped. Their charges stay counted.
    pub(crate) refunds_dropped: Counter,
}

#[derive(Default)]
struct Queue {
    /// By due time, and then by number.
    due: BTreeMap<(Timestamp, u64), Retry>,
    next: u64,
}

/// The most calls in one round.
const AT_A_TIME: usize = 256;

impl Retries {
    /// The most pending calls.
    const MOST: usize = 10_000;
    /// A take may still be on its way to the store for this long, so it is not undone earlier.
    const SETTLES_IN: Span = Span::from_secs(1);

    /// Keeps a call to be tried. If there are too many, the oldest is dropped.
    pub(crate) fn push(&self, retry: Retry, now: Timestamp) {
        let due = match &retry {
            Retry::Refund(_) | Retry::End(_) => now,
            Retry::Retract(_) => now + Self::SETTLES_IN,
        };
        let mut queue = self.queue.lock();
        if queue.due.len() >= Self::MOST {
            match queue.due.pop_first() {
                Some((_, Retry::Refund(_) | Retry::End(_))) => self.refunds_dropped.inc(),
                Some((_, Retry::Retract(_))) => self.retractions_dropped.inc(),
                None => 0,
            };
        }
        let number = queue.next;
        queue.next += 1;
        queue.due.insert((due, number), retry);
    }

    /// The call that has been due for longest.
    fn next(&self, now: Timestamp) -> Option<Retry> {
        let mut queue = self.queue.lock();
        let first = queue.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

impl Engine {
    /// Makes the calls that are due, a few at a time.
    pub(crate) async fn retry(&self, shared: &SharedStore) {
        for _ in 0..AT_A_TIME {
            let Some(retry) = shared.retries.next(shared.gate.now()) else { return };
            let result = match retry {
                // If it fails, it is due again at once, behind the others.
                Retry::Refund(pending) => Refund::new(Arc::clone(&self.counters), pending).make().await,
                Retry::End(end) => self.guards.report_again(end).await,
                Retry::Retract(retraction) => self.counters.retract(shared, retraction).await,
            };
            // An error of one server does not delay the keys of the others.
            if result.is_err_and(|error| error.is_outage()) {
                return;
            }
        }
    }
}

impl Counters {
    /// Undoes a take, if it was made.
    async fn retract(&self, shared: &SharedStore, retraction: Retraction) -> Result<(), StoreError> {
        let charges = retraction.charges();
        let undone = self.ask(self.store.retract(&charges)).await;
        self.freed(&charges);
        drop(charges);
        // A damaged key cannot be undone later either.
        if undone.as_ref().is_err_and(StoreError::is_passing) {
            shared.retries.push(Retry::Retract(retraction), shared.gate.now());
        }
        undone
    }
}
