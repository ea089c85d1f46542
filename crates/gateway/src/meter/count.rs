//! Numbers that one thread writes and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. A single thread raises it, so no atomic addition is needed.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

/// A number that goes up and down. A single thread changes it.
#[derive(Default)]
pub(crate) struct Level(AtomicU64);

impl Count {
    pub(crate) fn add(&self, number: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Level {
    pub(crate) fn raise(&self) {
        self.0.store(self.value() + 1, Ordering::Relaxed);
    }

    pub(crate) fn lower(&self) {
        self.0.store(self.value() - 1, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
