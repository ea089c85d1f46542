//! `tollgate decisions`: the server's journal.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::table::{TextTable, Tone, or_dash};
use super::{OutputFormat, Session, words};
use crate::client::wire::{DecisionDetail, Entry, Journal, LimitLine};
use crate::client::{Fault, Path};

/// How much of the journal is shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Decisions {
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Show only decisions of this policy
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Show only denials by this rule
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Show only decisions about this key of any rule, as shown here and in denials
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Show only the decision with this correlation id, token or link, and what every rule read then and now
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Show only decisions that this observe-only rule would have denied
    #[arg(long, value_name = "RULE")]
    observed: Option<String>,
    /// Show only this verdict
    #[arg(long, value_enum)]
    verdict: Option<Verdict>,
}

/// The exit code if no decision has the id.
const NOT_FOUND: u8 = 1;
/// The longest correlation id, in bytes.
const LONGEST_ID: usize = 128;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Verdict {
    Allow,
    Wait,
    Defer,
    Deny,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Wait => "wait",
            Self::Defer => "defer",
            Self::Deny => "deny",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  tollgate decisions --limit 20
  tollgate decisions --verdict deny --key 203.0.113.7
  tollgate decisions --id 85ed10dc0dad8686
  tollgate decisions --id https://ops.example.com/decisions/EAbG…
  tollgate decisions --observed new_limit
  tollgate decisions --policy api --json | jq -r '.decisions[].rule'

The newest decision comes first. Under high load the server records only a part. The journal
is that of the node that is asked; a token or link works at every node that shares the store.
Exit codes: 0 shown, 1 no decision has this id, 2 an error.";

impl Decisions {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let token = self.id.as_deref().map(last_part).filter(|token| !token.is_empty());
        // No correlation id is as long as this.
        if let Some(token) = token.filter(|token| token.len() > LONGEST_ID) {
            let answer = session.client.get(&token_path(token))?;
            session.show(&answer, put_detail)?;
            return Ok(ExitCode::SUCCESS);
        }
        let limit = self.limit.to_string();
        let members = [
            ("limit", Some(limit.as_str())),
            ("policy", self.policy.as_deref()),
            ("rule", self.rule.as_deref()),
            ("key", self.key.as_deref()),
            ("id", self.id.as_deref()),
            ("observed", self.observed.as_deref()),
            ("verdict", self.verdict.map(Verdict::name)),
        ];
        let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let answer = session.client.get(&Path::new(&["decisions"]).with_query(members))?;
        let found: Journal = answer.read(session.client.server())?;
        // A short text may be either: the server knows which.
        if let Some(token) = token.filter(|_| found.decisions.is_empty()) {
            match session.client.get(&token_path(token)) {
                Ok(answer) => {
                    session.show(&answer, put_detail)?;
                    return Ok(ExitCode::SUCCESS);
                }
                Err(Fault::Refused { answer, .. }) if answer.status == 400 => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        let journal: Journal = session.show(&answer, |journal, out| self.put(journal, out))?;
        if self.id.is_some() && journal.decisions.is_empty() {
            return Ok(ExitCode::from(NOT_FOUND));
        }
        if self.id.is_some() && session.format == OutputFormat::Words {
            for entry in &journal.decisions {
                show_entry(session, entry)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn filters(&self) -> bool {
        let texts = [&self.policy, &self.rule, &self.key, &self.id, &self.observed];
        texts.into_iter().any(Option::is_some) || self.verdict.is_some()
    }

    fn put(&self, journal: &Journal, out: &mut dyn Write) -> io::Result<()> {
        if !journal.decisions.is_empty() {
            return put(journal, out);
        }
        let none = match &self.id {
            Some(id) => format!("no decision has the id {}", words::plain(id)),
            None if self.filters() => "no such decisions".to_owned(),
            None => return writeln!(out, "no decisions yet"),
        };
        match &journal.oldest {
            Some(oldest) => {
                let (kept, oldest) = (words::number(journal.kept as u64), words::plain(oldest));
                writeln!(out, "{none}: the journal of this node has {kept} decisions, the oldest of {oldest}")
            }
            None => writeln!(out, "{none}: the journal of this node is empty"),
        }
    }
}

fn put(journal: &Journal, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["at", "policy", "verdict", "rule", "key", ">cost", ">retry in"]);
    for entry in &journal.decisions {
        let tone = if entry.verdict == "allow" { Tone::Normal } else { Tone::Bad };
        let retry = or_dash(entry.retry_after_ms.map(words::span));
        let observed =
            (!entry.observed.is_empty()).then(|| format!("{} (observed)", entry.observed.join(", ")));
        let (rule, key) = (or_dash(entry.rule.clone().or(observed)), or_dash(key_of(entry)));
        let [at, policy, verdict] = [&entry.at, &entry.policy, &entry.verdict].map(Clone::clone);
        table.line(tone, [at, policy, verdict, rule, key, words::number(entry.cost), retry]);
    }
    write!(out, "{table}")
}

/// The key that an entry is about: that of the rule that decided, or that would have.
fn key_of(entry: &Entry) -> Option<String> {
    let observed = entry.observed.first().filter(|_| entry.rule.is_none());
    let own = observed.and_then(|rule| entry.keys.iter().find(|key| key.rule == *rule));
    own.map(|own| own.key.clone()).or_else(|| entry.key.clone())
}

/// What may be the token in a text: all of it, or the end of a link.
fn last_part(text: &str) -> &str {
    let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.rsplit(|c| !is_token(c)).next().unwrap_or_default()
}

fn token_path(token: &str) -> Path {
    Path::new(&["decisions", token])
}

/// Prints the reasons of a decision: the blocklist entry, its rules and keys, and their readings.
fn show_entry(session: &mut Session<'_>, entry: &Entry) -> anyhow::Result<()> {
    let mut text = b"\n".to_vec();
    if let Some(listing) = &entry.listing {
        let [target, author, reason] =
            [&listing.target, &listing.author, &listing.reason].map(|text| words::plain(text));
        let until = listing.until.as_deref();
        let until = until.map_or("permanently".to_owned(), |until| format!("until {}", words::plain(until)));
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        writeln!(text, "blocked by the entry {target}, set by {author}, {until}{why}")?;
    }
    for key in &entry.keys {
        writeln!(text, "key of {}: {}", words::plain(&key.rule), words::plain(&key.key))?;
    }
    session.say(&text)?;
    if let Some(token) = &entry.token {
        let answer = session.client.get(&token_path(token))?;
        session.show(&answer, put_readings)?;
    }
    Ok(())
}

/// Prints a decision that was found by its token.
fn put_detail(decision: &DecisionDetail, out: &mut dyn Write) -> io::Result<()> {
    let named = decision.rules.iter().find(|rule| Some(&rule.rule) == decision.rule.as_ref());
    let key = named.map(|rule| rule.key.clone()).or_else(|| decision.blocked.clone());
    let mut table = TextTable::new(&["at", "policy", "verdict", "rule", "key", ">cost", ">retry in"]);
    let tone = if decision.verdict == "allow" { Tone::Normal } else { Tone::Bad };
    let [at, policy, verdict] = [&decision.at, &decision.policy, &decision.verdict].map(Clone::clone);
    let retry = or_dash(decision.retry_after_ms.map(words::span));
    let (rule, cost) = (or_dash(decision.rule.clone()), words::number(decision.cost));
    table.line(tone, [at, policy, verdict, rule, or_dash(key), cost, retry]);
    write!(out, "{table}")?;
    writeln!(out, "\ncorrelation id {}", words::plain(&decision.id))?;
    if let Some(target) = &decision.blocked {
        writeln!(out, "blocked by the entry {}", words::plain(target))?;
    }
    for rule in &decision.rules {
        writeln!(out, "key of {}: {}", words::plain(&rule.rule), words::plain(&rule.key))?;
    }
    put_readings(decision, out)
}

/// Prints what every rule read then, and what it reads now.
fn put_readings(decision: &DecisionDetail, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["rule", "limit", ">left then", ">left now", ">resets in"]);
    for rule in &decision.rules {
        let name = if rule.observed { format!("{} (observed)", rule.rule) } else { rule.rule.clone() };
        for then in &rule.then {
            let now = rule.now.as_ref().and_then(|now| now.iter().find(|now| now.limit == then.limit));
            let tone = if rule.exceeded && then.retry_after_ms.is_some() { Tone::Bad } else { Tone::Normal };
            let left = |limit: &LimitLine| {
                format!("{} of {}", words::number(limit.remaining), words::number(limit.capacity))
            };
            let resets =
                or_dash(now.and_then(|now| now.reset_after_ms).filter(|ms| *ms > 0).map(words::span));
            table.line(tone, [name.clone(), then.limit.clone(), left(then), or_dash(now.map(left)), resets]);
        }
    }
    if !table.is_empty() {
        write!(out, "\n{table}")?;
    }
    if !decision.complete {
        writeln!(out, "the token had no room for all rules")?;
    }
    Ok(())
}
