//! `tollgate set`: limits of a single key.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tollgate_core::Span;

use super::limits::limit;
use super::{Session, duration, peek, words};
use crate::client::Path;
use crate::client::wire::Removed;

/// An override.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Set {
    /// The rule
    rule: String,
    /// The key; the rule's own name for a rule without `by`
    key: String,
    /// The limits of this key, instead of the rule's
    #[arg(value_name = "LIMIT", required_unless_present = "unset", conflicts_with = "unset", value_parser = limit)]
    limits: Vec<String>,
    /// How long they last; by default until they are removed
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, conflicts_with = "unset")]
    lasts: Option<Span>,
    /// Remove the override, so that the rule's limits apply again
    #[arg(long)]
    unset: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate set sender user@example.com 2000/hour 20000/day
  tollgate set sender user@example.com 200/min --for 1d
  tollgate set orders /checkout,10.0.0.1 '10/s burst 50'
  tollgate set domain example.com unlimited
  tollgate set sender user@example.com --unset

An override takes effect immediately. It overrides the configuration file until it is removed, or for the time
that --for says; what was counted stays counted. The store keeps it across restarts, unless it is `memory`.
Exit codes: 0 set or removed, 2 an error.";

impl Set {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        if self.unset {
            return self.remove(session);
        }
        let path = Path::new(&["counters", &self.rule, &self.key]);
        let mut body = json!({ "limits": self.limits });
        if let Some(lasts) = self.lasts {
            body["for"] = lasts.to_string().into();
        }
        let answer = session.client.put(&path, &body)?;
        session.show(&answer, peek::put)?;
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.delete(&Path::new(&["counters", &self.rule, &self.key, "override"]))?;
        session.show(&answer, |answer: &Removed, out| {
            let (rule, key) = (words::plain(&self.rule), words::plain(&self.key));
            if answer.removed {
                writeln!(out, "removed: the limits of rule {rule} apply to {key} again")
            } else {
                writeln!(out, "{key} had no override in rule {rule}")
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
