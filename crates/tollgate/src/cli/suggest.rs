//! `tollgate suggest`: limits that would affect few clients, judging by a log.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tollgate_core::key::check_field_name;
use tollgate_replay::choose::Wishes;
use tollgate_replay::feed::{Feed, Refused};
use tollgate_replay::report::percent as in_percent;
use tollgate_replay::suggest::{Peaks, PeriodPeaks, Suggestion};

use super::replay::{Logs, open_all, percent};
use crate::command::words::number;

/// What to count by, and how careful to be.
#[derive(Args, Clone, Debug)]
pub struct Suggest {
    /// The fields that make a client: `ip`, `user`, or `user,ip`
    #[arg(long, value_name = "FIELDS", default_value = "ip", value_delimiter = ',', value_parser = field)]
    by: Vec<String>,
    /// The share of clients that the limits may affect together
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    share: f64,
    /// How the logs are read.
    #[command(flatten)]
    logs: Logs,
    /// Leave out requests that were refused when they were logged (429 and 503)
    #[arg(long)]
    skip_refused: bool,
    /// Print JSON instead of configuration
    #[arg(long)]
    json: bool,
}

pub(super) const HELP: &str = "\
suggest counts what each client asks for at its busiest second, minute and hour, and prints a rule with the
lowest limits that together affect at most --share of the clients. Try it with `tollgate replay` before you use it.
A count is never too low, and less than a sixteenth too high. Lines that are further out of order than --reorder are left
out and reported.

Examples:
  tollgate suggest --by ip /var/log/nginx/access.log
  tollgate suggest --by user --share 0.1% --map user=remote_user access.log.*.gz

Exit codes: 0 done, 2 an error.";

impl Suggest {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let mut wishes = Wishes::default();
        let peaks = Peaks::new(&self.by, &mut wishes);
        let refused = if self.skip_refused { Refused::Skipped } else { Refused::Replayed };
        let opened = open_all(self.logs.files())?;
        let mut feed = Feed::open(opened.logs, &self.logs.reading(refused), &wishes.list)?;
        let suggestion = peaks.run(&mut feed, self.share);
        opened.bar.finish_and_clear();
        let suggestion = suggestion?;
        if self.json {
            super::check_config::print_json(&self.as_json(&suggestion), out)?;
        } else {
            self.print(&suggestion, out)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, suggestion: &Suggestion, out: &mut dyn Write) -> std::io::Result<()> {
        let Suggestion { account, requests, clients, one_of, .. } = suggestion;
        let (requests, counted) = (number(*requests), number(*clients));
        writeln!(out, "# {requests} requests of {counted} clients, by {}", self.by.join(" and "))?;
        if *one_of > 1 {
            writeln!(out, "# There are too many clients to count all: these are one in {one_of} of them.")?;
        }
        if account.unreadable > 0 {
            writeln!(
                out,
                "# {} of {} lines are unreadable.",
                number(account.unreadable),
                number(account.lines)
            )?;
        }
        if account.late > 0 {
            writeln!(
                out,
                "# {} of {} lines are further out of order than --reorder and are left out: sort the log, or raise --reorder.",
                number(account.late),
                number(account.lines)
            )?;
        }
        if suggestion.without > 0 {
            writeln!(out, "# {} requests have no client.", number(suggestion.without))?;
        }
        writeln!(out, "#\n# The most that a client asks for in any:")?;
        writeln!(out, "#   {:8}{:>10}{:>10}{:>10}{:>10}", "", "p50", "p95", "p99", "max")?;
        for peaks in &suggestion.periods {
            let cells = [peaks.p50, peaks.p95, peaks.p99, peaks.max].map(number);
            let [p50, p95, p99, max] = cells;
            writeln!(out, "#   {:8}{p50:>10}{p95:>10}{p99:>10}{max:>10}", in_words(peaks))?;
        }
        if !suggestion.periods.iter().any(|peaks| peaks.covered) {
            return writeln!(out, "# The log is too short for any limit.");
        }
        let by =
            if let [only] = self.by.as_slice() { only.clone() } else { format!("[{}]", self.by.join(", ")) };
        for peaks in suggestion.periods.iter().filter(|peaks| !peaks.covered) {
            writeln!(out, "# The log is shorter than one {}, so there is no limit for it.", in_words(peaks))?;
        }
        writeln!(
            out,
            "#\n# Together the limits affect {} of the clients, at most {}.",
            in_percent(suggestion.affected, *clients),
            in_percent_of(self.share)
        )?;
        writeln!(out, "rules:\n  client:\n    by: {by}\n    limits:")?;
        for peaks in suggestion.periods.iter().filter(|peaks| peaks.covered) {
            let above = in_percent(peaks.above, *clients);
            writeln!(out, "      - {}  # {} of the clients ask for more", limit(peaks), above)?;
        }
        writeln!(out, "    on_exceed: observe\npolicies:\n  api: [client]")
    }

    fn as_json(&self, suggestion: &Suggestion) -> Value {
        let periods: Vec<Value> = suggestion
            .periods
            .iter()
            .map(|peaks| {
                json!({
                    "period": peaks.period,
                    "p50": peaks.p50,
                    "p95": peaks.p95,
                    "p99": peaks.p99,
                    "max": peaks.max,
                    "limit": limit(peaks),
                    "clients_above": peaks.above,
                    "covered": peaks.covered,
                })
            })
            .collect();
        json!({
            "lines": suggestion.account.lines,
            "unreadable": suggestion.account.unreadable,
            "late": suggestion.account.late,
            "requests": suggestion.requests,
            "clients": suggestion.clients,
            "clients_affected": suggestion.affected,
            "one_of": suggestion.one_of,
            "by": self.by,
            "share": self.share,
            "periods": periods,
        })
    }
}

fn field(text: &str) -> Result<String, String> {
    check_field_name(text).map(|()| text.to_owned())
}

fn limit(peaks: &PeriodPeaks) -> String {
    format!("{}/{}", peaks.limit.max(1), peaks.period)
}

fn in_words(peaks: &PeriodPeaks) -> &'static str {
    match peaks.period {
        "s" => "second",
        "min" => "minute",
        period => period,
    }
}

fn in_percent_of(share: f64) -> String {
    let percent = share * 100.0;
    format!("{} %", (percent * 1e6).round() / 1e6)
}
