//! The rate at which a limit lets waiting attempts pass. It predicts the duration of a queue, and the lateness
//! of a turn that costs no rate.

use tollgate_core::limit::Refill;
use tollgate_core::{Limit, Span};

/// The speed at which a used-up limit lets attempts pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace(Refill);

/// The most that a late turn may cost: half a percent of the limit's rate.
const LOSS: u64 = 200;

impl Pace {
    /// The pace of a limit; `None` if it cannot be known in advance.
    pub(super) fn of(limit: &Limit) -> Option<Self> {
        limit.refill().map(Self)
    }

    /// The least time after the first waiter, which takes `first`, until an attempt passes, if `units` are
    /// taken in total up to and including it.
    pub(super) fn after(self, first: u64, units: u64) -> Span {
        match self.0.burst {
            Some(_) => self.times(u128::from(units.saturating_sub(first))),
            None => {
                let periods = units.saturating_sub(1) / self.0.number;
                Span::from_micros(periods.saturating_mul(self.0.period.as_micros()))
            }
        }
    }

    /// The lateness of a turn that takes `cost` at which only a little of the rate is lost. A bucket loses
    /// nothing while it still fills up.
    pub(super) fn slack(self, cost: u64) -> Span {
        match self.0.burst {
            Some(burst) => {
                let saved = self.times(u128::from(burst.saturating_sub(cost)));
                let spent = Span::from_micros(self.times(u128::from(cost)).as_micros() / LOSS);
                saved.max(spent)
            }
            None => Span::from_micros(self.0.period.as_micros() / LOSS),
        }
    }

    /// The time in which a bucket refills `units`, rounded up.
    fn times(self, units: u128) -> Span {
        let micros = (units * u128::from(self.0.period.as_micros())).div_ceil(u128::from(self.0.number));
        Span::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(limit: &str) -> Pace {
        Pace::of(&limit.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_bucket_lets_one_pass_after_the_other() {
        let pace = pace("10/s burst 5");
        assert_eq!(pace.after(1, 1), Span::ZERO);
        assert_eq!(pace.after(1, 4), Span::from_millis(300));
        assert_eq!(pace.after(2, 4), Span::from_millis(200));
    }

    #[test]
    fn a_window_lets_as_many_pass_as_it_holds_and_then_none_for_its_period() {
        let pace = pace("20/min sliding");
        assert_eq!(pace.after(1, 20), Span::ZERO);
        assert_eq!(pace.after(1, 21), Span::from_secs(60));
        assert_eq!(pace.after(1, 41), Span::from_secs(120));
    }

    #[test]
    fn a_limit_without_a_predictable_rate_has_no_pace() {
        for limit in ["5 at once for 10s", "10 in total", "3/month calendar"] {
            assert_eq!(Pace::of(&limit.parse().unwrap()), None, "{limit}");
        }
    }

    #[test]
    fn a_bucket_that_saves_up_bears_a_late_turn_and_one_that_does_not_loses_by_it() {
        assert_eq!(pace("100/s burst 3").slack(1), Span::from_millis(20));
        assert_eq!(pace("100/s burst 1").slack(1), Span::from_micros(50));
        assert_eq!(pace("1/s sliding").slack(1), Span::from_millis(5));
    }
}
