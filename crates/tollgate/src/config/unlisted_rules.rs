//! Finds rules that limit nothing, because no policy lists them.

use super::{Config, Warning};

impl Config {
    /// Warns of a configuration without policies, or else of each rule that is in none of them. A rule that is switched
    /// off is meant to limit nothing.
    pub(super) fn unlisted_rules(&self) -> Vec<Warning> {
        let rules = self.policies.rules().iter().filter(|rule| rule.enabled);
        if self.policies.iter().next().is_none() {
            let rule = rules.map(|rule| &*rule.name).next().unwrap_or("RULE");
            return vec![Warning {
                policy: None,
                message: "there are no policies, so nothing is limited, and every check is answered with 400"
                    .to_owned(),
                remedy: format!(
                    "add one, as in `policies: {{ api: [{rule}] }}`, or create it with `tollgate policies`"
                ),
            }];
        }
        let listed = |name: &str| {
            self.policies.iter().any(|policy| policy.rules.iter().any(|rule| &*rule.name == name))
        };
        let unlisted = rules.filter(|rule| !listed(&rule.name)).map(|rule| Warning {
            policy: None,
            message: format!("the rule {} is in no policy, so it limits nothing", rule.name),
            remedy: format!("add `{}` to a list below `policies`, or remove the rule", rule.name),
        });
        unlisted.collect()
    }
}
