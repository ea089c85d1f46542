//! `tollgate bans`: lists the blocklist and the allowlist.

use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::table::{TextTable, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire;

/// Which entries are shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Bans {
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Show entries after this target
    #[arg(long, value_name = "TARGET")]
    after: Option<String>,
    /// Show only the blocklist, or only the allowlist
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Show only entries by this access key, by `rule NAME`, or by `configuration`
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
    /// Show only networks that contain this address
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Show only targets and reasons with this text
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Block,
    Allow,
}

const EXAMPLES: &str = "\
Examples:
  tollgate bans
  tollgate bans --address 203.0.113.7
  tollgate bans --author ops --json | jq -r '.bans[].target'

Exit codes: 0 shown, 2 an error.";

impl Bans {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let kind = self.kind.map(|kind| match kind {
            Kind::Block => "block".to_owned(),
            Kind::Allow => "allow".to_owned(),
        });
        let members = [
            ("limit", Some(self.limit.to_string())),
            ("after", self.after.clone()),
            ("kind", kind),
            ("author", self.author.clone()),
            ("address", self.address.map(|address| address.to_string())),
            ("contains", self.contains.clone()),
        ];
        let members = members.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        let answer = session.client.get(&Path::new(&["bans"]).with_query(members))?;
        session.show(&answer, put)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn put(bans: &wire::Bans, out: &mut dyn Write) -> io::Result<()> {
    if bans.bans.is_empty() {
        return writeln!(out, "the lists are empty");
    }
    let mut table = TextTable::new(&["target", "kind", "until", "author", "reason"]);
    for ban in &bans.bans {
        let tone = if ban.kind == "allow" { Tone::Normal } else { Tone::Bad };
        let reason = Some(ban.reason.clone()).filter(|reason| !reason.is_empty());
        let cells = [ban.target.clone(), ban.kind.clone(), or_dash(ban.until.clone()), ban.author.clone()];
        let [target, kind, until, author] = cells;
        table.line(tone, [target, kind, until, author, or_dash(reason)]);
    }
    write!(out, "{table}")?;
    match &bans.next {
        Some(next) => writeln!(out, "\nthere are more: --after '{}'", words::plain(next)),
        None => Ok(()),
    }
}
