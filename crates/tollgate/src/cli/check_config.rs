//! `tollgate check-config`: whether a configuration is valid, and what it limits.

mod postfix;
mod relay;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::WRONG;
use crate::command::OutputFormat;
use crate::config::explain::{self, LimitInWords, LoginInWords, RuleInWords};
use crate::config::memory::{self, MemoryNeed};
use crate::config::{self, Config, ConfigError, ConfigProblem, Place, StoreConfig, Sync, Warning};
use crate::printable::{self, plain};
use tollgate_core::{Clears, Guard, Stance};
use tollgate_gateway::settings::{RouteSettings, Settings};
use tollgate_redis::{Address, Settings as RedisSettings, Topology};

/// Whether warnings are failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    Lenient,
    Strict,
}

pub(super) const HELP: &str = "\
Examples:
  tollgate check-config tollgate.yaml
  tollgate check-config --strict

Exit codes: 0 valid, 2 invalid, or with --strict there are warnings.";

pub(super) fn run(
    path: Option<&Path>,
    environment: Vec<(String, String)>,
    (format, strictness): (OutputFormat, Strictness),
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    let config = match config::load(path, environment.into_iter()) {
        Ok(config) => config,
        Err(error) => return refuse(&error, format, out, err),
    };
    match format {
        OutputFormat::Json => print_json(&explained(&config), out)?,
        OutputFormat::Words => {
            let mut text = Vec::new();
            print_words(&config, &rules_in_words(&config), &mut text)?;
            for line in String::from_utf8_lossy(&text).lines() {
                writeln!(out, "{}", plain(line))?;
            }
        }
    }
    let warnings = config.warnings().len();
    if strictness == Strictness::Strict && warnings > 0 {
        let are = if warnings == 1 { "is 1 warning" } else { &format!("are {warnings} warnings") };
        writeln!(err, "error: there {are}, and --strict allows none")?;
        return Ok(ExitCode::from(WRONG));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a configuration limits, as JSON.
pub(crate) fn explained(config: &Config) -> Value {
    as_json(config, &rules_in_words(config))
}

fn rules_in_words(config: &Config) -> Vec<RuleInWords> {
    config.policies.rules().iter().map(|rule| explain::rule(rule, &config.policies)).collect()
}

/// Reports the errors of an invalid configuration.
pub(super) fn refuse(
    error: &ConfigError,
    format: OutputFormat,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    writeln!(err, "{error}")?;
    if let OutputFormat::Json = format {
        print_json(&problems_as_json(error), out)?;
    }
    Ok(ExitCode::from(WRONG))
}

/// Prints JSON without control characters in its texts.
pub(super) fn print_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", printable::json(&format!("{value:#}")))
}

fn print_words(config: &Config, rules: &[RuleInWords], out: &mut dyn Write) -> io::Result<()> {
    if !config.policies.enabled {
        writeln!(out, "Nothing is limited: `enabled` is false.")?;
    }
    writeln!(out, "listens on http://{}", config.listen.http)?;
    writeln!(out, "keeps counters {}", store_in_words(&config.store))?;
    writeln!(out, "{}", need_in_words(config))?;
    for variable in config.valkey.iter().filter(|variable| variable.is_used()) {
        writeln!(out, "  {} {}", variable.name, variable.effect)?;
    }
    if config.store.is_shared() {
        let default = config.policies.on_outage();
        writeln!(out, "during an outage, by default: {default}")?;
    }
    for (name, settings) in &config.databases {
        writeln!(out, "counts rows in {name}: PostgreSQL at {}", settings.address())?;
    }
    for key in &config.keys {
        writeln!(out, "access key {}, role {}", key.name, key.role)?;
    }
    let (block, allow) = listed(config);
    if block + allow > 0 {
        let entries = if block == 1 { "entry" } else { "entries" };
        writeln!(out, "{block} {entries} on the blocklist, {allow} on the allowlist")?;
    }
    for rule in rules {
        print_rule(rule, out)?;
        if config.store.is_shared() {
            writeln!(out, "  during an outage: {}", rule.on_outage)?;
        }
    }
    for guard in config.policies.guards() {
        print_guard(config, guard, out)?;
    }
    if let Some(gateway) = &config.gateway {
        print_gateway(gateway, out)?;
    }
    if let Some(relay) = &config.relay {
        relay::print(relay, out)?;
    }
    if let Some(postfix) = &config.postfix {
        postfix::print(postfix, out)?;
    }
    for Warning { policy, message, remedy } in config.warnings() {
        let about = policy.map_or_else(String::new, |policy| format!("policy {policy}: "));
        writeln!(out, "\nwarning: {about}{message}\n  remedy: {remedy}")?;
    }
    Ok(())
}

/// How much memory the counters take at most.
fn need_in_words(config: &Config) -> String {
    let MemoryNeed { keys, key_bytes, bytes } = config.memory_need();
    let bytes = memory::in_words(bytes);
    let when = if config.store.is_shared() { "in an outage, counters of this node" } else { "counters" };
    match keys {
        0 => format!("  {when} take at most {bytes} of memory"),
        keys => format!("  {when} take at most {bytes} of memory: {keys} keys of up to {key_bytes} bytes"),
    }
}

fn print_guard(config: &Config, guard: &Guard, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nguard {}: logins are checked against policy {}", guard.name, guard.policy)?;
    writeln!(out, "  required fields: {}", config.policies.missing_fields(guard, &[]).join(", "))?;
    writeln!(out, "  a success clears {}", clears(guard))?;
    match config.webhooks.get(&guard.name) {
        Some(webhook) => writeln!(out, "  notices go to the log and to {}", webhook.place()),
        None => writeln!(out, "  notices go to the log"),
    }
}

/// What a success at a guard clears, as text.
fn clears(guard: &Guard) -> String {
    match &guard.clears {
        Clears::Narrowest => "the ladders whose keys have the most fields".to_owned(),
        Clears::All => "every ladder".to_owned(),
        Clears::Nothing => "nothing".to_owned(),
        Clears::Rules(rules) => {
            let names: Vec<&str> = rules.iter().map(|rule| &**rule).collect();
            format!("the ladders of {}", names.join(", "))
        }
    }
}

fn print_gateway(gateway: &Settings, out: &mut dyn Write) -> io::Result<()> {
    for listener in &gateway.listeners {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        writeln!(out, "\ngateway on {scheme}://{}", listener.address)?;
    }
    for route in &gateway.routes {
        let limited = match (&route.policy, &route.guard) {
            (Some(policy), Some(guard)) => format!("limited by policy {policy}, guarded by {}", guard.name),
            (Some(policy), None) => format!("limited by policy {policy}"),
            (None, Some(guard)) => format!("guarded by {}", guard.name),
            (None, None) => "without limits".to_owned(),
        };
        writeln!(out, "  route {}: {} to {}, {limited}", route.name, matched(route), route.upstream)?;
        if let Some(guard) = &route.guard {
            let LoginInWords { success, neutral, failure } = explain::login(guard);
            writeln!(out, "    success: {success}\n    neutral: {neutral}\n    failure: {failure}")?;
        }
    }
    if let Some(policy) = &gateway.connections {
        writeln!(out, "  connections are limited by policy {policy}")?;
    }
    Ok(())
}

/// The requests that a route matches, as text.
fn matched(route: &RouteSettings) -> String {
    let listed =
        |all: &str, texts: Vec<String>| if texts.is_empty() { all.to_owned() } else { texts.join(" or ") };
    let methods = listed("everything", route.methods.iter().map(ToString::to_string).collect());
    let hosts = listed("", route.hosts.iter().map(ToString::to_string).collect());
    let paths = listed("/*", route.paths.iter().map(ToString::to_string).collect());
    let headers = if route.headers.is_empty() { "" } else { " with its headers" };
    format!("{methods} at {hosts}{paths}{headers}")
}

fn print_rule(rule: &RuleInWords, out: &mut dyn Write) -> io::Result<()> {
    let off = if rule.enabled { "" } else { " (switched off)" };
    writeln!(out, "\nrule {}{off}: {}", rule.name, rule.scope)?;
    print_limits(&rule.limits, "  ", out)?;
    for single in &rule.overrides {
        writeln!(out, "  for {} instead:", plain(&single.key))?;
        print_limits(&single.limits, "    ", out)?;
    }
    if let Some(rows) = &rule.count_rows {
        let query: Vec<&str> = rows.query.split_whitespace().collect();
        writeln!(out, "  counts rows in {}: {}", rows.database, plain(&query.join(" ")))?;
    }
    if let Some(field) = &rule.count {
        writeln!(out, "  the cost of an attempt is its field `{}`", plain(field))?;
    }
    if let Some(count_when) = &rule.count_when {
        writeln!(out, "  counts {count_when}")?;
    }
    let code = rule.code.as_ref().map_or_else(String::new, |code| format!(", with the code {code}"));
    writeln!(out, "  when exceeded: {}{code}", rule.on_exceed)?;
    if let Some(ban) = &rule.ban {
        writeln!(out, "  bans: {ban}")?;
    }
    match rule.policies.as_slice() {
        [] => writeln!(out, "  used by no policy"),
        policies => writeln!(out, "  used by {}", policies.join(", ")),
    }
}

fn print_limits(limits: &[LimitInWords], indent: &str, out: &mut dyn Write) -> io::Result<()> {
    if limits.is_empty() {
        return writeln!(out, "{indent}unlimited");
    }
    for LimitInWords { limit, bounds } in limits {
        writeln!(out, "{indent}{limit}: {bounds}")?;
    }
    Ok(())
}

/// The number of entries of the blocklist and of the allowlist.
fn listed(config: &Config) -> (usize, usize) {
    let all = config.policies.roster().listings();
    let block = all.iter().filter(|listing| listing.stance == Stance::Block).count();
    (block, all.len() - block)
}

pub(crate) fn store_in_words(store: &StoreConfig) -> String {
    match store {
        StoreConfig::Memory { max_keys } => format!("in memory, for at most {max_keys} keys"),
        StoreConfig::File { path, flush_interval, sync, max_keys } => {
            let written = match sync {
                Sync::Interval => format!("every {flush_interval}"),
                Sync::Always => "before every answer".to_owned(),
            };
            format!("in {}, written {written}, for at most {max_keys} keys", path.display())
        }
        StoreConfig::Redis(settings) => redis_in_words(settings),
        StoreConfig::Postgres(settings) => {
            let tls = match &settings.tls {
                None => "",
                Some(tls) if tls.unverified => ", over TLS without checking its certificate",
                Some(_) => ", over TLS",
            };
            format!("in PostgreSQL at {}{tls}, in schema {}", settings.address(), settings.schema)
        }
    }
}

fn redis_in_words(settings: &RedisSettings) -> String {
    let mut words = match &settings.topology {
        Topology::Single(address) => format!("in Redis at {address}"),
        Topology::Sentinel { sentinels, service } => {
            format!("in the Redis that the Sentinels at {} call {service}", joined(sentinels))
        }
        Topology::Cluster { seeds } => format!("in the Redis Cluster at {}", joined(seeds)),
    };
    if settings.database != 0 {
        words.push_str(&format!(", database {}", settings.database));
    }
    match &settings.tls {
        None => {}
        Some(tls) if tls.unverified => words.push_str(", over TLS without checking certificates"),
        Some(_) => words.push_str(", over TLS"),
    }
    words.push_str(&format!(", under keys that begin with {}:", settings.prefix));
    words
}

fn joined(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn redis_as_json(settings: &RedisSettings) -> Value {
    let (topology, addresses, service) = match &settings.topology {
        Topology::Single(address) => ("single", std::slice::from_ref(address), None),
        Topology::Sentinel { sentinels, service } => ("sentinel", sentinels.as_slice(), Some(service)),
        Topology::Cluster { seeds } => ("cluster", seeds.as_slice(), None),
    };
    json!({
        "kind": "redis",
        "topology": topology,
        "addresses": addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "service": service,
        "user": settings.user,
        "database": settings.database,
        "tls": settings.tls.is_some(),
        "key_prefix": settings.prefix,
        "hash_tags": settings.tags,
    })
}

pub(super) fn store_as_json(store: &StoreConfig) -> Value {
    match store {
        StoreConfig::Memory { max_keys } => json!({ "kind": "memory", "max_keys": max_keys }),
        StoreConfig::File { path, flush_interval, sync, max_keys } => json!({
            "kind": "file",
            "path": path.display().to_string(),
            "flush_interval": flush_interval.to_string(),
            "sync": match sync { Sync::Interval => "interval", Sync::Always => "always" },
            "max_keys": max_keys,
        }),
        StoreConfig::Redis(settings) => redis_as_json(settings),
        StoreConfig::Postgres(settings) => json!({
            "kind": "postgres",
            "address": settings.address(),
            "user": settings.user(),
            "tls": settings.tls.is_some(),
            "schema": settings.schema,
        }),
    }
}

fn as_json(config: &Config, rules: &[RuleInWords]) -> Value {
    let spread = config.slot_spread();
    let keys: Vec<Value> =
        config.keys.iter().map(|key| json!({ "name": key.name, "role": key.role.to_string() })).collect();
    let policies: Vec<Value> = config
        .policies
        .iter()
        .map(|policy| {
            json!({
                "name": &*policy.name,
                "rules": policy.rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(),
                "allow_unmatched": policy.allow_unmatched,
                "rules_apart": spread.iter().any(|spread| spread.policy == *policy.name),
            })
        })
        .collect();
    let need = config.memory_need();
    json!({
        "ok": true,
        "enabled": config.policies.enabled,
        "listen": { "http": config.listen.http.to_string() },
        "keys": keys,
        "store": store_as_json(&config.store),
        "databases": config.databases.iter().map(|(name, settings)| json!({
            "name": name,
            "address": settings.address(),
            "user": settings.user(),
            "tls": settings.tls.is_some(),
        })).collect::<Vec<_>>(),
        "memory": {
            "keys": need.keys,
            "most_key_bytes": need.key_bytes,
            "most_bytes": need.bytes,
            "machine_bytes": memory::machine_memory(Path::new("/")),
        },
        "on_outage": config.policies.on_outage().to_string(),
        "lists": { "block": listed(config).0, "allow": listed(config).1 },
        "rules": rules,
        "policies": policies,
        "guards": config.policies.guards().iter().map(|guard| guard_as_json(config, guard)).collect::<Vec<_>>(),
        "gateway": config.gateway.as_ref().map(gateway_as_json),
        "relay": config.relay.as_ref().map(relay::as_json),
        "postfix": config.postfix.as_ref().map(postfix::as_json),
        "warnings": config.warnings().iter().map(warning_as_json).collect::<Vec<_>>(),
    })
}

fn guard_as_json(config: &Config, guard: &Guard) -> Value {
    json!({
        "name": &*guard.name,
        "policy": &*guard.policy,
        "fields": config.policies.missing_fields(guard, &[]),
        "clears": clears(guard),
        "webhook": config.webhooks.get(&guard.name).map(|webhook| webhook.place()),
    })
}

fn gateway_as_json(gateway: &Settings) -> Value {
    let listeners = gateway
        .listeners
        .iter()
        .map(|listener| json!({ "address": listener.address.to_string(), "tls": listener.tls.is_some() }));
    let routes = gateway.routes.iter().map(|route| {
        json!({
            "name": &*route.name,
            "upstream": &*route.upstream,
            "policy": route.policy.as_deref(),
            "guard": route.guard.as_ref().map(|guard| &*guard.name),
            "logins": route.guard.as_ref().map(explain::login),
        })
    });
    json!({
        "listeners": listeners.collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
        "connections": gateway.connections.as_deref(),
    })
}

fn warning_as_json(warning: &Warning) -> Value {
    json!({ "policy": warning.policy, "message": warning.message, "remedy": warning.remedy })
}

fn problems_as_json(error: &ConfigError) -> Value {
    let problems: Vec<Value> = error.problems.iter().map(problem_as_json).collect();
    json!({ "ok": false, "problems": problems, "more": error.problems.more() })
}

fn problem_as_json(problem: &ConfigProblem) -> Value {
    let place = match &problem.place {
        Place::Source { source } => json!({ "source": &**source }),
        Place::At { source, line, column } => {
            json!({ "source": &**source, "line": line, "column": column })
        }
        Place::Variable { name } => json!({ "variable": &**name }),
    };
    let pointer =
        problem.pointer.as_ref().map(|(text, character)| json!({ "text": text, "character": character }));
    json!({ "place": place, "path": problem.path, "message": problem.message, "pointer": pointer })
}
