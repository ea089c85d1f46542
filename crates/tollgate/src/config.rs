//! The configuration: the written form (`raw`) is converted once to its meaning ([`Config`]).
//!
//! The text of a file becomes a tree of values with their positions. Environment variables override values in
//! it. Serde reads the tree as the written form, which is then checked and converted. Every error says where
//! it is and how to correct it.

mod answers;
pub mod clients;
mod count_rows;
mod counting;
mod databases;
mod denials;
mod deserialize;
mod drain;
pub mod env_typos;
mod escape;
pub mod explain;
mod fields;
pub(crate) mod files;
mod foreign_file;
mod gateway;
pub mod guards;
mod hash_tags;
mod hush;
mod identity;
mod journal;
pub mod keys;
mod limits;
pub mod listen;
mod lists;
pub mod log;
mod logins;
pub mod memory;
mod open_files;
mod policies;
pub mod postfix;
pub mod problem;
mod raw;
pub mod relay;
mod rules;
mod secrets;
pub mod slot_spread;
mod stage;
pub mod store;
mod suspect;
mod unclear_claims;
mod unleased_holds;
mod unlisted_rules;
mod unreachable_rules;
pub mod valkey;
mod variables;
mod zones;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::Arc;

use tollgate_core::key::Kinds;
use tollgate_core::{Policies, Roster, Span};
use tollgate_engine::decision_token::DenialSettings;
use tollgate_gateway::settings::Settings;
use tollgate_postgres::Settings as PostgresSettings;
pub(crate) use tollgate_tree as tree;
use tollgate_web::Answers;

pub use clients::Clients;
pub use env_typos::EnvTypo;
pub use guards::{BodyBlank, BodyTemplate, Webhook, WebhookSecret, Webhooks};
pub use keys::{ApiKey, KeyTenant, Role, TokenHash};
pub use listen::Listen;
pub use log::{Level, LogConfig, LogFormat};
pub use postfix::PostfixConfig;
pub use problem::{ConfigError, ConfigProblem};
pub use relay::{RelayConfig, RelayListener};
pub use slot_spread::SlotSpread;
pub use store::{StoreConfig, Sync};
pub use tree::Place;
pub use valkey::ValkeyVariable;

use problem::Findings;
use tree::{Node, Value};

/// The configuration without a file.
pub const STARTER: &str = include_str!("config/starter.yaml");

/// The largest file, in MiB: more than 250,000 overrides need.
const MOST_FILE_MIB: u64 = 32;

/// The remedy for settings that are too many for a file.
const ELSEWHERE: &str = "set overrides with `tollgate set` or `PUT /api/v1/counters/RULE/KEY`, and listings with `tollgate ban` or `POST /api/v1/bans`";

/// A checked configuration.
///
/// # Defaults
///
/// Without a file, [`STARTER`] is the configuration. A file that leaves settings out gets: `127.0.0.1:8080`
/// to listen on, no access keys, the store in the file `tollgate.redb` flushed every ten seconds with at most
/// 1,000,000 keys, a pretty log at level info, tokens in denials, ten seconds for requests in flight at the end, empty lists, no
/// rules and no policies.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses that the server listens on.
    pub listen: Listen,
    /// The access keys; they may be absent only on loopback.
    pub keys: Vec<ApiKey>,
    /// Where counters are kept.
    pub store: StoreConfig,
    /// The databases in which rules count rows, by name.
    pub databases: BTreeMap<String, PostgresSettings>,
    /// The log.
    pub log: LogConfig,
    /// How long requests in flight may take when the program ends.
    pub drain: Span,
    /// The rules, policies and lists.
    pub policies: Policies,
    /// How the gateway and forward-auth identify clients.
    pub clients: Clients,
    /// What denials over HTTP say beside their reasons.
    pub denials: DenialSettings,
    /// How many decisions the journal keeps.
    pub journal: usize,
    /// How decisions are written for them.
    pub answers: Answers,
    /// The reverse proxy, if there is one.
    pub gateway: Option<Settings>,
    /// The mail relay, if there is one.
    pub relay: Option<RelayConfig>,
    /// The Postfix policy service, if there is one.
    pub postfix: Option<PostfixConfig>,
    /// The webhooks that are notified of locks, by guard.
    pub webhooks: Webhooks,
    /// Warnings about values that are valid but may not be intended.
    pub doubts: Vec<Warning>,
    /// Environment variables that look like settings, and are ignored.
    pub env_typos: Vec<EnvTypo>,
    /// The effect of `VALKEY_URL` and `VALKEY_KEY_PREFIX`, if they are set.
    pub valkey: Vec<ValkeyVariable>,
}

/// A setting that is valid but may not be intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The policy that it concerns, if there is one.
    pub policy: Option<String>,
    /// What may not be intended.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Config {
    /// All warnings.
    pub fn warnings(&self) -> Vec<Warning> {
        let apart = self.slot_spread().into_iter().map(|apart| {
            let (message, remedy) = (apart.words(), apart.remedy());
            Warning { policy: Some(apart.policy), message, remedy }
        });
        apart.chain(self.own_warnings()).chain(self.ignored()).chain(self.unused_valkey()).collect()
    }

    /// The warnings about the configuration itself, not about its store's topology or the environment.
    pub fn own_warnings(&self) -> Vec<Warning> {
        let of_policies = self
            .escapes()
            .into_iter()
            .chain(self.unreachable_rules())
            .chain(self.lockouts())
            .chain(self.doubtful_logins())
            .chain(self.unleased_holds())
            .chain(self.unlisted_rules())
            .chain(self.unclear_claims());
        let of_store =
            self.store.homeless().into_iter().chain(self.too_large()).chain(self.forgetful_relay());
        self.doubts.iter().cloned().chain(of_policies).chain(of_store).collect()
    }
}

/// The format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.yaml` or `.yml`.
    Yaml,
    /// `.toml`.
    Toml,
}

/// Reads the configuration from a file, or the starter if there is none, and applies the environment.
pub fn load(
    path: Option<&FilePath>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Config, ConfigError> {
    let environment: HashMap<String, String> = environment.collect();
    let Some(path) = path else {
        return load_tree(read_tree(STARTER, Format::Yaml, "(starter)")?, &environment);
    };
    let source = path.display().to_string();
    let fail = |message: String| ConfigError::of_source(&source, message);
    let Some(format) = Format::of(path) else {
        let message = "the name of a configuration file must end in `.yaml`, `.yml` or `.toml`";
        let text = read_file(path).unwrap_or_default();
        return Err(foreign_file::or_explain(path, &text, fail(message.to_owned())));
    };
    let text = read_file(path).map_err(fail)?;
    load_file(path, &text, format, &environment).map_err(|error| foreign_file::or_explain(path, &text, error))
}

fn load_file(
    path: &FilePath,
    text: &str,
    format: Format,
    environment: &HashMap<String, String>,
) -> Result<Config, ConfigError> {
    let source = path.display().to_string();
    let fail = |message: String| ConfigError::of_source(&source, message);
    let tree = read_tree(text, format, &source)?;
    if matches!(&tree.value, Value::Table(entries) if entries.is_empty()) {
        return Err(fail(
            "the file is empty: add rules and policies, as in `rules: { client: { by: ip, limits: 10/s } }` and `policies: { api: [client] }`; without a file, tollgate serves its built-in starter"
                .to_owned(),
        ));
    }
    let config = load_tree(tree, environment)?;
    if config.store.is_in(path) {
        let message = "the store's file is this configuration itself: name another file in `store`";
        return Err(fail(message.to_owned()));
    }
    Ok(config)
}

/// Reads the configuration from a text, which error messages call `source`.
pub fn load_str(
    text: &str,
    format: Format,
    source: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Config, ConfigError> {
    load_tree(read_tree(text, format, source)?, &environment.collect())
}

pub(crate) fn read_tree(text: &str, format: Format, source: &str) -> Result<Node, ConfigError> {
    let source: Arc<str> = Arc::from(source);
    let mut tree = match format {
        Format::Yaml => tree::yaml::read(text, &source, ELSEWHERE)?,
        Format::Toml => tree::toml::read(text, &source)?,
    };
    if matches!(tree.value, Value::Null) {
        tree.value = Value::Table(Vec::new());
    }
    Ok(tree)
}

fn load_tree(mut tree: Node, environment: &HashMap<String, String>) -> Result<Config, ConfigError> {
    let valkey = valkey::apply(&mut tree, environment);
    variables::apply(&mut tree, environment)?;
    let written = deserialize::read(&tree)?;
    let config = mean(written, &tree, environment)?;
    Ok(Config { valkey, ..config })
}

/// The JSON Schema of a configuration file.
pub fn schema() -> serde_json::Value {
    raw::schema().into()
}

fn mean(
    written: raw::Written,
    tree: &Node,
    environment: &HashMap<String, String>,
) -> Result<Config, ConfigError> {
    let mut findings = Findings::new(tree);
    let keys = keys::mean(&written.keys.unwrap_or_default(), environment, &mut findings);
    let listen = listen::mean(written.listen.as_ref(), &keys, &mut findings);
    let store = store::mean(written.store.as_ref(), environment, &mut findings);
    let kinds = fields::mean(&written.fields.unwrap_or_default(), &mut findings);
    let written_policies = written.policies.unwrap_or_default();
    let written_guards = written.guards.unwrap_or_default();
    let guarded = guards::guarded(&written_guards, &written_policies);
    let on_outage = rules::default_on_outage(written.on_outage.as_deref(), &mut findings);
    let written_rules = written.rules.unwrap_or_default();
    let databases = databases::mean(written.databases, &written_rules, environment, &mut findings);
    let mut rules = rules::mean(&written_rules, &kinds, &guarded, on_outage, &mut findings);
    let made = guards::make(&written_guards, &kinds, &written_policies, &mut rules, &mut findings);
    let written_relay = written.relay.as_ref();
    relay::prepare(written_relay, &written_policies, on_outage, &mut rules, &mut findings);
    let roster = roster(written.blocklist, written.allowlist, &kinds, &rules, &mut findings);
    let mut tags = hash_tags::mean(&written_policies, &mut findings);
    let mut policies = policies::mean(&written_policies, &rules, &mut findings);
    policies.extend(made);
    relay::complete(written_relay, &rules, &mut policies, &mut tags, &mut findings);
    let policies: Vec<_> = policies.into_iter().map(|policy| policy.deriving(&kinds)).collect();
    let policy_names = guards::written_policies(&written_policies, &written_guards);
    let guard_names: Vec<&str> = written_guards.0.iter().map(|(name, _)| name.as_str()).collect();
    let (guards, webhooks) =
        guards::mean(&written_guards, &policies, &policy_names, environment, &mut findings);
    let store = store.map(|store| store.tagged(tags));
    let clients = clients::mean(&written.clients.unwrap_or_default(), environment, &mut findings);
    let drain = drain::mean(written.drain.as_deref(), &mut findings);
    let denials = denials::mean(&written.denials.unwrap_or_default(), &mut findings);
    let journal = journal::mean(&written.journal.unwrap_or_default(), &mut findings);
    let answers = answers::mean(&written.answers.unwrap_or_default(), &mut findings);
    let known = gateway::Known {
        policies: &policies,
        guards: &guards,
        clients: &clients,
        answers: &answers,
        api: listen.map(|listen| listen.http),
        written_policies: &policy_names,
        written_guards: &guard_names,
    };
    let gateway = written.gateway.as_ref().and_then(|written| gateway::mean(written, known, &mut findings));
    let taken = taken(listen, gateway.as_ref());
    let known = relay::RelayKnown::beside(known, &taken, environment);
    let written_postfix = (written.postfix.as_ref(), written.listen.as_ref());
    let (relay, postfix) = mail(written_relay, written_postfix, known, &mut findings);
    open_files::find(tree, &mut findings);
    let made = listen.zip(store).map(|(listen, store)| Config {
        listen,
        keys: keys.into_usable(),
        store,
        databases,
        log: log::mean(&written.log.unwrap_or_default()),
        drain,
        policies: Policies::new(written.enabled.unwrap_or(true), rules.into_usable(), policies)
            .with_roster(roster)
            .with_guards(guards)
            .with_on_outage(on_outage),
        clients,
        denials,
        journal,
        answers,
        gateway,
        relay,
        postfix,
        webhooks,
        doubts: findings.warnings(),
        env_typos: env_typos::find(environment, tree),
        valkey: Vec::new(),
    });
    findings.conclude(made)
}

/// The relay, and the Postfix policy service.
fn mail(
    relay: Option<&raw::relay::Relay>,
    (postfix, listen): (Option<&raw::postfix::Postfix>, Option<&raw::Listen>),
    known: relay::RelayKnown<'_>,
    findings: &mut Findings<'_>,
) -> (Option<RelayConfig>, Option<PostfixConfig>) {
    let relay = relay.map(|written| relay::mean(written, known, findings));
    let of_relay = relay.iter().flat_map(|relay| &relay.listeners);
    let mut taken = known.taken.to_vec();
    taken.extend(of_relay.map(|listener| (listener.address, "the relay")));
    let postfix = postfix::mean(postfix, listen, relay::RelayKnown { taken: &taken, ..known }, findings);
    (relay, postfix)
}

/// The blocklist and the allowlist.
fn roster(
    blocked: Option<Vec<raw::BlockedForm>>,
    allowed: Option<Vec<raw::AllowedForm>>,
    kinds: &Kinds,
    rules: &rules::Rules,
    findings: &mut Findings<'_>,
) -> Arc<Roster> {
    let (blocked, allowed) = (blocked.unwrap_or_default(), allowed.unwrap_or_default());
    Arc::new(lists::mean(&blocked, &allowed, kinds, rules, findings))
}

/// A configuration file as it is now.
pub(crate) fn file_bytes(path: &FilePath) -> io::Result<Vec<u8>> {
    files::read_up_to(path, MOST_FILE_MIB << 20)
}

/// The addresses that the HTTP interface and the gateway listen on, and whose they are.
fn taken(listen: Option<Listen>, gateway: Option<&Settings>) -> Vec<(SocketAddr, &'static str)> {
    let api = listen.map(|listen| (listen.http, "the HTTP interface"));
    let of_gateway = gateway.into_iter().flat_map(|gateway| &gateway.listeners);
    api.into_iter().chain(of_gateway.map(|listener| (listener.address, "the gateway"))).collect()
}

/// The text of a file, or why it cannot be read.
pub(crate) fn read_file(path: &FilePath) -> Result<String, String> {
    let bytes = file_bytes(path).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => format!("the file is larger than {MOST_FILE_MIB} MiB: {ELSEWHERE}"),
        _ => format!("cannot be read: {error}"),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        format!("is not UTF-8 text from byte {} on: save it as UTF-8", error.utf8_error().valid_up_to())
    })
}

impl Format {
    /// The format of a file, by its extension.
    pub fn of(path: &FilePath) -> Option<Self> {
        match path.extension()?.to_str()? {
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }
}
