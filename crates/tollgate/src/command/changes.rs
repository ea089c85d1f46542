//! `tollgate changes`: the latest changes that were made over the API of a node.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::Session;
use super::table::{TextTable, Tone, or_dash};
use crate::client::Path;
use crate::client::wire;

/// How many changes are shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Changes {
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

const EXAMPLES: &str = "\
Examples:
  tollgate changes
  tollgate changes --json | jq -r '.changes[] | select(.actor == \"ops\") | .what'

The newest change comes first. A node keeps its last 1000 changes until it ends; its log has all of them
(component=audit). Exit codes: 0 shown, 2 an error.";

impl Changes {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let limit = self.limit.to_string();
        let path = Path::new(&["changes"]).with_query([("limit", limit.as_str())]);
        let answer = session.client.get(&path)?;
        session.show(&answer, put)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn put(changes: &wire::Changes, out: &mut dyn Write) -> io::Result<()> {
    if changes.changes.is_empty() {
        return writeln!(out, "no changes since the start");
    }
    let mut table = TextTable::new(&["at", "by", "change", "of", "before", "after"]);
    for change in &changes.changes {
        let wire::Change { at, actor, action, what, before, after } = change.clone();
        table.line(Tone::Normal, [at, actor, action, what, or_dash(before), or_dash(after)]);
    }
    write!(out, "{table}")
}
