//! Starts the program: the one place that reads the real arguments and environment.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tollgate::cli::{self, Cli};

/// Requests and answers are made of many small pieces, which this one hands out in less time than the
/// system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    // The streams stay unlocked: other threads draw on them, and a panic must be able to speak.
    let done = cli::run(Cli::parse(), environment, &mut io::stdout(), &mut io::stderr());
    done.unwrap_or_else(|error| cli::fail(&error, &mut anstream::stderr()))
}
