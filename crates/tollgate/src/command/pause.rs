//! `tollgate pause`: pauses or resumes calls to an upstream.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use serde_json::json;
use tollgate_core::Span;

use super::check::{field, fields_of};
use super::{Session, duration, words};
use crate::client::Path;
use crate::client::wire::{Paced, Paused, Resumed};

/// The arguments of `tollgate pause`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("what").required(true).args(["lasts", "end", "show"]))]
pub struct Pause {
    /// The policy of the calls
    policy: String,
    /// Which calls, as in `chat=4711`; by default the whole policy
    #[arg(value_name = "FIELD=VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// How long to pause
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    lasts: Option<Span>,
    /// End all pauses of the policy
    #[arg(long, conflicts_with = "fields")]
    end: bool,
    /// Show waiting calls and pauses
    #[arg(long, conflicts_with = "fields")]
    show: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate pause telegram chat=4711 --for 7s
  tollgate pause telegram --for 1m
  tollgate pause telegram --show
  tollgate pause telegram --end

A pause applies to `tollgate acquire` and to requests that wait at the gateway: on this node immediately,
on all others within a second. A new pause never shortens a longer one.
Exit codes: 0 done, 2 an error.";

impl Pause {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let report = Path::new(&["paced", &self.policy, "retry-after"]);
        if let Some(lasts) = self.lasts {
            let fields = fields_of(&self.fields)?;
            let body = json!({ "retry_after": lasts.to_string(), "fields": fields });
            let answer = session.client.post(&report, &body)?;
            session.show(&answer, |paused: &Paused, out| {
                let lasts = words::span(paused.retry_after_ms);
                match paused.keys {
                    0 => writeln!(out, "{} is paused for {lasts}", words::plain(&paused.policy)),
                    1 => writeln!(out, "1 key is paused for {lasts}"),
                    keys => writeln!(out, "{keys} keys are paused for {lasts}"),
                }
            })?;
        } else if self.end {
            let answer = session.client.delete(&report)?;
            session.show(&answer, |resumed: &Resumed, out| match resumed.resumed {
                0 => writeln!(out, "nothing was paused"),
                1 => writeln!(out, "1 pause ended"),
                many => writeln!(out, "{many} pauses ended"),
            })?;
        } else {
            let answer = session.client.get(&Path::new(&["paced", &self.policy]))?;
            session.show(&answer, put)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn put(paced: &Paced, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} waiting", words::number(paced.waiting))?;
    for pause in &paced.pauses {
        let what = match (&pause.rule, &pause.key) {
            (Some(rule), Some(key)) => format!("{} {}", words::plain(rule), words::plain(key)),
            _ => words::plain(&paced.policy),
        };
        writeln!(out, "{what} is paused for {}", words::span(pause.retry_after_ms))?;
    }
    Ok(())
}
