//! `tollgate acquire`: waits until an attempt is allowed.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tollgate_core::Span;
use tollgate_doors::LONGEST_WAIT;

use super::check::{field, fields_of, put_refused};
use super::{DENIED, Session, words};
use crate::client::Path;
use crate::client::wire::Decision;

/// An attempt that may wait for its turn.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Acquire {
    /// The policy that the attempt is checked against
    policy: String,
    /// The fields of the attempt, as in `chat=4711`
    #[arg(value_name = "FIELD=VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// The longest wait, at most 1m; by default as long as the rules allow
    #[arg(long, value_name = "DURATION", value_parser = patience)]
    max_wait: Option<Span>,
    /// The cost to charge
    #[arg(long, value_name = "N", default_value_t = 1)]
    cost: u64,
    /// The id of holds at `at once` limits; an id that is already held is charged nothing
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// From -100 to 100; a higher priority goes first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i8,
}

const EXAMPLES: &str = "\
Examples:
  tollgate acquire telegram chat=4711 && ./send 4711
  tollgate acquire api key=basic --max-wait 5s

The command waits for its turn and prints the receipt. If the wait would be too long, it does not wait, and
prints the needed time. --timeout is counted on top of the wait.
Exit codes: 0 allowed, 1 too late or denied, 2 an error.";

impl Acquire {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let body = self.body()?;
        let most = self.max_wait.map_or(LONGEST_WAIT, Into::into);
        let answer = session.client.more_patient(most).post(&Path::new(&["acquire"]), &body)?;
        let decision = session.show(&answer, put)?;
        Ok(if decision.allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED) })
    }

    fn body(&self) -> anyhow::Result<Value> {
        let fields = fields_of(&self.fields)?;
        let mut body = json!({ "policy": self.policy, "fields": fields, "cost": self.cost });
        if let Some(id) = &self.id {
            body["id"] = id.as_str().into();
        }
        if let Some(most) = self.max_wait {
            body["max_wait"] = most.to_string().into();
        }
        if self.priority != 0 {
            body["priority"] = self.priority.into();
        }
        Ok(body)
    }
}

fn put(decision: &Decision, out: &mut dyn Write) -> io::Result<()> {
    if !decision.allowed {
        return put_refused(decision, out);
    }
    match decision.waited_ms {
        None | Some(0) => writeln!(out, "allowed immediately")?,
        Some(millis) => writeln!(out, "allowed after {}", words::span(millis))?,
    }
    if let Some(receipt) = &decision.receipt {
        writeln!(out, "receipt {}", words::plain(receipt))?;
    }
    Ok(())
}

/// The longest wait, which may be zero.
fn patience(text: &str) -> Result<Span, String> {
    if matches!(text, "0" | "0s") { Ok(Span::ZERO) } else { super::duration(text) }
}
