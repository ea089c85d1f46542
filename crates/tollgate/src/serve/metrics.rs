//! Metrics of the program itself: its version, and its store. They are read on request.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tollgate_store::file::FileStore;

use super::process::ProcessMeters;

/// Registers the metrics of the build and the process.
pub(crate) fn program(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessMeters));
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("tollgate_build", "The version of this build", build);
}

/// How often the configuration was reloaded, and how often that failed.
#[derive(Clone, Debug)]
pub(crate) struct ReloadCounts(Family<[(&'static str, &'static str); 1], Counter>);

/// The result of a reload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReloadResult {
    /// The new configuration is in force.
    Ok,
    /// The old one stays in force.
    Failed,
}

impl ReloadCounts {
    /// Exports `tollgate_config_reloads_total{result}`, with both results from the start.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let counts = Self(Family::default());
        for result in [ReloadResult::Ok, ReloadResult::Failed] {
            counts.of(result);
        }
        let help = "Reloads of the configuration; after a failed one the old configuration stays in force";
        registry.register("tollgate_config_reloads", help, counts.0.clone());
        counts
    }

    pub(crate) fn count(&self, result: ReloadResult) {
        self.of(result).inc();
    }

    fn of(&self, result: ReloadResult) -> Counter {
        let result = match result {
            ReloadResult::Ok => "ok",
            ReloadResult::Failed => "failed",
        };
        self.0.get_or_create_owned(&[("result", result)])
    }
}

pub(crate) fn store_keys(registry: &mut Registry, keys: impl Fn() -> usize + Send + Sync + 'static) {
    registry.register_collector(Box::new(KeyCount(Box::new(keys))));
}

pub(crate) fn file_store(registry: &mut Registry, store: &Arc<FileStore>) {
    let counted = Arc::clone(store);
    store_keys(registry, move || counted.len());
    registry.register_collector(Box::new(Flushes(Arc::clone(store))));
}

struct KeyCount(Box<dyn Fn() -> usize + Send + Sync>);

struct Flushes(Arc<FileStore>);

impl std::fmt::Debug for KeyCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl std::fmt::Debug for Flushes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flushes")
    }
}

impl Collector for KeyCount {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let keys = (self.0)();
        gauge(encoder, "tollgate_store_keys", "Keys in memory", keys as f64)
    }
}

impl Collector for Flushes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = self.0.flush_stats();
        let counters = [
            ("tollgate_store_flushes", "Times the counters were saved", stats.flushes),
            ("tollgate_store_flushed_keys", "Keys written or taken out by saving", stats.keys_written),
            ("tollgate_store_flush_errors", "Times saving failed", stats.errors),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let seconds = stats.last_duration.as_micros() as f64 / 1e6;
        gauge(encoder, "tollgate_store_last_flush_seconds", "How long the last save took", seconds)
    }
}

fn gauge(
    mut encoder: DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), std::fmt::Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}
