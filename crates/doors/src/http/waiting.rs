//! Requests that wait for their turn: how many may, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Request;
use tokio::sync::Notify;

/// The longest that a request waits for its turn, whatever its rules allow: whatever stands between a
/// caller and here gives up on a silent connection, many after a minute.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How many requests may wait at once. Each keeps a connection, and others need some too.
pub(crate) const MOST_WAITING: usize = 5_000;

/// Where requests wait.
pub(crate) const PATH: &str = "/api/v1/acquire";

/// Whether a request waits for its turn. Whoever serves the router gives it more time then: its peer has
/// sent everything, and the wait has bounds of its own.
#[derive(Clone, Debug)]
pub struct Patience(Arc<Begun>);

#[derive(Debug, Default)]
struct Begun {
    is: AtomicBool,
    told: Notify,
}

impl Patience {
    /// For a request that may come to wait; most never do.
    pub fn of<B>(request: &mut Request<B>) -> Option<Self> {
        (request.uri().path() == PATH).then(|| {
            let patience = Self(Arc::default());
            request.extensions_mut().insert(patience.clone());
            patience
        })
    }

    /// Whether it waits for its turn.
    pub fn waits(&self) -> bool {
        self.0.is.load(Ordering::Acquire)
    }

    /// Waits until it does.
    pub async fn begun(&self) {
        // A permit is left for whoever comes later, and one alone waits for it.
        if !self.waits() {
            self.0.told.notified().await;
        }
    }

    /// Says that it does from now on.
    pub fn begin(&self) {
        self.0.is.store(true, Ordering::Release);
        self.0.told.notify_one();
    }
}
