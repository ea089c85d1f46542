//! Holds that last as long as something in this process does, such as a connection or a request.
//!
//! A hold `at once for 30s` ends by itself unless it is renewed, so that those of a process that was
//! killed are free again. Whoever has a [`Lease`] has its holds renewed; when it is dropped they are
//! released: there and then if the counters are in this process, and else by [`Leases::run`], which is
//! woken. That is done for many in one call: keeping and dropping a lease waits for nobody.
//!
//! What is held in the counters of this process, because the store could not be used, is renewed and
//! released there, and is held in the store instead as soon as that has room. So is what ran out though
//! it still lasts: after an outage that was longer than the holds were, for one.

mod chore;
mod inbox;
mod ledger;
mod meter;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Charge, Clock, Decision};

use crate::engine::Engine;
use crate::receipt::Home;
use chore::Chore;
use inbox::{Inbox, Kept, KeptSite};
use ledger::{Ledger, Reach};

pub use meter::LeaseMeters;

/// The holds that live things in this process have.
pub struct Leases {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    inbox: Arc<Inbox>,
    ledger: Mutex<Ledger>,
    /// What the ids of this process begin with: no other's do.
    node: u64,
    ids: AtomicU64,
}

/// Something that lasts, and has its holds for as long. Dropped, they are released.
#[must_use = "what is dropped is released"]
pub struct Lease {
    /// `None` if it holds nothing.
    held: Option<(Arc<Inbox>, Arc<Kept>)>,
}

/// Ready when what a lease held is free for the next, or cannot be released now because the store cannot
/// be used. Dropped, it is released all the same.
#[must_use = "whoever does not wait for it need only drop the lease"]
#[derive(Debug)]
pub struct Released(Option<oneshot::Receiver<Infallible>>);

/// How often leases are tended.
const EVERY: Duration = Duration::from_millis(250);
/// How many places of the store are seen to side by side.
const SIDE_BY_SIDE: usize = 32;

impl Leases {
    /// How many leases are looked after, unless said otherwise.
    pub const MOST: usize = 1_000_000;

    /// No leases yet. The clock must neither jump nor stand still; when it began does not matter.
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>) -> Self {
        let inbox = Arc::new(Inbox::new(Arc::clone(&engine), Self::MOST));
        let node = getrandom::u64().expect("the system gives random numbers");
        Self { engine, clock, inbox, ledger: Mutex::default(), node, ids: AtomicU64::new(0) }
    }

    /// Looks after so many leases at most. What is beyond that is not renewed, and released only if the
    /// counters are in this process: else it runs out by itself.
    #[must_use]
    pub fn with_most(self, most: usize) -> Self {
        Self { inbox: Arc::new(self.inbox.with_most(most)), ..self }
    }

    /// An id for an attempt whose holds are to be kept: nobody else has it, on this node or another.
    pub fn fresh_id(&self) -> String {
        format!("{:016x}-{}", self.node, self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps what a decision holds under the id it was made with, until the lease is dropped. What that
    /// id had held before belongs to whoever took it; what two leases hold under one id is released by
    /// the first of them that is dropped, so an id is best a [fresh](Self::fresh_id) one.
    pub fn keep(&self, decision: &Decision<'_>, id: &str) -> Lease {
        debug_assert!(decision.charges.id == Some(id), "a hold has the id of its attempt");
        let (charges, taken) = (&decision.charges, decision.outcome.taken);
        let held = charges.iter().enumerate().filter(|(index, charge)| {
            taken & (1 << index) != 0 && charge.plan.limits().iter().any(|limit| limit.holds())
        });
        let site = |charge: &Charge<'_>| KeptSite {
            plan: Arc::clone(charge.plan),
            key: charges.key(charge).into(),
            weight: charge.cost,
        };
        let sites = held.map(|(_, charge)| site(charge));
        let kept = Kept {
            number: None,
            id: id.into(),
            home: Home::of(decision),
            at: self.clock.now(),
            sites: sites.collect(),
        };
        let held = (!kept.sites.is_empty()).then(|| (Arc::clone(&self.inbox), self.inbox.keep(kept)));
        Lease { held }
    }

    /// Tends the leases for as long as it is polled: four times a second, and whenever one was dropped
    /// that is still to be released. What is dropped while others are being released is released with the
    /// next: many that end at the same time are a few calls. By one task, in a tokio runtime.
    pub async fn run(&self) -> Infallible {
        loop {
            self.tend().await;
            let due = Instant::now() + EVERY;
            while Instant::now() < due && timeout_at(due, self.inbox.stirred.notified()).await.is_ok() {
                self.release().await;
            }
        }
    }

    /// Renews what is due, releases what was dropped, and moves to the store what is held elsewhere. To
    /// be called four times a second or so, by one task, if [`Leases::run`] is not.
    pub async fn tend(&self) {
        let mut letters = self.inbox.empty();
        let waiting = std::mem::take(&mut letters.waiting);
        self.ledger.lock().absorb(letters);
        self.see_to_all().await;
        drop(waiting);
    }

    /// Releases what was dropped, and does nothing else.
    async fn release(&self) {
        let mut letters = self.inbox.empty();
        let waiting = std::mem::take(&mut letters.waiting);
        let chores = {
            let pinned = self.engine.pin();
            let mut ledger = self.ledger.lock();
            ledger.absorb(letters);
            ledger.releases(&pinned, self.reach(), self.clock.now())
        };
        self.see_to(chores).await;
        drop(waiting);
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
        let chores = {
            let pinned = self.engine.pin();
            self.ledger.lock().chores(&pinned, self.reach(), self.clock.now())
        };
        self.see_to(chores).await;
    }

    /// Where anything can be done now.
    fn reach(&self) -> Reach {
        if self.engine.is_store_open() { Reach::Everywhere } else { Reach::Local }
    }

    async fn see_to(&self, chores: Vec<Chore>) {
        let mut lost = 0;
        let mut chores = chores.into_iter();
        loop {
            let some = chores.by_ref().take(SIDE_BY_SIDE);
            let some: Vec<_> = some.map(|chore| chore.done(&self.engine, &self.inbox)).collect();
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
                "holds expired before they were renewed; they are taken again where there is room"
            );
        }
    }
}

impl Lease {
    /// As dropping it, for whoever has to know when that is done. It is at once if the counters are in
    /// this process; else [`Leases::run`] has to see to it.
    pub fn release(mut self) -> Released {
        let Some((inbox, kept)) = self.held.take() else { return Released(None) };
        if inbox.releases_here(&kept) {
            inbox.drop_lease(&kept, None);
            return Released(None);
        }
        let (waiting, told) = oneshot::channel();
        inbox.drop_lease(&kept, Some(waiting));
        Released(Some(told))
    }
}

impl Future for Released {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(told) = &mut self.0 else { return Poll::Ready(()) };
        let done = Pin::new(told).poll(context).map(drop);
        if done.is_ready() {
            self.0 = None;
        }
        done
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((inbox, kept)) = &self.held {
            inbox.drop_lease(kept, None);
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.held.as_ref().map(|(_, kept)| &kept.id);
        f.debug_struct("Lease").field("id", &id).finish_non_exhaustive()
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
