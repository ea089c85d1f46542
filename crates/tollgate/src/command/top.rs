//! `tollgate top`: the busiest and the most denied keys, live, of one node or of all.

mod rates;
mod sampler;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Args;
use tollgate_core::Span;

use self::sampler::Sampler;
use self::view::{KeyChoice, View};
use super::{OutputFormat, Session, duration};
use crate::client::{Path, wire};

/// How to watch.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Top {
    /// How often to refresh
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    interval: Span,
    /// Print one interval and exit; the default if the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Show at most this many denied keys
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Show all nodes that share the store; they report every 5 seconds
    #[arg(long)]
    all_nodes: bool,
    /// Show the keys nearest to their limits instead of the busiest and the denied ones
    #[arg(long)]
    near: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate top
  tollgate top --interval 5s
  tollgate top --all-nodes
  tollgate top --near --once
  tollgate top --once | head

On a terminal, press q or Ctrl-C to quit. With --json it prints the server's totals once.
Exit codes: 0 shown, 2 an error.";

impl Top {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        if session.format == OutputFormat::Json {
            let answer = session.client.get(&self.path())?;
            session.show(&answer, |_: &wire::Top, _| Ok(()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let server = session.client.server().to_string();
        let samples = Sampler::start(session.client.clone(), self.interval.into(), self.path());
        if self.once || !io::stdout().is_terminal() {
            let (before, after) = (samples.next()?, samples.next()?);
            let view = View { server: &server, keys: self.keys() };
            session.say(view.page(&rates::between(&before, &after), &after).as_bytes())?;
        } else {
            screen::watch(&View { server: &server, keys: self.keys() }, self.interval, &samples)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn keys(&self) -> KeyChoice {
        if self.near { KeyChoice::Near } else { KeyChoice::Busy }
    }

    /// The path of the totals.
    fn path(&self) -> Path {
        let limit = self.limit.to_string();
        let nodes = self.all_nodes.then_some(("nodes", "all"));
        Path::new(&["top"]).with_query([("limit", limit.as_str())].into_iter().chain(nodes))
    }
}
