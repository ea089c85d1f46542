//! `tollgate reset`: resets counts.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use serde_json::Value;

use super::{Session, words};
use crate::client::Path;

/// What is to be forgotten.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = EXAMPLES,
    override_usage = "tollgate reset [OPTIONS] <RULE> <KEY>\n       tollgate reset [OPTIONS] --rule <RULE>\n       tollgate reset [OPTIONS] --all [--yes]",
    group = ArgGroup::new("what").required(true).args(["key", "whole_rule", "all"])
)]
pub struct Reset {
    /// The rule of the key
    #[arg(value_name = "RULE", requires = "key", conflicts_with_all = ["whole_rule", "all"])]
    rule: Option<String>,
    /// The key whose counts are reset; the rule's own name for a rule without `by`
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// Reset the counts of every key of this rule
    #[arg(long = "rule", value_name = "RULE")]
    whole_rule: Option<String>,
    /// Reset all counts of the server; asks first
    #[arg(long)]
    all: bool,
    /// Do not ask
    #[arg(long, requires = "all")]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate reset sender user@example.com
  tollgate reset --rule sender
  tollgate reset --all --yes

Only counts are reset: policies, limits and overrides stay. `tollgate policies delete` deletes a policy.
Exit codes: 0 reset, 2 an error.";

impl Reset {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let (path, what) = match (&self.rule, &self.key, &self.whole_rule) {
            (Some(rule), Some(key), _) => {
                (Path::new(&["counters", rule, key]), format!("{} {}", words::plain(rule), words::plain(key)))
            }
            (_, _, Some(rule)) => {
                (Path::new(&["counters", rule]), format!("every key of {}", words::plain(rule)))
            }
            _ => {
                self.confirm(session)?;
                (Path::new(&["counters"]), "every key of every rule".to_owned())
            }
        };
        let answer = session.client.delete(&path)?;
        session.show(&answer, |_: &Value, out| writeln!(out, "reset the counts of {what}"))?;
        Ok(ExitCode::SUCCESS)
    }

    fn confirm(&self, session: &Session<'_>) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            anyhow::bail!("--all needs --yes if standard input is not a terminal");
        }
        // The question goes to standard error, so that --json prints nothing but JSON.
        let mut stderr = io::stderr();
        write!(stderr, "Reset all counts on {}? Type yes: ", session.client.server())?;
        stderr.flush()?;
        let mut typed = String::new();
        stdin.lock().read_line(&mut typed)?;
        if typed.trim() == "yes" { Ok(()) } else { anyhow::bail!("nothing was reset") }
    }
}
