//! The outcomes of the last fifteen minutes, second by second for each policy and minute by minute for each
//! rule. They are differences of the counters, sampled once a second: deciding does nothing for them.
//!
//! Bounded: only a fixed number of policies have seconds of their own, and the others share one series. Every
//! policy that has counters of its own has minutes of its own, so that the pressure on a rule is right for each
//! of them.

mod minutes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::Timestamp;

use crate::meter::{Meters, OTHER};
use minutes::Minutes;

/// The rates of an engine.
#[derive(Default)]
pub struct Rates(Mutex<Sampled>);

/// The number of each of [`Rates::OUTCOMES`].
pub type Outcomes = [u64; Rates::OUTCOMES.len()];

/// The seconds that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateHistory {
    /// The last second, counted from 1970.
    pub last: u64,
    /// The outcomes of each policy, oldest first. All series have the same length.
    pub policies: Vec<(Arc<str>, Vec<[u32; Rates::OUTCOMES.len()]>)>,
}

/// The recent outcomes of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleRate {
    /// The attempts of the last fifteen minutes that it denied, made wait, deferred, and only observed as
    /// exceeded.
    pub recent: [u64; 4],
    /// The same numbers since the start.
    pub total: [u64; 4],
    /// When it last denied, to the second.
    pub last_denied: Option<Timestamp>,
    /// When it was last exceeded but only observed, to the second.
    pub last_observed: Option<Timestamp>,
}

#[derive(Default)]
struct Sampled {
    /// The second of the last sample; 0 before the first.
    second: u64,
    /// The counters at the last sample.
    policies: BTreeMap<Arc<str>, Outcomes>,
    rules: BTreeMap<Arc<str>, RuleSeries>,
    /// The attempts at each policy.
    attempts: BTreeMap<Arc<str>, Minutes<1>>,
    /// As long as the series; the newest is last.
    length: usize,
    series: BTreeMap<Arc<str>, VecDeque<[u32; Rates::OUTCOMES.len()]>>,
}

#[derive(Default)]
struct RuleSeries {
    total: [u64; 4],
    minutes: Minutes<4>,
    last_denied: Option<Timestamp>,
    last_observed: Option<Timestamp>,
}

/// The number of seconds in the history.
pub const SECONDS: usize = 900;
/// The most policies that have a series of their own.
const MOST_SERIES: usize = 32;

impl Rates {
    /// The outcomes, in their order.
    pub const OUTCOMES: [&'static str; 6] = ["allow", "blocked", "deny", "wait", "defer", "observe"];

    /// Samples the counters. To be called about once a second; calls within the same second do nothing.
    pub fn sample(&self, meters: &Meters, now: Timestamp) {
        let second = now.as_micros() / 1_000_000;
        let sampled = &mut *self.0.lock();
        if second == sampled.second {
            return;
        }
        let first = sampled.second == 0;
        // After the clock went back, the seconds continue from the last one.
        let passed =
            usize::try_from(second.saturating_sub(sampled.second)).unwrap_or(SECONDS).clamp(1, SECONDS);
        sampled.second = second;
        sampled.take_rules(&meters.rule_totals(), Timestamp::from_micros(second * 1_000_000), first);
        let totals = meters.policy_totals();
        if !first {
            sampled.advance(passed);
            for (policy, total) in &totals {
                let before = sampled.policies.get(policy).copied().unwrap_or_default();
                let happened = difference(*total, before);
                sampled.add(policy, happened, passed);
                // An observed attempt is among the allowed ones.
                let [allow, blocked, deny, wait, defer, _] = happened;
                let minutes = sampled.attempts.entry(Arc::clone(policy)).or_default();
                minutes.add(second / 60, [allow + blocked + deny + wait + defer]);
            }
        }
        let Sampled { policies, attempts, .. } = sampled;
        *policies = totals.into_iter().collect();
        attempts.retain(|policy, _| policies.contains_key(policy));
    }

    /// When the counters were last sampled, to the second; `None` before the first sample.
    pub fn sampled_at(&self) -> Option<Timestamp> {
        let second = self.0.lock().second;
        (second > 0).then(|| Timestamp::from_micros(second * 1_000_000))
    }

    /// The latest seconds in the history, at most `seconds`.
    pub fn history(&self, seconds: usize) -> RateHistory {
        let sampled = self.0.lock();
        let latest = |series: &VecDeque<_>| {
            series.range(series.len().saturating_sub(seconds)..).copied().collect::<Vec<_>>()
        };
        let series = sampled.series.iter();
        let policies = series.map(|(policy, series)| (Arc::clone(policy), latest(series)));
        RateHistory { last: sampled.second, policies: policies.collect() }
    }

    /// The outcomes of each policy in the latest `seconds`. Policies without any are left out.
    pub fn latest(&self, seconds: usize) -> Vec<(Arc<str>, Outcomes)> {
        let sampled = self.0.lock();
        let sums = sampled.series.iter().map(|(policy, series)| {
            let mut sum = Outcomes::default();
            for second in series.iter().rev().take(seconds) {
                for (sum, one) in sum.iter_mut().zip(second) {
                    *sum += u64::from(*one);
                }
            }
            (Arc::clone(policy), sum)
        });
        sums.filter(|(_, sum)| *sum != Outcomes::default()).collect()
    }

    /// The number of attempts at each policy in the last fifteen minutes, the same minutes as in
    /// [`Rates::rules`]. Policies without counters of their own are left out.
    pub fn attempts(&self) -> BTreeMap<Arc<str>, u64> {
        let sampled = self.0.lock();
        let sum = |minutes: &Minutes<1>| minutes.sum(sampled.second / 60)[0];
        let attempts = sampled.attempts.iter().filter(|(policy, _)| **policy != *OTHER);
        attempts.map(|(policy, minutes)| (Arc::clone(policy), sum(minutes))).collect()
    }

    /// The recent outcomes of each rule.
    pub fn rules(&self) -> BTreeMap<Arc<str>, RuleRate> {
        let sampled = self.0.lock();
        let rate = |series: &RuleSeries| {
            let RuleSeries { total, last_denied, last_observed, .. } = *series;
            RuleRate { recent: series.minutes.sum(sampled.second / 60), total, last_denied, last_observed }
        };
        sampled.rules.iter().map(|(rule, series)| (Arc::clone(rule), rate(series))).collect()
    }
}

impl Sampled {
    /// Adds empty seconds for the time that has passed.
    fn advance(&mut self, passed: usize) {
        self.length = (self.length + passed).min(SECONDS);
        for series in self.series.values_mut() {
            series.extend(std::iter::repeat_n([0; Rates::OUTCOMES.len()], passed));
            let excess = series.len().saturating_sub(SECONDS);
            series.drain(..excess);
        }
        self.series.retain(|_, series| series.iter().any(|second| *second != [0; Rates::OUTCOMES.len()]));
    }

    /// Adds the outcomes of the last seconds, evenly: a late sample is not a burst.
    fn add(&mut self, policy: &Arc<str>, happened: Outcomes, passed: usize) {
        if happened == Outcomes::default() {
            return;
        }
        let full = self.series.len() >= MOST_SERIES && !self.series.contains_key(policy);
        let name = if full { &*OTHER } else { policy };
        let empty = || std::iter::repeat_n([0; Rates::OUTCOMES.len()], self.length).collect();
        let series = self.series.entry(Arc::clone(name)).or_insert_with(empty);
        for (outcome, count) in happened.into_iter().enumerate() {
            for (number, second) in series.iter_mut().rev().take(passed).enumerate() {
                let (seconds, number) = (passed as u64, number as u64);
                let share = count / seconds + u64::from(number < count % seconds);
                second[outcome] = second[outcome].saturating_add(u32::try_from(share).unwrap_or(u32::MAX));
            }
        }
    }

    fn take_rules(&mut self, totals: &BTreeMap<Arc<str>, [u64; 4]>, now: Timestamp, first: bool) {
        let minute = now.as_micros() / 60_000_000;
        self.rules.retain(|rule, _| totals.contains_key(rule));
        for (rule, total) in totals {
            let series = self.rules.entry(Arc::clone(rule)).or_default();
            let happened = difference(*total, series.total);
            series.total = *total;
            if first || happened == [0; 4] {
                continue;
            }
            series.minutes.add(minute, happened);
            if happened[0] > 0 {
                series.last_denied = Some(now);
            }
            if happened[3] > 0 {
                series.last_observed = Some(now);
            }
        }
    }
}

/// The increase of counters. If a policy was removed and created again, its counters start from zero.
fn difference<const N: usize>(now: [u64; N], before: [u64; N]) -> [u64; N] {
    let is_new = now.iter().zip(&before).any(|(now, before)| now < before);
    if is_new { now } else { std::array::from_fn(|at| now[at] - before[at]) }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Policies, Policy};

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_micros((1_000 + second) * 1_000_000)
    }

    fn policies(names: impl Iterator<Item = String>) -> Policies {
        Policies::new(
            true,
            Vec::new(),
            names.map(|name| Policy::new(name.into(), Vec::new(), true)).collect(),
        )
    }

    /// Counts allowed attempts of the first policies, as many as each number says.
    fn allow(meters: &[crate::meter::PolicyMeter], counts: &[u64]) {
        for (meter, count) in meters.iter().zip(counts) {
            (0..*count).for_each(|_| meter.allow());
        }
    }

    fn allowed(rates: &Rates, policy: &str) -> Vec<u32> {
        let history = rates.history(SECONDS);
        let found = history.policies.iter().find(|(name, _)| **name == *policy);
        found.map_or(Vec::new(), |(_, series)| series.iter().map(|second| second[0]).collect())
    }

    #[test]
    fn each_second_has_its_own_counts_and_a_late_sample_is_spread() {
        let (meters, rates) = (Meters::default(), Rates::default());
        let counters = meters.of(&policies(["a".to_owned()].into_iter()), 1);
        allow(&counters, &[50]);
        rates.sample(&meters, at(0));
        assert!(allowed(&rates, "a").is_empty(), "what came before the first sample is of no known second");
        allow(&counters, &[3]);
        rates.sample(&meters, at(1));
        rates.sample(&meters, at(1));
        rates.sample(&meters, at(2));
        allow(&counters, &[7]);
        rates.sample(&meters, at(4));
        assert_eq!(allowed(&rates, "a"), [3, 0, 3, 4]);
        assert_eq!(rates.latest(2), [("a".into(), [7, 0, 0, 0, 0, 0])]);
        // The clock goes back, and time goes on.
        allow(&counters, &[5]);
        rates.sample(&meters, at(2));
        assert_eq!(allowed(&rates, "a"), [3, 0, 3, 4, 5]);
        assert_eq!(rates.history(SECONDS).last, 1_002);
    }

    #[test]
    fn fifteen_minutes_are_kept_and_a_silent_policy_is_dropped() {
        let (meters, rates) = (Meters::default(), Rates::default());
        let counters = meters.of(&policies(["a".to_owned(), "b".to_owned()].into_iter()), 2);
        rates.sample(&meters, at(0));
        allow(&counters, &[1, 1]);
        rates.sample(&meters, at(1));
        for second in 2..=900 {
            allow(&counters, &[0, 1]);
            rates.sample(&meters, at(second));
        }
        assert_eq!((allowed(&rates, "a").len(), allowed(&rates, "a")[0]), (900, 1));
        rates.sample(&meters, at(901));
        assert_eq!((allowed(&rates, "a").len(), allowed(&rates, "b").len()), (0, 900));
        rates.sample(&meters, at(100_000));
        assert!(rates.history(SECONDS).policies.is_empty());
    }

    #[test]
    fn the_number_of_series_has_a_bound_and_nothing_is_lost() {
        let (meters, rates) = (Meters::default(), Rates::default());
        let counters = meters.of(&policies((0..100).map(|number| format!("p{number:02}"))), 100);
        rates.sample(&meters, at(0));
        allow(&counters, &[2; 100]);
        rates.sample(&meters, at(1));
        let history = rates.history(SECONDS);
        assert_eq!(history.policies.len(), MOST_SERIES + 1);
        assert_eq!(history.policies.iter().map(|(_, series)| series[0][0]).sum::<u32>(), 200);
        assert_eq!(allowed(&rates, "(other)"), [2 * (100 - MOST_SERIES as u32)]);
        // Minutes are not merged: each policy knows its attempts.
        assert_eq!(rates.attempts().into_values().collect::<Vec<_>>(), [2; 100]);
        rates.sample(&meters, at(16 * 60));
        assert_eq!(rates.attempts().into_values().sum::<u64>(), 0);
    }
}
