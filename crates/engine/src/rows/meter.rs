//! The metrics of counting rows: successes and failures.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// The counts of queries by database and result.
#[derive(Clone, Debug, Default)]
pub struct RowMeters(Family<[(&'static str, Arc<str>); 2], Counter>);

impl RowMeters {
    pub(super) fn count(&self, database: &Arc<str>, counted: bool) {
        let result = if counted { "ok" } else { "failed" };
        self.0.get_or_create_owned(&[("database", Arc::clone(database)), ("result", result.into())]).inc();
    }
}

/// Shows `tollgate_row_counts_total{database,result}`.
impl Collector for RowMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Queries that counted rows for a limit, by database and result";
        let kind = self.0.metric_type();
        self.0.encode(encoder.encode_descriptor("tollgate_row_counts", help, None, kind)?)
    }
}
