//! `tollgate replay`: decides the lines of a log again, by a configuration that is not in force yet.

mod opening;
mod printing;
mod zstd;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use tollgate_core::{Clock as _, Policies, Span};
use tollgate_replay::choose::{Choosing, RouteChoice, Strictness, Wishes};
use tollgate_replay::feed::{Feed, Reading, Refused};
use tollgate_replay::layout::Mapping;
use tollgate_replay::log::format::Taken;
use tollgate_replay::replay::{Outcome, Replay as Run, Setup};
use tollgate_replay::report::{self, Titles};
use tollgate_store::SystemClock;

use super::ConfigFile;
use super::output::{Existing, Output};
use crate::command::duration;
use crate::command::words::number;
use crate::config::memory::FALLBACK_KEYS;
use crate::config::{self, Config, StoreConfig};
use opening::Opened;
pub(super) use opening::open_all;

/// What to replay, and what to print.
#[derive(Args, Clone, Debug)]
pub struct Replay {
    /// The configuration file (.yaml, .yml or .toml). By default tollgate.yaml, tollgate.yml or tollgate.toml
    /// in the working directory, or else the built-in starter
    #[arg(short, long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,
    /// Another configuration, to compare with: which attempts are newly denied or newly allowed
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// The policy of all attempts. By default that of the gateway's routes, or the only one
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// How the logs are read.
    #[command(flatten)]
    logs: Logs,
    /// Skip rules whose fields the log lacks, as the server does for such attempts, instead of failing
    #[arg(long)]
    skip_missing: bool,
    /// Leave out requests that were refused when they were logged (429 and 503)
    #[arg(long)]
    skip_refused: bool,
    /// Also replay this rule at 0.5, 2 and 4 times its numbers
    #[arg(long, value_name = "RULE")]
    curve: Option<String>,
    /// How many keys to list. Default: 10, or all recorded keys with --json
    #[arg(long, value_name = "NUMBER")]
    top: Option<usize>,
    /// Write a report with charts to this HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Replace the report if it exists
    #[arg(long, requires = "report")]
    force: bool,
    /// Exit with 1 if more than this share of the attempts is denied. Without any attempt it is an error
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_if_denied: Option<f64>,
    /// Print JSON instead of words
    #[arg(long)]
    json: bool,
}

/// How logs are read.
#[derive(Args, Clone, Debug)]
pub(super) struct Logs {
    /// The logs, plain or compressed with gzip or zstd; `-` is standard input
    #[arg(value_name = "LOG", required = true)]
    files: Vec<PathBuf>,
    /// combined, common, vhost, json, caddy, envoy, alb, postfix, or a `log_format` of nginx or `LogFormat` of Apache.
    /// By default it is recognised
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// The column of a field, of `time` or of `duration`: `user=remote_user`, `duration=took:ms`. With a second `=`, a
    /// constant: `host==shop.example`
    #[arg(long, value_name = "FIELD=COLUMN", value_parser = Mapping::parse)]
    map: Vec<Mapping>,
    /// Whether a line's time is the `start` or the `end` of the request; by default, decided by the column's name
    #[arg(long, value_name = "WHEN", hide_possible_values = true)]
    stamp: Option<Stamp>,
    /// The time zone of times without one. By default UTC
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    zone: Option<jiff::tz::TimeZone>,
    /// How far lines may be out of order
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    reorder: Span,
}

/// When a log takes its times.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stamp {
    /// When a request begins
    Start,
    /// When it has ended
    End,
}

pub(super) const HELP: &str = "\
replay reads logs, and lets the engine decide every line again, on a virtual clock. It needs no server, opens
no store, and changes nothing. If the log has whole seconds, the lines of each second are spread evenly over
it. If a line's time is the end of the request, replay subtracts the duration, if the log has one.

A field of a rule is taken from the usual column of its name: ip from the client's address, path, method, host,
user, user_agent, status; for mail logs: sender, recipient and domain. --map names another column.

Examples:
  tollgate replay --config new.yaml /var/log/nginx/access.log
  tollgate replay --config new.yaml --against old.yaml --report report.html access.log.2.gz access.log.1
  tollgate replay --policy api --map user=http_x_user --format '$remote_addr [$time_local] \"$request\" $http_x_user' -
  tollgate replay --policy api --curve client --fail-if-denied 0.1% --json access.log

Exit codes: 0 done, 1 more was denied than --fail-if-denied allows, 2 an error, or --fail-if-denied without attempts.";

/// More was denied than `--fail-if-denied` allows.
const TOO_MANY: u8 = 1;

impl Replay {
    pub(super) fn run(
        self,
        environment: &[(String, String)],
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode> {
        let path = ConfigFile { path: None, config: self.config.clone() }.find()?;
        let config = load(path.as_deref(), environment)?;
        let against = self.against.as_deref().map(|path| load(Some(path), environment)).transpose()?;
        let output = self.report.as_deref().map(|file| self.report_at(file, path.as_deref()));
        // A name that cannot be used is told before hours of reading.
        output.as_ref().map_or(Ok(()), Output::check)?;
        let opened = open_all(&self.logs.files)?;
        let names = opened.names.clone();
        let outcome = self.replay(&config, against.as_ref(), opened)?;
        let titles = Titles {
            logs: names,
            config: path.as_ref().map_or_else(|| "(starter)".to_owned(), |path| path.display().to_string()),
            against: self.against.as_ref().map(|path| path.display().to_string()),
            notes: notes(&config, &outcome),
        };
        if let Some(output) = &output {
            output.write(&report::html(&outcome, &titles))?;
        }
        if self.json {
            super::check_config::print_json(&printing::as_json(&outcome, &titles, self.top), out)?;
        } else {
            printing::print(&outcome, &titles, self.top, out)?;
        }
        self.judge(&outcome)
    }

    /// The file of the report, which is none of those that are read.
    fn report_at<'p>(&'p self, file: &'p Path, config: Option<&'p Path>) -> Output<'p> {
        let logs = self.logs.files.iter().map(|log| (&**log, "one of the logs"));
        let configs = config.into_iter().chain(self.against.as_deref());
        let inputs = logs.chain(configs.map(|path| (path, "the configuration"))).collect();
        let existing = if self.force { Existing::Replaced } else { Existing::Kept };
        Output { path: file, inputs, existing }
    }

    /// The exit code that `--fail-if-denied` asks for.
    fn judge(&self, outcome: &Outcome) -> anyhow::Result<ExitCode> {
        let Some(most) = self.fail_if_denied else { return Ok(ExitCode::SUCCESS) };
        if outcome.tally.attempts == 0 {
            let (lines, unreadable) = (outcome.account.lines, outcome.account.unreadable);
            bail!("--fail-if-denied: there was no attempt to decide: {lines} lines, {unreadable} unreadable");
        }
        let too_many = outcome.tally.denied_share() > most;
        Ok(if too_many { ExitCode::from(TOO_MANY) } else { ExitCode::SUCCESS })
    }

    fn replay(&self, config: &Config, against: Option<&Config>, opened: Opened) -> anyhow::Result<Outcome> {
        let mut wishes = Wishes::default();
        // The client and the user are counted, whether or not a rule needs them.
        wishes.add("ip", None);
        wishes.add("user", None);
        let setup = self.setup(config, &mut wishes)?;
        let other = against.map(|config| self.setup(config, &mut wishes)).transpose()?;
        wishes.add("sender", None);
        let refused = if self.skip_refused { Refused::Skipped } else { Refused::Replayed };
        let reading = self.logs.reading(refused);
        let mut feed = Feed::open(opened.logs, &reading, &wishes.list)?;
        let mut run = Run::new(setup.clone(), &wishes).map_err(|error| anyhow!("{error}"))?;
        if let Some(rule) = &self.curve {
            run = run.with_curve(&setup, rule, &wishes).with_context(|| format!("--curve {rule}"))?;
        }
        if let Some(other) = other {
            run = run.against(other, &wishes).map_err(|error| anyhow!("{error}"))?;
        }
        let outcome = run.run(&mut feed, &mut |_| {});
        opened.bar.finish_and_clear();
        Ok(outcome?)
    }

    /// How a configuration is replayed. Adds the fields that it needs to the wishes.
    fn setup(&self, config: &Config, wishes: &mut Wishes) -> anyhow::Result<Setup> {
        let policies = without_rows(&config.policies);
        let choosing = match (&self.policy, &config.gateway) {
            (Some(name), _) => Choosing::Policy(Arc::clone(&policies.find(name)?.name)),
            (None, Some(gateway)) => {
                let routes = RouteChoice::new(&gateway.routes, wishes)?;
                Choosing::Routes(Box::new(routes))
            }
            (None, None) => Choosing::Policy(only_policy(&policies)?),
        };
        let strictness = if self.skip_missing { Strictness::SkipRules } else { Strictness::AllFields };
        wishes.add_policies(&policies, &choosing, strictness, &config.clients.aliases);
        Ok(Setup { policies, max_keys: max_keys(config), choosing: Arc::new(choosing) })
    }
}

impl Logs {
    /// The logs to open.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// How they are read.
    pub(super) fn reading(&self, refused: Refused) -> Reading {
        Reading {
            format: self.format.clone(),
            mappings: self.map.clone(),
            taken: self.stamp.map(|stamp| match stamp {
                Stamp::Start => Taken::AtStart,
                Stamp::End => Taken::AtEnd,
            }),
            zone: self.zone.clone(),
            reorder: self.reorder,
            now: SystemClock::new().now(),
            refused,
        }
    }
}

/// How many keys a replay counts. A shared store has no such bound, so it is what a node counts during an outage.
fn max_keys(config: &Config) -> usize {
    match &config.store {
        StoreConfig::Memory { max_keys } | StoreConfig::File { max_keys, .. } => *max_keys,
        StoreConfig::Redis(_) | StoreConfig::Postgres(_) => FALLBACK_KEYS,
    }
}

fn load(path: Option<&Path>, environment: &[(String, String)]) -> anyhow::Result<Config> {
    Ok(config::load(path, environment.iter().cloned())?)
}

/// The policies with every rule switched off that counts rows of a database: replay opens none.
fn without_rows(policies: &Policies) -> Policies {
    let rows: Vec<_> = policies.rules().iter().filter(|rule| rule.rows.is_some()).cloned().collect();
    rows.iter().fold(policies.clone(), |policies, rule| {
        let off = tollgate_core::Rule { enabled: false, rows: None, ..tollgate_core::Rule::clone(rule) };
        policies.with_rule(off)
    })
}

fn only_policy(policies: &Policies) -> anyhow::Result<Arc<str>> {
    let names: Vec<&Arc<str>> = policies.iter().map(|policy| &policy.name).collect();
    match names.as_slice() {
        [] => bail!("the configuration has no policy"),
        [only] => Ok(Arc::clone(only)),
        several => {
            let names: Vec<&str> = several.iter().map(|name| &***name).collect();
            bail!("the configuration has several policies: choose one with --policy: {}", names.join(", "))
        }
    }
}

/// What a reader should know of the figures.
fn notes(config: &Config, outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    let account = &outcome.account;
    if account.whole_seconds {
        notes.push("The log has whole seconds. Its requests are spread evenly over each second, so limits on shorter times are estimates.".to_owned());
    }
    if !account.durations && config.policies.rules().iter().any(|rule| rule.plan.in_flight().is_some()) {
        notes.push("The log has no durations, so requests end when they begin, and limits on requests at once never deny.".to_owned());
    }
    if let Some(at) = outcome.last_eviction {
        let (keys, at) = (number(max_keys(config) as u64), report::time(at));
        notes.push(format!("There was room for {keys} keys only. Counters were evicted to make room, last at {at}, and their keys started anew, so the denials may be too low."));
    }
    if config.policies.rules().iter().any(|rule| rule.rows.is_some()) {
        notes.push("Rules that count rows of a database are switched off.".to_owned());
    }
    if config.gateway.as_ref().is_some_and(|gateway| gateway.routes.iter().any(|route| route.guard.is_some()))
    {
        notes.push("Guards are not replayed: a log does not tell which account a login was for.".to_owned());
    }
    if outcome.tally.denied > 0 {
        notes.push("Clients would have acted differently if they had been denied: some give up, some try again at once.".to_owned());
    }
    notes
}

fn zone(text: &str) -> Result<jiff::tz::TimeZone, String> {
    jiff::tz::TimeZone::get(text)
        .map_err(|_| format!("there is no time zone `{text}`: write `Europe/Berlin`"))
}

/// A share: `0.1%`.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share = number.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent / 100.0);
    share.ok_or_else(|| "write a share in per cent, as in `0.1%`".to_owned())
}
