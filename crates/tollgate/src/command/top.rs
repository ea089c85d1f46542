//! `tollgate top`: the busiest and the most denied keys, live.

mod rates;
mod sampler;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Args;
use tollgate_core::Span;

use self::sampler::Sampler;
use super::{Format, Session, duration};
use crate::client::wire;

/// How to watch.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Top {
    /// How often to refresh
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    interval: Span,
    /// Print one interval and exit; the default if the output is no terminal
    #[arg(long)]
    once: bool,
    /// Show at most this many denied keys
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

const EXAMPLES: &str = "\
Examples:
  tollgate top
  tollgate top --interval 5s
  tollgate top --once | head

On a terminal, press q or Ctrl-C to quit. With --json it prints the server's totals once.
Exit codes: 0 shown, 2 an error.";

impl Top {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        if session.format == Format::Json {
            let answer = session.client.get(&sampler::path(self.limit))?;
            session.show(&answer, |_: &wire::Top, _| Ok(()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let server = session.client.server().to_string();
        let samples = Sampler::start(session.client.clone(), self.interval.into(), self.limit);
        if self.once || !io::stdout().is_terminal() {
            let (before, after) = (samples.next()?, samples.next()?);
            let page = view::page(&server, &rates::between(&before, &after), &after.top, &after.lanes);
            session.say(page.as_bytes())?;
        } else {
            screen::watch(&server, self.interval, &samples)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
