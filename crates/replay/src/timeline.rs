//! Attempts over time, in a bounded number of intervals. If there are too many, neighbouring intervals are
//! merged in pairs.

use tollgate_core::{Span, Timestamp};

/// Allowed and denied attempts in intervals of equal length.
#[derive(Clone, Debug)]
pub struct Timeline {
    start: u64,
    width: u64,
    counts: Vec<Interval>,
}

/// The attempts of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub attempts: u64,
    /// Denied ones.
    pub denied: u64,
}

/// The most intervals.
const MOST: usize = 512;
const SECOND: u64 = 1_000_000;

impl Default for Timeline {
    fn default() -> Self {
        Self { start: u64::MAX, width: SECOND, counts: Vec::new() }
    }
}

impl Timeline {
    /// Counts an attempt.
    #[inline]
    pub(crate) fn count(&mut self, at: Timestamp, denied: bool) {
        let at = at.as_micros();
        if self.start == u64::MAX {
            self.start = at / SECOND * SECOND;
        }
        // An attempt that waited is counted at its arrival, which may be earlier than the others, but not
        // before the first.
        let mut index = (at.saturating_sub(self.start) / self.width) as usize;
        while index >= MOST {
            self.merge();
            index = (at.saturating_sub(self.start) / self.width) as usize;
        }
        if index >= self.counts.len() {
            self.counts.resize(index + 1, Interval::default());
        }
        self.counts[index].attempts += 1;
        self.counts[index].denied += u64::from(denied);
    }

    #[cold]
    fn merge(&mut self) {
        self.width *= 2;
        let merged = self.counts.chunks(2).map(|pair| Interval {
            attempts: pair.iter().map(|one| one.attempts).sum(),
            denied: pair.iter().map(|one| one.denied).sum(),
        });
        self.counts = merged.collect();
    }

    /// The start of the first interval.
    pub fn start(&self) -> Timestamp {
        Timestamp::from_micros(if self.counts.is_empty() { 0 } else { self.start })
    }

    /// The length of each interval.
    pub fn width(&self) -> Span {
        Span::from_micros(self.width)
    }

    pub fn intervals(&self) -> &[Interval] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_fits_in_a_bounded_number_of_intervals() {
        let mut timeline = Timeline::default();
        for hour in 0..8_760 {
            timeline.count(Timestamp::from_micros(hour * 3_600 * SECOND), hour % 10 == 0);
        }
        assert!(timeline.intervals().len() <= MOST);
        let attempts: u64 = timeline.intervals().iter().map(|one| one.attempts).sum();
        let denied: u64 = timeline.intervals().iter().map(|one| one.denied).sum();
        assert_eq!((attempts, denied), (8_760, 876));
    }
}
