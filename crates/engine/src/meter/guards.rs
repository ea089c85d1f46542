//! The metrics of guards: attempts, failures and locks, by guard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::Gauge;
use tollgate_core::Policies;

/// The metrics of guards.
#[derive(Clone, Default)]
pub struct GuardMeters {
    guards: Arc<RwLock<BTreeMap<Arc<str>, Arc<GuardCounts>>>>,
    /// Notices that were dropped because the queue was full.
    pub(crate) missed: Counter,
    /// Attempts that are delayed now.
    pub(crate) delayed: Gauge,
}

/// The counters of one guard.
#[derive(Debug, Default)]
pub(crate) struct GuardCounts {
    /// Attempts that began.
    pub(crate) begun: AtomicU64,
    /// Attempts that were refused.
    pub(crate) refused: AtomicU64,
    /// Attempts that callers reported as failed, or that nothing ended in time.
    pub(crate) failures: AtomicU64,
    /// Locks.
    pub(crate) lockouts: AtomicU64,
}

impl GuardMeters {
    /// Adds the guards of these policies, so that guards without attempts show zeros.
    pub(crate) fn know(&self, policies: &Policies) {
        let mut known = self.guards.write();
        for guard in policies.guards() {
            known.entry(Arc::clone(&guard.name)).or_default();
        }
    }

    /// Increments a counter of a guard. A guard that was never configured has none.
    pub(crate) fn count(&self, guard: &str, which: impl FnOnce(&GuardCounts) -> &AtomicU64) {
        if let Some(counts) = self.guards.read().get(guard) {
            which(counts).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts of a guard: attempts that began, attempts that were refused, failures, and locks.
    pub fn of(&self, guard: &str) -> [u64; 4] {
        self.guards.read().get(guard).map_or([0; 4], |counts| counts.all())
    }

    /// The number of notices that were dropped because the queue was full.
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }
}

impl GuardCounts {
    fn all(&self) -> [u64; 4] {
        [&self.begun, &self.refused, &self.failures, &self.lockouts]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for GuardMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardMeters").finish_non_exhaustive()
    }
}

/// Exposes `tollgate_guard_attempts_total{guard,outcome}`, `tollgate_guard_failures_total{guard}`,
/// `tollgate_guard_lockouts_total{guard}`, `tollgate_guard_notices_missed_total` and `tollgate_guard_delayed`.
impl Collector for GuardMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let guards: Vec<(Arc<str>, [u64; 4])> =
            self.guards.read().iter().map(|(name, counts)| (Arc::clone(name), counts.all())).collect();
        if guards.is_empty() {
            return Ok(());
        }
        let kind = ConstCounter::new(0_u64).metric_type();
        let help = "Attempts at guards that began or were denied";
        let mut family = encoder.encode_descriptor("tollgate_guard_attempts", help, None, kind)?;
        for (guard, [begun, refused, ..]) in &guards {
            for (outcome, count) in [("begun", begun), ("refused", refused)] {
                let labels = [("guard", &**guard), ("outcome", outcome)];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Attempts at guards that failed";
        let mut family = encoder.encode_descriptor("tollgate_guard_failures", help, None, kind)?;
        for (guard, [_, _, failures, _]) in &guards {
            ConstCounter::new(*failures).encode(family.encode_family(&[("guard", &**guard)])?)?;
        }
        let help = "Locks by guards";
        let mut family = encoder.encode_descriptor("tollgate_guard_lockouts", help, None, kind)?;
        for (guard, [.., lockouts]) in &guards {
            ConstCounter::new(*lockouts).encode(family.encode_family(&[("guard", &**guard)])?)?;
        }
        let help = "Notices of locks that were dropped because too many waited to be sent";
        let missed = ConstCounter::new(self.missed());
        missed.encode(encoder.encode_descriptor("tollgate_guard_notices_missed", help, None, kind)?)?;
        let (help, kind) = ("Attempts that guards delay now", self.delayed.metric_type());
        self.delayed.encode(encoder.encode_descriptor("tollgate_guard_delayed", help, None, kind)?)?;
        Ok(())
    }
}
