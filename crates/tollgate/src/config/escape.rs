//! Finds rules that a client can evade by sending another value in each request.

use tollgate_core::{Policy, Rule};

use super::{Config, Warning};

impl Config {
    /// The rules of the gateway's policies that are keyed only on client-supplied values.
    pub(super) fn escapes(&self) -> Vec<Warning> {
        let routes = self.gateway.iter().flat_map(|gateway| &gateway.routes);
        let mut names: Vec<&str> = routes.filter_map(|route| route.policy.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        let policies = names.into_iter().filter_map(|name| self.policies.find(name).ok());
        policies.flat_map(|policy| policy.rules.iter().filter_map(|rule| self.escape(policy, rule))).collect()
    }

    fn escape(&self, policy: &Policy, rule: &Rule) -> Option<Warning> {
        let said = |field: &&tollgate_core::Field| {
            self.clients.aliases.source(&field.name).is_some_and(|source| source.by_client())
        };
        let field = rule.by.iter().find(said)?;
        Some(Warning {
            policy: Some(policy.name.to_string()),
            message: format!(
                "the rule {} counts by `{}`, which the client chooses: a client that changes it in each request evades the rule",
                rule.name, field.name
            ),
            remedy:
                "count by `ip`, `subject`, `api_key` or `consumer`, or have such a rule in the same policy"
                    .to_owned(),
        })
    }
}
