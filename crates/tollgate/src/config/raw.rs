//! The written form of a configuration, key by key. Its meaning is in [`Config`](super::Config). The doc
//! comments are the descriptions in the JSON Schema.

pub(super) mod clients;
pub(super) mod databases;
mod forms;
pub(super) mod gateway;
pub(super) mod guards;
mod named;
pub(super) mod postfix;
pub(super) mod relay;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;

pub(super) use databases::{CountRows, Database};
pub(super) use forms::{AllowedForm, AllowedTable, BlockedForm, BlockedTable, By, CountWhen, DeferForm};
pub(super) use forms::{
    FieldForm, FieldTable, IpForm, LimitText, Limits, OnExceedForm, PolicyForm, PolicyTable,
};
pub(super) use forms::{StatusText, StoreForm, StoreTable};
pub(super) use named::Named;

/// The syntax of `ban`, as far as a pattern can express it.
const BAN_PATTERN: &str = concat!(
    r"^\s*after\s+[0-9][0-9_]*\s+denials?\s+in\s+[0-9][0-9a-z_]*",
    r"\s+ban\s+[0-9][0-9a-z_]*(\s+up\s+to\s+[0-9][0-9a-z_]*)?\s*$",
);

const ON_OUTAGE_PATTERN: &str = r"^\s*(allow|deny|local\s+([0-9][0-9_]*\s*%|1\s*/\s*[0-9][0-9_]*))\s*$";

/// The configuration of tollgate.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table of settings")]
pub(super) struct Written {
    /// Whether limits are enforced; by default true.
    #[schemars(default = "yes")]
    pub(super) enabled: Option<bool>,
    /// Where the server listens.
    pub(super) listen: Option<Listen>,
    /// The access keys that callers identify themselves with.
    pub(super) keys: Option<Vec<Key>>,
    /// Where counters are kept; by default the file `./tollgate.redb`.
    pub(super) store: Option<StoreForm>,
    /// The log.
    pub(super) log: Option<Log>,
    /// How long requests in flight may take when the program ends, from `0s` to
    /// `10m`.
    #[schemars(default = "ten_seconds", example = "30s")]
    pub(super) drain: Option<String>,
    /// How the gateway and forward-auth identify clients.
    pub(super) clients: Option<clients::Clients>,
    /// What denials over HTTP say beside their reasons.
    pub(super) denials: Option<Denials>,
    /// The latest decisions, for operators.
    pub(super) journal: Option<JournalForm>,
    /// How the gateway and forward-auth answer.
    pub(super) answers: Option<clients::Answers>,
    /// The reverse proxy.
    pub(super) gateway: Option<gateway::Gateway>,
    /// The mail relay.
    pub(super) relay: Option<relay::Relay>,
    /// The Postfix policy service. It needs `listen.postfix`.
    pub(super) postfix: Option<postfix::Postfix>,
    /// What rules do while a shared store is down, unless they have their own `on_outage`: `local 50%`,
    /// `local 1/3`, `allow` or `deny`. It also applies to policies created over the API. By default `local 50%`.
    #[schemars(regex(pattern = ON_OUTAGE_PATTERN), default = "half", example = "local 100%")]
    pub(super) on_outage: Option<String>,
    /// Databases of the application, by name. Rules count rows in them.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z0-9_.-]{1,64}$" }))]
    pub(super) databases: Option<Named<Database>>,
    /// What fields hold, and so how their values are normalized. `ip`, `client_ip`, `sender`,
    /// `recipient`, `domain`, `sender_domain` and `recipient_domain` are known; all others are text.
    pub(super) fields: Option<Named<FieldForm>>,
    /// The rules, by name.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z0-9_.-]{1,64}$" }))]
    pub(super) rules: Option<Named<Rule>>,
    /// The clients that are blocked. The list is checked before anything is counted.
    pub(super) blocklist: Option<Vec<BlockedForm>>,
    /// Clients that are never blocked, whatever the blocklist says. Of several networks that contain an
    /// address, the smallest counts. Limits still apply to them.
    pub(super) allowlist: Option<Vec<AllowedForm>>,
    /// The policies, by name: which rules one kind of attempt is checked against.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z0-9_.-]{1,64}$" }))]
    pub(super) policies: Option<Named<PolicyForm>>,
    /// The guards, by name: what protects logins.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z0-9_.-]{1,64}$" }))]
    pub(super) guards: Option<Named<guards::GuardForm>>,
}

/// Where the server listens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ http: 127.0.0.1:8080 }`")]
pub(super) struct Listen {
    /// The address and port of the HTTP interface. Beyond loopback it needs `keys`.
    #[schemars(default = "loopback", example = "127.0.0.1:8080", example = "[::1]:8080")]
    pub(super) http: Option<String>,
    /// Whether other machines may reach `http` without TLS, on a private network or through a proxy that has it; by
    /// default there is a warning.
    pub(super) unencrypted: Option<bool>,
    /// Where Postfix sends its policy requests: an address and a port, or a Unix socket. It needs `postfix`.
    #[schemars(example = "127.0.0.1:10031", example = "unix:/run/tollgate/policy")]
    pub(super) postfix: Option<String>,
}

/// An access key. Exactly one of `token_env`, `token_file` and `token_sha256` must be set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with `name`, `role` and where the token is")]
pub(super) struct Key {
    /// Its name, in logs and answers.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"))]
    pub(super) name: String,
    /// What it may do.
    pub(super) role: Role,
    /// The environment variable that holds the token, of at least 16 characters.
    #[schemars(example = &"TOLLGATE_ADMIN_TOKEN")]
    pub(super) token_env: Option<String>,
    /// The file that holds the token, of at least 16 characters.
    pub(super) token_file: Option<String>,
    /// The SHA-256 hash of the token, in hexadecimal.
    #[schemars(regex(pattern = r"^[0-9a-fA-F]{64}$"))]
    pub(super) token_sha256: Option<String>,
    /// The tenant that it belongs to: it sends mail for this tenant, and reaches only what carries this tenant. Without
    /// it, only a key with the role `admin` may send.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.@-]{1,64}$"))]
    pub(super) tenant: Option<String>,
    /// The domains that its senders may have, and `<>` if it may use the null sender; by default any. Needs `tenant`.
    #[schemars(example = ["acme.example"])]
    pub(super) senders: Option<Vec<String>>,
}

/// What a key may do: `check` may ask for decisions, `read` may also look at everything, `admin` may
/// also change it.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Check,
    Read,
    Admin,
}

/// What denials over HTTP say beside their reasons.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ token: false }`")]
pub(super) struct Denials {
    /// Whether the body of a denial has a sealed token of its decision, as `decision`; by default true.
    pub(super) token: Option<bool>,
    /// Instead of that, a link with the token in place of `{token}`, as `decision_url`.
    #[schemars(example = &"https://ops.example.com/decisions/{token}")]
    pub(super) link: Option<String>,
    /// The longest wait after which a client program should retry by itself; by default `60s`. A denial with a longer
    /// wait has the header `x-should-retry: false`.
    #[schemars(example = &"5m")]
    pub(super) retry_within: Option<String>,
}

/// The latest decisions, for operators.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ decisions: 10000 }`")]
pub(super) struct JournalForm {
    /// How many decisions a node keeps, from 100 to 100,000; by default 1000. They take 4 KiB each at most.
    #[schemars(range(min = 100, max = 100_000))]
    pub(super) decisions: Option<u64>,
}

/// The log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ format: json, level: info }`")]
pub(super) struct Log {
    /// `pretty` for people, `json` for machines; by default `pretty`.
    pub(super) format: Option<LogFormat>,
    /// The level; by default `info`.
    pub(super) level: Option<LogLevel>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum LogFormat {
    Pretty,
    Json,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// When a file store is written to disk.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum SyncForm {
    Interval,
    Always,
}

/// A rule: a named level with its key and its limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ by: ip, limits: [10/s burst 50] }`")]
#[schemars(extend("oneOf" = [{ "required": ["limits"] }, { "required": ["count_rows"] }]))]
pub(super) struct Rule {
    /// A name for the application, as in `MAX_ACTIVE_DEALS`: every denial by the rule carries it. 1 to 64 of
    /// `A-Z a-z 0-9 _ . -`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$"), example = &"MAX_ACTIVE_DEALS")]
    pub(super) code: Option<String>,
    /// The field or fields that make its key: each key has its own counter. Without it, there is one counter
    /// for all.
    pub(super) by: Option<By>,
    /// Its limits; all of them must allow an attempt.
    #[serde(default, deserialize_with = "forms::present")]
    #[schemars(with = "Limits")]
    pub(super) limits: Option<Limits>,
    /// Rows of the application that it counts instead of attempts, and how many there may be. An attempt is
    /// allowed if there is room for another row, and reserves its place until the row is committed.
    pub(super) count_rows: Option<CountRows>,
    /// Limits of single keys, by the key: values in the order of `by`, separated by commas.
    pub(super) overrides: Option<Named<Limits>>,
    /// What happens when a limit is exceeded; by default `reject`.
    pub(super) on_exceed: Option<OnExceedForm>,
    /// What happens while a shared store is down. `local 50%`: each node counts by
    /// itself, with this share of every limit (`local 1/3`: a third). `allow`: the rule is skipped.
    /// `deny`: the attempt is denied. By default the top-level `on_outage`; `deny` instead of
    /// `local` for a rule with `in total` or `at once` without `for`, which have no share, and always for a
    /// ladder.
    #[schemars(regex(pattern = ON_OUTAGE_PATTERN))]
    #[schemars(example = "local 50%", example = "local 1/3", example = &"deny")]
    pub(super) on_outage: Option<String>,
    /// When the rule bans a key that it keeps denying, and for how long. With `up to`, each ban is twice as
    /// long as the last. By default it never bans.
    #[schemars(regex(pattern = BAN_PATTERN), example = "after 100 denials in 10m ban 1h up to 24h")]
    pub(super) ban: Option<String>,
    /// The field whose number an attempt costs at this rule, as in `recipients` or `bytes`. Without it the
    /// rule counts the attempt's cost, by default 1. An attempt without the field is an error.
    #[schemars(example = &"recipients")]
    pub(super) count: Option<String>,
    /// Which answers count: an attempt is charged at first, and refunded if its answer has
    /// another status. `[401, 403]`, `4xx`, `[4xx, 503]`, `not 5xx` or `not [404, 5xx]`; by default all. If
    /// tollgate does not see the answer, every attempt counts.
    pub(super) count_when: Option<CountWhen>,
    /// `false` switches the rule off; by default true.
    #[schemars(default = "yes")]
    pub(super) enabled: Option<bool>,
    /// Whether its keys are hidden in answers, logs and lists; by default false, and
    /// true for the ladder of a guard that counts by more than addresses and does not ban.
    pub(super) secret: Option<bool>,
}

/// The JSON Schema of the file.
pub(super) fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(flow_text));
    let mut schema = settings.into_generator().into_root_schema_for::<Written>();
    schema.insert("title".to_owned(), "tollgate configuration".into());
    schema
}

/// Joins the lines of doc comments, which are broken only for the source.
fn flow_text(schema: &mut Schema) {
    if let Some(serde_json::Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the schema's default has the type of the setting")]
fn yes() -> Option<bool> {
    Some(true)
}

#[expect(clippy::unnecessary_wraps, reason = "the schema's default has the type of the setting")]
fn half() -> Option<String> {
    Some("local 50%".to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "the schema's default has the type of the setting")]
fn ten_seconds() -> Option<String> {
    Some("10s".to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "the schema's default has the type of the setting")]
fn loopback() -> Option<String> {
    Some("127.0.0.1:8080".to_owned())
}
