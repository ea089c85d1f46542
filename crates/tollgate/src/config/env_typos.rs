//! Environment variables that look like settings but are not: they have one underscore where two separate
//! levels.

use std::collections::HashMap;

use super::tree::{Node, Value};
use super::{Config, Warning};

/// An ignored variable, and the one that was probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvTypo {
    /// Its name.
    pub name: String,
    /// The correct name.
    pub meant: String,
}

const PREFIX: &str = "TOLLGATE_";

/// The sections whose keys are chosen by the author: further levels follow.
const NAMED: [&str; 4] = ["RULES", "POLICIES", "FIELDS", "GUARDS"];

/// All other sections.
const SECTIONS: [&str; 16] = [
    "ENABLED",
    "LISTEN",
    "KEYS",
    "STORE",
    "LOG",
    "JOURNAL",
    "DRAIN",
    "CLIENTS",
    "ANSWERS",
    "DENIALS",
    "GATEWAY",
    "POSTFIX",
    "RELAY",
    "DATABASES",
    "BLOCKLIST",
    "ALLOWLIST",
];

/// The setting with an underscore in its name.
const ON_OUTAGE: &str = "ON_OUTAGE";

/// Whether this is the name of a section.
pub(super) fn is_section(name: &str) -> bool {
    NAMED.iter().chain(&SECTIONS).any(|section| section.eq_ignore_ascii_case(name))
}

/// The variables that look like settings. A variable that the configuration refers to by name is not one of
/// them.
pub(super) fn find(environment: &HashMap<String, String>, tree: &Node) -> Vec<EnvTypo> {
    let env_typos = environment.keys().filter_map(|name| {
        let meant = meant(name)?;
        (!names(tree, name)).then(|| EnvTypo { name: name.clone(), meant })
    });
    let mut env_typos: Vec<EnvTypo> = env_typos.collect();
    env_typos.sort_by(|one, other| one.name.cmp(&other.name));
    env_typos
}

/// The setting that a variable looks like.
fn meant(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX).filter(|rest| !rest.starts_with('_'))?;
    if rest.to_ascii_uppercase() == ON_OUTAGE {
        return Some(format!("TOLLGATE__{rest}"));
    }
    let (section, below) =
        rest.split_once('_').map_or((rest, None), |(section, below)| (section, Some(below)));
    let upper = section.to_ascii_uppercase();
    let named = NAMED.contains(&&*upper);
    if !named && !SECTIONS.contains(&&*upper) {
        return None;
    }
    match below {
        // Kubernetes sets variables for the services of a namespace, which may have such names too.
        Some(below) if of_a_service(below) => None,
        Some(below) if named && !below.contains("__") => {
            Some(format!("TOLLGATE__{section}__{}", below.replace('_', "__")))
        }
        Some(below) => Some(format!("TOLLGATE__{section}__{}", below.trim_start_matches('_'))),
        None => Some(format!("TOLLGATE__{section}")),
    }
}

fn of_a_service(below: &str) -> bool {
    ["PORT", "SERVICE_HOST", "SERVICE_PORT"].iter().any(|word| {
        let rest = below.strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    })
}

/// Whether a text in the configuration is this name, as in `token_env`.
fn names(node: &Node, name: &str) -> bool {
    match &node.value {
        Value::Text(text) => text == name,
        Value::List(nodes) => nodes.iter().any(|node| names(node, name)),
        Value::Table(entries) => entries.iter().any(|entry| names(&entry.node, name)),
        _ => false,
    }
}

impl Config {
    /// The warnings about ignored variables.
    pub(super) fn ignored(&self) -> impl Iterator<Item = Warning> {
        self.env_typos.iter().map(|EnvTypo { name, meant }| Warning {
            policy: None,
            message: format!("the environment variable {name} is ignored: two underscores separate levels"),
            remedy: format!("call it {meant}"),
        })
    }
}
