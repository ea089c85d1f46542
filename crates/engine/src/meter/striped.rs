//! A counter that many threads increment at once. Each thread has a stripe of its own, so that incrementing
//! is an ordinary write to a cache line that no other thread writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most threads that have a stripe of their own. Later threads share one more.
const SEATS: usize = 16;

/// A counter in stripes: one for each of the first threads, and one that the others share.
#[derive(Default)]
pub(crate) struct Striped {
    own: [Stripe; SEATS],
    shared: Stripe,
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// The index of a thread's stripe, free again when the thread ends; `None` if none was left.
struct StripeSeat(Option<usize>);

thread_local! {
    static SEAT: StripeSeat = StripeSeat::take();
}

/// Bit `i` is set while a thread has stripe `i`.
static TAKEN: AtomicU64 = AtomicU64::new(!0 << SEATS);

impl StripeSeat {
    fn take() -> Self {
        // The next owner sees what the last one wrote before it adds to it.
        let taken = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, |taken| {
            (taken != !0).then_some(taken | (taken + 1))
        });
        Self(taken.ok().map(|taken| taken.trailing_ones() as usize))
    }
}

impl Drop for StripeSeat {
    fn drop(&mut self) {
        if let Some(seat) = self.0 {
            TAKEN.fetch_and(!(1 << seat), Ordering::Release);
        }
    }
}

impl Striped {
    #[inline]
    pub(crate) fn raise(&self) {
        // A thread that is ending has already given up its stripe.
        let seat = SEAT.try_with(|seat| seat.0).unwrap_or_default();
        match seat.and_then(|seat| self.own.get(seat)) {
            Some(stripe) => stripe.0.store(stripe.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            None => _ = self.shared.0.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        let stripes = self.own.iter().chain([&self.shared]);
        stripes.map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_seats_lose_no_count_and_leave_their_seats() {
        let counter = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * SEATS {
                scope.spawn(|| (0..10_000).for_each(|_| counter.raise()));
            }
        });
        assert_eq!(counter.total(), 3 * SEATS as u64 * 10_000);
        let counter = Striped::default();
        for _ in 0..10 * SEATS {
            std::thread::scope(|scope| _ = scope.spawn(|| counter.raise()));
        }
        assert_eq!(counter.total(), 10 * SEATS as u64);
        assert!(counter.shared.0.load(Ordering::Relaxed) < 5 * SEATS as u64, "few of them found no seat");
    }
}
