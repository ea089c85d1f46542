//! Rate limits for the log and the journal: they let a little of a flood through.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Span, Timestamp};

/// At most one in each gap, after a first burst. If two threads meet, one is left out.
pub struct LogLimiter {
    next: AtomicU64,
    gap: u64,
    /// The most by which `next` may be ahead of the clock.
    most_ahead: u64,
}

/// A pace for each key. Keys share cells, so the memory does not grow with the keys: two keys in one cell share a pace.
pub(crate) struct KeyedLimiter {
    cells: Box<[AtomicU64]>,
    gap: u64,
    most_ahead: u64,
}

/// Keeps frequent events from filling the log. By default it lets through ten lines a second, and fifty at
/// once.
pub struct PacedLog {
    limiter: LogLimiter,
    held_back: AtomicU64,
}

/// The number of cells of a keyed limiter.
const CELLS: usize = 4_096;
/// Threads may read the clock in another order than they come here. A limiter that is further ahead than it may run, and
/// by more than this, was set before the clock went back.
const OUT_OF_ORDER: u64 = 1_000_000;

impl LogLimiter {
    /// One in each gap, and `burst` at once.
    pub fn new(gap: Span, burst: u64) -> Self {
        Self { next: AtomicU64::new(0), gap: gap.as_micros(), most_ahead: gap.as_micros() * (burst - 1) }
    }

    /// Whether another one may pass now.
    #[inline]
    pub fn admits(&self, now: Timestamp) -> bool {
        admits(&self.next, self.gap, self.most_ahead, now)
    }
}

impl KeyedLimiter {
    /// One in each gap at each key, and `burst` at once.
    pub(crate) fn new(gap: Span, burst: u64) -> Self {
        let cells = std::iter::repeat_with(AtomicU64::default).take(CELLS).collect();
        Self { cells, gap: gap.as_micros(), most_ahead: gap.as_micros() * (burst - 1) }
    }

    /// Whether another one of the key with this hash may pass now.
    pub(crate) fn admits(&self, hash: u64, now: Timestamp) -> bool {
        let cell = usize::try_from(hash % CELLS as u64).ok().and_then(|cell| self.cells.get(cell));
        cell.is_some_and(|next| admits(next, self.gap, self.most_ahead, now))
    }
}

/// Whether another one may pass a limiter whose next regular moment is `next`.
#[inline]
fn admits(next: &AtomicU64, gap: u64, most_ahead: u64, now: Timestamp) -> bool {
    let now = now.as_micros();
    let regular = next.load(Ordering::Relaxed);
    let ahead = regular.saturating_sub(now);
    let went_back = ahead > most_ahead + gap + OUT_OF_ORDER;
    if ahead > most_ahead && !went_back {
        return false;
    }
    let base = if went_back { now } else { regular.max(now) };
    next.compare_exchange(regular, base + gap, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

impl std::fmt::Debug for PacedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacedLog").finish_non_exhaustive()
    }
}

impl Default for PacedLog {
    fn default() -> Self {
        Self { limiter: LogLimiter::new(Span::from_millis(100), 50), held_back: AtomicU64::new(0) }
    }
}

impl PacedLog {
    /// One line in each gap.
    pub fn every(gap: Span) -> Self {
        Self { limiter: LogLimiter::new(gap, 1), held_back: AtomicU64::new(0) }
    }

    /// Whether a line may be written, and how many were held back before it.
    pub fn admit(&self, now: Timestamp) -> Option<u64> {
        if self.limiter.admits(now) {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        // If two threads meet, one line is not counted. The number need not be exact.
        self.held_back.store(self.held_back.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(log: &PacedLog, second: u64, asked: u64) -> usize {
        (0..asked).filter(|_| log.admit(Timestamp::from_micros(second * 1_000_000)).is_some()).count()
    }

    #[test]
    fn a_burst_of_lines_passes_and_later_ones_count_the_suppressed() {
        let log = PacedLog::default();
        assert_eq!(admitted(&log, 100_000, 1_000), 50);
        assert_eq!(log.admit(Timestamp::from_micros(100_001_000_000)), Some(950));
        assert_eq!(admitted(&log, 100_001, 1_000), 9);
        assert_eq!(admitted(&log, 90_000, 1_000), 50, "the clock went back");
        assert_eq!(admitted(&log, 89_990, 1_000), 50, "by ten seconds");
        let seldom = PacedLog::every(Span::from_secs(10));
        assert_eq!([100, 109, 110, 119].map(|second| admitted(&seldom, second, 20)), [1, 0, 1, 0]);
    }
}
