//! Finds holds of the gateway that outlive a killed process.

use tollgate_core::limit::{Holding, Limit};
use tollgate_core::{Policy, Rule};

use super::{Config, StoreConfig, Warning};

impl Config {
    /// The limits of the gateway's requests and connections whose holds would stay if the gateway were
    /// killed. Counters in memory end with it.
    pub(super) fn unleased_holds(&self) -> Vec<Warning> {
        let Some(gateway) = &self.gateway else { return Vec::new() };
        if matches!(self.store, StoreConfig::Memory { .. }) {
            return Vec::new();
        }
        let guards = gateway.routes.iter().filter_map(|route| route.guard.as_ref());
        let guards = guards.filter_map(|guard| Some(&*self.policies.guard(&guard.name)?.policy));
        let routes = gateway.routes.iter().filter_map(|route| route.policy.as_deref());
        let mut names: Vec<&str> = routes.chain(guards).chain(gateway.connections.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        let policies = names.into_iter().filter_map(|name| self.policies.find(name).ok());
        policies
            .flat_map(|policy| policy.rules.iter().filter_map(|rule| unleased_holds(policy, rule)))
            .collect()
    }
}

fn unleased_holds(policy: &Policy, rule: &Rule) -> Option<Warning> {
    let plans = std::iter::once(&rule.plan).chain(rule.overrides.values());
    let mut limits = plans.flat_map(|plan| plan.limits());
    let limit: &Limit = limits.find(|limit| limit.holding() == Holding::UntilReleased)?;
    rule.enabled.then(|| Warning {
        policy: Some(policy.name.to_string()),
        message: format!(
            "the rule {} holds `{limit}`, and what a gateway holds when it is killed is never released",
            rule.name
        ),
        remedy: format!(
            "write `{limit} for 30s`: tollgate renews holds of open requests, and abandoned holds expire"
        ),
    })
}
