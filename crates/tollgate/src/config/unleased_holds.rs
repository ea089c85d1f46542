//! Finds holds of the gateway and the relay that outlive a killed process.

use tollgate_core::limit::{Holding, Limit};
use tollgate_core::{Policy, Rule};

use super::{Config, StoreConfig, Warning};

impl Config {
    /// The limits of requests and connections whose holds would stay if the program were killed. Counters in
    /// memory end with it.
    pub(super) fn unleased_holds(&self) -> Vec<Warning> {
        if matches!(self.store, StoreConfig::Memory { .. }) {
            return Vec::new();
        }
        let routes = self.gateway.iter().flat_map(|gateway| &gateway.routes);
        let guards = routes.clone().filter_map(|route| route.guard.as_ref());
        let guards = guards.filter_map(|guard| Some(&*self.policies.guard(&guard.name)?.policy));
        let connections = self.gateway.iter().filter_map(|gateway| gateway.connections.as_deref());
        let routes = routes.filter_map(|route| route.policy.as_deref());
        let mut of_gateway: Vec<&str> = routes.chain(guards).chain(connections).collect();
        of_gateway.sort_unstable();
        of_gateway.dedup();
        let of_relay = self.relay.iter().filter_map(|relay| relay.settings.server.connect.as_deref());
        let of_gateway = of_gateway.into_iter().map(|name| ("gateway", name));
        of_gateway
            .chain(of_relay.map(|name| ("relay", name)))
            .filter_map(|(who, name)| Some((who, self.policies.find(name).ok()?)))
            .flat_map(|(who, policy)| {
                policy.rules.iter().filter_map(move |rule| unleased_holds(who, policy, rule))
            })
            .collect()
    }
}

fn unleased_holds(who: &str, policy: &Policy, rule: &Rule) -> Option<Warning> {
    let plans = std::iter::once(&rule.plan).chain(rule.overrides.values());
    let mut limits = plans.flat_map(|plan| plan.limits());
    let limit: &Limit = limits.find(|limit| limit.holding() == Holding::UntilReleased)?;
    rule.enabled.then(|| Warning {
        policy: Some(policy.name.to_string()),
        message: format!(
            "the rule {} holds `{limit}`, and the holds of a killed {who} are never released",
            rule.name
        ),
        remedy: format!(
            "write `{limit} for 30s`: tollgate renews holds of open requests, and abandoned holds expire"
        ),
    })
}
