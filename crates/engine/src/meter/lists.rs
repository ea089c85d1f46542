//! The metrics of the blocklist and the allowlist: their sizes, and bans by rules.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::lists::ListCounts;

/// The metrics of the lists.
#[derive(Clone, Default)]
pub struct ListMeters {
    entries: Arc<[AtomicUsize; 2]>,
    bans: Arc<RwLock<BTreeMap<Arc<str>, Counter>>>,
    pub(crate) missed: Counter,
}

impl ListMeters {
    pub(crate) fn set_entries(&self, counts: ListCounts) {
        self.entries[0].store(counts.block, Ordering::Relaxed);
        self.entries[1].store(counts.allow, Ordering::Relaxed);
    }

    /// Counts a ban by a rule.
    pub(crate) fn count_ban(&self, rule: &Arc<str>) {
        self.bans.write().entry(Arc::clone(rule)).or_default().inc();
    }

    /// The number of entries that block, and of those that allow.
    pub fn entries(&self) -> (usize, usize) {
        (self.entries[0].load(Ordering::Relaxed), self.entries[1].load(Ordering::Relaxed))
    }

    /// The number of bans by each rule.
    pub fn bans(&self) -> Vec<(Arc<str>, u64)> {
        self.bans.read().iter().map(|(rule, count)| (Arc::clone(rule), count.get())).collect()
    }

    /// The number of denials that were not counted for bans, and of bans that were not set, because there was
    /// no room.
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }
}

impl fmt::Debug for ListMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListMeters").finish_non_exhaustive()
    }
}

/// Exposes `tollgate_list_entries{kind}`, `tollgate_bans_total{rule}` and `tollgate_bans_missed_total`.
impl Collector for ListMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (block, allow) = self.entries();
        let kind = ConstGauge::new(0_i64).metric_type();
        let help = "Entries of the blocklist and the allowlist";
        let mut family = encoder.encode_descriptor("tollgate_list_entries", help, None, kind)?;
        for (stance, count) in [("block", block), ("allow", allow)] {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("kind", stance)])?)?;
        }
        let kind = ConstCounter::new(0_u64).metric_type();
        let mut family = encoder.encode_descriptor("tollgate_bans", "Bans by rules", None, kind)?;
        for (rule, count) in self.bans() {
            ConstCounter::new(count).encode(family.encode_family(&[("rule", &*rule)])?)?;
        }
        let help = "Denials not counted for bans, and bans not made, because there was no room";
        let missed = ConstCounter::new(self.missed());
        missed.encode(encoder.encode_descriptor(
            "tollgate_bans_missed",
            help,
            None,
            missed.metric_type(),
        )?)?;
        Ok(())
    }
}
