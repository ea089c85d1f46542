//! `tollgate decisions`: the server's journal.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::table::{Sheet, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::Journal;

/// How much of the journal is shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Decisions {
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

const EXAMPLES: &str = "\
Examples:
  tollgate decisions --limit 20
  tollgate decisions --json | jq '.decisions[] | select(.verdict == \"deny\")'

Newest first. Under a flood the server writes down only a part of its decisions.
Exit codes: 0 shown, 2 an error.";

impl Decisions {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.get(&Path::new(&["decisions"]).at_most(self.limit))?;
        session.show(&answer, put)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn put(journal: &Journal, out: &mut dyn Write) -> io::Result<()> {
    if journal.decisions.is_empty() {
        return writeln!(out, "no decisions yet");
    }
    let mut sheet = Sheet::new(&["at", "policy", "verdict", "rule", "key", ">cost", ">retry in"]);
    for entry in &journal.decisions {
        let tone = if entry.verdict == "allow" { Tone::Normal } else { Tone::Bad };
        let retry = or_dash(entry.retry_after_ms.map(words::span));
        let [rule, key] = [&entry.rule, &entry.key].map(|text| or_dash(text.clone()));
        let [at, policy, verdict] = [&entry.at, &entry.policy, &entry.verdict].map(Clone::clone);
        sheet.line(tone, [at, policy, verdict, rule, key, words::number(entry.cost), retry]);
    }
    write!(out, "{sheet}")
}
