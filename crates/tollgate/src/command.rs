//! The commands that ask a running server.
//!
//! Every command prints text for people or, with `--json`, the server's response unchanged. Exit codes: 0
//! done or allowed, 1 denied, 2 an error.

pub mod accounts;
pub mod acquire;
pub mod ban;
pub mod bans;
pub mod bench;
pub mod changes;
pub mod check;
pub mod config;
pub mod consumers;
pub mod decisions;
pub mod guard;
pub mod holds;
mod limits;
pub mod pages;
pub mod pause;
pub mod peek;
pub mod policies;
pub mod queue;
pub mod refund;
pub mod reload;
pub mod reset;
pub mod routes;
pub mod rules;
pub mod set;
pub mod status;
pub(crate) mod table;
pub mod top;
pub mod unban;
pub(crate) mod words;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use tollgate_core::{Span, grammar};

pub(crate) use words::plain;

use crate::client::{Answer, Client, Fault, Server, Token};
use crate::printable;

/// How to reach the server, and how to put its answers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct Reach {
    /// The server to ask
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TOLLGATE_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080"
    )]
    pub server: Server,
    /// A file whose first line is the token; by default the token is TOLLGATE_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// How long to wait for the answer
    #[arg(long, global = true, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub timeout: Span,
    /// Print the server's answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// A command, with how to reach the server that it asks.
#[derive(Args, Clone, Debug)]
pub struct Asking<C: Args> {
    #[command(flatten)]
    command: C,
    #[command(flatten)]
    reach: Reach,
}

/// What can be asked of a running server.
#[derive(Clone, Debug, Subcommand)]
pub enum Remote {
    /// Check whether an attempt is allowed, and charge it
    Check(Asking<check::Check>),
    /// Wait until an attempt may pass, then charge it
    Acquire(Asking<acquire::Acquire>),
    /// Pause or resume calls to an upstream
    Pause(Asking<pause::Pause>),
    /// Show the counts of a key, at one rule or at all
    Peek(Asking<peek::Peek>),
    /// Reset counts to zero: of a key, of a rule, or all
    Reset(Asking<reset::Reset>),
    /// Set limits for one key (an override), or remove them
    Set(Asking<set::Set>),
    /// Refund an allowed attempt, or a part of it
    #[command(alias = "give")]
    Refund(Asking<refund::Refund>),
    /// Begin and finish logins at a guard; list, inspect and lift its locks
    Guard(Asking<guard::Guarding>),
    /// List, release or renew the holds of a key
    Holds(Asking<holds::Holds>),
    /// Add to the blocklist or the allowlist
    Ban(Asking<ban::Ban>),
    /// Remove from the blocklist or the allowlist
    Unban(Asking<unban::Unban>),
    /// Show the blocklist and the allowlist
    Bans(Asking<bans::Bans>),
    /// List, create, change or delete policies while the server runs
    #[command(alias = "rate-limits")]
    Policies(Asking<policies::Policies>),
    /// List routes, and assign policies to them
    Routes(Asking<routes::Routes>),
    /// List, set or remove the limits of consumers
    Consumers(Asking<consumers::Consumers>),
    /// Add, list or remove the accounts that the mail relay sends through
    Accounts(Asking<accounts::Accounts>),
    /// List, inspect, retry, cancel, pause or resume the mail of the relay
    Queue(Asking<queue::Queue>),
    /// Watch decisions, the busiest policies and the most denied keys
    Top(Asking<top::Top>),
    /// Show the latest decisions
    Decisions(Asking<decisions::Decisions>),
    /// Show the state of the store, and how many attempts each policy allows and denies
    Status(Asking<status::ShowStatus>),
    /// Show the share of attempts that each rule denied, deferred or delayed
    Rules(Asking<rules::ShowRules>),
    /// Show the latest changes that were made over the API
    Changes(Asking<changes::Changes>),
    /// Show the configuration in force on the server
    Config(Asking<config::ShowConfig>),
    /// Reload the server's configuration
    Reload(Asking<reload::Reload>),
    /// Measure throughput and latency of the server
    Bench(Asking<bench::Bench>),
}

/// What a command uses.
pub(crate) struct Session<'a> {
    client: Client,
    format: OutputFormat,
    out: &'a mut dyn Write,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Words,
    Json,
}

/// The attempt was denied.
pub(crate) const DENIED: u8 = 1;

impl Remote {
    /// Sends the request and prints the response.
    pub fn run(self, environment: &[(String, String)], out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let reach = self.reach();
        let token = Token::find(reach.token_file.as_deref(), environment)?;
        let client = Client::new(reach.server.clone(), token, reach.timeout.into());
        let format = if reach.json { OutputFormat::Json } else { OutputFormat::Words };
        let mut session = Session { client, format, out };
        let done = self.ask(&mut session);
        if let (OutputFormat::Json, Err(error)) = (format, &done)
            && let Some(Fault::Refused { answer, .. }) = error.downcast_ref()
        {
            session.print(answer)?;
        }
        done
    }

    fn reach(&self) -> &Reach {
        match self {
            Self::Check(asking) => &asking.reach,
            Self::Acquire(asking) => &asking.reach,
            Self::Pause(asking) => &asking.reach,
            Self::Peek(asking) => &asking.reach,
            Self::Reset(asking) => &asking.reach,
            Self::Set(asking) => &asking.reach,
            Self::Refund(asking) => &asking.reach,
            Self::Guard(asking) => &asking.reach,
            Self::Holds(asking) => &asking.reach,
            Self::Ban(asking) => &asking.reach,
            Self::Unban(asking) => &asking.reach,
            Self::Bans(asking) => &asking.reach,
            Self::Policies(asking) => &asking.reach,
            Self::Routes(asking) => &asking.reach,
            Self::Consumers(asking) => &asking.reach,
            Self::Accounts(asking) => &asking.reach,
            Self::Queue(asking) => &asking.reach,
            Self::Top(asking) => &asking.reach,
            Self::Decisions(asking) => &asking.reach,
            Self::Status(asking) => &asking.reach,
            Self::Rules(asking) => &asking.reach,
            Self::Changes(asking) => &asking.reach,
            Self::Config(asking) => &asking.reach,
            Self::Reload(asking) => &asking.reach,
            Self::Bench(asking) => &asking.reach,
        }
    }

    fn ask(self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(asking) => asking.command.run(session),
            Self::Acquire(asking) => asking.command.run(session),
            Self::Pause(asking) => asking.command.run(session),
            Self::Peek(asking) => asking.command.run(session),
            Self::Reset(asking) => asking.command.run(session),
            Self::Set(asking) => asking.command.run(session),
            Self::Refund(asking) => asking.command.run(session),
            Self::Guard(asking) => asking.command.run(session),
            Self::Holds(asking) => asking.command.run(session),
            Self::Ban(asking) => asking.command.run(session),
            Self::Unban(asking) => asking.command.run(session),
            Self::Bans(asking) => asking.command.run(session),
            Self::Policies(asking) => asking.command.run(session),
            Self::Routes(asking) => asking.command.run(session),
            Self::Consumers(asking) => asking.command.run(session),
            Self::Accounts(asking) => asking.command.run(session),
            Self::Queue(asking) => asking.command.run(session),
            Self::Top(asking) => asking.command.run(session),
            Self::Decisions(asking) => asking.command.run(session),
            Self::Status(asking) => asking.command.run(session),
            Self::Rules(asking) => asking.command.run(session),
            Self::Changes(asking) => asking.command.run(session),
            Self::Config(asking) => asking.command.run(session),
            Self::Reload(asking) => asking.command.run(session),
            Self::Bench(asking) => asking.command.run(session),
        }
    }
}

impl Session<'_> {
    /// Parses a response and prints it: unchanged, or as `words` writes it.
    fn show<T: DeserializeOwned>(
        &mut self,
        answer: &Answer,
        words: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<T> {
        let said: T = answer.read(self.client.server())?;
        match self.format {
            OutputFormat::Json => self.print(answer)?,
            OutputFormat::Words => {
                let mut text = Vec::new();
                words(&said, &mut text)?;
                self.say(&text)?;
            }
        }
        Ok(said)
    }

    fn say(&mut self, text: &[u8]) -> io::Result<()> {
        say(text, self.out)
    }

    /// Prints the body of a response byte for byte; on a terminal without the characters that act on it.
    fn print_text(&mut self, answer: &Answer) -> io::Result<()> {
        if !io::IsTerminal::is_terminal(&io::stdout()) {
            return self.out.write_all(&answer.body);
        }
        let text = String::from_utf8_lossy(&answer.body);
        text.lines().try_for_each(|line| writeln!(self.out, "{}", words::plain(line)))
    }

    fn print(&mut self, answer: &Answer) -> io::Result<()> {
        let body = String::from_utf8_lossy(&answer.body);
        self.out.write_all(printable::json(&body).as_bytes())?;
        if body.ends_with('\n') { Ok(()) } else { self.out.write_all(b"\n") }
    }
}

/// Prints a text, with colours if standard output is a terminal that wants them.
pub(crate) fn say(text: &[u8], out: &mut dyn Write) -> io::Result<()> {
    match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => write!(out, "{}", strip_str(&String::from_utf8_lossy(text))),
        _ => out.write_all(text),
    }
}

/// A duration in the grammar of limits.
pub(crate) fn duration(text: &str) -> Result<Span, String> {
    match grammar::parse_span(text) {
        Ok(span) if span > Span::ZERO => Ok(span),
        Ok(_) => Err("a duration must be greater than zero".to_owned()),
        Err(error) => Err(error.problem),
    }
}
