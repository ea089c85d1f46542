//! A token bucket, counted as a rational number of microseconds of backlog.
//!
//! With `rate` tokens per `period`, one token is worth `period / rate` microseconds, in lowest terms
//! `numerator / denominator`. The state is the moment at which the bucket will be full again, as
//! whole microseconds and a remainder in units of `1 / denominator`: the generic cell rate
//! algorithm without rounding. A float never appears, so nothing is minted and nothing is lost.

use super::{Draft, TooBig};
use crate::MAX_EXACT;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// `rate` per `period`, with up to `burst` at once. Starts full.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    rate: u64,
    period: Span,
    burst: u64,
    /// Microseconds per token, in lowest terms: `numerator / denominator`.
    numerator: Divisor,
    denominator: Divisor,
    /// Units of backlog in an empty bucket.
    empty: u64,
    /// How long an empty bucket takes to fill, in whole microseconds.
    fills_in: Span,
}

/// A number that much is divided by: multiplying by what it goes into 2^64 is faster than dividing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Divisor {
    value: u64,
    reciprocal: u64,
}

/// When the bucket is full again: `full_at` plus `rest / denominator` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Whole microseconds of the moment at which the bucket is full.
    pub full_at: Timestamp,
    /// What is left over, in units of one over the bucket's denominator.
    pub rest: u64,
}

impl Bucket {
    /// A bucket whose arithmetic is exact, or the reason why it cannot be.
    pub fn new(rate: u64, period: Span, burst: u64) -> Result<Self, TooBig> {
        assert!(rate > 0 && burst > 0 && period > Span::ZERO, "the grammar refuses zeros");
        let divisor = greatest_common_divisor(rate, period.as_micros());
        let numerator = period.as_micros() / divisor;
        let denominator = rate / divisor;
        let too_big = TooBig { most: MAX_EXACT / numerator };
        let empty = numerator.checked_mul(burst).filter(|empty| *empty <= MAX_EXACT).ok_or(too_big)?;
        if denominator > MAX_EXACT {
            return Err(too_big);
        }
        let fills_in = Span::from_micros(empty / denominator);
        let (numerator, denominator) = (Divisor::new(numerator), Divisor::new(denominator));
        Ok(Self { rate, period, burst, numerator, denominator, empty, fills_in })
    }

    /// Tokens per period, as written.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// The period the rate is over.
    pub fn period(&self) -> Span {
        self.period
    }

    /// The most that can be taken at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// How long an empty bucket takes to fill, in whole microseconds.
    pub fn fills_in(&self) -> Span {
        self.fills_in
    }

    /// What one token is worth, in units of `1 / denominator` microseconds, and that denominator.
    pub fn token(&self) -> (u64, u64) {
        (self.numerator.value, self.denominator.value)
    }

    /// Units of backlog in an empty bucket.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// What has been taken and not yet refilled, in units of `1 / denominator` microseconds. A level
    /// from further ahead than an empty bucket could be (the clock went back) is an empty bucket,
    /// never less.
    #[inline]
    fn backlog(&self, level: Option<Level>, now: Timestamp) -> u64 {
        match level {
            Some(level) if level.full_at >= now => {
                let ahead = level.full_at.since(now);
                if ahead > self.fills_in {
                    return self.empty;
                }
                (ahead.as_micros() * self.denominator.value + level.rest).min(self.empty)
            }
            _ => 0,
        }
    }

    #[inline]
    fn level(&self, backlog: u64, now: Timestamp) -> Level {
        let (micros, rest) = self.denominator.divide(backlog);
        Level { full_at: now + Span::from_micros(micros), rest }
    }

    /// Forgets a level that is full by now.
    #[inline]
    pub(super) fn freshen(&self, level: Level, now: Timestamp) -> Option<Level> {
        let backlog = self.backlog(Some(level), now);
        (backlog > 0).then(|| self.level(backlog, now))
    }

    #[inline]
    pub(super) fn when(&self, level: Option<Level>, draft: &Draft<'_>) -> When {
        self.wait(self.backlog(level, draft.now), draft.cost)
    }

    #[inline]
    fn wait(&self, backlog: u64, cost: u64) -> When {
        if cost > self.burst {
            return When::Never;
        }
        match (backlog + cost * self.numerator.value).checked_sub(self.empty) {
            None | Some(0) => When::Now,
            Some(excess) => When::After(Span::from_micros(excess.div_ceil(self.denominator.value))),
        }
    }

    #[inline]
    pub(super) fn take(&self, level: Option<Level>, draft: &Draft<'_>) -> Level {
        self.level(self.backlog(level, draft.now) + draft.cost * self.numerator.value, draft.now)
    }

    #[inline]
    pub(super) fn read(&self, level: Option<Level>, when: When, now: Timestamp) -> Reading {
        Reading {
            capacity: self.burst,
            remaining: self.numerator.divide(self.empty - self.backlog(level, now)).0,
            reset: Some(level.map_or(now, Level::idle_at)),
            when,
        }
    }

    /// Freshens, weighs, takes if it conforms, and reads, in one go: the backlog is worked out once.
    #[inline]
    pub fn settle(&self, level: Option<Level>, draft: &Draft<'_>) -> (Option<Level>, Reading) {
        let before = self.backlog(level, draft.now);
        let when = self.wait(before, draft.cost);
        let backlog = if when == When::Now { before + draft.cost * self.numerator.value } else { before };
        let level = self.level(backlog, draft.now);
        let reading = Reading {
            capacity: self.burst,
            remaining: self.numerator.divide(self.empty - backlog).0,
            reset: Some(level.idle_at()),
            when,
        };
        ((backlog > 0).then_some(level), reading)
    }

    /// Gives back what has not yet refilled by itself since the take. Never more: what the bucket
    /// regained on its own was given back already.
    pub(super) fn give(&self, level: Level, cost: u64, taken_at: Timestamp, now: Timestamp) -> Level {
        let taken = cost.min(self.burst) * self.numerator.value;
        let refilled = now.since(taken_at).as_micros().saturating_mul(self.denominator.value);
        let back = taken.saturating_sub(refilled);
        self.level(self.backlog(Some(level), now).saturating_sub(back), now)
    }

    /// Carries the used tokens over from a bucket with other numbers, clamped to this one's burst.
    pub(super) fn adopt(&self, old: &Self, level: Level, now: Timestamp) -> Level {
        let used = u128::from(old.backlog(Some(level), now)) * u128::from(self.numerator.value);
        let backlog = used.div_ceil(u128::from(old.numerator.value)).min(u128::from(self.empty));
        self.level(u64::try_from(backlog).unwrap_or(self.empty), now)
    }
}

impl Divisor {
    fn new(value: u64) -> Self {
        Self { value, reciprocal: u64::MAX / value }
    }

    /// Quotient and remainder, exactly: the reciprocal falls short of 2^64 / value by one at most, and
    /// the dividend is below 2^64, so the first estimate is right or one too small.
    #[inline]
    fn divide(self, dividend: u64) -> (u64, u64) {
        let quotient = ((u128::from(dividend) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = dividend - quotient * self.value;
        if rest < self.value { (quotient, rest) } else { (quotient + 1, rest - self.value) }
    }
}

impl Level {
    /// From when on this level says no more than a fresh bucket does.
    #[inline]
    pub(super) fn idle_at(self) -> Timestamp {
        self.full_at + Span::from_micros(u64::from(self.rest > 0))
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn dividing_by_multiplying_is_exact(
            value in prop_oneof![1..=10_u64, 1..=MAX_EXACT, any::<u64>().prop_map(|value| value.max(1))],
            dividend in any::<u64>(),
            near in 0..3_u64,
        ) {
            // Multiples of the divisor and their neighbours, where an estimate would go wrong first.
            let multiple = (dividend / value * value).saturating_add(near).saturating_sub(1);
            for dividend in [dividend, multiple] {
                prop_assert_eq!(Divisor::new(value).divide(dividend), (dividend / value, dividend % value));
            }
        }
    }
}
