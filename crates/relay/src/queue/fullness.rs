//! Decides whether the disk has room for another message.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::WriteTransaction;
use tollgate_core::{Clock, Span, Timestamp};

use super::disk::Disk;

/// The least time between two counts of reusable space: a count walks the whole database.
const COUNT_EVERY: Span = Span::from_secs(10);

/// Counting takes at most one part in this many of the time.
const SHARE: u64 = 50;

/// Compares free space with the watermark, for texts that go into the database.
///
/// The database's file rarely shrinks, so reusable space inside it counts as free. Otherwise a disk that was
/// full once would refuse mail for ever. Texts in files cannot use that space.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// The reusable bytes inside the database, at the last count.
    reusable: AtomicU64,
    counted: AtomicU64,
    /// The duration of the last count.
    took: AtomicU64,
    /// Whether space was low at the last check.
    low: AtomicBool,
}

impl Fullness {
    /// Whether a text of this size would leave less than `min_free`.
    pub(super) fn is_low(&self, disk: &dyn Disk, size: u64, min_free: u64) -> io::Result<bool> {
        let free = disk.free()?;
        let needed = min_free.saturating_add(size);
        self.low.store(free < needed, Ordering::Relaxed);
        Ok(free < needed && free.saturating_add(self.reusable.load(Ordering::Relaxed)) < needed)
    }

    /// Counts reusable space, if free space is low and the last count is old.
    pub(super) fn measure(
        &self,
        transaction: &WriteTransaction,
        disk: &dyn Disk,
        clock: &dyn Clock,
    ) -> Result<(), redb::Error> {
        let now = clock.now();
        let counted = Timestamp::from_micros(self.counted.load(Ordering::Relaxed));
        if !self.low.load(Ordering::Relaxed) || now.since(counted) < COUNT_EVERY.max(self.pause()) {
            return Ok(());
        }
        let stats = transaction.stats()?;
        let used = stats.allocated_pages().saturating_mul(stats.page_size() as u64);
        let len = disk.database_len().map_err(redb::Error::Io)?;
        self.reusable.store(len.saturating_sub(used), Ordering::Relaxed);
        let end = clock.now();
        self.took.store(end.since(now).as_micros(), Ordering::Relaxed);
        self.counted.store(end.as_micros(), Ordering::Relaxed);
        Ok(())
    }

    /// The pause after a count, by the duration of the last one: commits wait while a count runs.
    fn pause(&self) -> Span {
        Span::from_micros(self.took.load(Ordering::Relaxed).saturating_mul(SHARE))
    }
}
