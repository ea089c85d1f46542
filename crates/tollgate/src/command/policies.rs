//! `tollgate policies`: policies that are created while the server runs.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use tollgate_core::grammar::GrammarError;
use tollgate_core::{OnExceed, OnOutage};

use super::limits::LimitArgs;
use super::table::{TextTable, Tone};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::{self, Policy};

/// What is done with policies.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Policies {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List the policies that were created over the API
    List(Listing),
    /// Show one of them
    Show(PolicyArgument),
    /// Create a policy
    #[command(after_help = CREATING)]
    Create(Saying),
    /// Change some settings of a policy; the others stay
    #[command(after_help = SETTING)]
    Set(Saying),
    /// Delete a policy that no route uses; counts are not reset
    Delete(PolicyArgument),
}

/// Which page of a list is shown.
#[derive(Args, Clone, Debug)]
pub(super) struct Listing {
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(super) limit: usize,
    /// Show entries after this one
    #[arg(long, value_name = "NAME")]
    pub(super) after: Option<String>,
}

/// A policy.
#[derive(Args, Clone, Debug)]
struct PolicyArgument {
    /// Its name
    name: String,
}

/// What a policy is to be like.
#[derive(Args, Clone, Debug)]
struct Saying {
    /// Its name: up to 64 of `a-z 0-9 _ . -`
    name: String,
    #[command(flatten)]
    limits: LimitArgs,
    /// The fields that make its key, separated by commas; by default `route,ip`
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    by: Option<Vec<String>>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// What happens when a limit is exceeded: `reject`, `wait 5s`, `defer` or `observe`
    #[arg(long, value_name = "WHAT", value_parser = on_exceed)]
    on_exceed: Option<String>,
    /// What happens while a shared store is down: `local 50%`, `allow` or `deny`
    #[arg(long, value_name = "WHAT", value_parser = on_outage)]
    on_outage: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate policies create partners '10/s burst 50' --description 'what partners may do'
  tollgate policies list
  tollgate policies set partners '20/s burst 100'
  tollgate routes assign checkout partners
  tollgate policies delete partners

A policy counts each client on each route, unless --by names other fields. It also counts each consumer
with limits set by `tollgate consumers`. It takes effect immediately, and on every node within a second. It
survives reloads, and also restarts unless the store is `memory`. To reset counts, use `tollgate reset`.
Exit codes: 0 done, 2 an error.";

const CREATING: &str = "\
Examples:
  tollgate policies create partners '10/s burst 50'
  tollgate policies create partners --requests-per-second 10 --burst-size 50     (the same)
  tollgate policies create uploads 100/hour '5 at once for 30s' --by subject
  tollgate policies create search '30/min burst 10' --on-exceed 'wait 2s'

Exit codes: 0 created, 2 an error, such as a name that is taken.";

const SETTING: &str = "\
Examples:
  tollgate policies set partners '20/s burst 100'
  tollgate policies set partners --description 'what partners may do' --on-exceed observe

A limit keeps its counts if its kind and period stay the same. If another change comes in between, this
one fails instead of overwriting it. Exit codes: 0 changed, 2 an error.";

impl Policies {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match &self.action {
            Action::List(listing) => {
                let path = Path::new(&["policies"]).page(listing.limit, listing.after.as_deref());
                let answer = session.client.get(&path)?;
                session.show(&answer, put_all)?;
            }
            Action::Show(PolicyArgument { name }) => {
                let answer = session.client.get(&one(name))?;
                session.show(&answer, put)?;
            }
            Action::Create(saying) => saying.create(session)?,
            Action::Set(saying) => saying.set(session)?,
            Action::Delete(PolicyArgument { name }) => {
                let answer = session.client.delete(&one(name))?;
                session.show(&answer, |_: &Value, out| {
                    writeln!(out, "deleted the policy {}", words::plain(name))
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Saying {
    fn create(&self, session: &mut Session<'_>) -> anyhow::Result<()> {
        self.limits.must_be_there()?;
        let mut body = Map::new();
        body.insert("name".to_owned(), json!(self.name));
        self.say(&mut body);
        let answer = session.client.post(&Path::new(&["policies"]), &Value::Object(body))?;
        session.show(&answer, put)?;
        Ok(())
    }

    /// Changes the policy, unless it was changed meanwhile.
    fn set(&self, session: &mut Session<'_>) -> anyhow::Result<()> {
        let path = one(&self.name);
        let seen = session.client.get(&path)?;
        let was: Policy = seen.read(session.client.server())?;
        let mut body = Map::new();
        for (member, value) in [
            ("description", json!(was.description)),
            ("by", json!(was.by)),
            ("on_exceed", json!(was.on_exceed)),
            ("on_outage", json!(was.on_outage)),
        ] {
            body.insert(member.to_owned(), value);
        }
        if self.limits.is_empty() {
            body.insert("limits".to_owned(), json!(was.limits));
        }
        self.say(&mut body);
        let answer = match &seen.tag {
            Some(tag) => session.client.put_over(&path, tag, &Value::Object(body))?,
            None => session.client.put(&path, &Value::Object(body))?,
        };
        session.show(&answer, put)?;
        Ok(())
    }

    fn say(&self, body: &mut Map<String, Value>) {
        self.limits.put(body);
        let texts = [
            ("description", &self.description),
            ("on_exceed", &self.on_exceed),
            ("on_outage", &self.on_outage),
        ];
        for (member, text) in texts {
            if let Some(text) = text {
                body.insert(member.to_owned(), json!(text));
            }
        }
        if let Some(by) = &self.by {
            body.insert("by".to_owned(), json!(by));
        }
    }
}

fn one(name: &str) -> Path {
    Path::new(&["policies", name])
}

fn put_all(page: &wire::Policies, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["policy", "limits", "by", "when exceeded", ">routes", "description"]);
    for policy in &page.policies {
        let (tone, off) = if policy.in_force { (Tone::Normal, "") } else { (Tone::Faint, " (not in force)") };
        let by = policy.by.join(", ");
        let (limits, routes) = (policy.limits.join(", "), words::number(policy.routes));
        let description = policy.description.lines().next().unwrap_or_default().to_owned();
        let name = format!("{}{off}", policy.name);
        table.line(tone, [name, limits, by, policy.on_exceed.clone(), routes, description]);
    }
    if table.is_empty() {
        return writeln!(out, "no policies were created over the API");
    }
    write!(out, "{table}")?;
    more(page.next.as_deref(), "policies", out)
}

/// Prints how to see the rest of a list.
pub(super) fn more(next: Option<&str>, command: &str, out: &mut dyn Write) -> io::Result<()> {
    match next {
        Some(next) => writeln!(out, "\nmore: tollgate {command} list --after {}", words::plain(next)),
        None => Ok(()),
    }
}

fn put(policy: &Policy, out: &mut dyn Write) -> io::Result<()> {
    let off = if policy.in_force { "" } else { ", not in force: it conflicts with the configuration" };
    writeln!(out, "{}{off}\n", words::plain(&policy.name))?;
    let lines = [
        ("limits", policy.limits.join(", ")),
        ("by", policy.by.join(", ")),
        ("when exceeded", policy.on_exceed.clone()),
        ("without the store", without_the_store(policy)),
        ("routes", words::number(policy.routes)),
        ("made", policy.created_at.clone()),
        ("changed", format!("{}, version {}", policy.updated_at, policy.version)),
    ];
    for (title, text) in lines {
        writeln!(out, "{title:<19}{}", words::plain(&text))?;
    }
    for line in policy.description.lines() {
        writeln!(out, "{:<19}{}", "description", words::plain(line))?;
    }
    Ok(())
}

fn without_the_store(policy: &Policy) -> String {
    match &policy.on_outage {
        Some(on_outage) => on_outage.clone(),
        None => format!("{}, by default", policy.effective_on_outage),
    }
}

fn on_exceed(text: &str) -> Result<String, String> {
    checked::<OnExceed>(text)
}

fn on_outage(text: &str) -> Result<String, String> {
    checked::<OnOutage>(text)
}

/// Checks a text here, so that an error points at the argument.
fn checked<T: std::str::FromStr<Err = GrammarError>>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|_| text.to_owned()).map_err(|error| error.problem)
}
