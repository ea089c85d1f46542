//! `tollgate doctor`: inspects the configured store and the relay's queue, with or without a running server.
//!
//! Every finding is fine, a note, a warning or a problem. It reads, and removes what it writes as a test.

mod file;
mod postgres;
mod queue;
mod report;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use tollgate_redis::Settings as RedisSettings;
use tollgate_redis::inspect::{Finding, Grade, Inspection, inspect};
use tollgate_store::SystemClock;

use super::check_config::store_in_words;
use super::{WRONG, check_config};
use crate::command::{OutputFormat, say};
use crate::config::{self, Config, StoreConfig};

pub(super) const HELP: &str = "\
doctor opens the configured store itself, so it works with or without a running server. On Redis and
Valkey it checks the settings, measures the latency, and runs every script on a key of its own. On
PostgreSQL it checks the settings and the permissions. A file is only read. For each entry of `databases`
it checks that the user has read-only access, and that the queries of `count_rows` can be run.
Of the relay's queue it checks the directory and the disk.

Examples:
  tollgate doctor --config tollgate.yaml
  VALKEY_URL=valkey://localhost tollgate doctor --json

Exit codes: 0 no problem, perhaps notes, 1 warnings, 2 a problem.";

/// There are warnings but no problems.
const WARNINGS: u8 = 1;

pub(super) fn run(
    path: Option<&Path>,
    environment: Vec<(String, String)>,
    format: OutputFormat,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let config = match config::load(path, environment.into_iter()) {
        Ok(config) => config,
        Err(error) => return Ok(check_config::refuse(&error, format, out, err)?),
    };
    let inspection = examine(&config)?;
    match format {
        OutputFormat::Json => check_config::print_json(&report::as_json(&config, &inspection), out)?,
        OutputFormat::Words => {
            let mut text = Vec::new();
            report::print(&store_in_words(&config.store), &inspection, &mut text)?;
            say(&text, out)?;
        }
    }
    Ok(match report::worst(&inspection) {
        Grade::Fine | Grade::Note => ExitCode::SUCCESS,
        Grade::Warning => ExitCode::from(WARNINGS),
        Grade::Problem => ExitCode::from(WRONG),
    })
}

fn examine(config: &Config) -> anyhow::Result<Inspection> {
    let mut inspection = match &config.store {
        StoreConfig::Memory { .. } => {
            let words = "counters are in the server's memory: there is nothing to check from outside";
            Inspection { findings: vec![Finding::note("store", words)], servers: Vec::new() }
        }
        StoreConfig::File { path, .. } => Inspection { findings: file::examine(path), servers: Vec::new() },
        StoreConfig::Redis(settings) => visit(settings)?,
        StoreConfig::Postgres(settings) => {
            Inspection { findings: postgres::examine(settings)?, servers: Vec::new() }
        }
    };
    inspection.findings.extend(postgres::examine_databases(config)?);
    inspection.findings.extend(config.relay.iter().flat_map(queue::examine));
    for spread in config.slot_spread() {
        let words = format!("policy {}: {}", spread.policy, spread.words());
        inspection.findings.push(Finding::warning("policies", words).remedy(spread.remedy()));
    }
    Ok(inspection)
}

fn visit(settings: &RedisSettings) -> anyhow::Result<Inspection> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let inspection = runtime.block_on(inspect(settings, &SystemClock::new()));
    // Does not wait for a name lookup in progress.
    runtime.shutdown_background();
    Ok(inspection)
}
