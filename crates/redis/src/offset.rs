//! How far a server's clock is ahead of this process: what is asked with a deadline is asked with one
//! by the server's clock.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

/// The distance to one server's clock, as its latest word had it.
pub(crate) struct Offset {
    /// How far it is ahead of `started`, in microseconds; 0 while that is not known.
    ahead: AtomicI64,
    started: Instant,
}

impl Offset {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        Self { ahead: AtomicI64::new(0), started: Instant::now() }
    }

    /// It is this time at the server, in microseconds, or was a moment ago.
    pub(crate) fn learn(&self, micros: i64) {
        self.ahead.store(micros - self.started.elapsed().as_micros() as i64, Ordering::Relaxed);
    }

    /// A moment by the server's clock, in microseconds; 0 if it is not known.
    pub(crate) fn there(&self, moment: Instant) -> u64 {
        match self.ahead.load(Ordering::Relaxed) {
            0 => 0,
            ahead => u64::try_from(ahead + (moment - self.started).as_micros() as i64).unwrap_or(0),
        }
    }
}
