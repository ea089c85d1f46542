//! `tollgate unban`: removes entries from the blocklist or the allowlist.

use std::process::ExitCode;

use clap::Args;

use super::{Session, words};
use crate::client::Path;
use crate::client::wire::Unlisted;

/// Who is to be taken off.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Unban {
    /// The target, as it was set
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate unban 203.0.113.0/24
  tollgate unban user=bob

Entries of the configuration file stay; `tollgate ban --allow` overrides them.
Exit codes: 0 removed, or nothing was set; 2 an error.";

impl Unban {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        for target in &self.targets {
            let answer = session.client.delete(&Path::new(&["bans", target]))?;
            session.show(&answer, |answer: &Unlisted, out| {
                let target = words::plain(target);
                let done = if answer.removed { "removed" } else { "nothing was set for" };
                let rest = if answer.configured { "; the configuration lists it" } else { "" };
                writeln!(out, "{done} {target}{rest}")
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
