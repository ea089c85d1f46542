//! The written form of `postfix`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Named;

/// The Postfix policy service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ policy: mail.accept }`")]
pub(in crate::config) struct Postfix {
    /// The policy that decides requests. Its fields may be `ip`, `client_name`, `helo`, `user`, `sender`, `domain`,
    /// `recipient`, `recipient_domain`, `recipients`, `size` and `bytes`.
    #[schemars(example = &"mail.accept")]
    pub(in crate::config) policy: String,
    /// Other policies, by the `policy_context` of `check_policy_service`.
    pub(in crate::config) contexts: Option<Named<String>>,
    /// Other policies, by the port that the client of Postfix connected to. A context goes first.
    #[schemars(extend("propertyNames" = { "pattern": "^[0-9]{1,5}$" }))]
    pub(in crate::config) ports: Option<Named<String>>,
    /// The most connections of Postfix at once; by default 1000.
    #[schemars(range(min = 1, max = 100_000), example = 1000)]
    pub(in crate::config) max_connections: Option<u64>,
}
