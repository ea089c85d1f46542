//! `VALKEY_URL` and `VALKEY_KEY_PREFIX`, which other programs use too. They take precedence over the file's
//! store, but not over `TOLLGATE__STORE`.
//!
//! The address replaces the one in the file. Other settings of Redis in the file stay: time-outs, prefix,
//! TLS.

use std::collections::HashMap;
use std::fmt;

use super::tree::{Entry, Node, Place, Value};
use super::{Config, Warning};

/// The address of the store.
const URL: &str = "VALKEY_URL";
/// The prefix of its keys.
const KEY_PREFIX: &str = "VALKEY_KEY_PREFIX";

/// The effect of one of the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValkeyVariable {
    /// Its name.
    pub name: &'static str,
    /// Its effect.
    pub effect: Effect,
}

/// The effect of a variable on the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is used, and the file does not set the same.
    Used,
    /// It is used instead of the value in the file or the starter.
    OverridesFile,
    /// Another variable with precedence names the store.
    Overridden,
    /// It is a setting of Redis, but the store is another one.
    NotRedis,
}

/// Applies the variables to the store of the file, and returns the effect of each.
pub(super) fn apply(tree: &mut Node, environment: &HashMap<String, String>) -> Vec<ValkeyVariable> {
    let value = |name: &'static str| {
        let text = environment.get(name).filter(|text| !text.is_empty())?;
        Some(Node { value: Value::Text(text.clone()), place: Place::Variable { name: name.into() } })
    };
    let (url, prefix) = (value(URL), value(KEY_PREFIX));
    let mut done = Vec::new();
    let mut tell = |name, effect| done.push(ValkeyVariable { name, effect });
    if environment.keys().any(|name| names_a_store(name)) {
        url.iter().for_each(|_| tell(URL, Effect::Overridden));
        prefix.iter().for_each(|_| tell(KEY_PREFIX, Effect::Overridden));
        return done;
    }
    let Value::Table(entries) = &mut tree.value else { return done };
    if let Some(url) = url {
        let named =
            entries.iter().any(|entry| entry.key == "store" && !matches!(entry.node.value, Value::Null));
        let mut settings = redis_settings(entries);
        if has_login(&url) {
            settings.retain(|entry| !["user", "password_env", "password_file"].contains(&&*entry.key));
        }
        set(&mut settings, "redis", url.clone());
        set(entries, "store", Node { value: Value::Table(settings), place: url.place });
        tell(URL, if named { Effect::OverridesFile } else { Effect::Used });
    }
    if let Some(prefix) = prefix {
        let mut settings = redis_settings(entries);
        if settings.is_empty() {
            tell(KEY_PREFIX, Effect::NotRedis);
        } else {
            let named = set(&mut settings, "key_prefix", prefix.clone());
            set(entries, "store", Node { value: Value::Table(settings), place: prefix.place });
            tell(KEY_PREFIX, if named { Effect::OverridesFile } else { Effect::Used });
        }
    }
    done
}

/// Whether an environment variable sets the store.
fn names_a_store(variable: &str) -> bool {
    let Some(rest) = variable.strip_prefix("TOLLGATE__") else { return false };
    let mut levels = rest.split("__").map(str::to_lowercase);
    let store = levels.next().is_some_and(|level| level == "store");
    let kinds = ["redis", "postgres", "file", "memory"];
    store && levels.next().is_none_or(|level| kinds.contains(&&*level))
}

/// The settings of a store in Redis; none if the store is another one, or not configured.
fn redis_settings(entries: &[Entry]) -> Vec<Entry> {
    let Some(store) = entries.iter().find(|entry| entry.key == "store") else { return Vec::new() };
    match &store.node.value {
        Value::Text(word) if word.contains(':') && !word.starts_with("postgres") => {
            let (key_place, node) = (store.key_place.clone(), store.node.clone());
            vec![Entry { key: "redis".to_owned(), key_place, node }]
        }
        Value::Table(settings) if settings.iter().any(|entry| entry.key == "redis") => settings.clone(),
        _ => Vec::new(),
    }
}

/// Whether an address contains a user or a password.
fn has_login(url: &Node) -> bool {
    matches!(&url.value, Value::Text(text) if text.contains('@'))
}

/// Sets a value. Returns whether there was one before.
fn set(entries: &mut Vec<Entry>, key: &str, node: Node) -> bool {
    let before = entries.len();
    entries.retain(|entry| entry.key != key);
    let there = entries.len() < before;
    entries.push(Entry { key: key.to_owned(), key_place: node.place.clone(), node });
    there
}

impl Config {
    /// Warnings about variables without effect.
    pub(super) fn unused_valkey(&self) -> impl Iterator<Item = Warning> {
        let unused = self.valkey.iter().filter(|variable| !variable.is_used());
        unused.map(|variable| Warning {
            policy: None,
            message: format!("the environment variable {} {}", variable.name, variable.effect),
            remedy: "unset it, or change the store".to_owned(),
        })
    }
}

impl ValkeyVariable {
    /// Whether its value is in force.
    pub fn is_used(self) -> bool {
        matches!(self.effect, Effect::Used | Effect::OverridesFile)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Used => "is used",
            Self::OverridesFile => "overrides the store of the configuration",
            Self::Overridden => "is ignored: TOLLGATE__STORE names the store",
            Self::NotRedis => "is ignored: the store is not Redis or Valkey",
        })
    }
}
