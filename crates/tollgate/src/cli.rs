//! The command line: what can be asked of the program.
//!
//! Exit codes: 0 done or allowed, 1 denied (or warnings of `doctor`), 2 an error: in the arguments, in the configuration, or on
//! the way to the server.

mod check_config;
mod doctor;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::command::{Remote, pages, plain};
use check_config::Format;

/// A rate limiter for everything a team runs.
#[derive(Clone, Debug, Parser)]
#[command(name = "tollgate", version, after_help = VARIABLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the configuration is.
#[derive(Args, Clone, Debug)]
pub struct ConfigFile {
    /// The configuration file (.yaml, .yml or .toml); the built-in starter if there is none
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Where the configuration is that is looked at, and for whom.
#[derive(Args, Clone, Debug)]
pub struct Checked {
    /// The configuration file, as with --config
    #[arg(value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// Where the configuration is.
    #[command(flatten)]
    pub file: ConfigFile,
    /// Print JSON instead of words
    #[arg(long)]
    pub json: bool,
}

/// What can be done.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Serve: decide attempts over HTTP until told to end
    #[command(after_help = SERVE)]
    Serve(ConfigFile),
    /// Check the configuration and say in words what each rule bounds
    CheckConfig(Checked),
    /// Look at the configured store itself, and say what is wrong with it
    #[command(after_help = doctor::HELP)]
    Doctor(Checked),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// What is asked of a running server.
    #[command(flatten)]
    Remote(Box<Remote>),
    /// Print a script that completes commands and options in a shell
    Completions(pages::Completions),
    /// Print the manual page, or write the pages of all commands
    Man(pages::Manual),
}

const VARIABLES: &str = "\
Every setting can be overridden by an environment variable, whose value is YAML:
  TOLLGATE__LISTEN__HTTP=127.0.0.1:9090
  TOLLGATE__RULES__CLIENT__LIMITS='[5/s burst 10]'

Exit codes: 0 done or allowed, 1 denied, 2 an error.";

const SERVE: &str = "\
Without --config it serves the built-in starter on http://127.0.0.1:8080, with its counters in
./tollgate.redb, and prints a request to try.

SIGHUP, a changed file, and `tollgate reload` put changed rules, policies and keys in force;
counters stay.
SIGTERM and Ctrl-C end it: open requests are answered, counters are saved. A second one ends it
at once.

Example:
  tollgate serve --config tollgate.yaml";

/// The arguments or the configuration cannot be used, or the server cannot be asked.
pub(crate) const WRONG: u8 = 2;

/// Does what the arguments say, with the given environment.
pub fn run(
    cli: Cli,
    environment: Vec<(String, String)>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let done = match cli.command {
        Command::CheckConfig(Checked { path, file, json }) => {
            let format = if json { Format::Json } else { Format::Words };
            check_config::run(path.or(file.config).as_deref(), environment, format, out, err)
                .map_err(Into::into)
        }
        Command::Doctor(Checked { path, file, json }) => {
            let format = if json { Format::Json } else { Format::Words };
            doctor::run(path.or(file.config).as_deref(), environment, format, out, err)
        }
        Command::Serve(file) => crate::serve::run(file.config, environment, out).map(|()| ExitCode::SUCCESS),
        Command::Schema => print_schema(out).map_err(Into::into),
        Command::Remote(remote) => remote.run(&environment, out),
        Command::Completions(completions) => completions.run(Cli::command(), out).map_err(Into::into),
        Command::Man(manual) => manual.run(Cli::command(), out),
    };
    match done {
        // Whoever read the output has seen enough.
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

/// Says why it failed. What a server sent may be part of it, so it must not act on a terminal.
pub fn fail(error: &anyhow::Error, err: &mut dyn Write) -> ExitCode {
    let bad = anstyle::AnsiColor::Red.on_default().bold();
    let text: Vec<String> = format!("{error:#}").lines().map(plain).collect();
    // Where standard error is closed, the exit code says it alone.
    let _ = writeln!(err, "{bad}error:{bad:#} {}", text.join("\n"));
    ExitCode::from(WRONG)
}
