//! The configuration: what was *written* (`raw`) becomes what is *meant* ([`Config`]), once.
//!
//! A file's text becomes a tree of values with their places; environment variables are laid over
//! it; serde reads it as what was written; then it is checked and converted. Every problem that is
//! found says where it lies and what would be right.

mod answers;
pub mod clients;
mod count_rows;
mod counting;
mod databases;
mod deserialize;
mod drain;
pub mod env_typos;
mod escape;
pub mod explain;
mod fields;
mod from_toml;
mod from_yaml;
mod gateway;
pub mod guards;
mod hash_tags;
mod hush;
pub mod keys;
mod limits;
pub mod listen;
mod lists;
pub mod log;
mod logins;
pub mod memory;
mod policies;
pub mod problem;
mod raw;
mod rules;
pub mod slot_spread;
pub mod store;
mod suspect;
mod tree;
mod unleased_holds;
mod unreachable_rules;
pub mod valkey;
mod variables;
mod zones;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path as FilePath;
use std::sync::Arc;

use tollgate_core::{Policies, Span};
use tollgate_gateway::settings::Settings;
use tollgate_postgres::Settings as PostgresSettings;
use tollgate_web::Answers;

pub use clients::Clients;
pub use env_typos::EnvTypo;
pub use guards::{Webhook, WebhookSecret, Webhooks};
pub use keys::{ApiKey, Role, TokenHash};
pub use listen::Listen;
pub use log::{Level, LogConfig, LogFormat};
pub use problem::{ConfigError, Problem};
pub use slot_spread::SlotSpread;
pub use store::{StoreConfig, Sync};
pub use tree::Place;
pub use valkey::ValkeyVariable;

use problem::Findings;
use tree::{Node, Value};

/// What is used when no file is given.
pub const STARTER: &str = include_str!("config/starter.yaml");

/// The largest file that is read, in MiB: more than 250,000 overrides need.
const MOST_FILE_MIB: u64 = 32;

/// Where settings go that are too many for a file.
const ELSEWHERE: &str = "set overrides with `tollgate set` or `PUT /api/v1/counters/RULE/KEY`, and listings with `tollgate ban` or `POST /api/v1/bans`";

/// What a configuration means.
///
/// # Defaults
///
/// Without a file, [`STARTER`] is the configuration. With one, what it leaves out is: listen on
/// `127.0.0.1:8080`, no API keys, the store in the file `tollgate.redb` flushed every ten seconds
/// with at most 1,000,000 keys, a pretty log at level info, ten seconds for requests under way at the
/// end, nobody on the lists, no rules and no policies.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server listens.
    pub listen: Listen,
    /// The API keys; none only on loopback.
    pub keys: Vec<ApiKey>,
    /// Where counters are kept.
    pub store: StoreConfig,
    /// The databases of the application that rules count rows in, by name.
    pub databases: BTreeMap<String, PostgresSettings>,
    /// What is logged, and how.
    pub log: LogConfig,
    /// How long requests that are under way may take once the program was told to end.
    pub drain: Span,
    /// What is limited.
    pub policies: Policies,
    /// Who clients are, to the doors that stand between them and a service.
    pub clients: Clients,
    /// How decisions are said to them.
    pub answers: Answers,
    /// The reverse proxy, if there is one.
    pub gateway: Option<Settings>,
    /// Who is told of locks, by guard.
    pub webhooks: Webhooks,
    /// Values of the file that can be used, and may not be what was meant.
    pub doubts: Vec<Warning>,
    /// Variables of the environment that look like settings, and are ignored.
    pub env_typos: Vec<EnvTypo>,
    /// What `VALKEY_URL` and `VALKEY_KEY_PREFIX` did, if they are set.
    pub valkey: Vec<ValkeyVariable>,
}

/// Something that can be used, and may not be what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The policy it is about, if it is about one.
    pub policy: Option<String>,
    /// What to know.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Config {
    /// Everything that may not be what was meant.
    pub fn warnings(&self) -> Vec<Warning> {
        let apart = self.slot_spread().into_iter().map(|apart| {
            let (message, remedy) = (apart.words(), apart.remedy());
            Warning { policy: Some(apart.policy), message, remedy }
        });
        apart.chain(self.own_warnings()).chain(self.ignored()).chain(self.unused_valkey()).collect()
    }

    /// The warnings about the configuration itself: not about its store's topology, nor the environment.
    pub fn own_warnings(&self) -> Vec<Warning> {
        let of_policies = self
            .escapes()
            .into_iter()
            .chain(self.unreachable_rules())
            .chain(self.lockouts())
            .chain(self.doubtful_logins())
            .chain(self.unleased_holds());
        let of_store = self.store.homeless().into_iter().chain(self.too_large());
        self.doubts.iter().cloned().chain(of_policies).chain(of_store).collect()
    }
}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.yaml` or `.yml`.
    Yaml,
    /// `.toml`.
    Toml,
}

/// Reads the configuration from a file, or the starter if there is none, with the environment laid
/// over it.
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
    let format = Format::of(path).ok_or_else(|| {
        fail("the name of a configuration file must end in `.yaml`, `.yml` or `.toml`".to_owned())
    })?;
    let text = read_file(path).map_err(fail)?;
    let tree = read_tree(&text, format, &source)?;
    if matches!(&tree.value, Value::Table(entries) if entries.is_empty()) {
        return Err(fail(
            "the file is empty: add rules and policies, as in `rules: { client: { by: ip, limits: 10/s } }` and `policies: { api: [client] }`; without a file, tollgate serves its built-in starter"
                .to_owned(),
        ));
    }
    let config = load_tree(tree, &environment)?;
    if config.store.is_in(path) {
        let message = "the store's file is this configuration itself: name another file in `store`";
        return Err(fail(message.to_owned()));
    }
    Ok(config)
}

/// Reads the configuration from a text that problems call `source`.
pub fn load_str(
    text: &str,
    format: Format,
    source: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Config, ConfigError> {
    load_tree(read_tree(text, format, source)?, &environment.collect())
}

fn read_tree(text: &str, format: Format, source: &str) -> Result<Node, ConfigError> {
    let source: Arc<str> = Arc::from(source);
    let mut tree = match format {
        Format::Yaml => from_yaml::read(text, &source)?,
        Format::Toml => from_toml::read(text, &source)?,
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
    let written_databases = written.databases.unwrap_or_default();
    let databases = databases::mean(&written_databases, environment, &mut findings);
    let kinds = fields::mean(&written.fields.unwrap_or_default(), &mut findings);
    let written_policies = written.policies.unwrap_or_default();
    let written_guards = written.guards.unwrap_or_default();
    let guarded = guards::guarded(&written_guards, &written_policies);
    let on_outage = rules::default_on_outage(written.on_outage.as_deref(), &mut findings);
    let written_rules = written.rules.unwrap_or_default();
    databases::check_named(&written_rules, &written_databases, &mut findings);
    let mut rules = rules::mean(&written_rules, &kinds, &guarded, on_outage, &mut findings);
    let made = guards::make(&written_guards, &kinds, &written_policies, &mut rules, &mut findings);
    let (blocklist, allowlist) =
        (written.blocklist.unwrap_or_default(), written.allowlist.unwrap_or_default());
    let roster = Arc::new(lists::mean(&blocklist, &allowlist, &kinds, &rules, &mut findings));
    let tags = hash_tags::mean(&written_policies, &mut findings);
    let mut policies = policies::mean(&written_policies, &rules, &mut findings);
    policies.extend(made);
    let policies: Vec<_> = policies.into_iter().map(|policy| policy.deriving(&kinds)).collect();
    let policy_names = guards::written_policies(&written_policies, &written_guards);
    let guard_names: Vec<&str> = written_guards.0.iter().map(|(name, _)| name.as_str()).collect();
    let (guards, webhooks) =
        guards::mean(&written_guards, &policies, &policy_names, environment, &mut findings);
    let store = store.map(|store| store.tagged(tags));
    let clients = clients::mean(&written.clients.unwrap_or_default(), environment, &mut findings);
    let drain = drain::mean(written.drain.as_deref(), &mut findings);
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
        answers,
        gateway,
        webhooks,
        doubts: findings.warnings(),
        env_typos: env_typos::find(environment, tree),
        valkey: Vec::new(),
    });
    findings.conclude(made)
}

fn read_file(path: &FilePath) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    let most = MOST_FILE_MIB * 1024 * 1024;
    file.take(most + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > most {
        return Err(format!("the file is larger than {MOST_FILE_MIB} MiB: {ELSEWHERE}"));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("is not UTF-8 text from byte {} on: save it as UTF-8", error.utf8_error().valid_up_to())
    })
}

impl Format {
    /// How a file is written, by the ending of its name.
    pub fn of(path: &FilePath) -> Option<Self> {
        match path.extension()?.to_str()? {
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }
}
