//! Requests that wait for their turn: how many may, and how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Request;
use tokio::sync::Notify;

/// The longest wait of a request, whatever its rules allow. Proxies between a caller and this server close
/// silent connections, many after a minute.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How many requests may wait at once. Each keeps a connection, and other requests need some too.
pub(crate) const MOST_WAITING: usize = 5_000;

/// The path at which requests wait.
pub(crate) const PATH: &str = "/api/v1/acquire";

/// Whether a request waits for its turn. The server of the router then extends its time-out: the caller has
/// sent everything, and the wait has its own bound.
#[derive(Clone, Debug)]
pub struct Patience(Arc<Begun>);

#[derive(Debug, Default)]
struct Begun {
    is: AtomicBool,
    started: Notify,
}

impl Patience {
    /// Made for a request that may wait; most paths never do.
    pub fn of<B>(request: &mut Request<B>) -> Option<Self> {
        (request.uri().path() == PATH).then(|| {
            let patience = Self(Arc::default());
            request.extensions_mut().insert(patience.clone());
            patience
        })
    }

    /// Whether the request waits for its turn.
    pub fn waits(&self) -> bool {
        self.0.is.load(Ordering::Acquire)
    }

    /// Waits until the request starts to wait.
    pub async fn begun(&self) {
        // `notify_one` keeps a permit for a later call, and there is only one.
        if !self.waits() {
            self.0.started.notified().await;
        }
    }

    /// Records that the request waits from now on.
    pub fn begin(&self) {
        self.0.is.store(true, Ordering::Release);
        self.0.started.notify_one();
    }
}
