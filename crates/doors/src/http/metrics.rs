//! Metrics: the counters of this door, and the page with those of the engine and the program.
//!
//! Labels are routes, methods and statuses from fixed lists, and configured rules. So callers cannot raise
//! the number of series.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tollgate_core::Timestamp;
use tollgate_engine::{Engine, Pacer};

use super::App;
use super::endpoint::Endpoint;
use super::exposition::{self, Format};

/// Every status that this door responds with.
const STATUSES: [u16; 15] = [200, 201, 304, 400, 401, 403, 404, 405, 409, 412, 413, 422, 429, 500, 503];

/// The counters of requests.
#[derive(Clone)]
pub(crate) struct HttpMeters {
    stopwatch: quanta::Clock,
    routes: Arc<[RouteMeter]>,
}

/// The counters of one route.
struct RouteMeter {
    method: String,
    route: &'static str,
    /// One for each of [`STATUSES`].
    requests: [Counter; STATUSES.len()],
    latency: Histogram,
}

impl HttpMeters {
    /// A meter for each endpoint, and one for everything else.
    pub(crate) fn new(endpoints: &[Endpoint]) -> Self {
        let known = endpoints.iter().map(|endpoint| (endpoint.method.to_string(), endpoint.pattern));
        let routes = known.chain([(String::new(), "unmatched")]).map(|(method, route)| RouteMeter {
            method,
            route,
            requests: Default::default(),
            latency: Histogram::new([
                5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0,
            ]),
        });
        Self { stopwatch: quanta::Clock::new(), routes: routes.collect() }
    }

    /// The index for requests that no endpoint handles.
    pub(crate) fn unmatched(&self) -> usize {
        self.routes.len() - 1
    }

    pub(crate) fn start(&self) -> u64 {
        self.stopwatch.raw()
    }

    /// A monotonic time, from an arbitrary start.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.stopwatch.delta_as_nanos(0, self.stopwatch.raw()) / 1_000)
    }

    /// Counts an answered request.
    pub(crate) fn note(&self, index: usize, status: StatusCode, started: u64) {
        let route = &self.routes[index];
        if let Some(at) = STATUSES.iter().position(|known| *known == status.as_u16()) {
            route.requests[at].inc();
        }
        let nanos = self.stopwatch.delta_as_nanos(started, self.stopwatch.raw());
        route.latency.observe(nanos as f64 / 1e9);
    }
}

impl fmt::Debug for HttpMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpMeters").finish_non_exhaustive()
    }
}

/// Exports the requests of every route that was used.
impl Collector for HttpMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counter = Counter::<u64, AtomicU64>::default();
        let help = "Requests by method, route and status";
        let mut family =
            encoder.encode_descriptor("tollgate_http_requests", help, None, counter.metric_type())?;
        for route in &*self.routes {
            for (status, counter) in STATUSES.iter().zip(&route.requests).filter(|(_, one)| one.get() > 0) {
                let status = status.to_string();
                let labels = [("method", &*route.method), ("route", route.route), ("status", &*status)];
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "How long requests took, including reading the body";
        let name = "tollgate_http_request_duration";
        let kind = self.routes[0].latency.metric_type();
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), kind)?;
        let used = |route: &&RouteMeter| route.requests.iter().any(|counter| counter.get() > 0);
        for route in self.routes.iter().filter(used) {
            let labels = [("method", &*route.method), ("route", route.route)];
            route.latency.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Registers the counters of the engine and of this door.
pub(crate) fn register(registry: &mut Registry, engine: &Engine, pacer: &Pacer, meters: &HttpMeters) {
    let help = "How long decisions took; one in 64 is timed";
    let latency = engine.observer.meters.latency.clone();
    registry.register_with_unit("tollgate_decision_duration", help, Unit::Seconds, latency);
    registry.register_collector(Box::new(engine.observer.meters.clone()));
    registry.register_collector(Box::new(engine.lists.meters.clone()));
    registry.register_collector(Box::new(engine.guards.meters().clone()));
    if let Some(store) = engine.counters.store_meters() {
        registry.register_collector(Box::new(store.clone()));
    }
    registry.register_collector(Box::new(pacer.meters().clone()));
    registry.register_collector(Box::new(meters.clone()));
}

/// The complete page.
pub(crate) async fn page(app: &App, format: Format) -> String {
    let usage = usage(&app.engine).await;
    let mut page = String::new();
    let written = encode_registry(&mut page, &app.registry)
        .and_then(|()| encode_registry(&mut page, &usage))
        .and_then(|()| encode_eof(&mut page));
    written.expect("writing to a string cannot fail");
    match format {
        Format::OpenMetrics => page,
        Format::Text => exposition::to_text(&page),
    }
}

/// How full each rule without a key is, read now. Nothing is shown during an outage.
async fn usage(engine: &Engine) -> Registry {
    let family = Family::<[(&'static str, String); 1], Gauge<f64, AtomicU64>>::default();
    let used = engine.counters.usage(&engine.pin()).await.unwrap_or_default();
    for (rule, ratio) in used {
        family.get_or_create(&[("rule", rule.to_string())]).set(ratio);
    }
    let mut registry = Registry::default();
    let help = "Used share of each rule without a key: its fullest limit";
    registry.register("tollgate_usage_ratio", help, family);
    registry
}
