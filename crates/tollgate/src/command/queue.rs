//! `tollgate queue`: the messages of the mail relay, and what they wait for.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::accounts::put_pause;
use super::policies::{Listing, more};
use super::table::{TextTable, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::{Cancelled, Lane, Lanes, Message, MessageDetail, Messages, Retried};

/// What is done with the queue.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Queue {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List messages, oldest first
    List(Box<List>),
    /// Show a message with its recipients and everything that happened to it
    Show(MessageArgument),
    /// Try a message now; limits still apply
    Retry(MessageArgument),
    /// Cancel a message for all recipients that are still waiting
    Cancel(MessageArgument),
    /// Pause sending on all nodes: of everything, of a tenant, or of a tenant to one domain
    Pause(Which),
    /// Resume sending on all nodes
    Resume(Which),
    /// Show the lanes: how much mail waits for each recipient domain, and for what
    Lanes {
        /// Show only lanes of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
}

/// Which messages are listed.
#[derive(Args, Clone, Debug)]
struct List {
    /// Show only messages of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Show only messages in this state
    #[arg(long, value_enum)]
    status: Option<StatusFilter>,
    /// Show only messages to this address, or to this domain as `@example.com`
    #[arg(long, value_name = "ADDRESS")]
    recipient: Option<String>,
    /// Show only messages with this Message-ID
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    #[command(flatten)]
    listing: Listing,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StatusFilter {
    Queued,
    Deferred,
    Retrying,
    Sent,
    Bounced,
    Cancelled,
}

/// Which mail is paused or resumed.
#[derive(Args, Clone, Debug)]
struct Which {
    /// Only mail of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only mail to this recipient domain
    #[arg(long, requires = "tenant")]
    domain: Option<String>,
}

/// A message.
#[derive(Args, Clone, Debug)]
struct MessageArgument {
    /// Its id, as `queue list` shows it
    id: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate queue list --tenant acme --status deferred
  tollgate queue list --recipient @gmail.com --json | jq -r '.messages[].id'
  tollgate queue show 0006420c7f5b1e80c19a6a3b4b0f1d22
  tollgate queue retry 0006420c7f5b1e80c19a6a3b4b0f1d22
  tollgate queue lanes
  tollgate queue pause --tenant acme --domain gmail.com

Exit codes: 0 done, 2 an error.";

impl Queue {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match &self.action {
            Action::List(list) => {
                let answer = session.client.get(&list.path())?;
                session.show(&answer, put_all)?;
            }
            Action::Show(MessageArgument { id }) => {
                let answer = session.client.get(&Path::new(&["messages", id]))?;
                session.show(&answer, put)?;
            }
            Action::Retry(MessageArgument { id }) => {
                let answer = session.client.post(&Path::new(&["messages", id, "retry"]), &json!({}))?;
                session.show(&answer, |answer: &Retried, out| match answer.retried {
                    0 => writeln!(out, "no recipient of the message is waiting"),
                    _ => writeln!(out, "the message is tried now"),
                })?;
            }
            Action::Cancel(MessageArgument { id }) => {
                let answer = session.client.post(&Path::new(&["messages", id, "cancel"]), &json!({}))?;
                session.show(&answer, |answer: &Cancelled, out| match answer.cancelled {
                    true => writeln!(out, "the message is cancelled"),
                    false => writeln!(out, "no recipient of the message is waiting"),
                })?;
            }
            Action::Pause(which) => which.turn(session, "pause")?,
            Action::Resume(which) => which.turn(session, "resume")?,
            Action::Lanes { tenant, limit } => {
                let limit = limit.to_string();
                let members = [("tenant", tenant.as_deref()), ("limit", Some(&*limit))];
                let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
                let answer = session.client.get(&Path::new(&["lanes"]).with_query(members))?;
                session.show(&answer, |lanes: &Lanes, out| match lanes.lanes.is_empty() {
                    true => writeln!(out, "no mail waits"),
                    false => write!(out, "{}", lanes_in_words(&lanes.lanes)),
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Which {
    fn turn(&self, session: &mut Session<'_>, action: &str) -> anyhow::Result<()> {
        let body = json!({ "tenant": self.tenant, "domain": self.domain });
        let answer = session.client.post(&Path::new(&["lanes", action]), &body)?;
        session.show(&answer, put_pause)?;
        Ok(())
    }
}

impl List {
    fn path(&self) -> Path {
        let status = self.status.and_then(|status| status.to_possible_value());
        let limit = self.listing.limit.to_string();
        let members = [
            ("tenant", self.tenant.as_deref()),
            ("status", status.as_ref().map(|status| status.get_name())),
            ("recipient", self.recipient.as_deref()),
            ("message_id", self.message_id.as_deref()),
            ("limit", Some(&*limit)),
            ("after", self.listing.after.as_deref()),
        ];
        let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Path::new(&["messages"]).with_query(members)
    }
}

fn put_all(page: &Messages, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["id", "tenant", "status", "accepted", "from", "to", "waits for"]);
    for message in &page.messages {
        let tone = if message.status == "bounced" { Tone::Bad } else { Tone::Normal };
        table.line(
            tone,
            [
                message.id.clone(),
                message.tenant.clone(),
                message.status.clone(),
                message.accepted_at.clone(),
                message.from.clone(),
                recipients(message),
                waits_for(message),
            ],
        );
    }
    if table.is_empty() {
        return writeln!(out, "there are no such messages");
    }
    write!(out, "{table}")?;
    more(page.next.as_deref(), "queue", out)
}

/// The first recipient, and how many more there are.
fn recipients(message: &Message) -> String {
    let first = message.to.first().cloned().unwrap_or_default();
    match message.recipients {
        0 | 1 => first,
        all => format!("{first} and {} more", all - 1),
    }
}

fn waits_for(message: &Message) -> String {
    match (&message.deferred_by, &message.deferred_until) {
        (Some(by), Some(until)) => format!("{by} until {until}"),
        _ => "-".to_owned(),
    }
}

fn put(detail: &MessageDetail, out: &mut dyn Write) -> io::Result<()> {
    let message = &detail.message;
    writeln!(out, "{}\n", words::plain(&message.id))?;
    let lines = [
        ("status", message.status.clone()),
        ("tenant", message.tenant.clone()),
        ("from", message.from.clone()),
        ("message-id", or_dash(message.message_id.clone())),
        ("size", format!("{} bytes", words::number(message.size))),
        ("accepted", message.accepted_at.clone()),
        ("waits for", waits_for(message)),
    ];
    for (title, text) in lines {
        writeln!(out, "{title:<12}{}", words::plain(&text))?;
    }
    let mut table = TextTable::new(&["recipient", "status", "reply"]);
    for recipient in detail.parts.iter().flat_map(|part| &part.recipients) {
        let tone = if recipient.status == "failed" { Tone::Bad } else { Tone::Normal };
        let reply = or_dash(recipient.reply.clone());
        table.line(tone, [recipient.address.clone(), recipient.status.clone(), reply]);
    }
    write!(out, "\n{table}")?;
    let mut table = TextTable::new(&["when", "event", "domain", "account", "what was said", "until"]);
    for event in &detail.timeline {
        let cells =
            [&event.domain, &event.account, &event.text, &event.until].map(|text| or_dash(text.clone()));
        let [domain, account, text, until] = cells;
        table.line(Tone::Normal, [event.at.clone(), event.event.clone(), domain, account, text, until]);
    }
    write!(out, "\n{table}")
}

/// The lanes as a table.
pub(crate) fn lanes_in_words(lanes: &[Lane]) -> TextTable {
    let mut table = TextTable::unfolded(&[
        "tenant",
        "domain",
        ">waiting",
        ">in flight",
        "oldest",
        "sleeps until",
        "because",
    ]);
    for lane in lanes {
        let because = match (&lane.cause, &lane.reason) {
            _ if lane.held => "an operator paused it".to_owned(),
            (Some(cause), Some(reason)) => format!("{cause}: {reason}"),
            _ => or_dash(lane.last_error.as_ref().map(|error| format!("last error: {error}"))),
        };
        let [waiting, in_flight] = [lane.waiting, lane.in_flight].map(words::number);
        let [oldest, until] = [&lane.oldest, &lane.sleeps_until].map(|time| or_dash(time.clone()));
        table.line(
            Tone::Normal,
            [lane.tenant.clone(), lane.domain.clone(), waiting, in_flight, oldest, until, because],
        );
    }
    table
}
