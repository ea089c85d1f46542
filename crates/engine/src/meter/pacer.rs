//! The metrics of a pacer: waiting attempts, their waits, and their results.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use tollgate_core::Span;

use super::tallies::{MOST_NAMED, OTHER};

/// The metrics of a pacer, for each policy.
#[derive(Clone, Default)]
pub struct PacerMeters {
    policies: Arc<RwLock<BTreeMap<Arc<str>, Arc<PacedMeter>>>>,
}

/// The counters of the attempts of one policy.
pub(crate) struct PacedMeter {
    pub(crate) waiting: Gauge,
    /// The waits of the admitted attempts, in seconds.
    pub(crate) waits: Histogram,
    pub(crate) denied: Counter,
    pub(crate) late: Counter,
    pub(crate) full: Counter,
    pub(crate) cancelled: Counter,
    passed: Counter,
}

impl PacerMeters {
    /// The counters of an existing policy. Policies are created at run time too, so only a bounded number
    /// have counters of their own.
    pub(crate) fn of(&self, policy: &str) -> Arc<PacedMeter> {
        if let Some(meter) = self.policies.read().get(policy) {
            return Arc::clone(meter);
        }
        let mut policies = self.policies.write();
        let name = if policies.len() < MOST_NAMED { policy.into() } else { Arc::clone(&OTHER) };
        Arc::clone(policies.entry(name).or_default())
    }

    /// The number of attempts by policy and result.
    pub fn counts(&self) -> Vec<(Arc<str>, &'static str, u64)> {
        let policies = self.policies.read();
        let counts = policies.iter().flat_map(|(policy, meter)| {
            meter.counters().map(|(outcome, counter)| (Arc::clone(policy), outcome, counter.get()))
        });
        counts.collect()
    }

    /// The number of waiting attempts of each policy.
    pub fn waiting(&self) -> Vec<(Arc<str>, i64)> {
        let policies = self.policies.read();
        policies.iter().map(|(policy, meter)| (Arc::clone(policy), meter.waiting.get())).collect()
    }
}

impl PacedMeter {
    /// Counts an admitted attempt.
    pub(crate) fn passed(&self, waited: Span) {
        self.passed.inc();
        self.waits.observe(waited.as_micros() as f64 / 1e6);
    }

    fn counters(&self) -> [(&'static str, &Counter); 5] {
        [
            ("passed", &self.passed),
            ("denied", &self.denied),
            ("late", &self.late),
            ("full", &self.full),
            ("cancelled", &self.cancelled),
        ]
    }
}

impl Default for PacedMeter {
    fn default() -> Self {
        let buckets = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
        Self {
            waiting: Gauge::default(),
            waits: Histogram::new(buckets),
            denied: Counter::default(),
            late: Counter::default(),
            full: Counter::default(),
            cancelled: Counter::default(),
            passed: Counter::default(),
        }
    }
}

impl fmt::Debug for PacerMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacerMeters").finish_non_exhaustive()
    }
}

/// Exposes `tollgate_paced_waiting{policy}`, `tollgate_paced_wait_seconds{policy}` and
/// `tollgate_paced_total{policy,outcome}`.
impl Collector for PacerMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let policies = self.policies.read();
        let Some(any) = policies.values().next() else { return Ok(()) };
        let help = "Attempts that wait for their turn";
        let (name, kind) = ("tollgate_paced_waiting", any.waiting.metric_type());
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (policy, meter) in &*policies {
            meter.waiting.encode(family.encode_family(&[("policy", &**policy)])?)?;
        }
        let help = "How long admitted attempts waited";
        let (name, unit, kind) = ("tollgate_paced_wait", Some(&Unit::Seconds), any.waits.metric_type());
        let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
        for (policy, meter) in &*policies {
            meter.waits.encode(family.encode_family(&[("policy", &**policy)])?)?;
        }
        let help = "Paced attempts by policy and outcome";
        let (name, kind) = ("tollgate_paced", any.passed.metric_type());
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (policy, meter) in &*policies {
            for (outcome, counter) in meter.counters() {
                let labels = [("policy", &**policy), ("outcome", outcome)];
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
