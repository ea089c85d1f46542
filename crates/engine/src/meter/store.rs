//! The metrics of a shared store: whether it can be used, the duration of its calls, and the number of
//! decisions without it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use tollgate_core::Reason;

use super::tallies::{MOST_NAMED, OTHER};
use crate::breaker_gate::BreakerGate;
use crate::condition::Condition;

/// The metrics of a shared store.
#[derive(Clone)]
pub struct StoreMeters {
    gate: Arc<BreakerGate>,
    condition: Arc<Condition>,
    /// For each policy, one for each of [`Reason::ALL`].
    degraded: Arc<RwLock<BTreeMap<Arc<str>, Reasons>>>,
    /// The duration of its replies, in seconds.
    pub(crate) calls: Histogram,
    pub(crate) denied_locally: Counter,
    pub(crate) retractions_dropped: Counter,
    pub(crate) refunds_dropped: Counter,
}

type Reasons = [Counter; Reason::ALL.len()];

impl StoreMeters {
    /// Creates metrics that include the dropped retractions and refunds.
    pub(crate) fn new(
        gate: Arc<BreakerGate>,
        condition: Arc<Condition>,
        [retractions_dropped, refunds_dropped]: [Counter; 2],
    ) -> Self {
        let buckets = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0];
        Self {
            gate,
            condition,
            degraded: Arc::default(),
            calls: Histogram::new(buckets),
            denied_locally: Counter::default(),
            retractions_dropped,
            refunds_dropped,
        }
    }

    /// Counts a decision made without the store.
    pub(crate) fn count_degraded(&self, policy: &Arc<str>, reason: Reason) {
        self.gate.note_degraded();
        let at = Reason::ALL.iter().position(|known| *known == reason).expect("all reasons are known");
        if let Some(counters) = self.degraded.read().get(policy) {
            counters[at].inc();
            return;
        }
        let mut degraded = self.degraded.write();
        let full = degraded.len() >= MOST_NAMED && !degraded.contains_key(policy);
        let name = if full { &*OTHER } else { policy };
        degraded.entry(Arc::clone(name)).or_default()[at].inc();
    }

    /// Every policy and reason with the number of decisions made without the store.
    pub fn degraded(&self) -> Vec<(Arc<str>, Reason, u64)> {
        let degraded = self.degraded.read();
        let each = degraded.iter().flat_map(|(policy, counters)| {
            let counts = Reason::ALL.into_iter().zip(counters);
            counts.map(|(reason, counter)| (Arc::clone(policy), reason, counter.get()))
        });
        each.filter(|(_, _, count)| *count > 0).collect()
    }

    /// The number of attempts that were denied from the cache of recent denials.
    pub fn denied_locally(&self) -> u64 {
        self.denied_locally.get()
    }

    /// The number of takes without a receiver that could not be remembered for undoing.
    pub fn retractions_dropped(&self) -> u64 {
        self.retractions_dropped.get()
    }

    /// The number of charges that stayed counted because too many refunds were pending.
    pub fn refunds_dropped(&self) -> u64 {
        self.refunds_dropped.get()
    }
}

impl fmt::Debug for StoreMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreMeters").finish_non_exhaustive()
    }
}

/// Exposes `tollgate_store_up`, `tollgate_store_call_seconds`, `tollgate_degraded_total{policy,reason}`,
/// `tollgate_denied_locally_total`, `tollgate_retractions_dropped_total`, `tollgate_refunds_dropped_total`,
/// `tollgate_records_missing_total` and `tollgate_records_damaged_total`.
impl Collector for StoreMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let up = ConstGauge::new(i64::from(self.gate.outage().is_none()));
        let help = "Whether the shared store is up";
        up.encode(encoder.encode_descriptor("tollgate_store_up", help, None, up.metric_type())?)?;
        let help = "How long calls to the shared store took, including failed ones";
        let (name, unit, kind) = ("tollgate_store_call", Some(&Unit::Seconds), self.calls.metric_type());
        self.calls.encode(encoder.encode_descriptor(name, help, unit, kind)?)?;
        let counters = [
            (
                "tollgate_denied_locally",
                "Denials that the node repeated without calling the store",
                self.denied_locally(),
            ),
            (
                "tollgate_retractions_dropped",
                "Charges with a lost answer that were not undone, because there were too many",
                self.retractions_dropped(),
            ),
            (
                "tollgate_refunds_dropped",
                "Refunds of uncounted answers that were dropped because the queue was full",
                self.refunds_dropped(),
            ),
            (
                "tollgate_records_missing",
                "Times that records of the shared store were found to be missing",
                self.condition.records_missing.get(),
            ),
            (
                "tollgate_records_damaged",
                "Times that records of the shared store could not be read",
                self.condition.records_damaged.get(),
            ),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let kind = ConstCounter::new(0_u64).metric_type();
        let help = "Decisions made without the shared store, by policy and reason";
        let mut family = encoder.encode_descriptor("tollgate_degraded", help, None, kind)?;
        for (policy, reason, count) in self.degraded() {
            let labels = [("policy", &*policy), ("reason", reason.name())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
