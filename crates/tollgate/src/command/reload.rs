//! `tollgate reload`: makes the server read its configuration again.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{Session, words};
use crate::client::Path;
use crate::client::wire::Reloaded;

/// No choice.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Reload {}

const EXAMPLES: &str = "\
Examples:
  tollgate reload
  tollgate check-config --config tollgate.yaml && tollgate reload

Counters are kept. Settings that have changed and need a restart are named. If the new configuration is
invalid, its problems are printed and the old one stays in force. Exit codes: 0 reloaded, 2 an error.";

impl Reload {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.post(&Path::new(&["reload"]), &json!({}))?;
        session.show(&answer, put)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn put(reloaded: &Reloaded, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "reloaded")?;
    for setting in &reloaded.needs_restart {
        writeln!(out, "{} has changed and needs a restart", words::plain(setting))?;
    }
    Ok(())
}
