//! The counters of webhooks, by guard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;

/// The counters of all webhooks.
#[derive(Clone, Default)]
pub(crate) struct WebhookMeters(Arc<Mutex<BTreeMap<Arc<str>, Arc<Counts>>>>);

/// The counters of one guard's webhook.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) delivered: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl WebhookMeters {
    pub(super) fn count(&self, guard: &Arc<str>, which: impl FnOnce(&Counts) -> &AtomicU64) {
        let counts = Arc::clone(self.0.lock().entry(Arc::clone(guard)).or_default());
        which(&counts).fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for WebhookMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookMeters").finish_non_exhaustive()
    }
}

/// Exports `tollgate_guard_webhooks_total{guard,outcome}`.
impl Collector for WebhookMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts: Vec<_> =
            self.0.lock().iter().map(|(guard, counts)| (Arc::clone(guard), Arc::clone(counts))).collect();
        if counts.is_empty() {
            return Ok(());
        }
        let kind = ConstCounter::new(0_u64).metric_type();
        let help = "Notices that webhooks acknowledged, and that were dropped";
        let mut family = encoder.encode_descriptor("tollgate_guard_webhooks", help, None, kind)?;
        for (guard, counts) in &counts {
            for (outcome, count) in [("delivered", &counts.delivered), ("failed", &counts.failed)] {
                let labels = [("guard", &**guard), ("outcome", outcome)];
                ConstCounter::new(count.load(Ordering::Relaxed)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
