//! Counts by minute, of the last fifteen minutes.

use std::collections::VecDeque;

/// Minutes since 1970 with their counts, if any count is above zero.
#[derive(Clone, Debug)]
pub(super) struct Minutes<const N: usize>(VecDeque<(u64, [u64; N])>);

/// The number of minutes that are stored.
const KEPT: usize = 15;

impl<const N: usize> Default for Minutes<N> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<const N: usize> Minutes<N> {
    /// Adds counts to a minute.
    pub(super) fn add(&mut self, minute: u64, happened: [u64; N]) {
        if happened == [0; N] {
            return;
        }
        match self.0.back_mut() {
            Some((last, counts)) if *last == minute => add(counts, happened),
            _ => self.0.push_back((minute, happened)),
        }
        let excess = self.0.len().saturating_sub(KEPT);
        self.0.drain(..excess);
    }

    /// The counts of the fifteen minutes up to this one.
    pub(super) fn sum(&self, now: u64) -> [u64; N] {
        let oldest = now.saturating_sub(KEPT as u64 - 1);
        let mut sum = [0; N];
        for (_, counts) in self.0.iter().filter(|(minute, _)| *minute >= oldest) {
            add(&mut sum, *counts);
        }
        sum
    }
}

fn add<const N: usize>(sum: &mut [u64; N], more: [u64; N]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}
