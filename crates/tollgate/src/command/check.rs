//! `tollgate check`: decides an attempt.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::{Map, Value, json};

use super::table::{TextTable, Tone, or_dash};
use super::{DENIED, Session, words};
use crate::client::Path;
use crate::client::wire::{Decision, LimitLine, RuleLine};

/// An attempt to be decided.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// The policy that the attempt is checked against
    policy: String,
    /// The fields of the attempt, as in `ip=10.0.0.1`
    #[arg(value_name = "FIELD=VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// The cost to charge; 0 charges nothing
    #[arg(long, value_name = "N", default_value_t = 1)]
    cost: u64,
    /// The id of holds at `at once` limits; an id that is already held is charged nothing
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Decide, but charge nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate check mail.accept ip=10.0.0.1 sender=user@example.com
  tollgate check mail.accept sender=user@example.com --cost 3 --dry-run
  tollgate check login user=ada && ./let-in

Exit codes: 0 allowed, 1 denied, told to wait, or deferred, 2 an error.";

const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const FAINT: Style = Style::new().dimmed();

impl Check {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.post(&Path::new(&["check"]), &self.body()?)?;
        let decision = session.show(&answer, |decision, out| self.put(decision, out))?;
        Ok(if decision.allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED) })
    }

    fn body(&self) -> anyhow::Result<Value> {
        let fields = fields_of(&self.fields)?;
        let mut body = json!({ "policy": self.policy, "fields": fields, "cost": self.cost });
        if let Some(id) = &self.id {
            body["id"] = Value::from(id.as_str());
        }
        if self.dry_run {
            body["dry_run"] = Value::from(true);
        }
        Ok(body)
    }

    fn put(&self, decision: &Decision, out: &mut dyn Write) -> io::Result<()> {
        if decision.allowed {
            writeln!(out, "{GOOD}{}{GOOD:#}", self.allowed(decision))?;
            put_reason(decision, out)?;
        } else {
            put_refused(decision, out)?;
        }
        let table = self.rules(&decision.rules);
        if !table.is_empty() {
            write!(out, "\n{table}")?;
        }
        // A caller that gave the id knows it.
        if let (Some(id), None) = (&decision.id, &self.id) {
            writeln!(out, "\n{FAINT}held as{FAINT:#} {}", words::plain(id))?;
        }
        if let Some(receipt) = &decision.receipt {
            writeln!(out, "\n{FAINT}receipt{FAINT:#} {}", words::plain(receipt))?;
        }
        Ok(())
    }

    fn allowed(&self, decision: &Decision) -> &'static str {
        match (self.dry_run || self.cost == 0, decision.repeated) {
            (true, _) => "allowed; nothing was charged",
            (false, true) => "allowed; this id is already held, so nothing was charged",
            (false, false) if decision.rules.is_empty() && decision.reason.is_none() => {
                "allowed; no limit applies"
            }
            (false, false) => "allowed",
        }
    }

    fn rules(&self, rules: &[RuleLine]) -> TextTable {
        let mut table = TextTable::new(&["rule", "key", "limit", ">remaining", ">resets in"]);
        for rule in rules {
            for limit in &rule.limits {
                let short = limit.retry_after_ms.is_some() || limit.remaining < self.cost;
                let tone = match (rule.observed, rule.exceeded && (short || rule.limits.len() == 1)) {
                    (true, _) => Tone::Faint,
                    (false, true) => Tone::Bad,
                    (false, false) => Tone::Normal,
                };
                let name =
                    if rule.observed { format!("{} (observed)", rule.rule) } else { rule.rule.clone() };
                let [written, remaining, resets] = shows(limit);
                table.line(tone, [name, rule.key.clone(), written, remaining, resets]);
            }
        }
        table
    }
}

/// Prints why an attempt is denied, and when it would be allowed.
pub(super) fn put_refused(decision: &Decision, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BAD}{}{BAD:#}", refused(decision))?;
    put_reason(decision, out)
}

fn put_reason(decision: &Decision, out: &mut dyn Write) -> io::Result<()> {
    let Some(reason) = &decision.reason else { return Ok(()) };
    let why = if is_blocked(decision) { "reason" } else { "decided without the store" };
    writeln!(out, "{why}: {}", words::plain(reason))
}

fn refused(decision: &Decision) -> String {
    let verdict = match decision.verdict.as_str() {
        "wait" => "told to wait",
        "defer" => "deferred",
        _ if is_blocked(decision) => "blocked",
        _ => "denied",
    };
    let named = [&decision.denied_by, &decision.denied_key].map(|name| name.as_deref().map(words::plain));
    let code = decision.code.as_deref().map(words::plain);
    let code = code.map_or_else(String::new, |code| format!(" ({code})"));
    let by = match named {
        // The key of a rule without fields is the rule's name.
        [Some(rule), Some(key)] if rule != key => format!(" by {rule} {key}"),
        [Some(rule), _] => format!(" by {rule}"),
        [None, _] => String::new(),
    };
    let retry = match (&decision.defer_until, decision.retry_after_ms) {
        (Some(until), _) => format!(", retry at {}", words::plain(until)),
        (None, Some(millis)) => format!(", retry in {}", words::span(millis)),
        (None, None) if is_blocked(decision) => String::new(),
        (None, None) => {
            let line = decision.rules.iter().find(|line| Some(&line.rule) == decision.denied_by.as_ref());
            let limit = line.and_then(|line| line.limit.as_deref()).map(words::plain);
            let limit = limit.map_or_else(String::new, |limit| format!(": {limit}"));
            format!(", and waiting does not help{limit}")
        }
    };
    format!("{verdict}{by}{code}{retry}")
}

fn is_blocked(decision: &Decision) -> bool {
    decision.origin.as_deref() == Some("blocked")
}

/// The limit as text, what is left of it, and when it resets.
pub(super) fn shows(limit: &LimitLine) -> [String; 3] {
    [
        limit.limit.clone(),
        format!("{} of {}", words::number(limit.remaining), words::number(limit.capacity)),
        // An unused limit has nothing to reset.
        or_dash(limit.reset_after_ms.filter(|millis| *millis > 0).map(words::span)),
    ]
}

/// Parses a field and its value.
pub(super) fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a field is written as in ip=10.0.0.1".to_owned()),
    }
}

/// The fields of an attempt; a repeated one is an error.
pub(super) fn fields_of(fields: &[(String, String)]) -> anyhow::Result<Map<String, Value>> {
    let mut map = Map::new();
    for (name, value) in fields {
        if map.insert(name.clone(), Value::from(value.as_str())).is_some() {
            anyhow::bail!("the field `{name}` is given twice");
        }
    }
    Ok(map)
}
