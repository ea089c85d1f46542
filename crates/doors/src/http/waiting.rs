//! Requests that wait for their turn: how many may, how long, and what ends it for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Request;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

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
pub struct Patience(Arc<AtomicBool>);

/// Says that nobody is to wait any longer, because the server ends.
#[derive(Clone, Debug)]
pub struct Ending(watch::Sender<bool>);

/// Room for those who wait.
pub(crate) struct Room {
    places: Semaphore,
    ending: Ending,
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
        self.0.load(Ordering::Acquire)
    }

    /// Says that it does from now on.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Ending {
    /// Nobody has said it yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Says it.
    pub fn tell(&self) {
        self.0.send_replace(true);
    }

    async fn told(&self) {
        // The sender is here, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|told| *told).await;
    }
}

impl Default for Ending {
    fn default() -> Self {
        Self::new()
    }
}

impl Room {
    pub(crate) fn new(ending: Ending) -> Self {
        Self { places: Semaphore::new(MOST_WAITING), ending }
    }

    /// A place, if there is one.
    pub(crate) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Ends when nobody is to wait any longer.
    pub(crate) async fn closes(&self) {
        self.ending.told().await;
    }
}
