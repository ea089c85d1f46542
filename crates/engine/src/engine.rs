//! The engine: one attempt in, one decision out.

mod change_fault;
mod changing;
mod deciding;
mod making;
mod snapshot;

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tollgate_core::store::{Counter, Forget, HoldsOrder, HoldsReport, Refunded};
use tollgate_core::{
    Charges, Decision, Fate, Mistake, Plan, Policies, Receipt, ReceiptLine, Records, Rule, Store, StoreError,
};

pub use change_fault::ChangeFault;
pub(crate) use changing::Configured;
pub(crate) use deciding::Aim;
pub use deciding::Manner;
pub use making::Change;
pub use snapshot::Snapshot;

use crate::account_records::AccountRecords;
use crate::banning::Denials;
use crate::calendar::{Calendars, page};
use crate::guard::Watch;
use crate::journal::Journal;
use crate::lists::LiveLists;
use crate::log_limiter::PacedLog;
use crate::meter::Meters;
use crate::named_records::NamedRecords;
use crate::pacer::Wakeups;
use crate::pauses::Pauses;
use crate::ranking::Ranking;
use crate::receipt::{Forged, Home, Kind, Seals};
use crate::rows::Rows;
use crate::runtime_config::RuntimeConfig;
use crate::shared_store::{Fallback, SharedStore};
use crate::ticket;

/// Decides attempts.
pub struct Engine {
    current: ArcSwap<Snapshot>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) shared: Option<SharedStore>,
    /// Whether the store answers every call at once and no other node shares it.
    at_once: bool,
    pub(crate) seals: Seals,
    pub(crate) calendars: Calendars,
    pub(crate) configured: Mutex<Configured>,
    /// Held while the run-time configuration changes, so that checks stay true until the change is written.
    changing: tokio::sync::Mutex<()>,
    pub(crate) pauses: Pauses,
    pub(crate) rows: Rows,
    pub(crate) locks: Mutex<NamedRecords>,
    pub(crate) accounts: AccountRecords,
    /// Notifies waiting calls that units were freed.
    pub(crate) wakeups: Wakeups,
    pub(crate) paced_log: PacedLog,
    pub(crate) stopwatch: quanta::Clock,
    pub(crate) live_lists: LiveLists,
    pub(crate) denials: Denials,
    pub(crate) watch: Watch,
    /// The latest decisions.
    pub journal: Journal,
    /// The keys refused most often.
    pub offenders: Ranking,
    /// The keys that ask most often, of the decisions that the journal records.
    pub busiest: Ranking,
    /// The metrics.
    pub meters: Meters,
}

/// The parts of an engine.
pub struct Parts {
    /// Where counters live.
    pub store: Arc<dyn Store>,
    /// Where run-time changes are stored, and the secret that seals receipts.
    pub records: Arc<dyn Records>,
    /// Decides when the shared store cannot be used. An in-process store needs none: it can always be used.
    pub fallback: Option<Fallback>,
}

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller's mistake. Nothing was charged.
    Mistake(Mistake),
    /// The store cannot answer.
    Store(StoreError),
}

/// How much of a receipt is refunded.
#[derive(Clone, Copy, Debug)]
pub enum RefundPart<'a> {
    /// All of it.
    All,
    /// A part of it. Charges that are not named stay counted.
    Some {
        /// How much at each rule that counts the attempt's own cost.
        amount: u64,
        /// How much at each rule that counts a field, by the field.
        counts: &'a [(&'a str, u64)],
    },
}

/// Why a receipt was not refunded. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundFault {
    /// Tollgate did not issue the receipt. The caller's fault.
    Forged,
    /// It is the ticket of a guard. A ticket is finished, not refunded. The caller's fault.
    Ticket,
    /// The store cannot answer.
    Store(StoreError),
}

impl RefundPart<'_> {
    /// What happens to the charge of a rule.
    fn fate_at(self, rule: &Rule) -> Fate {
        match (self, &rule.count) {
            (Self::All, _) => Fate::Back,
            (Self::Some { amount, .. }, None) => Fate::Part(amount),
            (Self::Some { counts, .. }, Some(field)) => {
                let named = counts.iter().find(|(name, _)| **name == **field);
                Fate::Part(named.map_or(0, |(_, amount)| *amount))
            }
        }
    }
}

impl Engine {
    /// Creates an engine over these policies, with the run-time changes made earlier. With a fallback it
    /// starts without its store too, and reads them when the store recovers.
    pub async fn start(policies: Policies, parts: Parts) -> Result<Self, StoreError> {
        let engine = Self::new(policies, parts);
        let read = async {
            let impairments = engine.store.probe().await?;
            if let Some(shared) = &engine.shared {
                shared.condition.learn(impairments);
            }
            engine.follow_all().await
        };
        match (read.await, &engine.shared) {
            (Ok(()), _) => {}
            (Err(error), Some(shared)) => shared.gate.shut(&error),
            (Err(error), None) => return Err(error),
        }
        Ok(engine)
    }

    /// An engine that has read nothing yet.
    fn new(policies: Policies, parts: Parts) -> Self {
        let meters = Meters::default();
        let live_lists = LiveLists::new(&policies);
        let watch = Watch::new(&policies);
        let shared = parts.fallback.map(SharedStore::new);
        let at_once = shared.is_none() && parts.store.answers_at_once();
        let merged = RuntimeConfig::default().over(&policies);
        let local = shared.is_some().then(|| merged.policies.in_outage());
        let (snapshot, _) = Snapshot::new(merged, local, &RuntimeConfig::default(), &meters);
        Self {
            current: ArcSwap::from_pointee(snapshot),
            store: parts.store,
            records: parts.records,
            shared,
            at_once,
            seals: Seals::new(),
            calendars: Calendars::default(),
            configured: Mutex::new(Configured::new(policies)),
            changing: tokio::sync::Mutex::new(()),
            pauses: Pauses::default(),
            rows: Rows::new(),
            locks: Mutex::default(),
            accounts: AccountRecords::default(),
            wakeups: Wakeups::default(),
            paced_log: PacedLog::default(),
            stopwatch: quanta::Clock::new(),
            live_lists,
            denials: Denials::new(),
            watch,
            journal: Journal::default(),
            offenders: Ranking::default(),
            busiest: Ranking::default(),
            meters,
        }
    }

    /// The policies in force, pinned for as long as the caller decides with them.
    #[inline]
    pub fn pin(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// The receipt of an allowed attempt, sealed; `None` if nothing was taken.
    pub fn receipt(&self, decision: &Decision<'_>) -> Option<String> {
        let mut text = Vec::new();
        self.write_receipt(decision, &mut text);
        (!text.is_empty()).then(|| String::from_utf8(text).expect("receipts are text"))
    }

    /// As [`Engine::receipt`], appended to `text`.
    pub fn write_receipt(&self, decision: &Decision<'_>, text: &mut Vec<u8>) {
        if decision.outcome.taken == 0 {
            return;
        }
        self.seals.with(Home::of(decision), |seal| {
            let mut draft = seal.draft(Kind::Receipt, decision.charges.ticket, decision.outcome.now, text);
            for line in decision.lines().filter(|line| line.taken) {
                draft.add(&line.rule.name, line.key, line.cost);
            }
            draft.seal();
        });
    }

    /// Refunds a receipt, or a part of it: once. What is not refunded stays counted.
    pub async fn refund(
        &self,
        pinned: &Snapshot,
        receipt: &str,
        part: RefundPart<'_>,
    ) -> Result<Refunded, RefundFault> {
        let (receipt, home) = match self.seals.open(receipt) {
            Ok((Kind::Receipt, receipt, home)) => (receipt, home),
            Ok((Kind::Ticket, ..)) => return Err(RefundFault::Ticket),
            Ok((Kind::Lock | Kind::Pause | Kind::Password, ..)) | Err(Forged) => {
                return Err(RefundFault::Forged);
            }
        };
        let fates =
            |taken: &[(&Rule, &Arc<Plan>)]| taken.iter().map(|(rule, _)| part.fate_at(rule)).collect();
        self.refund_each(pinned, &receipt, home, fates).await.map_err(RefundFault::Store)
    }

    /// Refunds a receipt, each charge in its own way: once.
    pub(crate) async fn refund_each(
        &self,
        pinned: &Snapshot,
        receipt: &Receipt,
        home: Home,
        fates: impl FnOnce(&[(&Rule, &Arc<Plan>)]) -> SmallVec<[Fate; 6]>,
    ) -> Result<Refunded, StoreError> {
        let policies = pinned.policies_of(home);
        let (taken, lines): (Vec<_>, Vec<_>) = taken_by(policies, receipt).unzip();
        let mut charges = Charges::new(receipt.ticket, 1, None);
        for (((_, plan), line), fate) in taken.iter().zip(lines).zip(fates(&taken)) {
            charges.push_taken(plan, &line.key, line.cost, fate);
        }
        charges.calendar = charges.periods().map(|period| page(period, receipt.at)).collect();
        let given = match home {
            Home::Store => self.ask(self.store.refund(&charges, receipt.at)).await,
            Home::Local => self.refund_local(&charges, receipt.at).await,
        };
        self.freed(&charges);
        given
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

    /// How much of each rule without a key is used: the fullest of its limits, from 0 to 1.
    pub async fn usage(&self, pinned: &Snapshot) -> Result<Vec<(Arc<str>, f64)>, StoreError> {
        let mut usage = Vec::new();
        // Counting rows each time that somebody looks would be work for the application's database.
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

    /// A rule's key as operators may see it.
    pub fn shown_key<'k>(&self, rule: &Rule, key: &'k str) -> Cow<'k, str> {
        if rule.secret { Cow::Owned(self.seals.pseudonym(key)) } else { Cow::Borrowed(key) }
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

impl Fault {
    /// The error for a store that claims to answer at once and did not.
    pub(crate) fn late() -> Self {
        let reason = "it has to be waited for, though it says that it answers at once".to_owned();
        Self::Store(StoreError::Unavailable { reason })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mistake(mistake) => mistake.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}
