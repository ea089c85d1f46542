//! The gateway's counters. Every worker has its own, and the export adds them up.
//!
//! Labels are the configured names of routes and upstreams, and statuses and kinds from fixed lists. So
//! clients cannot raise the number of series.

mod count;
mod show;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::settings::RouteSettings;
pub(crate) use count::{Count, Level};

/// The label of requests that match no route.
pub(crate) const UNMATCHED: &str = "unmatched";

/// The counters of all workers of a gateway.
#[derive(Clone, Default)]
pub struct Meters {
    /// The meters of each route, one for each worker. A removed route keeps its counts.
    routes: MetersByName<RouteMeter>,
    upstreams: MetersByName<UpstreamMeter>,
    /// The paths of each route in force, as text.
    paths: Arc<Mutex<BTreeMap<Arc<str>, String>>>,
    workers: Arc<Mutex<Vec<Arc<WorkerMeter>>>>,
}

type MetersByName<M> = Arc<Mutex<BTreeMap<Arc<str>, Vec<Arc<M>>>>>;

/// One worker's counters about itself.
#[derive(Default)]
pub(crate) struct WorkerMeter {
    pub(crate) connections: Level,
    pub(crate) tunnels: Level,
    /// Connections that a policy refused.
    pub(crate) refused: Count,
}

/// One worker's counters about a route.
pub(crate) struct RouteMeter {
    /// One for each of [`STATUSES`].
    statuses: [Count; STATUSES.len()],
    /// One for each of [`BOUNDS`], and one for slower requests.
    latency: [Count; BOUNDS.len() + 1],
    /// In microseconds.
    total: Count,
}

/// One worker's counters about an upstream.
#[derive(Default)]
pub(crate) struct UpstreamMeter {
    errors: [Count; UpstreamError::ALL.len()],
}

/// A kind of failure of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamError {
    /// The connection failed.
    Connect,
    /// The connection was not established in time.
    ConnectTimeout,
    /// The upstream's certificate was not valid for its name.
    Tls,
    /// The upstream closed the connection before the response had ended.
    Closed,
    /// The head of the response did not arrive in time.
    Timeout,
    /// No byte of a body moved for too long.
    Stalled,
    /// The upstream sent malformed HTTP.
    Malformed,
}

/// The upper bounds of the latency buckets, in microseconds.
const BOUNDS: [u32; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// The statuses that are counted separately. Others are counted by their class. `499` is a client that
/// disconnected before there was a response.
const STATUSES: [&str; 43] = [
    "101", "200", "201", "202", "204", "206", "301", "302", "303", "304", "307", "308", "400", "401", "402",
    "403", "404", "405", "406", "408", "409", "410", "412", "413", "414", "415", "416", "418", "421", "422",
    "429", "431", "451", "499", "500", "501", "502", "503", "504", "2xx", "3xx", "4xx", "5xx",
];

/// Invalid statuses are counted as `5xx`, the last of the list.
const NONE: u8 = STATUSES.len() as u8 - 1;

/// The index of each status in [`STATUSES`].
static PLACES: [u8; 600] = places();

const fn places() -> [u8; 600] {
    let mut places = [0; 600];
    let classes = STATUSES.len() - 4;
    let mut status = 0;
    while status < 600 {
        let class = status / 100;
        places[status] = if class < 2 { NONE } else { (classes + class - 2) as u8 };
        status += 1;
    }
    let mut place = 0;
    while place < classes {
        let text = STATUSES[place].as_bytes();
        let status =
            (text[0] - b'0') as usize * 100 + (text[1] - b'0') as usize * 10 + (text[2] - b'0') as usize;
        places[status] = place as u8;
        place += 1;
    }
    places
}

impl Meters {
    pub(crate) fn worker(&self) -> Arc<WorkerMeter> {
        let meter = Arc::<WorkerMeter>::default();
        self.workers.lock().push(Arc::clone(&meter));
        meter
    }

    /// Sets the routes in force.
    pub(crate) fn set_routes(&self, routes: &[RouteSettings]) {
        let paths = |route: &RouteSettings| match &*route.paths {
            [] => "/*".to_owned(),
            paths => paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        *self.paths.lock() = routes.iter().map(|route| (Arc::clone(&route.name), paths(route))).collect();
    }

    /// A worker's meter of a route.
    pub(crate) fn route(&self, worker: usize, name: &Arc<str>) -> Arc<RouteMeter> {
        find(&self.routes, worker, name)
    }

    /// A worker's meter of an upstream.
    pub(crate) fn upstream(&self, worker: usize, name: &Arc<str>) -> Arc<UpstreamMeter> {
        find(&self.upstreams, worker, name)
    }
}

fn find<M: Default>(meters_by_name: &MetersByName<M>, worker: usize, name: &Arc<str>) -> Arc<M> {
    let mut meters_by_name = meters_by_name.lock();
    let meters = meters_by_name.entry(Arc::clone(name)).or_default();
    if meters.len() <= worker {
        meters.resize_with(worker + 1, Arc::default);
    }
    Arc::clone(&meters[worker])
}

impl RouteMeter {
    /// Counts a request, whether it was answered or not.
    pub(crate) fn note(&self, status: u16, micros: u64) {
        let place = PLACES.get(usize::from(status)).copied().unwrap_or(NONE);
        self.statuses[usize::from(place)].add(1);
        let slot = BOUNDS.iter().position(|bound| micros <= u64::from(*bound)).unwrap_or(BOUNDS.len());
        self.latency[slot].add(1);
        self.total.add(micros);
    }
}

impl Default for RouteMeter {
    fn default() -> Self {
        Self {
            statuses: std::array::from_fn(|_| Count::default()),
            latency: std::array::from_fn(|_| Count::default()),
            total: Count::default(),
        }
    }
}

impl UpstreamMeter {
    pub(crate) fn note(&self, error: UpstreamError) {
        self.errors[error as usize].add(1);
    }
}

impl UpstreamError {
    pub(crate) const ALL: [Self; 7] = [
        Self::Connect,
        Self::ConnectTimeout,
        Self::Tls,
        Self::Closed,
        Self::Timeout,
        Self::Stalled,
        Self::Malformed,
    ];

    /// Its name as a label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Tls => "tls",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Stalled => "stalled",
            Self::Malformed => "malformed",
        }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_place_of_its_own_or_that_of_its_class() {
        for status in 200..600_u16 {
            let label = STATUSES[usize::from(PLACES[usize::from(status)])];
            let class = format!("{}xx", status / 100);
            assert!(label == status.to_string() || label == class, "{status} is counted as {label}");
        }
        assert_eq!(STATUSES[usize::from(PLACES[429])], "429");
        assert_eq!(STATUSES[usize::from(PLACES[299])], "2xx");
        let meter = RouteMeter::default();
        [0, 99, 100, 600, 999].into_iter().for_each(|odd| meter.note(odd, 1));
        meter.note(101, 1);
        let counted = |label| meter.statuses[STATUSES.iter().position(|one| *one == label).unwrap()].value();
        assert_eq!((counted("101"), counted("5xx")), (1, 5));
    }
}
