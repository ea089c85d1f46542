//! The written form of guards.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::By;
use super::forms::read_forms;

/// What protects logins: `by user`, or a table.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum GuardForm {
    /// The fields that failures are counted by, on the standard ladder: `by user`.
    Word(#[schemars(regex(pattern = r"^by\s+\S.*$"))] String),
    /// A guard with settings.
    Table(Box<GuardTable>),
}

/// A guard: either with a `policy`, or with `by` to create one.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ policy: login }` or `{ by: user }`")]
#[schemars(inline)]
pub(in crate::config) struct GuardTable {
    /// The policy of the logins. One of its rules must have a ladder.
    pub(in crate::config) policy: Option<String>,
    /// The field or fields that failures are counted by. It creates a rule and a policy of the guard's name.
    pub(in crate::config) by: Option<By>,
    /// The ladder for `by`; by default `standard`: three failures are free, the fourth
    /// delays the next attempt by 2 s, the sixth by 5 s with a CAPTCHA, the eleventh locks for 15 minutes
    /// and notifies; all are forgotten 15 minutes after the last.
    #[schemars(example = &"standard", example = "ladder 4 +2s then 11 lock 15m notify")]
    pub(in crate::config) ladder: Option<String>,
    /// Where a success clears failures: `narrowest` on the ladders whose keys have the most fields, `all`,
    /// `nothing`, or the names of rules; by default `narrowest`.
    pub(in crate::config) clears: Option<ClearsForm>,
    /// Where notices of steps with `notify` are sent; by default only to the log.
    pub(in crate::config) webhook: Option<WebhookTable>,
}

/// Where a success clears failures.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum ClearsForm {
    /// `narrowest`, `all`, `nothing`, or the name of a rule.
    Word(String),
    /// The names of rules.
    Rules(#[schemars(length(min = 1, max = 16))] Vec<String>),
}

/// A webhook for notices. One of `secret_env` and `secret_file` signs them; without `body` it is required.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with `url` and where the secret is")]
pub(in crate::config) struct WebhookTable {
    /// The URL that notices are posted to.
    #[schemars(regex(pattern = r"^https?://.+$"), example = "https://example.com/hooks/locked")]
    pub(in crate::config) url: String,
    /// The environment variable that holds the secret, of at least 16 characters.
    #[schemars(example = &"TOLLGATE_WEBHOOK_SECRET")]
    pub(in crate::config) secret_env: Option<String>,
    /// The file that holds the secret, of at least 16 characters.
    pub(in crate::config) secret_file: Option<String>,
    /// The body of its calls, for receivers that want their own; by default the notice. Its texts may have
    /// placeholders: `{id}`, `{event}`, `{guard}`, `{rule}`, `{failures}`, `{at}`, `{locked_until}` and
    /// `{fields.NAME}`. Without a secret the calls are not signed.
    #[schemars(example = serde_json::json!({ "chat_id": "4711", "text": "{fields.user} is locked" }))]
    pub(in crate::config) body: Option<serde_json::Map<String, serde_json::Value>>,
    /// How long one try may take, from 100ms to 60s; by default `5s`.
    #[schemars(example = "5s")]
    pub(in crate::config) timeout: Option<String>,
    /// How many tries; by default 5.
    #[schemars(range(min = 1, max = 10))]
    pub(in crate::config) tries: Option<u64>,
}

read_forms!(GuardForm, "`by user`, or a table, as in `{ policy: login }`", {
    word => GuardForm::Word,
    table => |table| GuardForm::Table(Box::new(table)),
});
read_forms!(ClearsForm, "`narrowest`, `all`, `nothing`, or a list of rules", {
    word => ClearsForm::Word,
    list => ClearsForm::Rules,
});
