//! `tollgate peek`: the counters of one key, at one rule or at all.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use tollgate_redis::{CounterPart, NameMeaning};

use super::table::{TextTable, Tone, or_dash};
use super::{OutputFormat, Session, check, words};
use crate::client::Path;
use crate::client::wire::{Counters, KeyEverywhere};
use crate::printable;

/// A key whose counters are shown.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = EXAMPLES,
    override_usage = "tollgate peek [OPTIONS] [RULE] <KEY>\n       tollgate peek [OPTIONS] --redis-key <NAME>"
)]
pub struct Peek {
    /// Optionally a rule, then the key. Without a rule, shows all rules that the key fits. A rule without `by`
    /// has its own name as its key
    #[arg(value_name = "KEY", required_unless_present = "redis_key", num_args = 1..=2)]
    about: Vec<String>,
    /// Explain a key in Redis by its name, and show its counts
    #[arg(long, value_name = "NAME", conflicts_with = "about")]
    redis_key: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate peek sender user@example.com
  tollgate peek user@example.com         (at every rule)
  tollgate peek global global
  tollgate peek login ada,10.0.0.1       (a key of two fields)
  tollgate peek --redis-key 'tollgate:{login:ada,10.0.0.1}'

Nothing is charged. Exit codes: 0 shown, 2 an error.";

impl Peek {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match (self.about.as_slice(), &self.redis_key) {
            ([rule, key], None) => {
                let answer = session.client.get(&Path::new(&["counters", rule, key]))?;
                session.show(&answer, put)?;
            }
            ([key], None) => {
                let answer = session.client.get(&Path::new(&["keys", key]))?;
                session.show(&answer, put_all)?;
            }
            (_, name) => explain(name.as_deref().unwrap_or_default(), session)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints what a key in Redis is, and the counts of a key that its name tells.
fn explain(name: &str, session: &mut Session<'_>) -> anyhow::Result<()> {
    let meaning = NameMeaning::of(name).with_context(|| {
        format!(
            "`{}` is not a key of tollgate: its counters are named PREFIX:{{RULE:KEY}}, and its records PREFIX/…",
            words::plain(name)
        )
    })?;
    let (what, rule, key) = match &meaning {
        NameMeaning::Records(what) => ((*what).to_owned(), None, None),
        NameMeaning::Counter { rule, key, part } => (kept(part), Some(rule), key.as_ref()),
    };
    let answer = match (rule, key) {
        // The engine's own counters are of no rule that the server shows.
        (Some(rule), Some(key)) if !rule.contains('/') => {
            Some(session.client.get(&Path::new(&["counters", rule, key]))?)
        }
        _ => None,
    };
    let server = session.client.server().clone();
    match session.format {
        OutputFormat::Json => {
            let counters: Option<Value> = answer.map(|answer| answer.read(&server)).transpose()?;
            let said =
                json!({ "redis_key": name, "holds": what, "rule": rule, "key": key, "counters": counters });
            writeln!(session.out, "{}", printable::json(&said.to_string()))?;
        }
        OutputFormat::Words => {
            let mut text = Vec::new();
            writeln!(text, "{what}")?;
            match (answer, rule) {
                (Some(answer), _) => {
                    writeln!(text)?;
                    put(&answer.read(&server)?, &mut text)?;
                }
                (None, Some(rule)) if key.is_none() => writeln!(
                    text,
                    "rule {}; the key is not in the name, only a hash of it: it is secret or longer than 128 bytes\nif you know the key, `tollgate peek {} KEY` shows its counts",
                    words::plain(rule),
                    words::plain(rule)
                )?,
                (None, _) => {}
            }
            session.say(&text)?;
        }
    }
    Ok(())
}

fn kept(part: &CounterPart) -> String {
    match part {
        CounterPart::Numbers => "the limits of a counter and their numbers".to_owned(),
        CounterPart::Log(period) => {
            format!("the attempts that count at a sliding limit per {}", words::plain(period))
        }
        CounterPart::Slots(slots) => format!("the slots of a sliding limit per {}", words::plain(slots)),
        CounterPart::Holds => "the holds of an `at once` limit".to_owned(),
        CounterPart::Failures(forget) => {
            format!("the failures of a ladder, forgotten after {}", words::plain(forget))
        }
        CounterPart::Refunded => "the mark that a charge was refunded".to_owned(),
    }
}

/// Prints the counters of a key at every rule.
fn put_all(key: &KeyEverywhere, out: &mut dyn Write) -> io::Result<()> {
    if key.pseudonym {
        writeln!(out, "this is the pseudonym of a secret key: to see its counts, give the key itself")?;
    }
    if key.rules.is_empty() && !key.pseudonym {
        return writeln!(out, "no rule has keys like this");
    }
    for (index, counters) in key.rules.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        put(counters, out)?;
    }
    match key.left_out {
        0 => Ok(()),
        more => writeln!(out, "\n{more} more rules are left out"),
    }
}

/// Prints the counters of a key.
pub(super) fn put(counters: &Counters, out: &mut dyn Write) -> io::Result<()> {
    let own = match &counters.override_ends {
        Some(end) => format!(" (override, for another {})", words::span(end.after_ms)),
        None if counters.overridden => " (override)".to_owned(),
        None => String::new(),
    };
    writeln!(out, "{} {}{own}", words::plain(&counters.rule), words::plain(&counters.key))?;
    if counters.limits.is_empty() {
        return writeln!(out, "unlimited");
    }
    let mut table = TextTable::new(&["limit", ">used", ">remaining", ">resets in"]);
    for limit in &counters.limits {
        let [written, remaining, resets] = check::shows(limit);
        let tone = if limit.remaining == 0 { Tone::Bad } else { Tone::Normal };
        table.line(tone, [written, or_dash(limit.used.map(words::number)), remaining, resets]);
    }
    write!(out, "\n{table}")
}
