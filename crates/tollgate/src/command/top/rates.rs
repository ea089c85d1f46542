//! How fast totals grow.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::sampler::Sample;
use crate::client::wire::{Busy, Top, Total};

/// The growth of every policy between two samples.
pub(super) struct Rates {
    /// All policies together.
    pub(super) all: Pace,
    /// Each policy, the busiest first.
    pub(super) policies: Vec<(String, Pace)>,
    /// Each key that was seen between the samples, with its rule and count, the busiest first.
    pub(super) keys: Vec<(String, String, u64)>,
}

/// Decisions a second by outcome, and how many there were in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    pub(super) allow: f64,
    pub(super) deny: f64,
    pub(super) wait: f64,
    pub(super) defer: f64,
    /// Exceeded but only observed: not a decision of its own.
    pub(super) observe: f64,
    pub(super) total: u64,
}

impl Pace {
    /// Adds the decisions with one outcome.
    fn add(&mut self, outcome: &str, rate: f64, count: u64) {
        match outcome {
            "allow" => self.allow += rate,
            "deny" => self.deny += rate,
            "wait" => self.wait += rate,
            "defer" => self.defer += rate,
            _ => self.observe += rate,
        }
        if matches!(outcome, "allow" | "deny" | "wait" | "defer") {
            self.total += count;
        }
    }

    /// Decisions a second.
    pub(super) fn decisions(&self) -> f64 {
        self.allow + self.refused()
    }

    /// Denied, waiting or deferred, a second.
    pub(super) fn refused(&self) -> f64 {
        self.deny + self.wait + self.defer
    }
}

impl Rates {
    /// The rates of these policies, without keys.
    fn of(policies: BTreeMap<&str, Pace>) -> Self {
        let mut all = Pace::default();
        for pace in policies.values() {
            all += *pace;
        }
        let mut policies: Vec<_> = policies.into_iter().map(|(name, pace)| (name.to_owned(), pace)).collect();
        policies.sort_by(|(_, a), (_, b)| {
            b.decisions().total_cmp(&a.decisions()).then_with(|| b.total.cmp(&a.total))
        });
        Self { all, policies, keys: Vec::new() }
    }
}

impl AddAssign for Pace {
    fn add_assign(&mut self, other: Self) {
        self.allow += other.allow;
        self.deny += other.deny;
        self.wait += other.wait;
        self.defer += other.defer;
        self.observe += other.observe;
        self.total += other.total;
    }
}

/// How fast the totals grew from one sample to the other. Nodes report less often than samples are taken, so
/// the rates of all nodes are those that the nodes have measured.
pub(super) fn between(before: &Sample, after: &Sample) -> Rates {
    if after.top.nodes.is_some() {
        return measured(&after.top);
    }
    let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
    let keys = seen(&before.top.busiest, &after.top.busiest);
    Rates { keys, ..growth(&before.top.totals, &after.top.totals, seconds) }
}

/// The rates that nodes have measured.
fn measured(top: &Top) -> Rates {
    let mut policies: BTreeMap<&str, Pace> = BTreeMap::new();
    for Total { policy, outcome, count, per_second } in &top.totals {
        policies.entry(policy).or_default().add(outcome, per_second.unwrap_or_default(), *count);
    }
    let busiest = top.busiest.iter();
    let keys = busiest.map(|busy| (busy.rule.clone(), busy.key.clone(), busy.seen)).collect();
    Rates { keys, ..Rates::of(policies) }
}

/// How often each key was seen between two samples.
fn seen(before: &[Busy], after: &[Busy]) -> Vec<(String, String, u64)> {
    let earlier: BTreeMap<(&str, &str), u64> =
        before.iter().map(|busy| ((busy.rule.as_str(), busy.key.as_str()), busy.seen)).collect();
    let grown = |busy: &Busy| {
        let earlier = earlier.get(&(busy.rule.as_str(), busy.key.as_str())).copied().unwrap_or(0);
        // A count that shrank was halved to make room, or the server was restarted.
        if busy.seen >= earlier { busy.seen - earlier } else { busy.seen }
    };
    let mut keys: Vec<_> =
        after.iter().map(|busy| (busy.rule.clone(), busy.key.clone(), grown(busy))).collect();
    keys.retain(|(.., seen)| *seen > 0);
    keys.sort_by(|(.., a), (.., b)| b.cmp(a));
    keys
}

fn growth(before: &[Total], after: &[Total], seconds: f64) -> Rates {
    let (before, after) = (by_outcome(before), by_outcome(after));
    let mut policies: BTreeMap<&str, Pace> = BTreeMap::new();
    for ((policy, outcome), count) in after {
        let earlier = before.get(&(policy, outcome)).copied().unwrap_or(0);
        // If a total shrank, the server was restarted.
        let grown = if count >= earlier { count - earlier } else { count };
        let rate = if seconds > 0.0 { grown as f64 / seconds } else { 0.0 };
        policies.entry(policy).or_default().add(outcome, rate, count);
    }
    Rates::of(policies)
}

fn by_outcome(totals: &[Total]) -> BTreeMap<(&str, &str), u64> {
    let mut counts = BTreeMap::new();
    for total in totals {
        *counts.entry((total.policy.as_str(), total.outcome.as_str())).or_insert(0) += total.count;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(policy: &str, outcome: &str, count: u64) -> Total {
        Total { policy: policy.to_owned(), outcome: outcome.to_owned(), count, per_second: None }
    }

    #[test]
    fn growth_is_counted_over_the_time_that_passed() {
        let before = [total("a", "allow", 10), total("a", "deny", 4), total("b", "allow", 100)];
        let after = [
            total("a", "allow", 30),
            total("a", "deny", 6),
            total("a", "deny", 4),
            total("a", "observe", 8),
            total("b", "allow", 101),
        ];
        let rates = growth(&before, &after, 2.0);
        let a = Pace { allow: 10.0, deny: 3.0, observe: 4.0, total: 40, ..Pace::default() };
        let b = Pace { allow: 0.5, total: 101, ..Pace::default() };
        assert_eq!(rates.policies, [("a".to_owned(), a), ("b".to_owned(), b)]);
        assert_eq!((rates.all.decisions(), rates.all.refused(), rates.all.total), (13.5, 3.0, 141));
    }

    #[test]
    fn keys_are_ranked_by_how_often_they_were_seen_in_the_meantime() {
        let busy = |key: &str, seen| Busy { rule: "ip".to_owned(), key: key.to_owned(), seen };
        let before = [busy("old", 100), busy("both", 10)];
        let after = [busy("old", 100), busy("both", 12), busy("new", 5)];
        let told = |key: &str, seen| ("ip".to_owned(), key.to_owned(), seen);
        assert_eq!(seen(&before, &after), [told("new", 5), told("both", 2)]);
    }

    #[test]
    fn a_server_started_anew_counts_from_zero() {
        let rates = growth(&[total("a", "allow", 1_000)], &[total("a", "allow", 5)], 1.0);
        assert_eq!(rates.all.allow, 5.0);
    }

    #[test]
    fn no_time_is_no_rate() {
        let rates = growth(&[], &[total("a", "allow", 5)], 0.0);
        assert_eq!((rates.all.allow, rates.all.total), (0.0, 5));
    }
}
