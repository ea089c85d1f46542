//! `tollgate guard`: logins at a guard, and its locks.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::check::field;
use super::policies::Listing;
use super::table::{TextTable, Tone, or_dash};
use super::{DENIED, Session, words};
use crate::client::Path;
use crate::client::wire::{Advice, Begun, Finished, Guards, Locks, Standings, Unlocked};

/// What is done at a guard.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Guarding {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Begin a login: check whether it is allowed, and count it as a failure until it is finished
    Begin(About),
    /// Report the result of a login
    Finish(Finish),
    /// List the guards
    List,
    /// List the locks
    Locks(Page),
    /// Show the failures and locks of a user
    Inspect(About),
    /// Forget the failures of a user, which ends their lock
    Unlock(About),
}

/// A guard, and the fields of a login.
#[derive(Args, Clone, Debug)]
struct About {
    /// The guard
    guard: String,
    /// The fields of the login, as in `user=ada ip=192.0.2.1`
    #[arg(value_name = "FIELD=VALUE", value_parser = field, required = true)]
    fields: Vec<(String, String)>,
}

/// A login, and how it ended.
#[derive(Args, Clone, Debug)]
struct Finish {
    /// The ticket that `guard begin` printed
    ticket: String,
    /// The result
    #[arg(value_enum)]
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Outcome {
    Success,
    Failure,
    Abandoned,
}

/// A guard, and which page of its locks.
#[derive(Args, Clone, Debug)]
struct Page {
    /// The guard
    guard: String,
    #[command(flatten)]
    listing: Listing,
}

const EXAMPLES: &str = "\
Examples:
  ticket=$(tollgate guard begin login user=ada ip=192.0.2.1 --json | jq -r .ticket)
  tollgate guard finish \"$ticket\" failure
  tollgate guard locks login
  tollgate guard inspect login user=ada ip=192.0.2.1
  tollgate guard unlock login user=ada

Exit codes: 0 done or allowed, 1 denied, 2 an error.";

impl Guarding {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match &self.action {
            Action::Begin(about) => return about.begin(session),
            Action::Finish(finish) => finish.run(session)?,
            Action::List => {
                let answer = session.client.get(&Path::new(&["guards"]))?;
                session.show(&answer, put_guards)?;
            }
            Action::Locks(Page { guard, listing }) => {
                let path = Path::new(&["guards", guard, "locks"]);
                let answer = session.client.get(&path.page(listing.limit, listing.after.as_deref()))?;
                session.show(&answer, |locks, out| put_locks(guard, locks, out))?;
            }
            Action::Inspect(about) => {
                let answer = session.client.post(&about.path("inspect"), &about.body()?)?;
                session.show(&answer, put_standings)?;
            }
            Action::Unlock(about) => {
                let answer = session.client.post(&about.path("unlock"), &about.body()?)?;
                session.show(&answer, put_unlocked)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl About {
    fn path(&self, action: &str) -> Path {
        Path::new(&["guards", &self.guard, action])
    }

    fn body(&self) -> anyhow::Result<Value> {
        let mut fields = Map::new();
        for (name, value) in &self.fields {
            if fields.insert(name.clone(), Value::from(value.as_str())).is_some() {
                anyhow::bail!("the field `{name}` is given twice");
            }
        }
        Ok(json!({ "fields": fields }))
    }

    fn begin(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.post(&self.path("begin"), &self.body()?)?;
        let begun = session.show(&answer, put_begun)?;
        Ok(if begun.allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED) })
    }
}

impl Finish {
    fn run(&self, session: &mut Session<'_>) -> anyhow::Result<()> {
        let outcome = match self.outcome {
            Outcome::Success => "success",
            Outcome::Failure => "failure",
            Outcome::Abandoned => "abandoned",
        };
        let body = json!({ "ticket": self.ticket, "outcome": outcome });
        let answer = session.client.post(&Path::new(&["guards", "finish"]), &body)?;
        session.show(&answer, |finished: &Finished, out| match finished.finished.as_str() {
            "now" => writeln!(out, "finished as {outcome} at {}", words::plain(&finished.guard)),
            "already" => writeln!(out, "it was finished before; the first outcome stands"),
            _ => writeln!(out, "the ticket is no longer known: nothing was changed"),
        })?;
        Ok(())
    }
}

fn put_begun(begun: &Begun, out: &mut dyn Write) -> io::Result<()> {
    let by =
        begun.denied_by.as_deref().map_or_else(String::new, |rule| format!(" by {}", words::plain(rule)));
    if begun.allowed {
        writeln!(out, "allowed{}", asked(&begun.advice))?;
    } else if begun.origin.as_deref() == Some("blocked") {
        writeln!(out, "blocked")?;
    } else {
        writeln!(out, "denied{by}{}", asked(&begun.advice))?;
    }
    if let Some(next) = begun.if_failed.as_ref().map(asked).filter(|next| !next.is_empty()) {
        writeln!(out, "if it fails, the next one is{}", next.trim_start_matches(','))?;
    }
    match &begun.ticket {
        Some(ticket) => writeln!(out, "ticket {}", words::plain(ticket)),
        None => Ok(()),
    }
}

/// What a login must do, as the end of a sentence.
fn asked(advice: &Advice) -> String {
    let mut text = String::new();
    match (&advice.locked_until, advice.delay_ms) {
        (Some(until), _) => text.push_str(&format!(", locked until {}", words::plain(until))),
        (None, 0) => {}
        (None, millis) => text.push_str(&format!(", not before {}", words::span(millis))),
    }
    if advice.captcha {
        text.push_str(", with a CAPTCHA");
    }
    text
}

fn put_guards(guards: &Guards, out: &mut dyn Write) -> io::Result<()> {
    if guards.guards.is_empty() {
        return writeln!(out, "there are no guards");
    }
    let mut table = TextTable::new(&["guard", "policy", "fields", "clears", ">failures", ">locks"]);
    for guard in &guards.guards {
        let [fields, clears] = [&guard.fields, &guard.clears].map(|names| names.join(", "));
        let [failures, locks] = [guard.failures, guard.lockouts].map(words::number);
        table.line(Tone::Normal, [guard.name.clone(), guard.policy.clone(), fields, clears, failures, locks]);
    }
    write!(out, "{table}")
}

fn put_locks(guard: &str, locks: &Locks, out: &mut dyn Write) -> io::Result<()> {
    if locks.locks.is_empty() && locks.next.is_none() {
        return writeln!(out, "there are no locks");
    }
    let mut table = TextTable::new(&["rule", "key", ">failures", "locked until"]);
    for lock in &locks.locks {
        let failures = words::number(lock.failures);
        table.line(Tone::Bad, [lock.rule.clone(), lock.key.clone(), failures, lock.locked_until.clone()]);
    }
    write!(out, "{table}")?;
    match &locks.next {
        Some(next) => {
            let (guard, next) = (words::plain(guard), words::plain(next));
            writeln!(out, "\nmore: tollgate guard locks {guard} --after '{next}'")
        }
        None => Ok(()),
    }
}

fn put_standings(standings: &Standings, out: &mut dyn Write) -> io::Result<()> {
    let titles = ["rule", "key", ">failures", "CAPTCHA", ">next attempt in", "locked until"];
    let mut table = TextTable::new(&titles);
    for standing in &standings.ladders {
        let tone = match (standing.observed, standing.advice.delay_ms) {
            (true, _) => Tone::Faint,
            (false, 0) => Tone::Normal,
            (false, _) => Tone::Bad,
        };
        let off = if standing.observed { " (observed)" } else { "" };
        let wait = Some(standing.advice.delay_ms).filter(|millis| *millis > 0).map(words::span);
        let captcha = if standing.advice.captcha { "yes" } else { "-" };
        table.line(
            tone,
            [
                format!("{}{off}", standing.rule),
                standing.key.clone(),
                words::number(standing.failures),
                captcha.to_owned(),
                or_dash(wait),
                or_dash(standing.advice.locked_until.clone()),
            ],
        );
    }
    write!(out, "{table}")
}

fn put_unlocked(unlocked: &Unlocked, out: &mut dyn Write) -> io::Result<()> {
    if unlocked.unlocked.is_empty() {
        return writeln!(out, "no failures to forget");
    }
    for key in &unlocked.unlocked {
        writeln!(out, "forgot the failures of {} {}", words::plain(&key.rule), words::plain(&key.key))?;
    }
    Ok(())
}
