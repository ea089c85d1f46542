//! Settings with more than one written form: a word or a table, a single item or a list.
//!
//! They are read by hand, because serde's untagged enumerations lose the position and answer every error with
//! "did not match any variant".

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Named, SyncForm};

/// One or more fields: `ip`, or `[user, ip]`.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum By {
    One(String),
    Several(#[schemars(length(max = 4))] Vec<String>),
}

/// One or more limits: `100/hour`, or `[100/hour, 1000/day]`.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum Limits {
    One(LimitText),
    Several(#[schemars(length(min = 1, max = 8))] Vec<LimitText>),
}

/// A limit, as in `1000/hour`, `1000/day calendar in Europe/Berlin`, `100/hour sliding`, `10/s burst 50`, `10
/// at once for 30s`, `10 in total`, `100 recipients per attempt` or `ladder 4 +2s then 11 lock 15m`; `0`,
/// null and `unlimited` mean no limit.
#[derive(Debug, JsonSchema)]
#[schemars(transform = limit_schema)]
pub(in crate::config) struct LimitText(#[schemars(with = "serde_json::Value")] pub(in crate::config) String);

/// Which answers count: a status or class, all except some, or a list: `4xx`, `not 5xx`, `[401, 403]`.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum CountWhen {
    One(#[schemars(transform = statuses_schema)] StatusText),
    Several(#[schemars(length(min = 1))] Vec<StatusText>),
}

/// A status, as in `401`, or a class, as in `4xx`.
#[derive(Debug, JsonSchema)]
#[schemars(transform = status_schema)]
pub(in crate::config) struct StatusText(#[schemars(with = "serde_json::Value")] pub(in crate::config) String);

/// The kind of a field: `text`, `ip`, `address`, `domain`, or addresses cut to prefixes; and the field that
/// it is derived from.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum FieldForm {
    /// `text`, `ip`, `address` or `domain`.
    Word(#[schemars(regex(pattern = "^(text|ip|address|domain)$"))] String),
    /// Network addresses of which only a prefix counts, or a field that is derived from another.
    Table(FieldTable),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline, extend("minProperties" = 1))]
pub(in crate::config) struct FieldTable {
    /// How many bits of a network address count.
    pub(in crate::config) ip: Option<IpForm>,
    /// The field that it is derived from, if an attempt has only that one: the domain of a mail address, or
    /// with `ip` the network around an IP address.
    pub(in crate::config) of: Option<String>,
}

/// How many bits of a network address count.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ v4: 24, v6: 56 }`")]
pub(in crate::config) struct IpForm {
    /// The bits of an IPv4 address that count; by default 32.
    #[schemars(range(min = 0, max = 32))]
    pub(in crate::config) v4: Option<u64>,
    /// The bits of an IPv6 address that count; by default 64.
    #[schemars(range(min = 0, max = 128))]
    pub(in crate::config) v6: Option<u64>,
}

/// `memory`, `{ memory: { max_keys: … } }`, `{ file: PATH, … }`, an address of Redis, Valkey or PostgreSQL,
/// `{ redis: ADDRESS, … }`, or `{ postgres: ADDRESS, … }`.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum StoreForm {
    /// `memory`: counters are lost when the program ends. Or an address, as in
    /// `redis://localhost:6379`.
    Word(#[schemars(regex(pattern = ADDRESS_OR_MEMORY))] String),
    /// A store with its settings.
    Table(Box<StoreTable>),
}

/// A store with its settings: `memory`, `file`, `redis` or `postgres`, and the settings of that store.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct StoreTable {
    /// Keep counters in memory only.
    pub(in crate::config) memory: Option<MemoryForm>,
    /// Keep counters in this file.
    #[schemars(example = "./tollgate.redb")]
    pub(in crate::config) file: Option<String>,
    /// How often the file is written; by default `10s`.
    #[schemars(example = "10s")]
    pub(in crate::config) flush_interval: Option<String>,
    /// `interval` writes every `flush_interval`, `always` before every answer; by default `interval`.
    pub(in crate::config) sync: Option<SyncForm>,
    /// How many keys are kept, in a file; by default 1000000.
    #[schemars(range(min = 1))]
    pub(in crate::config) max_keys: Option<u64>,
    /// Keep counters in Redis or Valkey, at this address.
    #[schemars(regex(pattern = ADDRESS), example = "redis://localhost:6379")]
    pub(in crate::config) redis: Option<String>,
    /// The prefix of every key in Redis; by default `tollgate`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.:/-]{1,65}$"))]
    pub(in crate::config) key_prefix: Option<String>,
    /// Keep counters in PostgreSQL, at this address.
    #[schemars(regex(pattern = POSTGRES_ADDRESS), example = "postgres://tollgate@localhost/limits")]
    pub(in crate::config) postgres: Option<String>,
    /// The schema in PostgreSQL; by default `tollgate`.
    #[schemars(regex(pattern = r"^[a-z_][a-z0-9_]{0,62}$"))]
    pub(in crate::config) schema: Option<String>,
    /// How long a decision by the server may take; by default `50ms` for Redis and `250ms` for PostgreSQL.
    #[schemars(example = "50ms")]
    pub(in crate::config) command_timeout: Option<String>,
    /// How long connecting to the server may take; by default `1s`.
    #[schemars(example = "1s")]
    pub(in crate::config) connect_timeout: Option<String>,
    /// How many connections to each server; by default 2 to Redis and 8 to PostgreSQL.
    #[schemars(range(min = 1, max = 64))]
    pub(in crate::config) connections: Option<u64>,
    /// How often the health of the server is checked; by default `10s`.
    #[schemars(example = "10s")]
    pub(in crate::config) health_check_interval: Option<String>,
    /// The user on the server, if the address names none.
    pub(in crate::config) user: Option<String>,
    /// The environment variable that holds the password for the server, if the address has none.
    #[schemars(example = &"TOLLGATE_REDIS_PASSWORD")]
    pub(in crate::config) password_env: Option<String>,
    /// The file that holds the password for the server, if the address has none.
    pub(in crate::config) password_file: Option<String>,
    /// The environment variable with the secret that hashes keys of secret rules in the store, of at
    /// least 16 characters and the same for all nodes; by default a secret that the store keeps.
    #[schemars(example = &"TOLLGATE_KEY_SECRET")]
    pub(in crate::config) key_secret_env: Option<String>,
    /// The file with that secret instead.
    pub(in crate::config) key_secret_file: Option<String>,
    /// The PEM file with the certificate authorities for the server; by default those of the system.
    pub(in crate::config) tls_ca: Option<String>,
    /// The PEM file with the certificate that the server asks clients for; by default none.
    pub(in crate::config) tls_certificate: Option<String>,
    /// The PEM file with the private key of `tls_certificate`.
    pub(in crate::config) tls_key: Option<String>,
    /// Accept any certificate of the server; by default false.
    pub(in crate::config) tls_insecure: Option<bool>,
}

/// The settings of a store in memory.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ max_keys: 1000000 }`")]
pub(in crate::config) struct MemoryForm {
    /// How many keys are kept; by default 1000000.
    #[schemars(range(min = 1))]
    pub(in crate::config) max_keys: Option<u64>,
}

/// `reject`, `defer`, `observe`, `wait 5s`, or `{ defer: { aligned: true, jitter: 30s } }`.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum OnExceedForm {
    /// `reject`: deny. `defer`: return when to retry. `wait 5s`: return how long to wait, up to that.
    /// `observe`: only count.
    Word(#[schemars(regex(pattern = "^(reject|defer|observe|wait .+)$"))] String),
    /// Defer with settings.
    Defer(Defer),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct Defer {
    /// The settings of the deferral.
    pub(in crate::config) defer: DeferForm,
}

/// Until when an attempt is deferred.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ aligned: true, jitter: 30s }`")]
pub(in crate::config) struct DeferForm {
    /// The next boundary of the limit's period in UTC instead of the exact time.
    pub(in crate::config) aligned: Option<bool>,
    /// Spread retries over this much time, so that they do not all come at once.
    #[schemars(example = "30s")]
    pub(in crate::config) jitter: Option<String>,
}

/// A list of rules, or a table with them.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum PolicyForm {
    /// The rules, in the order in which they are named when exceeded.
    Rules(#[schemars(length(max = 16))] Vec<String>),
    /// The rules with settings.
    Table(PolicyTable),
}

/// A policy with settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct PolicyTable {
    /// The rules, in the order in which they are named when exceeded.
    #[schemars(length(max = 16))]
    pub(in crate::config) rules: Vec<String>,
    /// Whether an attempt to which no rule applies is allowed instead of being an error; by default false.
    pub(in crate::config) allow_unmatched: Option<bool>,
    /// The hash tag of its rules' keys in Redis, so that a Cluster keeps them together and an attempt stays
    /// all or nothing there.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"))]
    pub(in crate::config) hash_tag: Option<String>,
}

/// An entry of the blocklist: a target, or a table with it.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum BlockedForm {
    /// An address, a network, or fields and their values, as in `203.0.113.0/24` or `user=bob`.
    Target(String),
    /// A target with settings.
    Table(BlockedTable),
}

/// An entry of the allowlist: a target, or a table with it.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum AllowedForm {
    /// An address, a network, or fields and their values, as in `203.0.113.0/24` or `user=bob`.
    Target(String),
    /// A target with settings.
    Table(AllowedTable),
}

/// An entry of the allowlist with settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct AllowedTable {
    /// An address, a network, or fields and their values, as in `203.0.113.0/24` or `user=bob`.
    #[schemars(example = "203.0.113.0/24", example = &"user=bob")]
    pub(in crate::config) target: String,
    /// When it expires, as in `2027-01-31T12:00:00Z`; by default never.
    pub(in crate::config) until: Option<String>,
    /// Why, in one line.
    #[schemars(length(max = 512))]
    pub(in crate::config) reason: Option<String>,
}

/// An entry of the blocklist with settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct BlockedTable {
    /// An address, a network, or fields and their values, as in `203.0.113.0/24` or `user=bob`.
    #[schemars(example = "203.0.113.0/24", example = &"user=bob")]
    pub(in crate::config) target: String,
    /// When it expires, as in `2027-01-31T12:00:00Z`; by default never.
    pub(in crate::config) until: Option<String>,
    /// Why, in one line.
    #[schemars(length(max = 512))]
    pub(in crate::config) reason: Option<String>,
    /// Whether the blocked client sees the reason; by default false.
    pub(in crate::config) public: Option<bool>,
}

/// Reads a setting for which null differs from absence.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Implements reading by a visitor that accepts the listed forms, and otherwise says what it expected.
macro_rules! read_forms {
    ($type:ident, $expected:literal, { $($form:ident => $make:expr),+ $(,)? }) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Forms;
                impl<'de> Visitor<'de> for Forms {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    $(read_forms!(@ $form $type $make);)+
                }
                deserializer.deserialize_any(Forms)
            }
        }
    };
    (@ word $type:ident $make:expr) => {
        fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
            Ok($make(text.to_owned()))
        }
    };
    (@ number $type:ident $make:expr) => {
        fn visit_u64<E: Error>(self, number: u64) -> Result<$type, E> {
            Ok($make(number.to_string()))
        }
    };
    (@ flag $type:ident $make:expr) => {
        fn visit_bool<E: Error>(self, flag: bool) -> Result<$type, E> {
            Ok($make(flag))
        }
    };
    (@ null $type:ident $make:expr) => {
        fn visit_unit<E: Error>(self) -> Result<$type, E> {
            Ok($make("null".to_owned()))
        }
    };
    (@ list $type:ident $make:expr) => {
        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<$type, A::Error> {
            Deserialize::deserialize(SeqAccessDeserializer::new(list)).map($make)
        }
    };
    (@ table $type:ident $make:expr) => {
        fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<$type, A::Error> {
            Deserialize::deserialize(MapAccessDeserializer::new(table)).map($make)
        }
    };
}

pub(super) use read_forms;

/// Limits as other programs write them, `{ minute: 100 }`: the grammar refuses them and says what to write.
fn labelled(Named(entries): Named<LimitText>) -> LimitText {
    let texts: Vec<String> =
        entries.into_iter().map(|(key, LimitText(text))| format!("{key}: {text}")).collect();
    LimitText(texts.join("; "))
}

read_forms!(By, "a field or a list of fields, as in `[user, ip]`", {
    word => By::One,
    list => By::Several,
});
read_forms!(LimitText, "a limit, as in `100/hour`", {
    word => LimitText,
    number => LimitText,
    null => LimitText,
    table => labelled,
});
read_forms!(Limits, "a limit or a list of limits, as in `[100/hour, 1000/day]`", {
    word => |text| Limits::One(LimitText(text)),
    number => |text| Limits::One(LimitText(text)),
    null => |text| Limits::One(LimitText(text)),
    list => Limits::Several,
    table => |table| Limits::One(labelled(table)),
});
read_forms!(StatusText, "a status, as in `401`, or all of a kind, as in `4xx`", {
    word => StatusText,
    number => StatusText,
});
read_forms!(CountWhen, "statuses, as in `[401, 403]`, `4xx` or `not 5xx`", {
    word => |text| CountWhen::One(StatusText(text)),
    number => |text| CountWhen::One(StatusText(text)),
    list => CountWhen::Several,
});
read_forms!(FieldForm, "`text`, `ip`, `address`, `domain`, `{ ip: { v4: 24, v6: 56 } }` or `{ of: sender }`", {
    word => FieldForm::Word,
    table => FieldForm::Table,
});
read_forms!(StoreForm, "`memory`, an address or a table, as in `{ file: ./tollgate.redb }`", {
    word => StoreForm::Word,
    table => |table| StoreForm::Table(Box::new(table)),
});
read_forms!(OnExceedForm, "`reject`, `defer`, `wait 5s`, `observe` or `{ defer: { … } }`", {
    word => OnExceedForm::Word,
    table => OnExceedForm::Defer,
});
read_forms!(BlockedForm, "a target or a table, as in `203.0.113.0/24` or `{ target: user=bob, reason: spam }`", {
    word => BlockedForm::Target,
    table => BlockedForm::Table,
});
read_forms!(AllowedForm, "a target or a table, as in `203.0.113.0/24` or `{ target: user=bob, reason: us }`", {
    word => AllowedForm::Target,
    table => AllowedForm::Table,
});
read_forms!(PolicyForm, "a list of rules or a table, as in `{ rules: [login] }`", {
    list => PolicyForm::Rules,
    table => PolicyForm::Table,
});

const ADDRESS: &str = r"^((redis|valkey)s?(\+(sentinel|cluster))?://.+|((redis|valkey)\+unix://|unix:).+)$";
const POSTGRES_ADDRESS: &str = r"^postgres(ql)?://.+$";
const ADDRESS_OR_MEMORY: &str = r"^(memory|postgres(ql)?://.+|(redis|valkey)s?(\+(sentinel|cluster))?://.+|((redis|valkey)\+unix://|unix:).+)$";

/// The grammar, as far as a pattern can express it.
const LIMIT_PATTERN: &str = concat!(
    r"^\s*(unlimited|null|0|[0-9][0-9_]*\s*(/\s*",
    r"(s|sec|second|min|minute|h|hour|d|day|w|week|month|([0-9][0-9_]*(us|ms|s|m|min|h|d|w))+)",
    r"(\s+(calendar(\s+in\s+[A-Za-z0-9/_+-]+)?|sliding(\s+by\s+[0-9a-z_]+)?|burst\s+[0-9][0-9_]*))?",
    r"|at\s+once(\s+for\s+[0-9a-z_]+)?|in\s+total|[A-Za-z][A-Za-z0-9_-]*\s+per\s+attempt)",
    r"|ladder\s+[0-9][0-9_]*(\s*\+\s*[0-9a-z_]+|\s+lock\s+[0-9a-z_]+|\s+captcha|\s+notify)+",
    r"(\s+then\s+[0-9][0-9_]*(\s*\+\s*[0-9a-z_]+|\s+lock\s+[0-9a-z_]+|\s+captcha|\s+notify)+)*",
    r"(\s+forget\s+[0-9a-z_]+)?)\s*$",
);

fn limit_schema(schema: &mut schemars::Schema) {
    schema.remove("type");
    schema.insert(
        "anyOf".to_owned(),
        serde_json::json!([
            { "type": "string", "pattern": LIMIT_PATTERN },
            { "const": 0 },
            { "type": "null" },
        ]),
    );
    schema.insert(
        "examples".to_owned(),
        serde_json::json!([
            "1000/hour",
            "1000/day calendar in Europe/Berlin",
            "100/hour sliding",
            "1000000/day sliding by 5m",
            "10/s burst 50",
            "10 at once",
            "50 at once for 30s",
            "10 in total",
            "100 recipients per attempt",
            "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m",
            "unlimited",
        ]),
    );
}

const STATUS_PATTERN: &str = r"^\s*[1-5]([0-9]{2}|xx)\s*$";
const STATUSES_PATTERN: &str = concat!(
    r"^\s*(not\s*)?([1-5]([0-9]{2}|xx)",
    r"|\[\s*[1-5]([0-9]{2}|xx)\s*(,\s*[1-5]([0-9]{2}|xx)\s*)*\])\s*$",
);

fn status_schema(schema: &mut schemars::Schema) {
    number_or_text(schema, STATUS_PATTERN);
}

fn statuses_schema(schema: &mut schemars::Schema) {
    *schema = schemars::Schema::default();
    number_or_text(schema, STATUSES_PATTERN);
    schema.insert("examples".to_owned(), serde_json::json!(["4xx", 401, "not 5xx", "not [404, 5xx]"]));
}

fn number_or_text(schema: &mut schemars::Schema, pattern: &str) {
    schema.remove("type");
    let number = serde_json::json!({ "type": "integer", "minimum": 100, "maximum": 599 });
    schema.insert("anyOf".to_owned(), serde_json::json!([{ "type": "string", "pattern": pattern }, number]));
}
