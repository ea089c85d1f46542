//! Token buckets, compared with an exact one that is written differently: tokens as a fraction that grows
//! with every microsecond, up to the burst.

use crate::support::{Ask, Bench, at};
use proptest::prelude::*;
use tollgate_core::When;

/// Tokens in units of `1 / period`, so that a microsecond adds exactly `rate` of them.
#[derive(Clone, Debug)]
struct Oracle {
    rate: u128,
    period: u128,
    burst: u128,
    units: u128,
    now: u64,
}

impl Oracle {
    fn new(rate: u64, period: u64, burst: u64) -> Self {
        let (rate, period, burst) = (rate.into(), period.into(), u128::from(burst));
        Self { rate, period, burst, units: burst * period, now: 0 }
    }

    fn advance(&mut self, now: u64) {
        let grown = self.units + u128::from(now - self.now) * self.rate;
        self.units = grown.min(self.burst * self.period);
        self.now = now;
    }

    fn when(&self, cost: u64) -> When {
        let wanted = u128::from(cost) * self.period;
        if u128::from(cost) > self.burst {
            return When::Never;
        }
        match wanted.checked_sub(self.units) {
            None | Some(0) => When::Now,
            Some(missing) => {
                let micros = u64::try_from(missing.div_ceil(self.rate)).expect("waits are short");
                When::After(tollgate_core::Span::from_micros(micros))
            }
        }
    }

    fn take(&mut self, cost: u64) {
        self.units -= u128::from(cost) * self.period;
    }

    fn whole_tokens(&self) -> u64 {
        u64::try_from(self.units / self.period).expect("bursts are small")
    }
}

/// Rate, period in microseconds, burst.
fn numbers() -> impl Strategy<Value = (u64, u64, u64)> {
    const DAY: u64 = 86_400_000_000;
    prop_oneof![
        4 => (1..20_u64, 1..60_u64, 1..8_u64),
        1 => Just((7, 1_000_000, 3)),
        1 => Just((3, 7_000_000, 5)),
        1 => Just((999_983, DAY, 10)),
        1 => Just((5, 60_000_000, 3)),
        1 => (1..1_000_000_u64, 1..DAY, 1..1_000_u64),
        // Many tokens in a microsecond.
        1 => (1_000_000..9_000_000_000_u64, 1..1_000_u64, 1..1_000_000_u64),
    ]
}

/// Waits in hundredths of the time that one token takes, and costs in hundredths of the burst.
fn trace() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let wait = prop_oneof![4 => 0..120_u64, 1 => 0..2_000_u64];
    prop::collection::vec((wait, prop_oneof![3 => 0..40_u64, 1 => 0..120_u64]), 1..60)
}

fn wait_of(percent: u64, rate: u64, period: u64) -> u64 {
    percent * period.div_ceil(rate) / 100
}

fn cost_of(percent: u64, burst: u64) -> u64 {
    1 + percent * burst / 100
}

proptest! {
    #[test]
    fn every_decision_is_that_of_an_exact_bucket((rate, period, burst) in numbers(), trace in trace()) {
        let mut bench = Bench::one(&format!("{rate}/{period}us burst {burst}"));
        let mut oracle = Oracle::new(rate, period, burst);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (wait, cost) in trace {
            now += wait_of(wait, rate, period);
            let cost = cost_of(cost, burst);
            oracle.advance(now);
            let expected = oracle.when(cost);
            let reading = bench.settle(Ask::of(cost), at(now)).readings[0];
            prop_assert_eq!(reading.when, expected);
            if expected == When::Now {
                oracle.take(cost);
                taken.push((now, cost));
            }
            prop_assert_eq!(reading.remaining, oracle.whole_tokens());
        }
        within_the_bound(&taken, rate, period, burst)?;
    }

    #[test]
    fn refunds_never_mint(
        (rate, period, burst) in numbers(),
        trace in prop::collection::vec((0..150_u64, 0..60_u64, prop::option::weighted(0.3, any::<prop::sample::Index>())), 1..50),
    ) {
        let mut bench = Bench::one(&format!("{rate}/{period}us burst {burst}"));
        let mut kept: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (wait, cost, refund) in trace {
            now += wait_of(wait, rate, period);
            let cost = cost_of(cost, burst);
            match refund.filter(|_| !kept.is_empty()) {
                Some(which) => {
                    let (taken_at, cost) = kept.remove(which.index(kept.len()));
                    bench.refund(Ask::of(cost), at(taken_at), at(now));
                }
                None if bench.settle(Ask::of(cost), at(now)).allowed => kept.push((now, cost)),
                None => {}
            }
            // A bucket that never saw the refunded take is at least as full.
            let mut unseen = Oracle::new(rate, period, burst);
            for (taken_at, cost) in &kept {
                unseen.advance(*taken_at);
                unseen.take(*cost);
            }
            unseen.advance(now);
            let remaining = bench.look(Ask::of(0), at(now)).readings[0].remaining;
            prop_assert!(remaining <= unseen.whole_tokens(), "{} > {}", remaining, unseen.whole_tokens());
        }
        within_the_bound(&kept, rate, period, burst)?;
    }

    #[test]
    fn an_immediate_refund_restores_the_full_burst((rate, period, burst) in numbers(), cost in 0..100_u64) {
        let mut bench = Bench::one(&format!("{rate}/{period}us burst {burst}"));
        let ask = Ask::of(cost_of(cost, burst).min(burst));
        prop_assert!(bench.settle(ask, at(0)).allowed);
        bench.refund(ask, at(0), at(0));
        prop_assert!(bench.settle(Ask::of(burst), at(0)).allowed);
    }
}

/// Checks that any interval takes at most the burst and what refills in it.
fn within_the_bound(taken: &[(u64, u64)], rate: u64, period: u64, burst: u64) -> Result<(), TestCaseError> {
    for (index, (start, _)) in taken.iter().enumerate() {
        let mut sum = 0_u128;
        for (end, cost) in &taken[index..] {
            sum += u128::from(*cost);
            let refilled = u128::from(end - start) * u128::from(rate) / u128::from(period);
            prop_assert!(sum <= u128::from(burst) + refilled);
        }
    }
    Ok(())
}

#[test]
fn five_a_minute_is_one_every_twelve_seconds_after_the_burst() {
    let mut bench = Bench::one("5/min burst 3");
    let second = 1_000_000;
    assert!((0..3).all(|_| bench.settle(Ask::of(1), at(0)).allowed));
    assert!(!bench.settle(Ask::of(1), at(12 * second - 1)).allowed);
    assert!(bench.settle(Ask::of(1), at(12 * second)).allowed);
    assert!(!bench.settle(Ask::of(1), at(24 * second - 1)).allowed);
}
