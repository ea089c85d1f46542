//! Starts the program. Only this file reads the real arguments and environment.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tollgate::cli::{self, Cli};

/// Requests and responses need many small allocations, for which this allocator is faster than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let cli = Cli::try_parse().unwrap_or_else(|error| cli::without_secrets(error).exit());
    // The streams stay unlocked: other threads write to them, and a panic must be able to print.
    let done = cli::run(cli, environment, &mut io::stdout(), &mut io::stderr());
    done.unwrap_or_else(|error| cli::fail(&error, &mut anstream::stderr()))
}
