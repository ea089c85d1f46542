//! Counters that many threads increment at once, and their Prometheus form.
//!
//! The number of series depends on the configuration, never on the keys. Policies created at run time have
//! counters of their own up to a bound.

mod guards;
mod lists;
mod pacer;
mod store;
mod striped;
mod tallies;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use tollgate_core::{Decision, Policies, Rule, Verdict};

use crate::rates::Outcomes;

pub use guards::GuardMeters;
pub use lists::ListMeters;
pub(crate) use pacer::PacedMeter;
pub use pacer::PacerMeters;
pub use store::StoreMeters;
use striped::Striped;
pub(crate) use tallies::OTHER;
use tallies::Tallies;

/// The metrics of decisions.
#[derive(Clone)]
pub struct Meters {
    tallies: Arc<Mutex<Tallies>>,
    /// The duration of decisions, in seconds; one in [`Meters::SAMPLED`] is timed.
    pub latency: Histogram,
}

/// A policy, a rule and an outcome.
pub(crate) type Labels = [Arc<str>; 3];

/// The counters of one policy, found once for each set of policies.
pub(crate) struct PolicyMeter {
    pub(crate) allow: Arc<Striped>,
    blocked: Arc<Striped>,
    /// For each rule: denied, waiting, deferred, exceeded but only observed.
    rules: Vec<[Arc<Striped>; 4]>,
}

impl Default for Meters {
    fn default() -> Self {
        let buckets =
            [0.25e-6, 0.5e-6, 1e-6, 2e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0];
        Self { tallies: Arc::default(), latency: Histogram::new(buckets) }
    }
}

impl Meters {
    /// One decision in this many is timed: reading a clock costs as much as deciding.
    pub const SAMPLED: u64 = 64;

    /// The counters of these policies. The first `configured` of them are from the configuration.
    pub(crate) fn of(&self, policies: &Policies, configured: usize) -> Vec<PolicyMeter> {
        self.tallies.lock().of(policies, configured)
    }

    /// Every counter with the policy, rule and outcome it counts.
    pub fn counts(&self) -> Vec<(Labels, u64)> {
        self.tallies.lock().counts()
    }

    /// Whether a policy has counters of its own.
    pub fn counts_policy(&self, name: &str) -> bool {
        self.tallies.lock().has(name)
    }

    /// The outcomes of each policy since the start, in the order of [`crate::rates::Rates::OUTCOMES`].
    pub(crate) fn policy_totals(&self) -> Vec<(Arc<str>, Outcomes)> {
        self.tallies.lock().policy_totals()
    }

    /// For each rule, the attempts since the start that it denied, made wait, deferred, and only observed as
    /// exceeded.
    pub(crate) fn rule_totals(&self) -> BTreeMap<Arc<str>, [u64; 4]> {
        self.tallies.lock().rule_totals()
    }
}

impl PolicyMeter {
    /// Counts an allowed attempt.
    #[cfg(test)]
    pub(crate) fn allow(&self) {
        self.allow.raise();
    }

    /// Counts what its rules did to an attempt that was refused, or that an observed rule would refuse.
    pub(crate) fn count_rules(&self, decision: &Decision<'_>) {
        if decision.blocked().is_some() {
            self.blocked.raise();
        }
        let rules = &decision.policy().rules;
        let number = |rule: &Rule| rules.iter().position(|own| std::ptr::eq(&**own, rule));
        let outcome = match decision.verdict {
            Verdict::Allow => None,
            Verdict::Deny => Some(0),
            Verdict::Wait(_) => Some(1),
            Verdict::Defer(_) => Some(2),
        };
        if let (Some(outcome), Some(rule)) = (outcome, decision.named_rule())
            && let Some(number) = number(rule)
        {
            self.rules[number][outcome].raise();
        }
        if !decision.policy().observes() {
            return;
        }
        for line in decision.lines().filter(|line| line.rule.observes() && line.exceeded()) {
            if let Some(number) = number(line.rule) {
                self.rules[number][3].raise();
            }
        }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// Exposes the decision counters as `tollgate_decisions_total{policy,rule,outcome}`.
impl Collector for Meters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts();
        let first = ConstCounter::new(0_u64);
        let mut family = encoder.encode_descriptor(
            "tollgate_decisions",
            "Decisions by policy, deciding rule (empty if allowed or blocked) and outcome",
            None,
            first.metric_type(),
        )?;
        for ([policy, rule, outcome], count) in counts {
            let labels = [("policy", &*policy), ("rule", &*rule), ("outcome", &*outcome)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
