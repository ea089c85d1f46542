//! The store of the counters.

mod client;
mod postgres;
mod redis;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tollgate_core::Span;
use tollgate_core::policy::nearest;

use super::Warning;
use super::limits;
use super::problem::{Findings, hint, shown};
use super::raw::{self, StoreForm, StoreTable};
use super::tree::Path;
pub(super) use postgres::mean as postgres_settings;
use tollgate_postgres::Settings as PostgresSettings;
use tollgate_redis::Settings as RedisSettings;

/// The store of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// In memory: they are lost when the program ends.
    Memory {
        /// The most keys; by default 1,000,000.
        max_keys: usize,
    },
    /// In a file.
    File {
        /// Its path; by default `tollgate.redb`.
        path: PathBuf,
        /// How often it is written; by default every ten seconds.
        flush_interval: Span,
        /// When it is written; by default at that interval.
        sync: Sync,
        /// The most keys; by default 1,000,000.
        max_keys: usize,
    },
    /// In Redis or Valkey.
    Redis(Box<RedisSettings>),
    /// In PostgreSQL.
    Postgres(Box<PostgresSettings>),
}

impl StoreConfig {
    /// Adds the hash tags of rules, if the store uses them.
    pub(super) fn tagged(mut self, tags: HashMap<String, String>) -> Self {
        if let Self::Redis(settings) = &mut self {
            settings.tags = tags;
        }
        self
    }
}

/// When a file store is written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// At the flush interval: a crash loses the counts since.
    Interval,
    /// Before every answer: a crash loses nothing.
    Always,
}

impl StoreConfig {
    /// Whether other nodes may use the same counters, over a network that may fail.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Memory { .. } | Self::File { .. } => false,
            Self::Redis(_) | Self::Postgres(_) => true,
        }
    }

    /// Whether its file is the one at a path, under any name.
    pub(super) fn is_in(&self, path: &std::path::Path) -> bool {
        let Self::File { path: file, .. } = self else { return false };
        let both = std::fs::metadata(file).and_then(|file| Ok((file, std::fs::metadata(path)?)));
        both.is_ok_and(|(file, other)| (file.dev(), file.ino()) == (other.dev(), other.ino()))
    }

    /// A warning if the directory of its file does not exist: the server would not start.
    pub(super) fn homeless(&self) -> Option<Warning> {
        let Self::File { path, .. } = self else { return None };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty())?;
        (!directory.is_dir()).then(|| Warning {
            policy: None,
            message: format!(
                "the store's file should be in {}, but there is no such directory: the server would not start",
                directory.display()
            ),
            remedy: "make the directory, where the server runs, for the user that it runs as".to_owned(),
        })
    }
}

const MAX_KEYS: usize = 1_000_000;
const FLUSH_INTERVAL: Span = Span::from_secs(10);
const FILE: &str = "./tollgate.redb";

const FORMS: &str = "`memory`, `{ file: ./tollgate.redb }` or an address, as in `redis://localhost:6379` or `postgres://user@localhost/database`";

pub(super) fn mean(
    written: Option<&StoreForm>,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<StoreConfig> {
    let path = Path::of(&["store"]);
    match written {
        None => Some(StoreConfig::File {
            path: FILE.into(),
            flush_interval: FLUSH_INTERVAL,
            sync: Sync::Interval,
            max_keys: MAX_KEYS,
        }),
        Some(StoreForm::Word(word)) if word == "memory" => Some(StoreConfig::Memory { max_keys: MAX_KEYS }),
        Some(StoreForm::Word(word)) if postgres::is_address(word) => {
            postgres::mean(word, &path, &StoreTable::default(), &path, environment, findings)
                .map(|settings| StoreConfig::Postgres(Box::new(settings)))
        }
        // A text that looks like an address may contain a password, and is only read as one.
        Some(StoreForm::Word(word)) if word.contains(':') => {
            redis::mean(word, &path, &StoreTable::default(), &path, environment, findings)
                .map(|settings| StoreConfig::Redis(Box::new(settings)))
        }
        Some(StoreForm::Word(word)) => {
            // Only a plain word is repeated: a connection string may have a password in it.
            let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            let message = if is_plain {
                let near = hint(nearest(word, ["memory"].into_iter()));
                format!("`{}` is not a store: write {FORMS}{near}", shown(word))
            } else {
                format!("this is not a store: write {FORMS}")
            };
            findings.value(&path, message);
            None
        }
        Some(StoreForm::Table(table)) => mean_table(table, &path, environment, findings),
    }
}

fn mean_table(
    table: &StoreTable,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<StoreConfig> {
    if let Some(url) = &table.postgres {
        return mean_postgres(table, url, path, environment, findings);
    }
    refuse(&[("schema", table.schema.is_some())], path, findings, OF_POSTGRES);
    match (&table.memory, &table.file, &table.redis) {
        (Some(memory), None, None) => {
            refuse(
                &of_files(table),
                path,
                findings,
                "this is a setting of file stores: memory is never written to disk",
            );
            refuse(&of_redis(table), path, findings, OF_REDIS);
            let inside = "this belongs inside of `memory`: `{ memory: { max_keys: 1000000 } }`";
            refuse(&[("max_keys", table.max_keys.is_some())], path, findings, inside);
            max_keys(memory.max_keys, &path.key("memory"), findings)
                .map(|max_keys| StoreConfig::Memory { max_keys })
        }
        (None, Some(file), None) => {
            refuse(&of_redis(table), path, findings, OF_REDIS);
            mean_file(table, file, path, findings)
        }
        (None, None, Some(url)) => {
            refuse(
                &of_files(table),
                path,
                findings,
                "this is a setting of file stores: Redis saves by itself",
            );
            let bounded = "Redis keeps as many keys as it has memory for: set its `maxmemory`";
            refuse(&[("max_keys", table.max_keys.is_some())], path, findings, bounded);
            redis::mean(url, &path.key("redis"), table, path, environment, findings)
                .map(|settings| StoreConfig::Redis(Box::new(settings)))
        }
        (None, None, None) => {
            findings.value(path, format!("name the store: {FORMS}"));
            None
        }
        _ => {
            findings.value(path, KEEP_ONE);
            None
        }
    }
}

fn mean_postgres(
    table: &StoreTable,
    url: &str,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<StoreConfig> {
    if table.memory.is_some() || table.file.is_some() || table.redis.is_some() {
        findings.value(path, KEEP_ONE);
        return None;
    }
    let others = "this is a setting of file stores: PostgreSQL saves by itself";
    refuse(&of_files(table), path, findings, others);
    let bounded = "PostgreSQL keeps as many keys as its disk has room for";
    refuse(&[("max_keys", table.max_keys.is_some())], path, findings, bounded);
    let prefix = "this is a setting of stores in Redis: write `schema` to keep counters apart";
    refuse(&[("key_prefix", table.key_prefix.is_some())], path, findings, prefix);
    postgres::mean(url, &path.key("postgres"), table, path, environment, findings)
        .map(|settings| StoreConfig::Postgres(Box::new(settings)))
}

const KEEP_ONE: &str = "keep one of `memory`, `file`, `redis` and `postgres`";
const OF_POSTGRES: &str = "this is a setting of stores in PostgreSQL: add `postgres` with its address";
const OF_REDIS: &str = "this is a setting of stores in Redis: add `redis` with its address";

/// Reports each written setting that belongs to another store.
fn refuse(settings: &[(&str, bool)], path: &Path, findings: &mut Findings<'_>, message: &str) {
    for (setting, _) in settings.iter().filter(|(_, written)| *written) {
        findings.key(&path.key(setting), message);
    }
}

fn of_files(table: &StoreTable) -> [(&'static str, bool); 2] {
    [("flush_interval", table.flush_interval.is_some()), ("sync", table.sync.is_some())]
}

fn of_redis(table: &StoreTable) -> [(&'static str, bool); 14] {
    [
        ("key_prefix", table.key_prefix.is_some()),
        ("connect_timeout", table.connect_timeout.is_some()),
        ("command_timeout", table.command_timeout.is_some()),
        ("health_check_interval", table.health_check_interval.is_some()),
        ("connections", table.connections.is_some()),
        ("user", table.user.is_some()),
        ("password_env", table.password_env.is_some()),
        ("password_file", table.password_file.is_some()),
        ("key_secret_env", table.key_secret_env.is_some()),
        ("key_secret_file", table.key_secret_file.is_some()),
        ("tls_ca", table.tls_ca.is_some()),
        ("tls_certificate", table.tls_certificate.is_some()),
        ("tls_key", table.tls_key.is_some()),
        ("tls_insecure", table.tls_insecure.is_some()),
    ]
}

fn mean_file(
    table: &StoreTable,
    file: &str,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<StoreConfig> {
    if file.is_empty() {
        findings.value(&path.key("file"), "the path is empty: write one, as in `./tollgate.redb`");
    }
    // It may have a password in it, and the path of a file is shown.
    if file.contains("://") || file.contains("password=") {
        let message = "this is the address of a server, not a file: write it as `store: redis://…` or `store: postgres://…`";
        findings.value(&path.key("file"), message);
        return None;
    }
    let flush_interval = match &table.flush_interval {
        None => Some(FLUSH_INTERVAL),
        Some(text) => limits::span(text, &path.key("flush_interval"), findings),
    };
    let sync = match table.sync {
        None | Some(raw::SyncForm::Interval) => Sync::Interval,
        Some(raw::SyncForm::Always) => Sync::Always,
    };
    let max_keys = max_keys(table.max_keys, path, findings);
    Some(StoreConfig::File { path: file.into(), flush_interval: flush_interval?, sync, max_keys: max_keys? })
}

fn max_keys(written: Option<u64>, above: &Path, findings: &mut Findings<'_>) -> Option<usize> {
    let Some(written) = written else { return Some(MAX_KEYS) };
    let max_keys = usize::try_from(written).ok().filter(|max_keys| *max_keys > 0);
    if max_keys.is_none() {
        findings.value(
            &above.key("max_keys"),
            format!("`{written}` keys cannot be remembered: write a number from 1 on"),
        );
    }
    max_keys
}
