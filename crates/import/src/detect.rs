//! Detects the program that a file belongs to: the language by its name and first lines, the program by its keys.

use std::sync::Arc;

use tollgate_tree::{Entry, Node, Place, Value, toml, yaml};

use crate::nginx::syntax::{self, Directive};
use crate::section::same;
use crate::system::System;
use crate::{Input, Problem};

/// A file that was parsed.
pub(crate) struct Parsed {
    pub(crate) content: Content,
    /// The programs that it may belong to, and the place that shows it; never empty.
    pub(crate) signs: Vec<(System, Place)>,
}

/// The content of a file.
pub(crate) enum Content {
    /// The documents of a YAML, JSON or TOML file.
    Trees(Vec<Node>),
    /// The directives of nginx.
    Directives(Vec<Directive>),
    /// Environment variables.
    Variables(Vec<Variable>),
}

/// A line of an environment file.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) place: Place,
}

impl Parsed {
    pub(crate) fn trees(&self) -> &[Node] {
        match &self.content {
            Content::Trees(trees) => trees,
            Content::Directives(_) | Content::Variables(_) => &[],
        }
    }
}

enum Language {
    Yaml,
    Toml,
    Nginx,
    Environment,
}

/// The remedy for too many values.
const SPLIT: &str = "import a part of them at a time";

/// Parses a file, and finds the program that it belongs to.
pub(crate) fn read(input: &Input<'_>) -> Result<Parsed, Vec<Problem>> {
    let source: Arc<str> = Arc::from(input.name);
    if input.name.ends_with(".json") {
        json(input.text, &source).map_err(|error| vec![error])?;
    }
    let content = match language(input) {
        Language::Yaml => Content::Trees(documents(input.text, &source).map_err(|error| vec![error])?),
        Language::Toml => {
            let errors = |errors: Vec<_>| errors.into_iter().map(Problem::from).collect::<Vec<_>>();
            Content::Trees(vec![toml::read(input.text, &source).map_err(errors)?])
        }
        Language::Nginx => {
            let directives = syntax::read(input.text, &source).map_err(|error| vec![error.into()])?;
            Content::Directives(directives)
        }
        Language::Environment => Content::Variables(variables(input.text, &source)),
    };
    let whole = Place::Source { source };
    let signs: Vec<(System, Place)> = match &content {
        Content::Trees(trees) => trees.iter().flat_map(signs).collect(),
        Content::Directives(directives) => {
            let known = directives.iter().find(|directive| is_nginx(&directive.name));
            known.map(|directive| (System::Nginx, directive.place.clone())).into_iter().collect()
        }
        Content::Variables(variables) => {
            let known = variables.iter().find(|variable| variable.name.starts_with("VALKEY_"));
            known.map(|variable| (System::Elemta, variable.place.clone())).into_iter().collect()
        }
    };
    if signs.is_empty() {
        return Err(vec![unknown(&content, whole)]);
    }
    Ok(Parsed { content, signs })
}

/// The error for a file of no known program.
fn unknown(content: &Content, place: Place) -> Problem {
    let own = match content {
        Content::Trees(trees) => trees.iter().any(is_ours),
        Content::Directives(_) | Content::Variables(_) => false,
    };
    let message = if own {
        "this is a configuration of tollgate already: check it with `tollgate check-config`".to_owned()
    } else {
        let known: Vec<String> =
            System::ALL.iter().map(|system| format!("{system} ({})", system.sign())).collect();
        format!("this is not a file of a known program. Known are: {}", known.join("; "))
    };
    Problem { place: Some(place), message }
}

/// Whether a directive of this name begins a file of nginx, or has to do with limits.
fn is_nginx(name: &str) -> bool {
    let known = ["http", "server", "location", "upstream", "events", "map", "include", "user"];
    known.contains(&name) || name.starts_with("limit_req") || name.starts_with("limit_conn")
}

/// Whether a key of `[resources]` is one of Elemta's limits.
fn is_elemta(key: &str) -> bool {
    key.starts_with("max_connections") || key.starts_with("valkey_")
}

/// Whether it is a configuration of tollgate.
fn is_ours(tree: &Node) -> bool {
    let has = |key| tree.entry(key).is_some_and(|entry| matches!(entry.node.value, Value::Table(_)));
    has("rules") || has("policies")
}

fn language(input: &Input<'_>) -> Language {
    let ending = input.name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending {
        "yaml" | "yml" | "json" => return Language::Yaml,
        "toml" => return Language::Toml,
        "conf" => return Language::Nginx,
        "env" => return Language::Environment,
        _ => {}
    }
    let mut lines =
        input.text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    if lines.clone().take(100).all(|line| variable(line).is_some()) && lines.clone().next().is_some() {
        return Language::Environment;
    }
    let nginx = |line: &str| {
        let word = line.split([' ', '\t']).next().unwrap_or_default();
        is_nginx(word) && line.ends_with(['{', ';'])
    };
    let section = |line: &str| {
        let name = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-\"".contains(c);
        name.is_some_and(|name| !name.is_empty() && name.chars().all(plain))
    };
    let found = lines.find_map(|line| match line {
        line if nginx(line) => Some(Language::Nginx),
        line if section(line) => Some(Language::Toml),
        _ => None,
    });
    found.unwrap_or(Language::Yaml)
}

/// Checks that a text is JSON. It is parsed as YAML, which has positions and allows more.
fn json(text: &str, source: &Arc<str>) -> Result<(), Problem> {
    let Err(error) = serde_json::from_str::<serde_json::Value>(text) else { return Ok(()) };
    let source = Arc::clone(source);
    let place = Place::At { source, line: error.line().max(1), column: error.column().max(1) };
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    Err(Problem { place: Some(place), message: format!("not valid JSON: {message}") })
}

/// The documents of a YAML file.
fn documents(text: &str, source: &Arc<str>) -> Result<Vec<Node>, Problem> {
    let mut documents = Vec::new();
    let mut start = 0;
    let mut first_line = 1;
    let mut add = |text: &str, first_line: usize| -> Result<(), Problem> {
        let blank = text.lines().all(|line| line.trim().is_empty() || line.starts_with('#'));
        if !blank {
            documents.push(yaml::read_from(text, first_line, source, SPLIT)?);
        }
        Ok(())
    };
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" {
            add(&text[start..at], first_line)?;
            start = at + line.len();
            first_line = index + 2;
        }
        at += line.len();
    }
    add(&text[start..], first_line)?;
    Ok(documents)
}

fn variables(text: &str, source: &Arc<str>) -> Vec<Variable> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some((name, value)) = variable(line.trim()) {
            let place = Place::At { source: Arc::clone(source), line: index + 1, column: 1 };
            found.push(Variable { name: name.to_owned(), value: value.to_owned(), place });
        }
    }
    found
}

/// `export NAME="value"` or `NAME=value`.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return None;
    }
    let value = value.trim();
    let unquoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    Some((name, unquoted.unwrap_or(value)))
}

/// The programs that a document may belong to.
fn signs(root: &Node) -> Vec<(System, Place)> {
    match &root.value {
        _ if is_ours(root) => Vec::new(),
        Value::Table(entries) => of_table(entries, &root.place),
        Value::List(nodes) => {
            let first = nodes.iter().find_map(|node| match &node.value {
                Value::Table(entries) => of_element(entries).map(|system| (system, node.place.clone())),
                _ => None,
            });
            first.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn of_table(entries: &[Entry], place: &Place) -> Vec<(System, Place)> {
    let mut signs = Vec::new();
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    let mut sign = |system, place: &Place| {
        if !signs.iter().any(|(known, _)| *known == system) {
            signs.push((system, place.clone()));
        }
    };
    for Entry { key, key_place, node } in entries {
        let child = |name: &str| table(node).iter().find(|entry| same(&entry.key, name));
        match &**key {
            "kind" if matches!(&node.value, Value::Text(kind) if kind == "Ingress" || kind == "List") => {
                sign(System::IngressNginx, key_place);
            }
            "descriptors" => sign(System::EnvoyRatelimit, key_place),
            "domain" if has("descriptors") || entries.len() == 1 => sign(System::EnvoyRatelimit, key_place),
            "limits" if matches!(&node.value, Value::List(limits) if limits.iter().any(|limit| limit.entry("max_value").is_some())) =>
            {
                sign(System::Limitador, key_place);
            }
            "accounts" if matches!(&node.value, Value::List(_)) => sign(System::MailProxy, key_place),
            "resources" if table(node).iter().any(|entry| is_elemta(&entry.key)) => {
                sign(System::Elemta, key_place);
            }
            "domains" if table(node).iter().any(|entry| entry.node.entry("rate_limit").is_some()) => {
                sign(System::Sendry, key_place);
            }
            "gateway" if child("ratelimit").is_some() => sign(System::ApiGateway, key_place),
            key if same(key, "rate-limit") => {
                let spring = key != "rate_limit" || child("tiers").is_some();
                sign(if spring { System::Marketplace } else { System::Sendry }, key_place);
            }
            _ => {}
        }
    }
    if let Some(system) = of_element(entries).filter(|_| signs.is_empty()) {
        signs.push((system, place.clone()));
    }
    signs
}

/// The program of a table that may also be an element of a list.
fn of_element(entries: &[Entry]) -> Option<System> {
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    if has("max_value") {
        Some(System::Limitador)
    } else if has("requestsPerSecond") || has("requests_per_second") && has("burst_size") {
        Some(System::ApiGateway)
    } else if has("id") && (has("host") || entries.iter().any(|entry| entry.key.starts_with("limit_per_"))) {
        Some(System::MailProxy)
    } else {
        None
    }
}

fn table(node: &Node) -> &[Entry] {
    match &node.value {
        Value::Table(entries) => entries,
        _ => &[],
    }
}
