//! Holds that last as long as a connection or a request of this process.
//!
//! A hold `at once for 30s` expires unless it is renewed, so that the holds of a killed process become free
//! again. Tollgate renews the holds of a [`Lease`], and releases them when it is dropped: at once if the
//! counters are in this process, and otherwise by [`Leases::run`], which is woken. One call releases many.
//! Keeping and dropping a lease never block.
//!
//! A hold taken in the counters of this process, because the store could not be used, is renewed and released
//! there. It moves to the store as soon as that has room. A hold that expired while its lease lives is taken
//! again in the store too, for example after an outage longer than the hold.

mod chore;
mod inbox;
mod ledger;
mod meter;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Charge, Clock, Decision};

use crate::counters::Counters;
use crate::engine::Engine;
use crate::receipt::Home;
use chore::Chore;
use inbox::{Inbox, Kept, KeptSite};
use ledger::{Ledger, Reach};

pub use meter::LeaseMeters;

/// The leases of this process.
pub struct Leases {
    counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
    inbox: Arc<Inbox>,
    ledger: Mutex<Ledger>,
    /// The prefix of this process's ids. No other process has it.
    node: u64,
    ids: AtomicU64,
}

/// Keeps holds for as long as it lives. Dropping it releases them.
#[must_use = "dropping a lease releases its holds"]
pub struct Lease {
    /// `None` if it holds nothing.
    held: Option<(Arc<Inbox>, Arc<Kept>)>,
}

/// Ready when the holds of a lease are released, or cannot be released now because the store cannot be used.
/// Dropping this future does not stop the release.
#[must_use = "a caller that does not wait for it need only drop the lease"]
#[derive(Debug)]
pub struct Released(Option<oneshot::Receiver<Infallible>>);

/// The interval at which leases are renewed and released.
const EVERY: Duration = Duration::from_millis(250);
/// The most keys that are handled concurrently.
const MOST_CONCURRENT: usize = 32;

impl Leases {
    /// The most leases that are kept. A lease beyond that is not renewed. Its holds are released only if the
    /// counters are in this process; otherwise they expire.
    pub const MOST: usize = 1_000_000;

    /// No leases yet. The clock must be monotonic and keep running; its zero does not matter.
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>) -> Self {
        let counters = Arc::clone(&engine.counters);
        let inbox = Arc::new(Inbox::new(Arc::clone(&counters), Self::MOST));
        let node = getrandom::u64().expect("the system gives random numbers");
        Self { counters, clock, inbox, ledger: Mutex::default(), node, ids: AtomicU64::new(0) }
    }

    /// Keeps at most this many leases, for tests.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_most(self, most: usize) -> Self {
        Self { inbox: Arc::new(Inbox::new(Arc::clone(&self.counters), most)), ..self }
    }

    /// An id for an attempt whose holds are to be kept. It is unique on all nodes.
    pub fn fresh_id(&self) -> String {
        format!("{:016x}-{}", self.node, self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps the holds of a decision, under the id of its attempt, until the lease is dropped. Holds that the
    /// id had before belong to the lease that took them. If two leases hold the same key under one id, the
    /// first that is dropped releases it, so use a [fresh](Self::fresh_id) id.
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

    /// Renews and releases holds for as long as it is polled: four times a second, and whenever a dropped
    /// lease is still to be released. Leases dropped while others are being released go with the next call,
    /// so many that end at once take few calls. One task polls it, in a tokio runtime.
    pub async fn run(&self) -> Infallible {
        loop {
            self.tend().await;
            let due = Instant::now() + EVERY;
            while Instant::now() < due && timeout_at(due, self.inbox.stirred.notified()).await.is_ok() {
                self.release().await;
            }
        }
    }

    /// Renews what is due, releases the holds of dropped leases, and moves local holds to the store. One task
    /// calls it about four times a second, if none polls [`Leases::run`].
    pub async fn tend(&self) {
        let mut letters = self.inbox.empty();
        let waiting = std::mem::take(&mut letters.waiting);
        self.ledger.lock().absorb(letters);
        self.see_to_all().await;
        drop(waiting);
    }

    /// Releases the holds of dropped leases, and does nothing else.
    async fn release(&self) {
        let mut letters = self.inbox.empty();
        let waiting = std::mem::take(&mut letters.waiting);
        let chores = {
            let pinned = self.counters.pin();
            let mut ledger = self.ledger.lock();
            ledger.absorb(letters);
            ledger.releases(&pinned, self.reach(), self.clock.now())
        };
        self.see_to(chores).await;
        drop(waiting);
    }

    /// Releases everything before the process ends. Leases dropped afterwards have nothing left to release.
    pub async fn end(&self) {
        {
            let mut ledger = self.ledger.lock();
            ledger.absorb(self.inbox.empty());
            ledger.end_all();
        }
        self.see_to_all().await;
        *self.ledger.lock() = Ledger::default();
    }

    /// The metrics of leases.
    pub fn meters(&self) -> LeaseMeters {
        LeaseMeters { inbox: Arc::clone(&self.inbox) }
    }

    async fn see_to_all(&self) {
        let chores = {
            let pinned = self.counters.pin();
            self.ledger.lock().chores(&pinned, self.reach(), self.clock.now())
        };
        self.see_to(chores).await;
    }

    /// The homes that can be used now.
    fn reach(&self) -> Reach {
        if self.counters.are_reachable() { Reach::Everywhere } else { Reach::Local }
    }

    async fn see_to(&self, chores: Vec<Chore>) {
        let mut lost = 0;
        let mut chores = chores.into_iter();
        loop {
            let some = chores.by_ref().take(MOST_CONCURRENT);
            let some: Vec<_> = some.map(|chore| chore.done(&self.counters, &self.inbox)).collect();
            if some.is_empty() {
                break;
            }
            for done in join_all(some).await {
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
    /// Drops the lease and reports when its holds are released: at once if the counters are in this process,
    /// and otherwise after [`Leases::run`] has released them.
    pub fn release(mut self) -> Released {
        let Some((inbox, kept)) = self.held.take() else { return Released(None) };
        if inbox.releases_here(&kept) {
            inbox.drop_lease(&kept, None);
            return Released(None);
        }
        let (waiting, released) = oneshot::channel();
        inbox.drop_lease(&kept, Some(waiting));
        Released(Some(released))
    }
}

impl Future for Released {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(released) = &mut self.0 else { return Poll::Ready(()) };
        let done = Pin::new(released).poll(context).map(drop);
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
