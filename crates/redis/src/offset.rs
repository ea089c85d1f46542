//! The offset of a server's clock to this process's. Scripts get their deadline by the server's clock.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

/// The offset of one server's clock, by its latest reply.
pub(crate) struct Offset {
    /// The time by which the server's clock is ahead of `started`, in microseconds; 0 while unknown.
    ahead: AtomicI64,
    started: Instant,
}

impl Offset {
    /// An unknown offset.
    pub(crate) fn new() -> Self {
        Self { ahead: AtomicI64::new(0), started: Instant::now() }
    }

    /// Sets the server's current time, in microseconds.
    pub(crate) fn learn(&self, micros: i64) {
        self.ahead.store(micros - self.started.elapsed().as_micros() as i64, Ordering::Relaxed);
    }

    /// A moment by the server's clock, in microseconds; 0 if the offset is unknown.
    pub(crate) fn there(&self, moment: Instant) -> u64 {
        match self.ahead.load(Ordering::Relaxed) {
            0 => 0,
            ahead => u64::try_from(ahead + (moment - self.started).as_micros() as i64).unwrap_or(0),
        }
    }
}
