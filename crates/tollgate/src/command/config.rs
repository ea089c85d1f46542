//! `tollgate config`: prints the configuration in force.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::table::{TextTable, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::{Configuration, Rule};

/// No choice: all of it is shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowConfig {}

const EXAMPLES: &str = "\
Examples:
  tollgate config
  tollgate config --json | jq .rules.sender.overrides

Overrides from `tollgate set` are included. `tollgate check-config` explains a file instead.
Exit codes: 0 shown, 2 an error.";

impl ShowConfig {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.get(&Path::new(&["counters"]))?;
        session.show(&answer, put)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn put(configuration: &Configuration, out: &mut dyn Write) -> io::Result<()> {
    if !configuration.enabled {
        writeln!(out, "Nothing is limited: `enabled` is false.\n")?;
    }
    let mut rules = TextTable::new(&["rule", "by", "key", "limits", "when exceeded"]);
    for (name, rule) in &configuration.rules {
        put_rule(name, rule, &mut rules);
    }
    write!(out, "{rules}")?;
    let mut policies = TextTable::new(&["policy", "rules"]);
    for (name, rules) in &configuration.policies {
        policies.line(Tone::Normal, [name.clone(), listed(rules)]);
    }
    write!(out, "\n{policies}")
}

fn put_rule(name: &str, rule: &Rule, table: &mut TextTable) {
    let (tone, off) = if rule.enabled { (Tone::Normal, "") } else { (Tone::Faint, " (off)") };
    let by = or_dash((!rule.by.is_empty()).then(|| rule.by.join(", ")));
    let exceeded = rule.on_exceed.clone();
    table.line(tone, [format!("{name}{off}"), by, "-".to_owned(), listed_limits(&rule.limits), exceeded]);
    for (key, limits) in &rule.overrides {
        let ends = rule.override_ends.get(key);
        let lasts = ends.map_or_else(String::new, |end| format!(", for {}", words::span(end.after_ms)));
        let limits = format!("{}{lasts}", listed_limits(limits));
        table.line(tone, [String::new(), String::new(), key.clone(), limits, String::new()]);
    }
}

fn listed_limits(limits: &[String]) -> String {
    if limits.is_empty() { "unlimited".to_owned() } else { listed(limits) }
}

fn listed(names: &[String]) -> String {
    words::plain(&names.join(", "))
}
