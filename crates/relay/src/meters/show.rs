//! Exports the metrics in the form of Prometheus.

use std::fmt::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::{AccountCounts, AccountLabel, BOUNDS, Levels, MOST_ACCOUNTS, RelayMeters};

/// Exports the metrics `tollgate_relay_*`.
impl Collector for RelayMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_totals(&mut encoder)?;
        self.encode_accounts(&mut encoder)?;
        self.encode_latency(&mut encoder)?;
        let levels = self.0.source.read().as_ref().map(|source| source());
        levels.map_or(Ok(()), |levels| encode_levels(&levels, &mut encoder))
    }
}

impl RelayMeters {
    fn encode_totals(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let counts = &self.0;
        for (name, help, counter) in [
            ("tollgate_relay_accepted", "Messages that the relay accepted", &counts.accepted),
            ("tollgate_relay_retried", "Delivery attempts that failed and are made again", &counts.retried),
            ("tollgate_relay_reported", "Delivery reports that were queued", &counts.reported),
            ("tollgate_relay_unserved", "Turns of messages whose account does not exist", &counts.unserved),
            ("tollgate_relay_reports_failed", "Delivery reports that were given up", &counts.reports_failed),
        ] {
            let counter = ConstCounter::new(load(counter));
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let help = "Connections and messages that were refused, by the rule that refused them";
        let name = "tollgate_relay_rejected";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (level, count) in counts.rejected.known.read().iter() {
            ConstCounter::new(load(count)).encode(family.encode_family(&[("level", &**level)])?)?;
        }
        Ok(())
    }

    fn encode_accounts(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        type Counter = (&'static str, &'static str, fn(&AccountCounts) -> &AtomicU64);
        let families: [Counter; 4] = [
            ("tollgate_relay_sent", "Recipients that the next hop accepted", |of| &of.sent),
            ("tollgate_relay_bounced", "Recipients that failed for good", |of| &of.bounced),
            ("tollgate_relay_rate_limited", "Messages that a limit deferred, once for each deferral", |of| {
                &of.rate_limited
            }),
            ("tollgate_relay_limited_turns", "Turns of lanes that a limit did not allow", |of| {
                &of.limited_turns
            }),
        ];
        let accounts = self.0.accounts.known.read();
        for (name, help, of) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (label, counts) in accounts.iter() {
                ConstCounter::new(load(of(counts))).encode(family.encode_family(&label.pairs())?)?;
            }
        }
        Ok(())
    }

    fn encode_latency(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "How long messages took from acceptance until the next hop took them";
        let name = "tollgate_relay_delivery";
        let unit = Some(&Unit::Seconds);
        let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        let latency = &self.0.latency;
        let bounds = BOUNDS.iter().map(|millis| *millis as f64 / 1e3).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(latency.slots.iter().map(load)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let total = load(&latency.total) as f64 / 1e6;
        metric.encode_histogram::<NoLabelSet>(total, count, &buckets, None)
    }
}

fn encode_levels(levels: &Levels, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    for (name, help, level) in [
        ("tollgate_relay_queue_messages", "Messages in the queue", levels.messages),
        ("tollgate_relay_in_flight", "Deliveries in flight", u64::from(levels.in_flight)),
        ("tollgate_relay_lanes", "Lanes with mail", levels.lanes as u64),
    ] {
        let gauge = ConstGauge::new(whole(level));
        gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
    }
    let oldest = ConstGauge::new(whole(levels.oldest.as_micros() / 1_000_000));
    let help = "Age of the oldest message in the queue";
    let name = "tollgate_relay_queue_oldest";
    oldest.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?)?;
    let help = "Lanes that sleep, by what keeps them";
    let name = "tollgate_relay_sleeping_lanes";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (cause, count) in &levels.sleeping {
        ConstGauge::new(whole(*count as u64)).encode(family.encode_family(&[("cause", *cause)])?)?;
    }
    let help = "Items that wait for a limit, by account";
    let mut family = encoder.encode_descriptor("tollgate_relay_deferred", help, None, MetricType::Gauge)?;
    for (label, count) in levels.deferred.iter().take(MOST_ACCOUNTS) {
        ConstGauge::new(whole(*count)).encode(family.encode_family(&label.pairs())?)?;
    }
    let beyond: u64 = levels.deferred.values().skip(MOST_ACCOUNTS).sum();
    if beyond > 0 {
        ConstGauge::new(whole(beyond)).encode(family.encode_family(&AccountLabel::other().pairs())?)?;
    }
    Ok(())
}

impl AccountLabel {
    fn pairs(&self) -> [(&'static str, &str); 2] {
        [("tenant", &*self.tenant), ("account", &*self.account)]
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
