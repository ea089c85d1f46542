//! The configuration with the run-time configuration merged into it: one set of policies, and the entries
//! that did not fit.

use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;
use tollgate_core::numbers::Numbers;
use tollgate_core::{Clash, Field, OnExceed, Plan, Policies, Policy, Rule};

use super::{CONSUMER, DynamicPolicy, LeftOut, RuntimeConfig, Subject};

/// Why an unreadable record is left out.
pub(crate) const UNREADABLE: &str = "it cannot be read";

/// The policies in force, from the configuration file and from run time.
pub(crate) struct Merged {
    pub(crate) policies: Policies,
    /// The number of configured policies. They come first.
    pub(crate) configured: usize,
    /// Whether the configuration has no consumer rule.
    pub(crate) built_in_consumer: bool,
    /// The index of the policy that is assigned to each name.
    pub(crate) assigned: HashMap<Arc<str>, usize>,
    pub(crate) left_out: LeftOut,
}

/// Why a created policy does not fit the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The configuration has something of its name.
    Taken,
    /// No attempt could meet its limits.
    Clash(Box<Clash>),
}

/// The consumer rule, if none is configured.
fn consumer(base: &Policies) -> Arc<Rule> {
    static NAME: LazyLock<Arc<str>> = LazyLock::new(|| CONSUMER.into());
    let plan = Plan::new(Arc::clone(&NAME), Vec::new()).expect("no limits do not clash");
    Arc::new(Rule {
        name: Arc::clone(&NAME),
        code: None,
        by: [Field { name: Arc::clone(&NAME), kind: base.kind_of(CONSUMER) }].into(),
        on_exceed: OnExceed::Reject,
        on_outage: base.on_outage().as_default_of(&plan),
        count: None,
        count_when: None,
        rows: None,
        ban: None,
        plan: Arc::new(plan),
        overrides: Default::default(),
        enabled: true,
        secret: false,
    })
}

impl DynamicPolicy {
    /// The policy with its own rule and the consumer rule. An attempt to which neither applies passes, like
    /// one without a policy.
    fn policy(&self, base: &Policies, consumer: &Arc<Rule>, numbers: &mut Numbers) -> Result<Policy, Misfit> {
        let name = &self.spec.name;
        if **name == *CONSUMER || base.rule(name).is_some() || base.named(name).is_some() {
            return Err(Misfit::Taken);
        }
        let rules = vec![Arc::new(self.rule(base)), Arc::clone(consumer)];
        let policy = Policy::sharing(Arc::clone(name), rules, true, numbers);
        for rule in policy.rules.iter().filter(|rule| !numbers.of(rule).is_empty()) {
            let mut plans = std::iter::once(&rule.plan).chain(rule.overrides.values());
            let clash = plans.find_map(|plan| Clash::find(&rule.name, plan.limits(), [&policy].into_iter()));
            if let Some(clash) = clash {
                return Err(Misfit::Clash(Box::new(clash)));
            }
        }
        Ok(policy)
    }

    /// The reason why it does not fit a configuration and its consumer rule; `None` if it fits.
    pub(crate) fn misfit(&self, base: &Policies, consumer: &Arc<Rule>) -> Option<Misfit> {
        self.policy(base, consumer, &mut Numbers::default()).err()
    }
}

impl RuntimeConfig {
    /// A rule without the overrides of its keys.
    pub(crate) fn bare_rule(&self, name: &str, base: &Policies) -> Option<Arc<Rule>> {
        let dynamic = || self.dynamic_policies.get(name).map(|policy| Arc::new(policy.rule(base)));
        let built_in = || (name == CONSUMER).then(|| consumer(base));
        base.rule(name).cloned().or_else(built_in).or_else(dynamic)
    }

    /// The configuration with these changes merged into it.
    pub(crate) fn over(&self, base: &Policies) -> Merged {
        let mut left_out = LeftOut::default();
        for record in self.unreadable.keys() {
            left_out.0.insert(record.clone(), UNREADABLE.to_owned());
        }
        let bare = self.with_dynamic_policies(base, &mut left_out);
        let policies = self.with_overrides(bare, &mut left_out);
        let mut assigned = HashMap::with_capacity(self.assignments.len());
        for (name, policy) in &*self.assignments {
            match policies.named(policy) {
                Some(policy) => drop(assigned.insert(Arc::clone(name), policy.number())),
                None => {
                    left_out.note(Subject::Assignment(name), format_args!("there is no policy `{policy}`"));
                }
            }
        }
        let built_in_consumer = base.rule(CONSUMER).is_none();
        Merged { policies, configured: base.iter().count(), built_in_consumer, assigned, left_out }
    }

    /// The configuration with the created policies, without overrides.
    fn with_dynamic_policies(&self, base: &Policies, left_out: &mut LeftOut) -> Policies {
        let (mut rules, mut policies) = (base.rules().to_vec(), base.iter().cloned().collect::<Vec<_>>());
        let consumer = base.rule(CONSUMER).cloned().unwrap_or_else(|| {
            rules.push(consumer(base));
            Arc::clone(&rules[rules.len() - 1])
        });
        let mut numbers = Numbers::default();
        for (name, dynamic) in &*self.dynamic_policies {
            match dynamic.policy(base, &consumer, &mut numbers) {
                Ok(policy) => {
                    rules.push(Arc::clone(&policy.rules[0]));
                    policies.push(policy);
                }
                Err(misfit) => left_out.note(Subject::Policy(name), misfit),
            }
        }
        base.with(rules, policies)
    }

    fn with_overrides(&self, bare: Policies, left_out: &mut LeftOut) -> Policies {
        if !self.overrides.rules().any(|rule| bare.rule(rule).is_some()) {
            return bare;
        }
        let rules = bare.rules().iter().map(|rule| self.overrides.over(rule, &bare, left_out));
        bare.over(rules.collect())
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Taken => f.write_str("the configuration has a rule or a policy of that name"),
            Self::Clash(clash) => clash.fmt(f),
        }
    }
}
