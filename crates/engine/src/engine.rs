//! The engine: one attempt in, one decision out.

mod deciding;
#[cfg(feature = "testing")]
mod testing;

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tollgate_core::store::Refunded;
use tollgate_core::{Decision, Fate, Mistake, Plan, Policies, Records, Rule, Store, StoreError};

pub(crate) use deciding::Manner;

use crate::account_records::AccountRecords;
use crate::banning::Bans;
use crate::counters::Counters;
use crate::followed::RecordStore;
use crate::guard::Guards;
use crate::lists::LiveLists;
use crate::live_config::{LiveConfig, Snapshot, first_snapshot};
use crate::nodes::Nodes;
use crate::observer::Observer;
use crate::pauses::Pauses;
use crate::receipt::{Forged, Home, Kind, Seals};
use crate::rows::Rows;
use crate::shared_store::Fallback;

/// The usual size of a receipt in bytes, while it is sealed.
const USUAL_RECEIPT_BYTES: usize = 256;

/// Decides attempts. Its parts do the rest.
pub struct Engine {
    /// The counters that attempts are charged to.
    pub counters: Arc<Counters>,
    /// The policies in force, and changes at run time.
    pub config: Arc<LiveConfig>,
    /// The blocklist and the allowlist.
    pub lists: Arc<LiveLists>,
    /// Guarded logins.
    pub guards: Guards,
    /// Counts rows of applications.
    pub rows: Rows,
    /// The accounts of the mail relay.
    pub accounts: AccountRecords,
    /// The records of decisions for operators.
    pub observer: Arc<Observer>,
    /// The reports of this node and of the other nodes.
    pub nodes: Nodes,
    pub(crate) pauses: Pauses,
    pub(crate) bans: Bans,
    pub(crate) records: Arc<RecordStore>,
    pub(crate) seals: Arc<Seals>,
}

/// The parts of an engine.
pub struct Parts {
    /// The store of the counters.
    pub store: Arc<dyn Store>,
    /// Stores the run-time changes, and the secret that seals receipts.
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

/// The part of a receipt that is refunded.
#[derive(Clone, Copy, Debug)]
pub enum RefundPart<'a> {
    /// All of it.
    All,
    /// A part of it. Charges that are not named stay counted.
    Some {
        /// The amount at each rule that counts the attempt's own cost.
        amount: u64,
        /// The amount at each rule that counts a field, by the field.
        counts: &'a [(&'a str, u64)],
    },
}

/// Why a receipt was not refunded. Nothing was changed, unless a shared store fails: then that is not known.
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
    /// The refund of the charge of a rule.
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
            let impairments = engine.counters.store.probe().await?;
            if let Some(shared) = &engine.counters.shared {
                shared.condition.learn(impairments);
            }
            engine.follow_all().await
        };
        match (read.await, &engine.counters.shared) {
            (Ok(()), _) => {}
            (Err(error), Some(shared)) => shared.gate.shut(&error),
            (Err(error), None) => return Err(error),
        }
        Ok(engine)
    }

    /// An engine that has read nothing yet.
    fn new(policies: Policies, parts: Parts) -> Self {
        let Parts { store, records, fallback } = parts;
        let seals = Arc::new(Seals::new());
        let observer = Arc::new(Observer::new(Arc::clone(&seals)));
        let snapshot = first_snapshot(&policies, fallback.is_some(), &observer);
        let in_force = Arc::new(ArcSwap::from_pointee(snapshot));
        let counters = Arc::new(Counters::new(store, fallback, Arc::clone(&in_force)));
        let records = Arc::new(RecordStore::new(records, Arc::clone(&counters), Arc::clone(&seals)));
        let lists = Arc::new(LiveLists::new(&policies, Arc::clone(&records), Arc::clone(&counters)));
        let guards = Guards::new(
            &policies,
            Arc::clone(&records),
            Arc::clone(&counters),
            Arc::clone(&observer),
            Arc::clone(&seals),
        );
        let config = LiveConfig::new(
            policies,
            in_force,
            Arc::clone(&records),
            Arc::clone(&counters),
            Arc::clone(&observer),
            Arc::clone(&seals),
        );
        Self {
            config: Arc::new(config),
            guards,
            rows: Rows::new(Arc::clone(&counters)),
            accounts: AccountRecords::new(Arc::clone(&records)),
            pauses: Pauses::new(Arc::clone(&records), Arc::clone(&counters), Arc::clone(&seals)),
            nodes: Nodes::new(Arc::clone(&records), Arc::clone(&counters), Arc::clone(&observer)),
            bans: Bans::new(Arc::clone(&lists), Arc::clone(&counters), Arc::clone(&observer)),
            lists,
            counters,
            observer,
            records,
            seals,
        }
    }

    /// Replaces all policies at once. Counters and run-time changes stay.
    pub fn reload(&self, policies: Policies) {
        self.config.replace(policies, |policies| {
            self.guards.meters().know(policies);
            self.lists.configure(policies);
        });
    }

    /// The policies in force, pinned for as long as the caller decides with them.
    #[inline]
    pub fn pin(&self) -> Guard<Arc<Snapshot>> {
        self.counters.pin()
    }

    /// The receipt of an allowed attempt, sealed; `None` if nothing was taken.
    pub fn receipt(&self, decision: &Decision<'_>) -> Option<String> {
        if decision.outcome.taken == 0 {
            return None;
        }
        let mut text = Vec::with_capacity(USUAL_RECEIPT_BYTES);
        self.seals.with(Home::of(decision), |seal| {
            let (ticket, at) = (decision.charges.ticket, decision.outcome.now);
            let mut draft = seal.draft(Kind::Receipt, ticket, at, &mut text);
            for line in decision.lines().filter(|line| line.taken) {
                draft.add(&line.rule.name, line.key, line.cost);
            }
            draft.seal();
        });
        Some(String::from_utf8(text).expect("base64 is text"))
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
            Ok((Kind::Lock | Kind::Pause | Kind::Password | Kind::Decision | Kind::Session, ..))
            | Err(Forged) => {
                return Err(RefundFault::Forged);
            }
        };
        let fates =
            |taken: &[(&Rule, &Arc<Plan>)]| taken.iter().map(|(rule, _)| part.fate_at(rule)).collect();
        self.counters.refund_receipt(pinned, &receipt, home, fates).await.map_err(RefundFault::Store)
    }

    /// The rules and keys of the charges that a receipt would refund; none if it is not a receipt of this server.
    pub fn counters_of_receipt(&self, receipt: &str) -> Vec<(String, String)> {
        match self.seals.open(receipt) {
            Ok((Kind::Receipt, receipt, _)) => {
                receipt.taken.into_iter().map(|line| (line.rule, line.key)).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Fault {
    /// The error for a store that claims to answer at once and did not.
    pub(crate) fn late() -> Self {
        let reason = "it did not answer at once, although it claims to".to_owned();
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
