//! Starts the program: the one place that reads the real arguments and environment.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tollgate::cli::{self, Cli};

fn main() -> anyhow::Result<ExitCode> {
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    cli::run(Cli::parse(), environment, &mut io::stdout().lock(), &mut io::stderr().lock())
}
