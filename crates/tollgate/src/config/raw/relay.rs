//! The section `relay`, as it was written.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::forms::read_forms;
use super::gateway::{ListenerTls, Texts};
use super::{Limits, Named};

/// The mail relay: who may send, where messages wait, and where they are handed on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ networks: [127.0.0.0/8], accounts: { … } }`")]
pub(in crate::config) struct Relay {
    /// The name of this server in greetings, headers and delivery reports; by default the system's.
    #[schemars(example = &"relay.example.com")]
    pub(in crate::config) hostname: Option<String>,
    /// Where it listens; by default `[{ smtp: 127.0.0.1:2525 }]`.
    #[schemars(length(min = 1))]
    pub(in crate::config) listen: Option<Vec<RelayListener>>,
    /// Its certificate, for STARTTLS and `smtps`. Users can log in only with TLS.
    pub(in crate::config) tls: Option<ListenerTls>,
    /// The policy over `ip` that every connection passes.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"), example = &"smtp.connect")]
    pub(in crate::config) connect: Option<String>,
    /// The policy over `sender`, `domain`, `ip`, `user`, `api_key`, `tenant` and `recipients` that every message passes.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"), example = &"mail.accept")]
    pub(in crate::config) accept: Option<String>,
    /// The policy over `tenant`, `account`, `recipient_domain` and `recipients` that every delivery passes. The rule
    /// `account` is added if it is not part of it. By default a policy of that rule alone.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"), example = &"mail.deliver")]
    pub(in crate::config) deliver: Option<String>,
    /// The guard over `ip` and `user` that logins pass; by default guesses are not slowed down.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"), example = &"smtp.login")]
    pub(in crate::config) guard: Option<String>,
    /// Where messages wait.
    pub(in crate::config) queue: Option<QueueTable>,
    /// The networks whose clients may send without a login; by default none.
    #[schemars(example = ["127.0.0.0/8"])]
    pub(in crate::config) networks: Option<Texts>,
    /// The tenant that mail from these networks belongs to; by default `default`.
    #[schemars(regex(pattern = NAME_PATTERN))]
    pub(in crate::config) network_tenant: Option<String>,
    /// The proxies that send a PROXY header, which names the client; by default none.
    #[schemars(example = ["10.0.0.0/8"])]
    pub(in crate::config) trusted_proxies: Option<Texts>,
    /// The users who may log in and send.
    #[schemars(length(max = 1000))]
    pub(in crate::config) users: Option<Vec<User>>,
    /// Whether `senders` of users and keys bind the header fields `From` and `Sender`, and not only the envelope; by
    /// default `true`.
    pub(in crate::config) check_from: Option<bool>,
    /// The largest message that is accepted; by default `50MiB`.
    #[schemars(example = "50MiB")]
    pub(in crate::config) max_size: Option<SizeText>,
    /// The most recipients of one message; by default 1000.
    #[schemars(range(min = 1, max = 100_000))]
    pub(in crate::config) max_recipients: Option<u64>,
    /// The most connections of clients at once; by default 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) max_connections: Option<u64>,
    /// Where mail is handed on, by tenant and name, as in `acme/primary`. More can be added over the API.
    #[schemars(extend("propertyNames" = { "pattern": "^[A-Za-z0-9_.@-]{1,64}/[A-Za-z0-9_.@-]{1,64}$" }))]
    pub(in crate::config) accounts: Option<Named<AccountTable>>,
    /// Whether mail is delivered to MX hosts where no account fits, or a table with how; by default it waits for an
    /// account.
    pub(in crate::config) direct: Option<DirectForm>,
    /// How mail is handed on.
    pub(in crate::config) sending: Option<SendingTable>,
    /// How log lines show recipients: `plain` by address, `hashed` by the first 16 digits of its SHA-256, or `off`; by
    /// default `plain`.
    pub(in crate::config) log_recipients: Option<LogRecipients>,
    /// The PEM file with the certificate authorities for accounts; by default those of the system.
    pub(in crate::config) tls_ca: Option<String>,
    /// The environment variable with the secret that passwords of accounts are sealed with in the store, of at least 16
    /// characters and the same for all nodes. Without it, accounts that are added over the API have no password.
    #[schemars(example = &"TOLLGATE_RELAY_SECRET")]
    pub(in crate::config) secret_env: Option<String>,
    /// The file with that secret instead.
    pub(in crate::config) secret_file: Option<String>,
}

const NAME_PATTERN: &str = r"^[A-Za-z0-9_.@-]{1,64}$";

/// A listener: either `smtp`, or `smtps` for TLS from the first byte.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as in `{ smtp: 127.0.0.1:2525 }` or `{ smtps: 0.0.0.0:465 }`"
)]
#[schemars(inline, extend("minProperties" = 1, "maxProperties" = 1))]
pub(in crate::config) struct RelayListener {
    /// The address and port of SMTP, with STARTTLS if there is a certificate.
    #[schemars(example = "127.0.0.1:2525")]
    pub(in crate::config) smtp: Option<String>,
    /// The address and port of SMTP with TLS from the first byte.
    #[schemars(example = "0.0.0.0:465")]
    pub(in crate::config) smtps: Option<String>,
}

/// Where messages wait.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ dir: ./queue, min_free: 1GiB }`")]
pub(in crate::config) struct QueueTable {
    /// The directory, which only one process uses; by default `./queue`.
    #[schemars(example = "./queue")]
    pub(in crate::config) dir: Option<String>,
    /// How many messages may wait; by default 1000000.
    pub(in crate::config) max_messages: Option<CountText>,
    /// How much of the disk stays free; by default `1GiB`.
    pub(in crate::config) min_free: Option<SizeText>,
    /// For how long a delivery that fails is retried, from `1m` to `4w`; by default `5d`. Time that a message waits for
    /// a limit does not count.
    #[schemars(example = "5d")]
    pub(in crate::config) lifetime: Option<String>,
    /// How long a message waits until its sender gets a report of the delay, if it asked for one (`NOTIFY=DELAY`), from
    /// `1m` to `4w`; by default `4h`.
    #[schemars(example = "4h")]
    pub(in crate::config) delay_report: Option<String>,
    /// For how long finished messages can be looked at, up to `4w`; by default `1d`.
    #[schemars(example = "1d")]
    pub(in crate::config) history: Option<String>,
}

/// A user. Exactly one of `password_env`, `password_file` and `password_hash` must be set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with `name`, `tenant` and where the password is")]
pub(in crate::config) struct User {
    /// The name by which it logs in.
    #[schemars(length(min = 1, max = 256))]
    pub(in crate::config) name: String,
    /// The tenant that its mail belongs to.
    #[schemars(regex(pattern = NAME_PATTERN))]
    pub(in crate::config) tenant: String,
    /// The environment variable that holds the password, of at least 8 characters.
    #[schemars(example = &"APP_PASSWORD")]
    pub(in crate::config) password_env: Option<String>,
    /// The file that holds the password, of at least 8 characters.
    pub(in crate::config) password_file: Option<String>,
    /// The hash of the password, as `pbkdf2-sha256$ROUNDS$SALT$HASH` with salt and hash in base64.
    #[schemars(regex(pattern = r"^pbkdf2-sha256\$[0-9]+\$[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+$"))]
    pub(in crate::config) password_hash: Option<String>,
    /// The domains that its senders may have, and `<>` if it may use the null sender; by default any.
    #[schemars(example = ["acme.example"])]
    pub(in crate::config) senders: Option<Vec<String>>,
}

/// Where mail is handed on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as in `{ host: smtp.example.com, user: u, password_env: P }`"
)]
pub(in crate::config) struct AccountTable {
    /// The server's name or address.
    #[schemars(example = &"smtp.example.com")]
    pub(in crate::config) host: String,
    /// Its port; by default 587, 465 for `tls: implicit` and 25 for `tls: none`.
    #[schemars(range(min = 1, max = 65535))]
    pub(in crate::config) port: Option<u64>,
    /// How the connection is encrypted: `none`, `starttls` or `implicit`; by default `starttls`. The certificate is
    /// verified.
    pub(in crate::config) tls: Option<AccountTls>,
    /// The user that the server knows; by default there is no login.
    pub(in crate::config) user: Option<String>,
    /// The environment variable that holds the password.
    #[schemars(example = &"SMTP_PASSWORD")]
    pub(in crate::config) password_env: Option<String>,
    /// The file that holds the password.
    pub(in crate::config) password_file: Option<String>,
    /// Its own limits: the override of rule `account` at its key. By default those of the rule.
    #[serde(default, deserialize_with = "super::forms::present")]
    #[schemars(with = "Option<Limits>", example = ["10/min sliding", "100/hour sliding", "1000/day sliding"])]
    pub(in crate::config) limits: Option<Limits>,
    /// What happens to mail that its limits do not allow now: `defer` lets it wait, `reject` returns it to its sender; by
    /// default `defer`.
    pub(in crate::config) on_limit: Option<OnLimit>,
    /// Of the accounts of a tenant, those with lower numbers are used first; by default 0.
    #[schemars(range(max = 1_000_000))]
    pub(in crate::config) priority: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum AccountTls {
    None,
    Starttls,
    Implicit,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum OnLimit {
    Defer,
    Reject,
}

/// `true`, `false`, or a table.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum DirectForm {
    /// Whether mail is delivered to MX hosts.
    Flag(bool),
    /// To MX hosts, with settings.
    Table(DirectTable),
}

/// How MX hosts are found.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct DirectTable {
    /// The address and port of the name server; by default those of the system.
    #[schemars(example = "127.0.0.1:53")]
    pub(in crate::config) name_server: Option<String>,
    /// The port that MX hosts listen on; by default 25.
    #[schemars(range(min = 1, max = 65535))]
    pub(in crate::config) port: Option<u64>,
    /// Networks that mail may go to though their addresses are not public, such as `10.0.0.0/8`; by default none.
    #[schemars(example = ["10.0.0.0/8"])]
    pub(in crate::config) allow: Option<Texts>,
}

/// How mail is handed on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ connections: 10, retry: [2m, 10m, 1h] }`")]
pub(in crate::config) struct SendingTable {
    /// How many connections one server gets; by default 20.
    #[schemars(range(min = 1, max = 1_000))]
    pub(in crate::config) connections: Option<u64>,
    /// How many messages a connection carries; by default 100.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) messages_per_connection: Option<u64>,
    /// How many recipients one copy of a message has; by default 100.
    #[schemars(range(min = 1, max = 10_000))]
    pub(in crate::config) recipients: Option<u64>,
    /// How long an unused connection is kept; by default `30s`.
    #[schemars(example = "30s")]
    pub(in crate::config) idle_timeout: Option<String>,
    /// How long to wait after the first temporary failure, the second, and so on; the last one repeats. By default
    /// `[2m, 5m, 10m, 15m, 30m, 1h, 2h, 4h]`. Each wait varies by 10 %.
    #[schemars(length(min = 1, max = 32), example = ["2m", "10m", "1h"])]
    pub(in crate::config) retry: Option<Vec<String>>,
    /// What happens to 8-bit text at a next hop without 8BITMIME: `convert` encodes it as quoted-printable or base64, `send`
    /// sends it as it is; by default `convert`.
    pub(in crate::config) eight_bit: Option<EightBit>,
    /// What refusals of next hops are about, where tollgate's own rules do not know their words. The first rule that fits
    /// counts.
    #[schemars(length(max = 100))]
    pub(in crate::config) replies: Option<Vec<ReplyRule>>,
}

/// A rule for what a next hop says.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ match: 550*daily limit, then: sleep, for: 6h }`")]
pub(in crate::config) struct ReplyRule {
    /// Words of the reply in their order, with `*` between them, without regard to case. The reply begins with its code.
    #[serde(rename = "match")]
    #[schemars(length(min = 1, max = 500), example = &"550*daily limit")]
    pub(in crate::config) pattern: String,
    /// What the reply answers: `connect`, `hello`, `login`, `mail`, `recipient`, `data` or `text` (the final dot); by
    /// default anything.
    #[schemars(example = ["data", "text"])]
    pub(in crate::config) at: Option<Vec<ReplyAt>>,
    /// What follows: `sleep` and `slow` let the account rest, `next` tries another account, `slow_domain` slows mail to the
    /// recipient's domain, `retry` retries the recipient, `bounce` gives it up.
    pub(in crate::config) then: ReplyThen,
    /// How long `sleep` lasts, up to `4w`; by default an hour, then two, then four, until a message is taken.
    #[serde(rename = "for")]
    #[schemars(example = &"6h")]
    pub(in crate::config) time: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum ReplyAt {
    Connect,
    Hello,
    Login,
    Mail,
    Recipient,
    Data,
    Text,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(in crate::config) enum ReplyThen {
    Sleep,
    Slow,
    Next,
    SlowDomain,
    Retry,
    Bounce,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum EightBit {
    Convert,
    Send,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum LogRecipients {
    Plain,
    Hashed,
    Off,
}

/// A size, as in `50MiB`, `1GiB` or `500MB`; a number alone is bytes.
#[derive(Debug, JsonSchema)]
#[schemars(transform = size_schema)]
pub(in crate::config) struct SizeText(#[schemars(with = "serde_json::Value")] pub(in crate::config) String);

/// A number, as in `1000000` or `1_000_000`.
#[derive(Debug, JsonSchema)]
#[schemars(transform = count_schema)]
pub(in crate::config) struct CountText(#[schemars(with = "serde_json::Value")] pub(in crate::config) String);

fn size_schema(schema: &mut schemars::Schema) {
    number_or_text(schema, r"^\s*[0-9][0-9_]*\s*(B|[kKMGT]i?B?)?\s*$");
}

fn count_schema(schema: &mut schemars::Schema) {
    number_or_text(schema, r"^\s*[0-9][0-9_]*\s*$");
}

fn number_or_text(schema: &mut schemars::Schema, pattern: &str) {
    schema.remove("type");
    let forms =
        serde_json::json!([{ "type": "string", "pattern": pattern }, { "type": "integer", "minimum": 0 }]);
    schema.insert("anyOf".to_owned(), forms);
}

read_forms!(SizeText, "a size, as in `50MiB`", {
    word => SizeText,
    number => SizeText,
});
read_forms!(CountText, "a number, as in `1000000`", {
    word => CountText,
    number => CountText,
});
read_forms!(DirectForm, "`true`, `false`, or a table, as in `{ name_server: 127.0.0.1:53 }`", {
    flag => DirectForm::Flag,
    table => DirectForm::Table,
});
