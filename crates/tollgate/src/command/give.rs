//! `tollgate give`: gives back what an allowed attempt took.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{DENIED, Session, words};
use crate::client::Path;
use crate::client::wire::Given;

/// A receipt to be given back.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Give {
    /// The receipt that `tollgate check` printed
    receipt: String,
}

const EXAMPLES: &str = "\
Example:
  receipt=$(tollgate check orders ip=10.0.0.1 --json | jq -r .receipt)
  tollgate give \"$receipt\"

A receipt counts once: giving it again changes nothing and is no error.
Exit codes: 0 given back, now or before, 1 too old to be given back, 2 an error.";

impl Give {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.post(&Path::new(&["give"]), &json!({ "receipt": self.receipt }))?;
        let given = session.show(&answer, |given: &Given, out| match given.given.as_str() {
            "back" => writeln!(out, "given back"),
            "already" => writeln!(out, "was given back before"),
            "too_old" => writeln!(out, "too old to be given back"),
            other => writeln!(out, "{}", words::plain(other)),
        })?;
        Ok(if given.given == "too_old" { ExitCode::from(DENIED) } else { ExitCode::SUCCESS })
    }
}
