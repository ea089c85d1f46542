//! Counters that many threads raise at once, and how they are shown to Prometheus.
//!
//! The number of series depends on the configuration, never on the keys.

mod lists;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use tollgate_core::{Decision, Policies, Policy, Verdict};

pub use lists::ListMeters;
pub use store::StoreMeters;

/// Everything the engine counts about decisions.
#[derive(Clone)]
pub struct Meters {
    counters: Arc<Mutex<BTreeMap<Labels, Arc<Striped>>>>,
    /// How long decisions take, in seconds; one in [`Meters::SAMPLED`] is timed.
    pub latency: Histogram,
}

type Labels = [Arc<str>; 3];

/// The counters of one policy, found once for each set of policies.
pub(crate) struct PolicyMeter {
    allow: Arc<Striped>,
    barred: Arc<Striped>,
    /// For each rule: denied, waiting, deferred, exceeded but only observed.
    rules: Vec<[Arc<Striped>; 4]>,
}

/// A counter in stripes, so that threads do not pass one cache line around.
#[derive(Default)]
pub(crate) struct Striped([Stripe; STRIPES]);

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

const STRIPES: usize = 16;

thread_local! {
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl Default for Meters {
    fn default() -> Self {
        let buckets =
            [0.25e-6, 0.5e-6, 1e-6, 2e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0];
        Self { counters: Arc::default(), latency: Histogram::new(buckets) }
    }
}

impl Meters {
    /// One decision in so many is timed: reading a clock costs as much as deciding.
    pub const SAMPLED: u64 = 64;

    pub(crate) fn of(&self, policies: &Policies) -> Vec<PolicyMeter> {
        policies.iter().map(|policy| self.policy(policy)).collect()
    }

    fn policy(&self, policy: &Policy) -> PolicyMeter {
        let counter = |rule: &str, outcome: &str| {
            let labels = [Arc::clone(&policy.name), rule.into(), outcome.into()];
            Arc::clone(self.counters.lock().entry(labels).or_default())
        };
        let rules = policy
            .rules
            .iter()
            .map(|rule| ["deny", "wait", "defer", "observe"].map(|outcome| counter(&rule.name, outcome)));
        PolicyMeter { allow: counter("", "allow"), barred: counter("", "barred"), rules: rules.collect() }
    }

    /// Every counter with the policy, rule and outcome it counts.
    pub fn counts(&self) -> Vec<(Labels, u64)> {
        self.counters.lock().iter().map(|(labels, counter)| (labels.clone(), counter.total())).collect()
    }
}

impl PolicyMeter {
    #[inline]
    pub(crate) fn count(&self, decision: &Decision<'_>) {
        if decision.allowed() {
            self.allow.raise();
        }
        if !decision.allowed() || decision.policy().observes() {
            self.count_rules(decision);
        }
    }

    fn count_rules(&self, decision: &Decision<'_>) {
        if decision.barred().is_some() {
            self.barred.raise();
        }
        let number = |name: &str| decision.policy().rules.iter().position(|rule| *rule.name == *name);
        let outcome = match decision.verdict {
            Verdict::Allow => None,
            Verdict::Deny => Some(0),
            Verdict::Wait(_) => Some(1),
            Verdict::Defer(_) => Some(2),
        };
        if let (Some(outcome), Some(line)) = (outcome, decision.denied_by())
            && let Some(number) = number(&line.rule.name)
        {
            self.rules[number][outcome].raise();
        }
        for line in decision.lines().filter(|line| line.rule.observes() && line.exceeded()) {
            if let Some(number) = number(&line.rule.name) {
                self.rules[number][3].raise();
            }
        }
    }
}

impl Striped {
    #[inline]
    fn raise(&self) {
        STRIPE.with(|stripe| self.0[*stripe].0.fetch_add(1, Ordering::Relaxed));
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// Shows the decision counters as `tollgate_decisions_total{policy,rule,outcome}`.
impl Collector for Meters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts();
        let first = ConstCounter::new(0_u64);
        let mut family = encoder.encode_descriptor(
            "tollgate_decisions",
            "Decisions by policy, rule that was named (empty when allowed or barred) and outcome",
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
