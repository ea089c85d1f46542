//! `tollgate reload`: makes the server read its configuration again.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::Session;
use crate::client::Path;

/// No choice.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Reload {}

const EXAMPLES: &str = "\
Examples:
  tollgate reload
  tollgate check-config --config tollgate.yaml && tollgate reload

Counters are kept. If the new configuration is invalid, its problems are printed and the old one stays in
force. Exit codes: 0 reloaded, 2 an error.";

impl Reload {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.post(&Path::new(&["reload"]), &json!({}))?;
        session.show(&answer, |_: &Value, out| writeln!(out, "reloaded"))?;
        Ok(ExitCode::SUCCESS)
    }
}
