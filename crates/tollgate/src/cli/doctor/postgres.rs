//! Inspects a store in PostgreSQL, and the databases in which rules count rows.

use tollgate_postgres::inspect::{self, Grade};
use tollgate_postgres::rows::inspect::Query;
use tollgate_postgres::{Settings, rows};
use tollgate_redis::inspect::Finding;
use tollgate_store::SystemClock;

use crate::config::Config;

pub(super) fn examine(settings: &Settings) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(inspect::inspect(settings, &SystemClock::new()));
    // Does not wait for a name lookup in progress.
    runtime.shutdown_background();
    Ok(found.into_iter().map(shown).collect())
}

/// What there is to say about the databases that rules count rows in.
pub(super) fn examine_databases(config: &Config) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut findings = Vec::new();
    for (name, settings) in &config.databases {
        let queries: Vec<Query<'_>> = queries(config, name).collect();
        let found = runtime.block_on(rows::inspect::inspect(name, settings, &queries));
        findings.extend(found.into_iter().map(shown));
    }
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    Ok(findings)
}

/// The queries of rules in one database.
fn queries<'c>(config: &'c Config, database: &str) -> impl Iterator<Item = Query<'c>> {
    config.policies.rules().iter().filter_map(move |rule| {
        let rows = rule.rows.as_ref().filter(|rows| *rows.database == *database)?;
        Some(Query { rule: &rule.name, text: &rows.query, values: rule.by.len() })
    })
}

fn shown(found: inspect::Finding) -> Finding {
    let inspect::Finding { grade, about, words, remedy } = found;
    let finding = match grade {
        Grade::Fine => Finding::fine(about, words),
        Grade::Note => Finding::note(about, words),
        Grade::Warning => Finding::warning(about, words),
        Grade::Problem => Finding::problem(about, words),
    };
    match remedy {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    }
}
