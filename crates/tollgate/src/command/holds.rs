//! `tollgate holds`: the holds of a key.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::table::{TextTable, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::{self, Released};

/// A key whose holds are shown, or one of them released or renewed.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Holds {
    /// The rule
    rule: String,
    /// The key; the rule's own name for a rule without `by`
    key: String,
    /// Release this hold; it is no error if it is not held
    #[arg(long, value_name = "ID", conflicts_with = "renew")]
    release: Option<String>,
    /// Renew this hold; it is an error if it is no longer held
    #[arg(long, value_name = "ID")]
    renew: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate check jobs worker=7 --id job-42      (takes the hold)
  tollgate holds jobs 7
  tollgate holds jobs 7 --renew job-42
  tollgate holds jobs 7 --release job-42

Exit codes: 0 done, 2 an error.";

impl Holds {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        if let Some(id) = &self.release {
            let answer = session.client.delete(&Path::new(&["holds", &self.rule, &self.key, id]))?;
            session.show(&answer, |answer: &Released, out| {
                let done = if answer.released { "released" } else { "was not held:" };
                writeln!(out, "{done} {}", words::plain(id))
            })?;
        } else if let Some(id) = &self.renew {
            let path = Path::new(&["holds", &self.rule, &self.key, id, "renew"]);
            let answer = session.client.post(&path, &json!({}))?;
            session.show(&answer, |_: &Value, out| writeln!(out, "renewed {}", words::plain(id)))?;
        } else {
            let answer = session.client.get(&Path::new(&["holds", &self.rule, &self.key]))?;
            session.show(&answer, put)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn put(holds: &wire::Holds, out: &mut dyn Write) -> io::Result<()> {
    let (held, capacity) = (words::number(holds.held), words::number(holds.capacity));
    writeln!(out, "{held} of {capacity} held ({})", words::plain(&holds.limit))?;
    if holds.holds.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&["id", ">weight", "since", "expires"]);
    for hold in &holds.holds {
        let expires = or_dash(hold.expires.clone());
        table.line(Tone::Normal, [hold.id.clone(), hold.weight.to_string(), hold.since.clone(), expires]);
    }
    write!(out, "\n{table}")
}
