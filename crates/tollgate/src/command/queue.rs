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
use crate::client::wire::{
    Cancelled, Deleted, Lane, Lanes, MailPause, MailPauses, ManyChanged, Message, MessageDetail, MessageWait,
    Messages, Retried,
};

/// What is done with the queue.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Queue {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List messages, newest first, and what each waits for
    List(Box<List>),
    /// Show a message with its recipients and everything that happened to it
    Show(MessageArgument),
    /// Print the text of a message that still waits
    Text(MessageArgument),
    /// Try messages now; limits, pauses and the rests that servers asked for still hold, and are told
    Retry(Box<Which>),
    /// Try messages now, and end the rests that their servers asked for
    Release(Box<Which>),
    /// Cancel messages for all recipients that are still waiting
    Cancel(Box<Which>),
    /// Delete messages and their history; what waits of them is cancelled without a report
    Delete(Box<Which>),
    /// List what is paused: mail and accounts, also where no mail waits
    Pauses,
    /// Pause sending on all nodes: of everything, of a tenant, or of a tenant to one domain
    Pause(Scope),
    /// Resume sending on all nodes
    Resume(Scope),
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
    #[command(flatten)]
    filter: Filter,
    /// Which come first
    #[arg(long, value_enum, default_value = "newest")]
    order: Order,
    #[command(flatten)]
    listing: Listing,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    Newest,
    Oldest,
}

/// Which messages are meant.
#[derive(Args, Clone, Debug)]
struct Filter {
    /// Only messages of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only messages in this state
    #[arg(long, value_enum)]
    status: Option<StatusFilter>,
    /// Only messages from this address, or from this domain as `@example.com`
    #[arg(long, value_name = "ADDRESS")]
    sender: Option<String>,
    /// Only messages to this address, or to this domain as `@example.com`
    #[arg(long, value_name = "ADDRESS")]
    recipient: Option<String>,
    /// Only messages that name this account, or wait for it
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// Only messages with this Message-ID
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Only messages that were accepted so long ago, as in `2d`
    #[arg(long, value_name = "TIME")]
    older_than: Option<String>,
    /// Only messages that were accepted later than so long ago
    #[arg(long, value_name = "TIME")]
    newer_than: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StatusFilter {
    /// Recipients wait, whatever for
    Waiting,
    Queued,
    Deferred,
    Retrying,
    Sent,
    Bounced,
    Cancelled,
}

/// One message, or all that fit.
#[derive(Args, Clone, Debug)]
struct Which {
    /// The id of one message, as `queue list` shows it
    #[arg(conflicts_with_all = FILTERS)]
    id: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// How many messages fit; without this, the command only counts them
    #[arg(long, value_name = "N", conflicts_with = "id")]
    confirm: Option<u64>,
}

const FILTERS: [&str; 8] =
    ["tenant", "status", "sender", "recipient", "account", "message_id", "older_than", "newer_than"];

/// Which mail is paused or resumed.
#[derive(Args, Clone, Debug)]
struct Scope {
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
  tollgate queue cancel --sender app@acme.example --older-than 1d
  tollgate queue cancel --sender app@acme.example --older-than 1d --confirm 142
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
            Action::Text(MessageArgument { id }) => {
                let answer = session.client.get(&Path::new(&["messages", id, "text"]))?;
                session.print_text(&answer)?;
            }
            Action::Retry(which) => which.act(session, "retry")?,
            Action::Release(which) => which.act(session, "release")?,
            Action::Cancel(which) => which.act(session, "cancel")?,
            Action::Delete(which) => which.act(session, "delete")?,
            Action::Pauses => {
                let answer = session.client.get(&Path::new(&["pauses"]))?;
                session.show(&answer, |answer: &MailPauses, out| match answer.pauses.is_empty() {
                    true => writeln!(out, "nothing is paused"),
                    false => put_pauses(&answer.pauses, out),
                })?;
            }
            Action::Pause(which) => which.turn(session, "pause")?,
            Action::Resume(which) => which.turn(session, "resume")?,
            Action::Lanes { tenant, limit } => {
                let limit = limit.to_string();
                let members = [("tenant", tenant.as_deref()), ("limit", Some(&*limit))];
                let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
                let answer = session.client.get(&Path::new(&["lanes"]).with_query(members))?;
                session.show(&answer, |lanes: &Lanes, out| {
                    put_pauses(&lanes.pauses, out)?;
                    match lanes.lanes.is_empty() {
                        true => writeln!(out, "no mail waits"),
                        false => write!(out, "{}", lanes_in_words(&lanes.lanes)),
                    }
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Scope {
    fn turn(&self, session: &mut Session<'_>, action: &str) -> anyhow::Result<()> {
        let body = json!({ "tenant": self.tenant, "domain": self.domain });
        let answer = session.client.post(&Path::new(&["lanes", action]), &body)?;
        session.show(&answer, put_pause)?;
        Ok(())
    }
}

impl Filter {
    fn members(&self) -> impl Iterator<Item = (&'static str, String)> {
        let status = self.status.and_then(|status| status.to_possible_value());
        let values = [
            self.tenant.clone(),
            status.map(|status| status.get_name().to_owned()),
            self.sender.clone(),
            self.recipient.clone(),
            self.account.clone(),
            self.message_id.clone(),
            self.older_than.clone(),
            self.newer_than.clone(),
        ];
        FILTERS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)))
    }
}

impl List {
    fn path(&self) -> Path {
        let order = self.order.to_possible_value().map(|order| order.get_name().to_owned());
        let more = [
            ("order", order),
            ("limit", Some(self.listing.limit.to_string())),
            ("after", self.listing.after.clone()),
        ];
        let more = more.into_iter().filter_map(|(name, value)| Some((name, value?)));
        with_query(&["messages"], self.filter.members().chain(more))
    }
}

impl Which {
    fn act(&self, session: &mut Session<'_>, action: &'static str) -> anyhow::Result<()> {
        let Some(id) = &self.id else { return self.act_on_all(session, action) };
        let answer = session.client.post(&Path::new(&["messages", id, action]), &json!({}))?;
        match action {
            "cancel" => {
                session.show(&answer, |answer: &Cancelled, out| match answer.cancelled {
                    true => writeln!(out, "the message is cancelled"),
                    false => writeln!(out, "no recipient of the message is waiting"),
                })?;
            }
            "delete" => {
                session.show(&answer, |answer: &Deleted, out| match answer.deleted {
                    true => writeln!(out, "the message is deleted"),
                    false => writeln!(out, "the message is being sent: delete it when that has ended"),
                })?;
            }
            _ => drop(session.show(&answer, put_retried)?),
        }
        Ok(())
    }

    fn act_on_all(&self, session: &mut Session<'_>, action: &'static str) -> anyhow::Result<()> {
        let own =
            [("action", Some(action.to_owned())), ("confirm", self.confirm.map(|count| count.to_string()))];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let path = with_query(&["messages", "bulk"], self.filter.members().chain(own));
        let answer = session.client.post(&path, &json!({}))?;
        let confirmed = self.confirm.is_some();
        session.show(&answer, |answer: &ManyChanged, out| {
            let (matched, changed) = (words::number(answer.matched), words::number(answer.changed));
            let more = if answer.more { ", and there may be more" } else { "" };
            match confirmed {
                true => writeln!(out, "{action}: {changed} of {matched} messages{more}"),
                false => writeln!(
                    out,
                    "{matched} messages fit{more}; nothing was changed. To {action} them, add --confirm {}",
                    answer.matched
                ),
            }
        })?;
        Ok(())
    }
}

fn with_query(path: &[&str], members: impl Iterator<Item = (&'static str, String)>) -> Path {
    let members: Vec<(&str, String)> = members.collect();
    Path::new(path).with_query(members.iter().map(|(name, value)| (*name, &**value)))
}

/// Says what a retry did, and what keeps the message nevertheless.
fn put_retried(answer: &Retried, out: &mut dyn Write) -> io::Result<()> {
    if answer.retried == 0 {
        return writeln!(out, "no recipient of the message is waiting");
    }
    if answer.waits_for.is_empty() {
        return writeln!(out, "the message is tried now");
    }
    for wait in &answer.waits_for {
        writeln!(out, "the message still waits for {}", words::plain(&wait_in_words(wait)))?;
        match &*wait.cause {
            "throttle" => {
                writeln!(out, "  `tollgate queue release` ends the rest that its server asked for")?
            }
            "pause" => writeln!(
                out,
                "  `tollgate queue pauses` lists the pauses, `tollgate queue resume` ends them"
            )?,
            _ => {}
        }
    }
    Ok(())
}

fn put_pauses(pauses: &[MailPause], out: &mut dyn Write) -> io::Result<()> {
    pauses.iter().try_for_each(|pause| writeln!(out, "paused: {}", words::plain(&pause.in_words())))
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
    message.waits_for.as_ref().map_or_else(|| "-".to_owned(), wait_in_words)
}

fn wait_in_words(wait: &MessageWait) -> String {
    let until = wait.until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
    let reason = wait.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{}{until}{reason}", wait.cause)
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
    for part in &detail.parts {
        if let Some(wait) = &part.waits_for {
            writeln!(
                out,
                "\n{} waits for {}",
                words::plain(&part.domain),
                words::plain(&wait_in_words(wait))
            )?;
        }
    }
    let mut table = TextTable::new(&["when", "event", "to", "account", "what was said", "until"]);
    for event in &detail.timeline {
        let to = event.recipient.as_ref().or(event.domain.as_ref());
        let cells = [to, event.account.as_ref(), event.text.as_ref(), event.until.as_ref()]
            .map(|text| or_dash(text.cloned()));
        let [to, account, text, until] = cells;
        table.line(Tone::Normal, [event.at.clone(), event.event.clone(), to, account, text, until]);
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
