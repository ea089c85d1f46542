//! `tollgate consumers`: limits of single consumers, on all routes together.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use tollgate_core::Span;

use super::limits::LimitArgs;
use super::policies::{Listing, more};
use super::table::{TextTable, Tone};
use super::{Session, duration, words};
use crate::client::Path;
use crate::client::wire::{self, Consumer, Removed};

/// What is done with consumers.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Consumers {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List the consumers with limits of their own
    List(Listing),
    /// Show the limits of a consumer
    Show {
        /// The consumer
        id: String,
    },
    /// Set limits for a consumer
    Set(Setting),
    /// Remove the limits of a consumer
    Unset {
        /// The consumer
        id: String,
    },
}

/// Limits for a consumer.
#[derive(Args, Clone, Debug)]
struct Setting {
    /// The consumer
    id: String,
    #[command(flatten)]
    limits: LimitArgs,
    /// How long they last; by default until they are removed
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    lasts: Option<Span>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate consumers set acme '100/s burst 200'
  tollgate consumers set acme --requests-per-second 100 --burst-size 200     (the same)
  tollgate consumers set acme 1000/hour --for 1d
  tollgate consumers list
  tollgate consumers unset acme

A consumer's limits apply in addition to those of the policy, to all routes together. An attempt is charged
to both or to neither. `tollgate peek consumer acme` shows the counts. Exit codes: 0 done, 2 an error.";

impl Consumers {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match &self.action {
            Action::List(listing) => {
                let path = Path::new(&["consumers"]).page(listing.limit, listing.after.as_deref());
                let answer = session.client.get(&path)?;
                session.show(&answer, put_all)?;
            }
            Action::Show { id } => {
                let answer = session.client.get(&one(id))?;
                session.show(&answer, put)?;
            }
            Action::Set(Setting { id, limits, lasts }) => {
                limits.must_be_there()?;
                let mut body = Map::new();
                limits.put(&mut body);
                if let Some(lasts) = lasts {
                    body.insert("for".to_owned(), lasts.to_string().into());
                }
                let answer = session.client.put(&one(id), &Value::Object(body))?;
                session.show(&answer, put)?;
            }
            Action::Unset { id } => {
                let answer = session.client.delete(&one(id))?;
                session.show(&answer, |answer: &Removed, out| {
                    let id = words::plain(id);
                    if answer.removed {
                        writeln!(out, "removed the limits of {id}")
                    } else {
                        writeln!(out, "{id} has no limits of its own")
                    }
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn one(id: &str) -> Path {
    Path::new(&["consumers", id, "rate-limit"])
}

fn put(consumer: &Consumer, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}", words::plain(&consumer.id), words::plain(&limits(consumer)))
}

/// Its limits, and how long they still last if they end.
fn limits(consumer: &Consumer) -> String {
    let ends = consumer.override_ends.as_ref();
    let lasts = ends.map_or_else(String::new, |end| format!(", for {}", words::span(end.after_ms)));
    format!("{}{lasts}", consumer.limits.join(", "))
}

fn put_all(page: &wire::Consumers, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["consumer", "limits", "set by"]);
    for consumer in &page.consumers {
        let by = if consumer.overridden { "the API" } else { "the configuration" };
        table.line(Tone::Normal, [consumer.id.clone(), limits(consumer), by.to_owned()]);
    }
    if table.is_empty() {
        return writeln!(out, "no consumer has limits of its own");
    }
    write!(out, "{table}")?;
    more(page.next.as_deref(), "consumers", out)
}
