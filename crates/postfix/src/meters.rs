//! The metrics of the door. Labels are words of the protocol, never senders or recipients.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::action::Action;

/// The counters of the door. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PolicyMeters(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    dunno: AtomicU64,
    defer: AtomicU64,
    reject: AtomicU64,
    malformed: AtomicU64,
    repeated: AtomicU64,
    turned_away: AtomicU64,
    open: AtomicUsize,
}

impl PolicyMeters {
    pub(crate) fn answered(&self, action: &Action) {
        let counter = match action {
            Action::Dunno => &self.0.dunno,
            Action::Defer { .. } => &self.0.defer,
            Action::Reject { .. } => &self.0.reject,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the door cannot parse.
    pub(crate) fn malformed(&self) {
        self.0.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was allowed before and that Postfix sent again.
    pub(crate) fn repeated(&self) {
        self.0.repeated.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was closed because too many were open.
    pub(crate) fn turned_away(&self) {
        self.0.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn open(&self) -> &AtomicUsize {
        &self.0.open
    }
}

/// Exports the metrics `tollgate_postfix_*`.
impl Collector for PolicyMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let counts = &*self.0;
        let load = |counter: &AtomicU64| ConstCounter::new(counter.load(Ordering::Relaxed));
        let help = "Policy requests of Postfix, by the action that they got";
        let name = "tollgate_postfix_requests";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (action, counter) in [
            ("dunno", &counts.dunno),
            ("defer", &counts.defer),
            ("reject", &counts.reject),
            ("malformed", &counts.malformed),
        ] {
            load(counter).encode(family.encode_family(&[("action", action)])?)?;
        }
        for (name, help, counter) in [
            ("tollgate_postfix_repeated", "Requests that came again and were not counted", &counts.repeated),
            (
                "tollgate_postfix_turned_away",
                "Connections beyond `postfix.max_connections`",
                &counts.turned_away,
            ),
        ] {
            load(counter).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let open = i64::try_from(counts.open.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        let (name, help) = ("tollgate_postfix_connections", "Open connections of Postfix");
        ConstGauge::new(open).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }
}
