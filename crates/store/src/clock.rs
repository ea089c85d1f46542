//! The clocks of stores in this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::{Clock, Span, Timestamp};

/// The machine's wall clock, read through the processor's counter.
///
/// A system call for the time costs more than a decision. So the counter is read instead, and compared with
/// the wall clock ten times a second. Small differences are slewed, so that they never make time run
/// backwards. A step of more than a second is followed at once.
pub struct SystemClock {
    counter: quanta::Clock,
    start: u64,
    /// The length of one step of the counter, in microseconds over 2^64.
    step: u64,
    /// Wall clock minus counter, in microseconds.
    offset: AtomicU64,
    /// The counter's time at which to compare again.
    compare_at: AtomicU64,
}

/// A monotonic clock that starts at zero, to measure durations. It knows no date.
pub struct SteadyClock {
    counter: quanta::Clock,
    start: u64,
}

/// A clock that moves only when a test moves it.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

const COMPARE_EVERY: u64 = 100_000;
const STEP: u64 = 1_000_000;

impl SystemClock {
    /// A clock that agrees with the wall clock.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.raw();
        let nanos = counter.delta_as_nanos(0, 1 << 40);
        let step = u64::try_from((u128::from(nanos) << 24) / 1_000)
            .expect("counters count faster than every microsecond");
        let (offset, compare_at) = (AtomicU64::new(0), AtomicU64::new(0));
        let clock = Self { counter, start, step, offset, compare_at };
        clock.offset.store(wall_micros().saturating_sub(clock.elapsed()), Ordering::Relaxed);
        clock
    }

    #[inline]
    fn elapsed(&self) -> u64 {
        let steps = self.counter.raw().saturating_sub(self.start);
        ((u128::from(steps) * u128::from(self.step)) >> 64) as u64
    }

    #[cold]
    fn compare(&self, elapsed: u64, compare_at: u64) {
        let next = elapsed + COMPARE_EVERY;
        if self.compare_at.compare_exchange(compare_at, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let offset = self.offset.load(Ordering::Relaxed);
        let right = wall_micros().saturating_sub(elapsed);
        let slewed = right.max(offset.saturating_sub(COMPARE_EVERY / 1_000));
        self.offset.store(if right.abs_diff(offset) > STEP { right } else { slewed }, Ordering::Relaxed);
    }
}

impl SteadyClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.raw();
        Self { counter, start }
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.counter.delta_as_nanos(self.start, self.counter.raw()) / 1_000)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        let compare_at = self.compare_at.load(Ordering::Relaxed);
        if elapsed >= compare_at {
            self.compare(elapsed, compare_at);
        }
        Timestamp::from_micros(elapsed + self.offset.load(Ordering::Relaxed))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Span::from(since).as_micros()
}

impl ManualClock {
    /// A clock that stands at this time.
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicU64::new(now.as_micros()))
    }

    /// Moves the clock to a time, which may be in the past.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Moves the clock on.
    pub fn advance(&self, span: Span) {
        self.0.fetch_add(span.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_agrees_with_the_wall_and_never_runs_backwards() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        for _ in 0..100_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let apart = wall_micros().abs_diff(clock.now().as_micros());
        assert!(apart < 1_000_000, "{apart} µs");
    }

    #[test]
    fn a_wall_clock_that_is_a_little_behind_is_approached_and_one_far_off_is_followed() {
        let clock = SystemClock::new();
        let right = clock.offset.load(Ordering::Relaxed);
        let (elapsed, compare_at) = (clock.elapsed(), clock.compare_at.load(Ordering::Relaxed));
        clock.offset.store(right + 500_000, Ordering::Relaxed);
        clock.compare(elapsed, compare_at);
        assert_eq!(
            clock.offset.load(Ordering::Relaxed),
            right + 500_000 - 100,
            "half a second ahead is slewed"
        );
        clock.offset.store(right + 7_000_000_000, Ordering::Relaxed);
        clock.compare(elapsed, clock.compare_at.load(Ordering::Relaxed));
        assert!(clock.offset.load(Ordering::Relaxed).abs_diff(right) < 1_000_000, "a step is followed");
    }
}
