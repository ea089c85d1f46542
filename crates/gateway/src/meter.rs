//! What a gateway counts. Every worker counts by itself, and what is shown is the sum.
//!
//! Labels are routes and upstreams by their configured names, and statuses and kinds from fixed lists:
//! the number of series does not depend on what clients send.

mod count;
mod show;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use count::{Count, Level};

/// The route of requests that take none.
pub(crate) const UNMATCHED: &str = "unmatched";

/// What all workers of a gateway count, ready to be shown.
#[derive(Clone, Default)]
pub struct Meters {
    /// For each route, the meters of the workers. What was counted stays when a route goes.
    routes: Book<RouteMeter>,
    upstreams: Book<UpstreamMeter>,
    workers: Arc<Mutex<Vec<Arc<WorkerMeter>>>>,
}

type Book<M> = Arc<Mutex<BTreeMap<Arc<str>, Vec<Arc<M>>>>>;

/// What one worker counts about itself.
#[derive(Default)]
pub(crate) struct WorkerMeter {
    pub(crate) connections: Level,
    pub(crate) tunnels: Level,
    /// Logins that are held back.
    pub(crate) delayed: Level,
    /// Connections that were refused by their policy.
    pub(crate) refused: Count,
}

/// What one worker counts about a route.
pub(crate) struct RouteMeter {
    /// One for each of [`STATUSES`].
    statuses: [Count; STATUSES.len()],
    /// One for each of [`BOUNDS`], and one for what takes longer.
    latency: [Count; BOUNDS.len() + 1],
    /// In microseconds.
    total: Count,
}

/// What one worker counts about an upstream.
#[derive(Default)]
pub(crate) struct UpstreamMeter {
    errors: [Count; UpstreamError::ALL.len()],
}

/// What went wrong with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamError {
    /// No connection could be made.
    Connect,
    /// No connection was made in time.
    ConnectTimeout,
    /// It could not prove its name.
    Tls,
    /// It closed the connection before the response had ended.
    Closed,
    /// The head of the response did not come in time.
    Timeout,
    /// Nothing of a body moved for too long.
    Stalled,
    /// It sent what is not HTTP.
    Malformed,
}

/// The upper bounds of the latencies that are told apart, in microseconds.
const BOUNDS: [u32; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// The statuses that are told apart; others are counted by their class. `499` is a client that went
/// away before there was an answer.
const STATUSES: [&str; 43] = [
    "101", "200", "201", "202", "204", "206", "301", "302", "303", "304", "307", "308", "400", "401", "402",
    "403", "404", "405", "406", "408", "409", "410", "412", "413", "414", "415", "416", "418", "421", "422",
    "429", "431", "451", "499", "500", "501", "502", "503", "504", "2xx", "3xx", "4xx", "5xx",
];

/// Where what is no status of a response is counted: it is nobody's success.
const NONE: u8 = STATUSES.len() as u8 - 1;

/// Where a status is among [`STATUSES`].
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

    /// A worker's meter of a route.
    pub(crate) fn route(&self, worker: usize, name: &Arc<str>) -> Arc<RouteMeter> {
        find(&self.routes, worker, name)
    }

    /// A worker's meter of an upstream.
    pub(crate) fn upstream(&self, worker: usize, name: &Arc<str>) -> Arc<UpstreamMeter> {
        find(&self.upstreams, worker, name)
    }
}

fn find<M: Default>(book: &Book<M>, worker: usize, name: &Arc<str>) -> Arc<M> {
    let mut book = book.lock();
    let meters = book.entry(Arc::clone(name)).or_default();
    if meters.len() <= worker {
        meters.resize_with(worker + 1, Arc::default);
    }
    Arc::clone(&meters[worker])
}

impl RouteMeter {
    /// Counts a request that was answered, or was not.
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

    /// Its name, fit for a label.
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
