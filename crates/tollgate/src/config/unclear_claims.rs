//! Finds rules that count by a claim which usually is a list, so that they are skipped.

use tollgate_web::facts::Source;

use super::{Config, Warning};

/// Claims that are lists or tables in the tokens of common issuers.
const LISTS: [&str; 12] = [
    "address",
    "amr",
    "authorities",
    "cognito:groups",
    "entitlements",
    "events",
    "groups",
    "permissions",
    "realm_access",
    "resource_access",
    "roles",
    "realm_access.roles",
];

impl Config {
    /// Warns of rules that count by a claim which is a list in most tokens. Rules count by texts, numbers and booleans
    /// only, so such a rule does not apply, and its key would not be limited.
    pub(super) fn unclear_claims(&self) -> Vec<Warning> {
        let mut found = Vec::new();
        for policy in self.policies.iter() {
            for rule in policy.rules.iter().filter(|rule| rule.enabled) {
                let mut claims =
                    rule.by.iter().filter_map(|field| match self.clients.aliases.source(&field.name)? {
                        Source::Claim(name) if LISTS.contains(&name) => Some(name.to_owned()),
                        _ => None,
                    });
                let Some(claim) = claims.next() else { continue };
                found.push(Warning {
                    policy: Some(policy.name.to_string()),
                    message: format!(
                        "the rule {} counts by the claim `{claim}`, which is a list or a table in the tokens of most issuers: the rule does not apply then",
                        rule.name
                    ),
                    remedy: "count by a claim that is a text or a number, as in `subject` or `claim.org_id`; `claim.org.id` is the member `id` of the claim `org`"
                        .to_owned(),
                });
            }
        }
        found
    }
}
