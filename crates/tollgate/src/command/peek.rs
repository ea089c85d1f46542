//! `tollgate peek`: the counters of one key.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::table::{Sheet, Tone, or_dash};
use super::{Session, check, words};
use crate::client::Path;
use crate::client::wire::Counters;

/// A key whose counters are shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Peek {
    /// The rule
    rule: String,
    /// The key; the rule's own name for a rule without key
    key: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate peek sender user@example.com
  tollgate peek global global
  tollgate peek login ada,10.0.0.1       (a key of two fields)

Nothing is charged. Exit codes: 0 shown, 2 an error.";

impl Peek {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.get(&Path::new(&["counters", &self.rule, &self.key]))?;
        session.show(&answer, put)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the counters of a key.
pub(super) fn put(counters: &Counters, out: &mut dyn Write) -> io::Result<()> {
    let own = if counters.overridden { ", which has limits of its own" } else { "" };
    writeln!(out, "{} {}{own}", words::plain(&counters.rule), words::plain(&counters.key))?;
    if counters.limits.is_empty() {
        return writeln!(out, "unlimited");
    }
    let mut sheet = Sheet::new(&["limit", ">used", ">remaining", ">resets in"]);
    for limit in &counters.limits {
        let [written, remaining, resets] = check::shows(limit);
        let tone = if limit.remaining == 0 { Tone::Bad } else { Tone::Normal };
        sheet.line(tone, [written, or_dash(limit.used.map(words::number)), remaining, resets]);
    }
    write!(out, "\n{sheet}")
}
