//! `tollgate ban`: adds entries to the blocklist or the allowlist.

use std::io::{self, Write};
use std::path::{Path as FilePath, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use tollgate_core::Span;

use super::{Session, duration, words};
use crate::client::Path;
use crate::client::wire::{Ban as Shown, Bans};

/// Who is to be listed, and for how long.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("who").required(true).multiple(true).args(["targets", "from"]))]
pub struct Ban {
    /// An address, a network, or fields and their values, as in `user=bob` or `user=bob,ip=10.0.0.1`
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Read the targets from this file, one on each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// How long it lasts; by default for ever
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    lasts: Option<Span>,
    /// The reason, in one line
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Show the reason to the blocked client
    #[arg(long, requires = "reason", conflicts_with = "allow")]
    public: bool,
    /// Add to the allowlist; of several networks that contain an address, the smallest decides
    #[arg(long)]
    allow: bool,
    /// Block every address, `0.0.0.0/0` or `::/0`, if that is among the targets
    #[arg(long, conflicts_with = "allow")]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate ban 203.0.113.0/24 --for 1h --reason scraping
  tollgate ban user=bob
  tollgate ban user=bob,ip=203.0.113.7 --for 1d
  tollgate ban --allow 198.51.100.7 --reason monitoring
  tollgate ban --from drop.txt --for 1d

In a file, # or ; starts a comment. An entry takes effect immediately, and on every node within a second. The
store keeps it across restarts, unless it is `memory`.
Exit codes: 0 set, 2 an error.";

/// The most entries of one request.
const AT_ONCE: usize = 1_000;

impl Ban {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let mut targets = self.targets.clone();
        if let Some(file) = &self.from {
            targets.extend(read(file).with_context(|| format!("cannot read {}", file.display()))?);
            anyhow::ensure!(!targets.is_empty(), "there are no targets in {}", file.display());
        }
        for targets in targets.chunks(AT_ONCE) {
            let bans: Vec<Value> = targets.iter().map(|target| self.wish(target)).collect();
            let answer = session.client.post(&Path::new(&["bans"]), &json!({ "bans": bans }))?;
            session.show(&answer, put)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn wish(&self, target: &str) -> Value {
        let mut wish = json!({ "target": target });
        if self.allow {
            wish["kind"] = "allow".into();
        }
        if let Some(lasts) = self.lasts {
            wish["for"] = lasts.to_string().into();
        }
        if let Some(reason) = &self.reason {
            wish["reason"] = reason.as_str().into();
        }
        if self.public {
            wish["public"] = true.into();
        }
        if self.force {
            wish["force"] = true.into();
        }
        wish
    }
}

/// The targets in a file.
fn read(file: &FilePath) -> io::Result<Vec<String>> {
    let text = if file == FilePath::new("-") {
        io::read_to_string(io::stdin().lock())?
    } else {
        std::fs::read_to_string(file)?
    };
    let target = |line: &str| {
        let target = line.split(['#', ';']).next().unwrap_or_default().trim();
        (!target.is_empty()).then(|| target.to_owned())
    };
    Ok(text.lines().filter_map(target).collect())
}

fn put(bans: &Bans, out: &mut dyn Write) -> io::Result<()> {
    match bans.bans.as_slice() {
        several if several.len() > 10 => writeln!(out, "{} entries set", words::number(several.len() as u64)),
        few => few.iter().try_for_each(|ban| writeln!(out, "{}", in_words(ban))),
    }
}

fn in_words(ban: &Shown) -> String {
    let target = words::plain(&ban.target);
    let what = if ban.kind == "allow" { "is never blocked" } else { "is blocked" };
    match &ban.until {
        Some(until) => format!("{target} {what}, until {}", words::plain(until)),
        None => format!("{target} {what}"),
    }
}
