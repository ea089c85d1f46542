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
    numerator: u64,
    denominator: u64,
    /// How long an empty bucket takes to fill, in whole microseconds.
    fills_in: Span,
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
        let full = numerator.checked_mul(burst).filter(|full| *full <= MAX_EXACT);
        if full.is_none() || denominator > MAX_EXACT {
            return Err(TooBig { most: MAX_EXACT / numerator });
        }
        let fills_in = Span::from_micros(numerator * burst / denominator);
        Ok(Self { rate, period, burst, numerator, denominator, fills_in })
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
        (self.numerator, self.denominator)
    }

    /// Units of backlog in an empty bucket.
    pub fn empty(&self) -> u64 {
        self.numerator * self.burst
    }

    /// What has been taken and not yet refilled, in units of `1 / denominator` microseconds.
    fn backlog(&self, level: Option<Level>, now: Timestamp) -> u64 {
        level.map_or(0, |level| level.full_at.since(now).as_micros() * self.denominator + level.rest)
    }

    /// Forgets a level that is full by now. One from further ahead than an empty bucket could be
    /// (the clock went back) is an empty bucket, never less.
    #[inline]
    pub(super) fn freshen(&self, level: Level, now: Timestamp) -> Option<Level> {
        if level.full_at < now || (level.full_at == now && level.rest == 0) {
            None
        } else if level.full_at.since(now) > self.fills_in || self.backlog(Some(level), now) > self.empty() {
            Some(self.level(self.empty(), now))
        } else {
            Some(level)
        }
    }

    fn level(&self, backlog: u64, now: Timestamp) -> Level {
        // Most rates divide their period; then there is nothing to divide here.
        if self.denominator == 1 {
            return Level { full_at: now + Span::from_micros(backlog), rest: 0 };
        }
        Level {
            full_at: now + Span::from_micros(backlog / self.denominator),
            rest: backlog % self.denominator,
        }
    }

    #[inline]
    pub(super) fn when(&self, level: Option<Level>, draft: &Draft<'_>) -> When {
        if draft.cost > self.burst {
            return When::Never;
        }
        let wanted = self.backlog(level, draft.now) + draft.cost * self.numerator;
        match wanted.checked_sub(self.empty()) {
            None | Some(0) => When::Now,
            Some(excess) => When::After(Span::from_micros(excess.div_ceil(self.denominator))),
        }
    }

    #[inline]
    pub(super) fn take(&self, level: Option<Level>, draft: &Draft<'_>) -> Level {
        self.level(self.backlog(level, draft.now) + draft.cost * self.numerator, draft.now)
    }

    #[inline]
    pub(super) fn read(&self, level: Option<Level>, when: When, now: Timestamp) -> Reading {
        Reading {
            capacity: self.burst,
            remaining: (self.empty() - self.backlog(level, now)) / self.numerator,
            reset: Some(level.map_or(now, Level::idle_at)),
            when,
        }
    }

    /// Freshens, weighs, takes if it conforms, and reads, in one go.
    #[inline]
    pub fn settle(&self, level: Option<Level>, draft: &Draft<'_>) -> (Option<Level>, Reading) {
        let level = level.and_then(|level| self.freshen(level, draft.now));
        let when = self.when(level, draft);
        let taken = when == When::Now && draft.cost > 0;
        let level = if taken { Some(self.take(level, draft)) } else { level };
        (level, self.read(level, when, draft.now))
    }

    /// Gives back what has not yet refilled by itself since the take. Never more: what the bucket
    /// regained on its own was given back already.
    pub(super) fn give(&self, level: Level, cost: u64, taken_at: Timestamp, now: Timestamp) -> Level {
        let taken = cost.min(self.burst) * self.numerator;
        let refilled = now.since(taken_at).as_micros().saturating_mul(self.denominator);
        let back = taken.saturating_sub(refilled);
        let level = self.freshen(level, now);
        self.level(self.backlog(level, now).saturating_sub(back), now)
    }

    /// Carries the used tokens over from a bucket with other numbers, clamped to this one's burst.
    pub(super) fn adopt(&self, old: &Self, level: Level, now: Timestamp) -> Level {
        let used = u128::from(old.backlog(old.freshen(level, now), now)) * u128::from(self.numerator);
        let backlog = used.div_ceil(u128::from(old.numerator)).min(u128::from(self.empty()));
        self.level(u64::try_from(backlog).unwrap_or_else(|_| self.empty()), now)
    }
}

impl Level {
    /// From when on this level says no more than a fresh bucket does.
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
