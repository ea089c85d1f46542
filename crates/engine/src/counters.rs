//! The counters that attempts are charged to: the store and, for a store that several nodes share, the parts
//! that handle its outages.
//!
//! Every part of the engine calls the store through these functions. They pass the circuit breaker, fall back
//! to the counters of this process, and notify waiting calls of freed units.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;
use tollgate_core::store::{Answer, Counter, Forget, HoldsOrder, HoldsReport, Refunded};
use tollgate_core::{
    Charges, Fate, Outcome, Plan, Policies, Receipt, ReceiptLine, Rule, Store, StoreError, Ticket, Timestamp,
};

use crate::calendar::{Calendars, page};
use crate::live_config::Snapshot;
use crate::log_limiter::PacedLog;
use crate::pacer::Wakeups;
use crate::receipt::Home;
use crate::shared_store::{Fallback, SharedStore};
use crate::ticket;

/// The value of an unknown distance between two clocks.
const UNKNOWN: i64 = i64::MIN;

/// The counters of an engine.
pub struct Counters {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shared: Option<SharedStore>,
    /// Whether the store answers every call at once and no other node shares it.
    at_once: bool,
    in_force: Arc<ArcSwap<Snapshot>>,
    pub(crate) calendars: Calendars,
    /// Notifies waiting calls that units were freed.
    pub(crate) wakeups: Wakeups,
    pub(crate) stopwatch: quanta::Clock,
    pub(crate) log: PacedLog,
    /// The time by which a shared store's clock is ahead of this node's, in microseconds; [`UNKNOWN`] until the
    /// store has sent its time.
    ahead: AtomicI64,
}

/// Whether charges are taken or only peeked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    Take,
    Peek,
}

impl Counters {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        fallback: Option<Fallback>,
        in_force: Arc<ArcSwap<Snapshot>>,
    ) -> Self {
        let shared = fallback.map(SharedStore::new);
        let at_once = shared.is_none() && store.answers_at_once();
        Self {
            store,
            shared,
            at_once,
            in_force,
            calendars: Calendars::default(),
            wakeups: Wakeups::default(),
            stopwatch: quanta::Clock::new(),
            log: PacedLog::default(),
            ahead: AtomicI64::new(UNKNOWN),
        }
    }

    /// The policies in force, pinned for as long as the caller decides with them.
    #[inline]
    pub(crate) fn pin(&self) -> Guard<Arc<Snapshot>> {
        self.in_force.load()
    }

    /// Whether the store answers every take at once: it is in this process and no other node shares it.
    #[inline]
    pub fn answer_at_once(&self) -> bool {
        self.at_once
    }

    /// Takes or peeks in the store, for something that has no fallback.
    pub(crate) async fn settle_in_store(
        &self,
        aim: Aim,
        charges: &mut Charges<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        self.ask(self.settle(&*self.store, aim, charges, outcome)).await
    }

    /// The readings of every limit of a rule at a key.
    pub async fn look(&self, plan: &Arc<Plan>, key: &str) -> Result<Outcome, StoreError> {
        self.look_in(Home::Store, plan, key).await
    }

    /// As [`Counters::look`], in the store that took the charge.
    pub(crate) async fn look_in(
        &self,
        home: Home,
        plan: &Arc<Plan>,
        key: &str,
    ) -> Result<Outcome, StoreError> {
        let mut charges = Charges::new(Ticket(0), 0, None);
        charges.push(plan, key, true);
        let mut outcome = Outcome::default();
        let looking = self.settle(self.own_store(home), Aim::Peek, &mut charges, &mut outcome);
        match home {
            Home::Store => self.ask(looking).await?,
            Home::Local => looking.await?,
        }
        Ok(outcome)
    }

    /// Refunds a receipt, each charge in its own way: once.
    pub(crate) async fn refund_receipt(
        &self,
        pinned: &Snapshot,
        receipt: &Receipt,
        home: Home,
        fates: impl FnOnce(&[(&Rule, &Arc<Plan>)]) -> SmallVec<[Fate; 6]>,
    ) -> Result<Refunded, StoreError> {
        let (taken, lines): (Vec<_>, Vec<_>) = taken_by(pinned.policies_of(home), receipt).unzip();
        let mut charges = Charges::new(receipt.ticket, 1, None);
        for (((_, plan), line), fate) in taken.iter().zip(lines).zip(fates(&taken)) {
            charges.push_taken(plan, &line.key, line.cost, fate);
        }
        charges.calendar = charges.periods().map(|period| page(period, receipt.at)).collect();
        let refunded = self.refund(home, &charges, receipt.at).await;
        self.freed(&charges);
        refunded
    }

    /// Refunds charges to the store that they were taken from.
    pub(crate) async fn refund(
        &self,
        home: Home,
        charges: &Charges<'_>,
        taken_at: Timestamp,
    ) -> Result<Refunded, StoreError> {
        match (home, &self.shared) {
            (Home::Store, _) => self.ask(self.store.refund(charges, taken_at)).await,
            (Home::Local, Some(shared)) => shared.fallback.refund(charges, taken_at).await,
            (Home::Local, None) => Ok(Refunded::TooOld),
        }
    }

    /// Looks at the holds of a key, or changes them.
    pub async fn holds(
        &self,
        counter: &Counter<'_>,
        order: HoldsOrder<'_>,
    ) -> Result<HoldsReport, StoreError> {
        let report = match &self.shared {
            Some(shared) => self.order_shared(shared, &self.pin(), counter, order).await,
            None => self.store.holds(counter, order).await,
        };
        self.ordered(counter, order);
        report
    }

    /// Makes exactly these ids held.
    pub async fn replace_holds(
        &self,
        counter: &Counter<'_>,
        ids: &[&str],
    ) -> Result<HoldsReport, StoreError> {
        self.holds(counter, HoldsOrder::Replace(ids, ticket::next())).await
    }

    /// Forgets counters.
    pub async fn forget(&self, what: Forget<'_>) -> Result<(), StoreError> {
        let here = match &self.shared {
            Some(shared) => shared.fallback.forget(what).await,
            None => Ok(()),
        };
        let there = self.ask(self.store.forget(what)).await;
        if let Some(shared) = &self.shared {
            match what {
                Forget::Key(counter) => shared.denied.free(counter.plan, counter.key),
                Forget::Rule(_) | Forget::All => shared.denied.free_all(),
            }
        }
        match what {
            Forget::Key(counter) => self.wakeups.freed_at(counter.plan.rule(), counter.key),
            Forget::Rule(_) | Forget::All => self.wakeups.freed_anywhere(),
        }
        there.and(here)
    }

    /// The used share of each rule without a key, from 0 to 1. The fullest limit of the rule counts.
    pub async fn usage(&self, pinned: &Snapshot) -> Result<Vec<(Arc<str>, f64)>, StoreError> {
        let mut usage = Vec::new();
        // Every look would cost the application's database a count.
        let shown = |rule: &&Arc<Rule>| rule.by.is_empty() && rule.enabled && rule.rows.is_none();
        for rule in pinned.policies.rules().iter().filter(shown) {
            let outcome = self.look(rule.plan_at(&rule.name), &rule.name).await?;
            // The difference of whole numbers is exact, that of ratios is not.
            let used = |reading: &tollgate_core::Reading| {
                reading.capacity.saturating_sub(reading.remaining) as f64 / reading.capacity as f64
            };
            usage.push((Arc::clone(&rule.name), outcome.readings.iter().map(used).fold(0.0, f64::max)));
        }
        Ok(usage)
    }

    /// The store's time, by a call to the store.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        self.ask(self.store.now()).await
    }

    /// The store's time, without a call to another process. The time of a shared store is computed from its
    /// latest reply.
    pub(crate) fn time(&self) -> Timestamp {
        let Some(shared) = &self.shared else { return time_of(&*self.store) };
        match self.ahead.load(Ordering::Relaxed) {
            UNKNOWN => time_of(&*shared.fallback),
            ahead => Timestamp::from_micros(shared.gate.now().as_micros().saturating_add_signed(ahead)),
        }
    }

    /// The store's time, for a change that is about to be written. Fails if a store in this process cannot be
    /// used. A shared one is not asked: writing the change shows whether it can be used.
    pub(crate) async fn stamp(&self) -> Result<Timestamp, StoreError> {
        if self.are_shared() { Ok(self.time()) } else { self.store.now().await }
    }

    /// Learns the time of a shared store from its reply.
    pub(crate) fn learn_time(&self, store_time: Timestamp) {
        let Some(shared) = &self.shared else { return };
        let here = shared.gate.now().as_micros().cast_signed();
        self.ahead.store(store_time.as_micros().cast_signed().wrapping_sub(here), Ordering::Relaxed);
    }
}

/// The time of a store that answers at once; the epoch if it does not. At the epoch no entry has ended.
pub(crate) fn time_of(store: &dyn Store) -> Timestamp {
    match store.now() {
        Answer::Ready(Some(Ok(now))) => now,
        Answer::Ready(_) | Answer::Later(_) => Timestamp::ZERO,
    }
}

/// The rules and keys of a receipt, with the limits in force there now.
fn taken_by<'a>(
    policies: &'a Policies,
    receipt: &'a Receipt,
) -> impl Iterator<Item = ((&'a Rule, &'a Arc<Plan>), &'a ReceiptLine)> {
    receipt.taken.iter().take(Charges::MOST).filter_map(|line| {
        let rule = policies.rule(&line.rule)?;
        Some(((&**rule, rule.plan_at(&line.key)), line))
    })
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}
