//! Finds rules that never apply, because no client can prove the identity that they count by.

use tollgate_core::{Policy, Rule};
use tollgate_web::facts::{Aliases, Source};

use super::{Config, Warning};

impl Config {
    /// Warns of rules of the gateway's and forward-auth's policies that count by an identity which no client
    /// can prove.
    pub(super) fn unreachable_rules(&self) -> Vec<Warning> {
        let mut found = Vec::new();
        for policy in self.policies.iter() {
            if let Some(aliases) = self.aliases_of(policy) {
                let rules = policy.rules.iter().filter(|rule| rule.enabled);
                found.extend(rules.filter_map(|rule| self.unprovable(policy, rule, aliases)));
            }
        }
        found
    }

    /// The aliases for the fields of a policy: the gateway's, or forward-auth's if proxies are configured.
    /// `None` if only the API uses the policy, since its callers send the fields themselves.
    fn aliases_of(&self, policy: &Policy) -> Option<&Aliases> {
        let Some(gateway) = &self.gateway else {
            return (!self.clients.proxies.is_none()).then_some(&self.clients.aliases);
        };
        if gateway.routes.iter().any(|route| route.policy.as_ref() == Some(&policy.name)) {
            return Some(&self.clients.aliases);
        }
        let guards: Vec<&str> = self
            .policies
            .guards()
            .iter()
            .filter(|guard| guard.policy == policy.name)
            .map(|guard| &*guard.name)
            .collect();
        let mut named = gateway.routes.iter().filter_map(|route| route.guard.as_ref());
        named.find(|guard| guards.contains(&&*guard.name)).map(|guard| &guard.fields)
    }

    /// The warning about a rule, if one of its fields needs tokens or API keys that are not configured.
    fn unprovable(&self, policy: &Policy, rule: &Rule, aliases: &Aliases) -> Option<Warning> {
        let credentials = &self.clients.credentials;
        let (keys, tokens) = (credentials.takes_api_keys(), credentials.takes_tokens());
        let (field, needs) = rule.by.iter().find_map(|field| {
            let needs = match aliases.source(&field.name)? {
                Source::Subject | Source::Claim(_) if !tokens => "`clients.tokens`",
                Source::ApiKey if !keys => "`clients.api_keys`",
                Source::Consumer if !keys && !tokens => "`clients.api_keys` or `clients.tokens`",
                _ => return None,
            };
            Some((&field.name, needs))
        })?;
        Some(Warning {
            policy: Some(policy.name.to_string()),
            message: format!(
                "the rule {} counts by `{field}`, which no client can prove without {needs}: at the gateway and at forward-auth the rule never applies, and the answer is 401 if no other rule applies",
                rule.name
            ),
            remedy: format!("add {needs}, or count by `ip`"),
        })
    }
}
