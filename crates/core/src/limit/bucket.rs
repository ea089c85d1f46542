//! A token bucket, counted as a rational number of microseconds of backlog.
//!
//! With `rate` tokens per `period`, one token is worth `period / rate` microseconds, in lowest terms
//! `numerator / denominator`. The state is the time at which the bucket will be full again, in whole
//! microseconds and a remainder in units of `1 / denominator`. This is the generic cell rate algorithm
//! without rounding. No float is used, so no token is created or lost.

use super::kind::{Kind, Nature, Refill};
use super::{Draft, Identity, Idle, Limit, Refund, State, TooBig};
use crate::MAX_EXACT;
use crate::outage::Share;
use crate::reading::{Stock, When};
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

/// A divisor with its reciprocal: multiplying by the reciprocal is faster than dividing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Divisor {
    value: u64,
    reciprocal: u64,
}

/// When the bucket is full again: `full_at` plus `rest / denominator` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Whole microseconds of the time at which the bucket is full.
    pub full_at: Timestamp,
    /// The remainder, in units of one over the bucket's denominator.
    pub rest: u64,
}

impl Bucket {
    /// A bucket with exact arithmetic. Fails if its numbers are too big for that.
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

    /// The period of the rate.
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

    /// The value of one token in units of `1 / denominator` microseconds, and the denominator.
    pub fn token(&self) -> (u64, u64) {
        (self.numerator.value, self.denominator.value)
    }

    /// Units of backlog in an empty bucket.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// What was taken and not yet refilled, in units of `1 / denominator` microseconds. A level further in
    /// the future than an empty bucket could be, after the clock went back, counts as an empty bucket.
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

    /// What is left of a take of `cost` from a full bucket after it has refilled for `refilled` units.
    fn left_of(&self, cost: u64, refilled: u64) -> u64 {
        (cost.min(self.burst) * self.numerator.value).saturating_sub(refilled)
    }

    /// This bucket with its rate and burst cut to a share. A rate that does not divide its period may need
    /// larger numbers than the whole one did; where they are too large to be exact, the burst gives way.
    fn cut(&self, share: Share) -> Self {
        let (rate, burst) = (share.of(self.rate), share.of(self.burst));
        let exact = Self::new(rate, self.period, burst);
        let exact = exact.or_else(|too_big| Self::new(rate, self.period, too_big.most));
        exact.expect("a period of ten years leaves room for a token")
    }
}

impl Kind for Bucket {
    const NATURE: Nature = Nature { names_takes: false, keeps_tickets: false, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::Bucket(self.period)
    }

    fn number(&self) -> u64 {
        self.rate
    }

    fn capacity(&self) -> u64 {
        self.burst
    }

    fn period(&self) -> Option<Span> {
        Some(self.period)
    }

    fn refill(&self) -> Option<Refill> {
        Some(Refill { number: self.rate, period: self.period, burst: Some(self.burst) })
    }

    fn matters_for(&self) -> Span {
        self.fills_in
    }

    /// Forgets a level that is full by now, and clamps one that lies too far in the future.
    #[inline]
    fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        let State::Level(level) = state else { return state.wipe() };
        match self.backlog(Some(*level), draft.now) {
            0 => state.wipe(),
            backlog if backlog == self.empty => *level = self.level(backlog, draft.now),
            _ => {}
        }
    }

    #[inline]
    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        self.wait(self.backlog(state.level(), draft.now), draft.cost)
    }

    #[inline]
    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        let backlog = self.backlog(state.level(), draft.now) + draft.cost * self.numerator.value;
        *state = State::Level(self.level(backlog, draft.now));
    }

    #[inline]
    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock {
        let level = state.level();
        Stock {
            capacity: self.burst,
            remaining: self.numerator.divide(self.empty - self.backlog(level, draft.now)).0,
            reset: Some(level.map_or(draft.now, Level::idle_at)),
        }
    }

    /// Refunds what has not refilled since the take. What the bucket regained by itself is not refunded
    /// again. A partial refund returns the difference to a smaller take.
    fn refund(&self, state: &mut State, draft: &Draft<'_>, Refund { taken_at, amount }: Refund) {
        let State::Level(level) = state else { return };
        let refilled = draft.now.since(taken_at).as_micros().saturating_mul(self.denominator.value);
        let kept = draft.cost.saturating_sub(amount);
        let back = self.left_of(draft.cost, refilled) - self.left_of(kept, refilled);
        *level = self.level(self.backlog(Some(*level), draft.now).saturating_sub(back), draft.now);
    }

    fn denies(&self, state: &State, draft: &Draft<'_>) -> bool {
        self.when(state, draft) > When::Now
    }

    /// Carries the used tokens over from a bucket with other numbers, clamped to this one's burst.
    fn adopt(&self, old: &Limit, state: State, now: Timestamp) -> State {
        let (Some(old), State::Level(level)) = (old.bucket(), &state) else { return State::Fresh };
        let used = u128::from(old.backlog(Some(*level), now)) * u128::from(self.numerator.value);
        let backlog = used.div_ceil(u128::from(old.numerator.value)).min(u128::from(self.empty));
        State::Level(self.level(u64::try_from(backlog).unwrap_or(self.empty), now))
    }

    fn share(&self, share: Share) -> Option<Limit> {
        Some(Limit::Bucket(self.cut(share)))
    }

    fn idle(&self, state: &State) -> Idle {
        Idle::At(state.level().map_or(Timestamp::ZERO, Level::idle_at))
    }
}

impl Divisor {
    fn new(value: u64) -> Self {
        Self { value, reciprocal: u64::MAX / value }
    }

    /// The exact quotient and remainder. The reciprocal is at most one less than 2^64 / value, and the
    /// dividend is below 2^64, so the first estimate is right or one too small.
    #[inline]
    fn divide(self, dividend: u64) -> (u64, u64) {
        let quotient = ((u128::from(dividend) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = dividend - quotient * self.value;
        if rest < self.value { (quotient, rest) } else { (quotient + 1, rest - self.value) }
    }
}

impl Level {
    /// From when on this level equals a fresh bucket.
    #[inline]
    fn idle_at(self) -> Timestamp {
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
            // Multiples of the divisor and their neighbours, where an estimate would fail first.
            let multiple = (dividend / value * value).saturating_add(near).saturating_sub(1);
            for dividend in [dividend, multiple] {
                prop_assert_eq!(Divisor::new(value).divide(dividend), (dividend / value, dividend % value));
            }
        }
    }
}
