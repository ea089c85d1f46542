//! `tollgate bench`: puts load on a server and measures its responses.

mod attempts;
mod connection;
mod load;
mod progress;
mod report;
mod worker;

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use tollgate_core::Span;

use self::attempts::{Attempts, FieldValues};
use self::load::{Bound, Load};
use super::{OutputFormat, Session, duration, plain};
use crate::client::wire::Configuration;
use crate::client::{Fault, Path};

/// The load.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    /// The policy to check; by default the only one of the server, or `api`
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// A field of the attempts: `name=value`, or `name=@N` for N distinct random values
    #[arg(long = "field", value_name = "NAME=VALUE", value_parser = attempts::source)]
    fields: Vec<(String, FieldValues)>,
    /// How many connections to use
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    /// How long to send requests
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, conflicts_with = "requests")]
    duration: Span,
    /// Send this many requests, however long it takes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// How many attempts to send in one request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    batch: u8,
}

/// The remedy if no policy can be guessed.
const WHICH: &str = "name a policy with --policy";

/// The policy of the starter configuration that suits a load.
const STARTERS: &str = "api";

const EXAMPLES: &str = "\
Examples:
  tollgate bench --policy api --field ip=@1000
  tollgate bench --policy login --field user=ada --field ip=@50 --requests 10000
  tollgate bench --field ip=@100000 --connections 32 --batch 100 --duration 30s --json

Each connection sends its next request when the last one is answered. The attempts are real: they are
charged. Ctrl-C stops early and prints the results so far.
Exit codes: 0 measured, 2 an error, or no request was answered.";

impl Bench {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let policy = match &self.policy {
            Some(policy) => policy.clone(),
            None => usual_policy(session)?,
        };
        let attempts = Attempts::new(&policy, &self.fields, self.batch);
        // One dry run reports an error before the load starts.
        session.client.post(&Path::new(&["check"]), &attempts.rehearsal())?;
        let bound = self.requests.map_or(Bound::Time(self.duration.into()), Bound::Requests);
        let load = Load { client: session.client.clone(), attempts, connections: self.connections, bound };
        let report = load.run()?;
        match session.format {
            OutputFormat::Json => {
                writeln!(session.out, "{:#}", report.as_json(self, &policy, session.client.server()))?
            }
            OutputFormat::Words => session.say(report.to_string().as_bytes())?,
        }
        Ok(if report.tally.answered() > 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::cli::WRONG) })
    }
}

/// The policy if none is given: the only one of the server, or the starter's.
fn usual_policy(session: &Session<'_>) -> anyhow::Result<String> {
    let answer = match session.client.get(&Path::new(&["counters"])) {
        Err(fault @ Fault::Refused { .. }) => return Err(anyhow::Error::new(fault).context(WHICH)),
        answer => answer?,
    };
    let Configuration { policies, .. } = answer.read(session.client.server())?;
    let names: Vec<&str> = policies.keys().map(String::as_str).collect();
    match &*names {
        [] => bail!("{WHICH}: the server has none"),
        [only] => Ok((*only).to_owned()),
        _ if names.contains(&STARTERS) => Ok(STARTERS.to_owned()),
        _ => bail!("{WHICH}: the server has {}", plain(&names.join(", "))),
    }
}
