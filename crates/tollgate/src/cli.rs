//! The command line: what can be asked of the program.
//!
//! Exit codes: 0 done, 1 something failed that is nobody's configuration, 2 the arguments or the
//! configuration are wrong.

mod check_config;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A rate limiter for everything a team runs.
#[derive(Clone, Debug, Parser)]
#[command(name = "tollgate", version, after_help = VARIABLES)]
pub struct Cli {
    /// The configuration file (.yaml, .yml or .toml); the built-in starter if there is none
    #[arg(long, global = true, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check the configuration and say in words what each rule bounds
    CheckConfig {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
}

const VARIABLES: &str = "\
Every setting can be overridden by an environment variable, whose value is YAML:
  TOLLGATE__LISTEN__HTTP=127.0.0.1:9090
  TOLLGATE__RULES__CLIENT__LIMITS='[5/s burst 10]'";

/// The configuration, or the arguments, cannot be used.
const WRONG: u8 = 2;

/// Does what the arguments say, with the given environment.
pub fn run(
    cli: Cli,
    environment: Vec<(String, String)>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let done = match cli.command {
        Command::CheckConfig { json } => {
            let format = if json { check_config::Format::Json } else { check_config::Format::Words };
            check_config::run(cli.config.as_deref(), environment, format, out, err)
        }
        Command::Schema => print_schema(out),
    };
    match done {
        // Whoever read the output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        done => Ok(done?),
    }
}

fn print_schema(out: &mut dyn Write) -> io::Result<ExitCode> {
    writeln!(out, "{:#}", crate::config::schema())?;
    Ok(ExitCode::SUCCESS)
}
