//! The counters of decisions, by policy and rule. Configured policies have their own. Of those created at run
//! time only a bounded number do and the others share one, so that no caller can fill the metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use tollgate_core::{Policies, Policy};

use super::striped::Striped;
use super::{Labels, PolicyMeter};
use crate::rates::Outcomes;

/// The most policies that have counters of their own, in addition to the configured ones.
pub(super) const MOST_NAMED: usize = 1_000;

/// Takes the place of the policies and rules that have no counters of their own. No name contains parentheses.
pub(crate) static OTHER: LazyLock<Arc<str>> = LazyLock::new(|| "(other)".into());

/// The outcomes of a decision that names a rule, in the order of [`PolicyMeter::rules`].
const OUTCOMES: [&str; 4] = ["deny", "wait", "defer", "observe"];

/// All counters.
#[derive(Default)]
pub(super) struct Tallies {
    by_policy: BTreeMap<Arc<str>, Tally>,
}

#[derive(Default)]
struct Tally {
    allow: Arc<Striped>,
    blocked: Arc<Striped>,
    by_rule: BTreeMap<Arc<str>, [Arc<Striped>; OUTCOMES.len()]>,
}

impl Tallies {
    /// The counters of these policies. The first `configured` of them are from the configuration.
    pub(super) fn of(&mut self, policies: &Policies, configured: usize) -> Vec<PolicyMeter> {
        if self.by_policy.len() >= MOST_NAMED {
            self.by_policy.retain(|name, _| *name == *OTHER || policies.named(name).is_some());
        }
        policies.iter().map(|policy| self.policy(policy, configured)).collect()
    }

    fn policy(&mut self, policy: &Policy, configured: usize) -> PolicyMeter {
        let full = self.by_policy.len() >= configured + MOST_NAMED;
        if full && policy.number() >= configured && !self.by_policy.contains_key(&policy.name) {
            let tally = self.by_policy.entry(Arc::clone(&OTHER)).or_default();
            return tally.meter(policy.rules.iter().map(|_| &*OTHER));
        }
        let tally = self.by_policy.entry(Arc::clone(&policy.name)).or_default();
        tally.meter(policy.rules.iter().map(|rule| &rule.name))
    }

    /// Whether a policy has counters of its own.
    pub(super) fn has(&self, policy: &str) -> bool {
        self.by_policy.contains_key(policy)
    }

    /// Every counter with the policy, rule and outcome it counts, sorted by these.
    pub(super) fn counts(&self) -> Vec<(Labels, u64)> {
        let mut counts = Vec::new();
        for (policy, tally) in &self.by_policy {
            for (outcome, counter) in [("allow", &tally.allow), ("blocked", &tally.blocked)] {
                counts.push(([Arc::clone(policy), "".into(), outcome.into()], counter.total()));
            }
            for (rule, counters) in &tally.by_rule {
                let each = OUTCOMES.into_iter().zip(counters);
                let labels = |outcome: &str| [Arc::clone(policy), Arc::clone(rule), outcome.into()];
                counts.extend(each.map(|(outcome, counter)| (labels(outcome), counter.total())));
            }
        }
        counts.sort();
        counts
    }

    /// The outcomes of each policy, in the order of [`crate::rates::Rates::OUTCOMES`].
    pub(super) fn policy_totals(&self) -> Vec<(Arc<str>, Outcomes)> {
        let totals = self.by_policy.iter().map(|(policy, tally)| {
            let mut outcomes = [tally.allow.total(), tally.blocked.total(), 0, 0, 0, 0];
            for counters in tally.by_rule.values() {
                for (sum, counter) in outcomes[2..].iter_mut().zip(counters) {
                    *sum += counter.total();
                }
            }
            (Arc::clone(policy), outcomes)
        });
        totals.collect()
    }

    /// The outcomes of each rule in all policies.
    pub(super) fn rule_totals(&self) -> BTreeMap<Arc<str>, [u64; OUTCOMES.len()]> {
        let mut totals = BTreeMap::<_, [u64; OUTCOMES.len()]>::new();
        for (rule, counters) in self.by_policy.values().flat_map(|tally| &tally.by_rule) {
            let sums = totals.entry(Arc::clone(rule)).or_default();
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum += counter.total();
            }
        }
        totals
    }
}

impl Tally {
    fn meter<'n>(&mut self, rules: impl Iterator<Item = &'n Arc<str>>) -> PolicyMeter {
        let rules = rules.map(|rule| self.by_rule.entry(Arc::clone(rule)).or_default().clone()).collect();
        PolicyMeter { allow: Arc::clone(&self.allow), blocked: Arc::clone(&self.blocked), rules }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(configured: usize, made: std::ops::Range<usize>) -> Policies {
        let policy = |name: String| Policy::new(name.into(), Vec::new(), true);
        let configured = (0..configured).map(|number| policy(format!("configured-{number}")));
        let made = made.map(|number| policy(format!("made-{number}")));
        Policies::new(true, Vec::new(), configured.chain(made).collect())
    }

    #[test]
    fn the_number_of_counters_has_a_bound_and_configured_policies_keep_theirs() {
        let mut tallies = Tallies::default();
        let meters = tallies.of(&set(2_000, 0..3_000), 2_000);
        assert_eq!(tallies.by_policy.len(), 3_001, "with the one that is shared");
        for meter in &meters {
            meter.allow.raise();
        }
        let counts = tallies.counts();
        let of =
            |name: &str| counts.iter().find(|([policy, ..], _)| **policy == *name).map(|(_, count)| *count);
        assert_eq!([of("configured-1999"), of("made-0"), of("made-2999")], [Some(1), Some(1), None]);
        assert_eq!(of("(other)"), Some(2_000));
        assert_eq!(
            ["configured-1999", "made-0", "made-2999"].map(|name| tallies.has(name)),
            [true, true, false]
        );
    }

    #[test]
    fn policies_that_come_and_go_make_room_for_others() {
        let mut tallies = Tallies::default();
        for round in 0..5 {
            let first = round * MOST_NAMED;
            let meters = tallies.of(&set(1, first..first + 10), 1);
            meters.iter().for_each(|meter| meter.allow.raise());
            tallies.of(&set(1, first..first + MOST_NAMED), 1);
            assert!(tallies.by_policy.len() <= MOST_NAMED + 2, "{}", tallies.by_policy.len());
            assert!(tallies.by_policy.contains_key(&*format!("made-{first}")));
        }
        let counts = tallies.counts();
        assert_eq!(counts.iter().find(|([policy, ..], _)| **policy == *"configured-0").unwrap().1, 5);
    }
}
