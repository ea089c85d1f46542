//! `tollgate status`: the state of the store, and the rates of each policy.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::table::{TextTable, Tone};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::{Outcomes, Status};

/// Nothing to choose.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowStatus {
    /// Print the outcomes of the last fifteen minutes by second instead, as JSON
    #[arg(long)]
    history: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate status
  tollgate status --history | jq '.policies[0].outcomes.deny | add'

Rates are averages of the last minute on one node. Exit codes: 0 shown, 2 an error.";

impl ShowStatus {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        if self.history {
            let answer = session.client.get(&Path::new(&["status", "history"]))?;
            session.print(&answer)?;
        } else {
            let answer = session.client.get(&Path::new(&["status"]))?;
            session.show(&answer, put)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn put(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let store = &status.store;
    match (&*store.state, store.shared) {
        ("up", true) => writeln!(out, "the shared store is up")?,
        ("up", false) => writeln!(out, "the store is up")?,
        _ => {
            let cause = store.cause.as_ref().or(store.reason.as_ref());
            // The cause begins with the same words.
            let own = |cause: &String| {
                words::plain(cause.trim_start_matches("the store cannot be used: ")).to_string()
            };
            let cause = cause.map_or_else(String::new, |cause| format!(": {}", own(cause)));
            writeln!(out, "the shared store cannot be used{cause}")?;
        }
    }
    if let Some(fault) = &status.relay_fault {
        writeln!(out, "the mail relay does not work: {}", words::plain(fault))?;
    }
    for pause in &status.pauses {
        writeln!(out, "paused: {}", words::plain(&pause.in_words()))?;
    }
    if status.policies.is_empty() {
        return writeln!(out, "no attempts in the last minute");
    }
    let heads = [
        "policy",
        ">allowed/s",
        ">denied/s",
        ">deferred/s",
        ">waited/s",
        ">blocked/s",
        ">observed/s",
        ">waiting",
    ];
    let mut table = TextTable::new(&heads);
    for policy in &status.policies {
        let Outcomes { allow, blocked, deny, wait, defer, observe } = policy.minute;
        let tone = if deny + blocked > 0 { Tone::Bad } else { Tone::Normal };
        let [allow, deny, defer, wait, blocked, observe] =
            [allow, deny, defer, wait, blocked, observe].map(rate);
        let waiting = policy.waiting.to_string();
        table.line(tone, [policy.policy.clone(), allow, deny, defer, wait, blocked, observe, waiting]);
    }
    write!(out, "\n{table}")
}

/// A number a minute as a rate per second.
fn rate(minute: u64) -> String {
    match minute {
        0 => "0".to_owned(),
        1..600 => format!("{:.2}", minute as f64 / 60.0),
        _ => words::number(minute / 60),
    }
}
