//! Exports the counters to Prometheus.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::{BOUNDS, Count, Meters, RouteMeter, STATUSES, UpstreamError, WorkerMeter};

impl Collector for Meters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_routes(&mut encoder)?;
        self.encode_requests(&mut encoder)?;
        self.encode_latency(&mut encoder)?;
        self.encode_errors(&mut encoder)?;
        self.encode_workers(&mut encoder)
    }
}

impl Meters {
    fn encode_routes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (name, help) = ("tollgate_gateway_route_info", "The path of each route, to be joined by route");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (route, path) in self.paths.lock().iter() {
            let labels = [("route", &**route), ("path", &**path)];
            ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let name = "tollgate_gateway_requests";
        let help = "Requests by route and status; 499 is a client that went away";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (route, meters) in self.routes.lock().iter() {
            for (place, status) in STATUSES.iter().enumerate() {
                let count = sum(meters, |meter: &RouteMeter| &meter.statuses[place]);
                if count > 0 {
                    let labels = [("route", &**route), ("status", *status)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn encode_latency(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let name = "tollgate_gateway_request_duration";
        let help = "How long requests took, from the head of the request to the end of the response";
        let mut family =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (route, meters) in self.routes.lock().iter() {
            let bounds = BOUNDS.iter().map(|micros| f64::from(*micros) / 1e6).chain([f64::INFINITY]);
            let counts =
                (0..=BOUNDS.len()).map(|slot| sum(meters, |meter: &RouteMeter| &meter.latency[slot]));
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            if count > 0 {
                let total = sum(meters, |meter: &RouteMeter| &meter.total) as f64 / 1e6;
                let labels = [("route", &**route)];
                let mut metric = family.encode_family(&labels)?;
                metric.encode_histogram::<NoLabelSet>(total, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn encode_errors(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (name, help) = ("tollgate_gateway_upstream_errors", "Failures of upstreams, by kind");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (upstream, meters) in self.upstreams.lock().iter() {
            for kind in UpstreamError::ALL {
                let count: u64 = meters.iter().map(|meter| meter.errors[kind as usize].value()).sum();
                if count > 0 {
                    let labels = [("upstream", &**upstream), ("kind", kind.name())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn encode_workers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let workers = self.workers.lock();
        let level = |of: fn(&WorkerMeter) -> u64| workers.iter().map(|meter| of(meter)).sum::<u64>();
        type Gauge = (&'static str, &'static str, fn(&WorkerMeter) -> u64);
        let gauges: [Gauge; 2] = [
            ("tollgate_gateway_connections", "Connections of clients that are open", |meter| {
                meter.connections.value()
            }),
            ("tollgate_gateway_tunnels", "Connections that went over to another protocol", |meter| {
                meter.tunnels.value()
            }),
        ];
        for (name, help, of) in gauges {
            let gauge = ConstGauge::new(i64::try_from(level(of)).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let (name, help) = ("tollgate_gateway_connections_refused", "Connections that their policy denied");
        let refused = ConstCounter::new(level(|meter| meter.refused.value()));
        refused.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
    }
}

fn sum<M>(meters: &[Arc<M>], of: impl Fn(&M) -> &Count) -> u64 {
    meters.iter().map(|meter| of(meter).value()).sum()
}
