//! `tollgate bench`: puts load on a server and measures its answers.

mod attempts;
mod connection;
mod load;
mod progress;
mod report;
mod worker;

use std::process::ExitCode;

use clap::Args;
use tollgate_core::Span;

use self::attempts::{Attempts, Source};
use self::load::{Bound, Load};
use super::{Format, Session, duration};
use crate::client::Path;

/// The load.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    /// The policy that the attempts pass
    #[arg(long, value_name = "NAME", default_value = "api")]
    policy: String,
    /// A field of the attempts: `name=value`, or `name=@N` for N distinct random values
    #[arg(long = "field", value_name = "NAME=VALUE", value_parser = attempts::source)]
    fields: Vec<(String, Source)>,
    /// How many connections ask at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    /// How long to ask
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, conflicts_with = "requests")]
    duration: Span,
    /// How many requests to send, however long it takes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// How many attempts one request carries
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    batch: u8,
}

const EXAMPLES: &str = "\
Examples:
  tollgate bench --policy api --field ip=@1000
  tollgate bench --policy login --field user=ada --field ip=@50 --requests 10000
  tollgate bench --field ip=@100000 --connections 32 --batch 100 --duration 30s --json

Every connection sends its next request when the last one is answered. The attempts are real: they are
charged. Ctrl-C ends it early and prints what there is.
Exit codes: 0 measured, 2 an error, or no request was answered.";

impl Bench {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let attempts = Attempts::new(&self.policy, &self.fields, self.batch);
        // One attempt that takes nothing tells what is wrong before anything is flooded.
        session.client.post(&Path::new(&["check"]), &attempts.rehearsal())?;
        let bound = self.requests.map_or(Bound::Time(self.duration.into()), Bound::Requests);
        let load = Load { client: session.client.clone(), attempts, connections: self.connections, bound };
        let report = load.run()?;
        match session.format {
            Format::Json => writeln!(session.out, "{:#}", report.as_json(self, session.client.server()))?,
            Format::Words => session.say(report.to_string().as_bytes())?,
        }
        Ok(if report.tally.answered() > 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::cli::WRONG) })
    }
}
