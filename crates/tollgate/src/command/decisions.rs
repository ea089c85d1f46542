//! `tollgate decisions`: the server's journal.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::table::{Sheet, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::Journal;

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
    /// Show only the decision with this correlation id, with every key and the blocklist entry
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Show only this verdict
    #[arg(long, value_enum)]
    verdict: Option<Verdict>,
}

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
  tollgate decisions --policy api --json | jq -r '.decisions[].rule'

The newest decision comes first. In a flood the server records only a part of its decisions.
Exit codes: 0 shown, 2 an error.";

impl Decisions {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let limit = self.limit.to_string();
        let members = [
            ("limit", Some(limit.as_str())),
            ("policy", self.policy.as_deref()),
            ("rule", self.rule.as_deref()),
            ("key", self.key.as_deref()),
            ("id", self.id.as_deref()),
            ("verdict", self.verdict.map(Verdict::name)),
        ];
        let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let answer = session.client.get(&Path::new(&["decisions"]).with_query(members))?;
        let none = if self.filters() { "no such decisions" } else { "no decisions yet" };
        session.show(&answer, |journal, out| {
            put(journal, none, out)?;
            if self.id.is_some() { put_reasons(journal, out) } else { Ok(()) }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn filters(&self) -> bool {
        let texts = [&self.policy, &self.rule, &self.key, &self.id];
        texts.into_iter().any(Option::is_some) || self.verdict.is_some()
    }
}

fn put(journal: &Journal, none: &str, out: &mut dyn Write) -> io::Result<()> {
    if journal.decisions.is_empty() {
        return writeln!(out, "{none}");
    }
    let mut sheet = Sheet::new(&["at", "policy", "verdict", "rule", "key", ">cost", ">retry in"]);
    for entry in &journal.decisions {
        let tone = if entry.verdict == "allow" { Tone::Normal } else { Tone::Bad };
        let retry = or_dash(entry.retry_after_ms.map(words::span));
        let [rule, key] = [&entry.rule, &entry.key].map(|text| or_dash(text.clone()));
        let [at, policy, verdict] = [&entry.at, &entry.policy, &entry.verdict].map(Clone::clone);
        sheet.line(tone, [at, policy, verdict, rule, key, words::number(entry.cost), retry]);
    }
    write!(out, "{sheet}")
}

/// Prints the reasons of each decision: its rules and keys, or the blocklist entry.
fn put_reasons(journal: &Journal, out: &mut dyn Write) -> io::Result<()> {
    for entry in &journal.decisions {
        writeln!(out)?;
        if let Some(listing) = &entry.listing {
            let [target, author, reason] =
                [&listing.target, &listing.author, &listing.reason].map(|text| words::plain(text));
            let until = listing.until.as_deref();
            let until =
                until.map_or("permanently".to_owned(), |until| format!("until {}", words::plain(until)));
            let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            writeln!(out, "blocked by the entry {target}, set by {author}, {until}{why}")?;
        }
        for key in &entry.keys {
            writeln!(out, "key of {}: {}", words::plain(&key.rule), words::plain(&key.key))?;
        }
    }
    Ok(())
}
