//! The metrics of leases.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::inbox::Inbox;

/// The number of leases, and of their holds that were lost.
#[derive(Clone)]
pub struct LeaseMeters {
    pub(super) inbox: Arc<Inbox>,
}

impl LeaseMeters {
    /// The number of live leases.
    pub fn live(&self) -> usize {
        self.inbox.live()
    }

    /// The number of holds that expired although their lease lived, or that were too many to be kept.
    pub fn lost(&self) -> u64 {
        self.inbox.lost.get()
    }
}

impl fmt::Debug for LeaseMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseMeters").field("live", &self.live()).field("lost", &self.lost()).finish()
    }
}

/// Shows `tollgate_leases` and `tollgate_leases_lost_total`.
impl Collector for LeaseMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let live = ConstGauge::new(i64::try_from(self.live()).unwrap_or(i64::MAX));
        let help = "Requests and connections that hold a place now";
        live.encode(encoder.encode_descriptor("tollgate_leases", help, None, live.metric_type())?)?;
        let lost = ConstCounter::new(self.lost());
        let help = "Holds of requests and connections that expired before they were renewed";
        lost.encode(encoder.encode_descriptor("tollgate_leases_lost", help, None, lost.metric_type())?)
    }
}
