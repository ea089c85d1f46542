//! The command line.
//!
//! Exit codes: 0 done or allowed, 1 denied (or warnings of `doctor`), 2 an error: in the arguments, in the
//! configuration (with `check-config --strict` also a warning), or in the communication with the server.

mod check_config;
mod doctor;
mod import;
mod init;
mod output;
mod relay;
mod replay;
mod suggest;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::command::{OutputFormat, Remote, pages, plain};
use check_config::Strictness;

pub(crate) use check_config::{explained, store_in_words};

/// A rate limiter for HTTP APIs, mail, logins and outbound calls.
#[derive(Clone, Debug, Parser)]
#[command(name = "tollgate", version, after_help = VARIABLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The error of a command line, without an address of a server that may have a password or a token in it.
pub fn without_secrets(mut error: clap::Error) -> clap::Error {
    let is_server = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(argument)) if argument.starts_with("--server")
    );
    let may_be_secret = matches!(
        error.get(ContextKind::InvalidValue),
        Some(ContextValue::String(value)) if !is_host_and_port(value)
    );
    if is_server && may_be_secret {
        error.insert(ContextKind::InvalidValue, ContextValue::String("***".to_owned()));
    }
    error
}

/// Whether a text is a host and perhaps a port, which is how most wrong addresses of a server look.
fn is_host_and_port(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "0"));
    let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    is_host && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where the configuration is.
#[derive(Args, Clone, Debug)]
pub struct ConfigFile {
    /// The configuration file; takes precedence over --config
    #[arg(value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// The configuration file (.yaml, .yml or .toml). By default tollgate.yaml, tollgate.yml or tollgate.toml
    /// in the working directory, or else the built-in starter
    #[arg(short, long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The files that are searched for in the working directory.
const USUAL: [&str; 3] = ["tollgate.yaml", "tollgate.yml", "tollgate.toml"];

impl ConfigFile {
    /// The named file, or the usual one in the working directory; `None` for the starter.
    fn find(self) -> anyhow::Result<Option<PathBuf>> {
        if let Some(named) = self.path.or(self.config) {
            return Ok(Some(named));
        }
        let usual: Vec<&str> = USUAL.into_iter().filter(|name| Path::new(name).exists()).collect();
        match usual.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.into())),
            several => {
                anyhow::bail!("found {} here: choose one, as in `-c {}`", several.join(" and "), several[0])
            }
        }
    }
}

/// The configuration to check, and the form of the output.
#[derive(Args, Clone, Debug)]
pub struct Checked {
    /// Where the configuration is.
    #[command(flatten)]
    pub file: ConfigFile,
    /// Print JSON instead of words
    #[arg(long)]
    pub json: bool,
}

/// What `check-config` looks at, and how strictly.
#[derive(Args, Clone, Debug)]
pub struct CheckConfig {
    /// Where the configuration is, and in which form to answer.
    #[command(flatten)]
    pub checked: Checked,
    /// Fail if there are warnings
    #[arg(long)]
    pub strict: bool,
}

/// What can be done.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the server until it receives a signal
    #[command(after_help = SERVE)]
    Serve(ConfigFile),
    /// Write a commented configuration to start with
    #[command(after_help = init::HELP)]
    Init(init::Init),
    /// Check the configuration and explain each rule in words
    #[command(after_help = check_config::HELP)]
    CheckConfig(CheckConfig),
    /// Check the configured store and report problems
    #[command(after_help = doctor::HELP)]
    Doctor(Checked),
    /// Translate the configuration of another rate limiter
    #[command(after_help = import::HELP)]
    Import(import::Import),
    /// Replay a log under a configuration, and show which clients would be denied
    #[command(after_help = replay::HELP)]
    Replay(Box<replay::Replay>),
    /// Suggest limits from a log
    #[command(after_help = suggest::HELP)]
    Suggest(Box<suggest::Suggest>),
    /// Prepare the settings of the mail relay
    Relay(relay::RelayTools),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// What is asked of a running server.
    #[command(flatten)]
    Remote(Box<Remote>),
    /// Print shell completions
    Completions(pages::Completions),
    /// Print the manual page, or write one page per command
    Man(pages::Manual),
}

const VARIABLES: &str = "\
Every setting can be overridden by an environment variable, whose value is YAML:
  TOLLGATE__LISTEN__HTTP=127.0.0.1:9090
  TOLLGATE__RULES__CLIENT__LIMITS='[5/s burst 10]'

Exit codes: 0 done or allowed, 1 denied, or as the command's help says, 2 an error.";

const SERVE: &str = "\
Without FILE, the server uses tollgate.yaml, tollgate.yml or tollgate.toml in the working directory, or
else the built-in starter on http://127.0.0.1:8080, with its counters in ./tollgate.redb. It prints the
configuration file, the store, the listeners, and a request to try.

The server reloads its configuration on SIGHUP, on `tollgate reload`, and when the file changes. Counters
are kept.
On SIGTERM or Ctrl-C the server answers requests in flight, saves its counters and ends. A second signal
ends it immediately.

Examples:
  tollgate serve
  tollgate serve /etc/tollgate/tollgate.yaml
  tollgate serve -c tollgate.toml";

/// The arguments or the configuration are invalid, or the server could not be asked.
pub(crate) const WRONG: u8 = 2;

/// Runs the command in the arguments, with the given environment.
pub fn run(
    cli: Cli,
    environment: Vec<(String, String)>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let done = match cli.command {
        Command::CheckConfig(CheckConfig { checked: Checked { file, json }, strict }) => {
            let format = if json { OutputFormat::Json } else { OutputFormat::Words };
            let strictness = if strict { Strictness::Strict } else { Strictness::Lenient };
            check_config::run(file.find()?.as_deref(), environment, (format, strictness), out, err)
                .map_err(Into::into)
        }
        Command::Doctor(Checked { file, json }) => {
            let format = if json { OutputFormat::Json } else { OutputFormat::Words };
            doctor::run(file.find()?.as_deref(), environment, format, out, err)
        }
        Command::Serve(file) => crate::serve::run(file.find()?, environment, out).map(|()| ExitCode::SUCCESS),
        Command::Init(init) => init.run(out),
        Command::Import(import) => import.run(out, err),
        Command::Replay(replay) => replay.run(&environment, out),
        Command::Suggest(suggest) => suggest.run(out),
        Command::Relay(relay) => relay.run(out, err),
        Command::Schema => print_schema(out).map_err(Into::into),
        Command::Remote(remote) => remote.run(&environment, out),
        Command::Completions(completions) => completions.run(Cli::command(), out).map_err(Into::into),
        Command::Man(manual) => manual.run(Cli::command(), out),
    };
    match done {
        // The reader of the output, such as `head`, has closed it.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        done => done,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn print_schema(out: &mut dyn Write) -> io::Result<ExitCode> {
    writeln!(out, "{:#}", crate::config::schema())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints why the command failed. The text may contain data of a server, so control characters are removed.
pub fn fail(error: &anyhow::Error, err: &mut dyn Write) -> ExitCode {
    let bad = anstyle::AnsiColor::Red.on_default().bold();
    let text: Vec<String> = format!("{error:#}").lines().map(plain).collect();
    // If standard error is closed, the exit code still reports the failure.
    let _ = writeln!(err, "{bad}error:{bad:#} {}", text.join("\n"));
    ExitCode::from(WRONG)
}
