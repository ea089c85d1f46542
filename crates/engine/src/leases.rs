//! Holds that last as long as something in this process does, such as a connection.
//!
//! A hold `at once for 30s` ends by itself unless it is renewed, so that those of a process that was
//! killed are free again. Whoever has a [`Lease`] has its holds renewed; when it is dropped they are
//! released. Both are done by [`Leases::tend`], many in one call: keeping and dropping a lease waits for
//! nobody.
//!
//! What is held in the counters of this process, because the store could not be used, is renewed and
//! released there, and is held in the store instead as soon as that has room. So is what ran out though
//! it still lasts: after an outage that was longer than the holds were, for one.

mod chore;
mod inbox;
mod ledger;
mod meter;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tollgate_core::{Clock, Decision};

use crate::engine::Engine;
use crate::receipt::Home;
use inbox::{Inbox, Kept};
use ledger::{Ledger, Reach};

pub use meter::LeaseMeters;

/// The holds that live things in this process have.
pub struct Leases {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    inbox: Arc<Inbox>,
    ledger: Mutex<Ledger>,
}

/// Something that lasts, and has its holds for as long. Dropped, they are released soon.
#[must_use = "what is dropped is released"]
pub struct Lease {
    inbox: Arc<Inbox>,
    /// `None` if it holds nothing, or nothing that is looked after.
    number: Option<u64>,
}

/// How many places of the store are seen to side by side.
const SIDE_BY_SIDE: usize = 32;

impl Leases {
    /// How many leases are looked after, unless said otherwise.
    pub const MOST: usize = 1_000_000;

    /// No leases yet. The clock must neither jump nor stand still; when it began does not matter.
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>) -> Self {
        let inbox = Arc::new(Inbox::new(Self::MOST));
        Self { engine, clock, inbox, ledger: Mutex::default() }
    }

    /// Looks after so many leases at most. What is beyond that is neither renewed nor released: it runs
    /// out by itself.
    #[must_use]
    pub fn with_most(self, most: usize) -> Self {
        Self { inbox: Arc::new(Inbox::new(most)), ..self }
    }

    /// Keeps what a decision holds under the id it was made with, until the lease is dropped. What that
    /// id had held before belongs to whoever took it.
    pub fn keep(&self, decision: &Decision<'_>, id: &str) -> Lease {
        debug_assert!(decision.charges.id == Some(id), "a hold has the id of its attempt");
        let (charges, taken) = (&decision.charges, decision.outcome.taken);
        let held = charges.iter().enumerate().filter(|(index, charge)| {
            taken & (1 << index) != 0 && charge.plan.limits().iter().any(|limit| limit.holds())
        });
        let sites = held.map(|(_, charge)| (Arc::clone(charge.plan), charges.key(charge).into()));
        let kept = Kept {
            id: id.into(),
            weight: charges.cost,
            home: Home::of(decision),
            at: self.clock.now(),
            sites: sites.collect(),
        };
        let number = if kept.sites.is_empty() { None } else { self.inbox.keep(kept) };
        Lease { inbox: Arc::clone(&self.inbox), number }
    }

    /// Renews what is due, releases what was dropped, and moves to the store what is held elsewhere. To
    /// be called four times a second or so, by one task.
    pub async fn tend(&self) {
        self.ledger.lock().absorb(self.inbox.empty());
        self.see_to_all().await;
    }

    /// Releases everything, before the process ends. Leases that are dropped afterwards have nothing
    /// left to release.
    pub async fn end(&self) {
        {
            let mut ledger = self.ledger.lock();
            ledger.absorb(self.inbox.empty());
            ledger.end_all();
        }
        self.see_to_all().await;
        *self.ledger.lock() = Ledger::default();
    }

    /// What is counted about leases.
    pub fn meters(&self) -> LeaseMeters {
        LeaseMeters { inbox: Arc::clone(&self.inbox) }
    }

    async fn see_to_all(&self) {
        let reach = if self.engine.is_store_open() { Reach::Everywhere } else { Reach::Local };
        let chores = {
            let pinned = self.engine.pin();
            self.ledger.lock().chores(&pinned, reach, self.clock.now())
        };
        let mut lost = 0;
        let mut chores = chores.into_iter();
        loop {
            let some: Vec<_> =
                chores.by_ref().take(SIDE_BY_SIDE).map(|chore| chore.done(&self.engine)).collect();
            if some.is_empty() {
                break;
            }
            for done in side_by_side(some).await {
                lost += done.lost();
                self.ledger.lock().note(done, self.clock.now());
            }
        }
        if lost > 0 {
            self.inbox.lost.inc_by(lost);
            tracing::warn!(
                component = "leases",
                lost,
                "holds ran out before they were renewed; they are taken again where there is room"
            );
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.inbox.drop_lease(number);
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Waits for all of these at the same time.
async fn side_by_side<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if futures.iter().any(|(_, output)| output.is_none()) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}
