//! Inspects a database of the application for `tollgate doctor`: whether the role only has the right to read,
//! and whether the queries return a number.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;
use tollgate_core::RowsError;

use super::lines::Lines;
use super::query::meaning;
use crate::inspect::{Finding, Grade};
use crate::settings::Settings;

#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    /// The rule that uses the query.
    pub rule: &'q str,
    /// The SQL text.
    pub text: &'q str,
    /// The number of values in the rule's key.
    pub values: usize,
}

const PATIENCE: Duration = Duration::from_secs(10);

/// The role's rights to write, and whether the server is a replica.
const FACTS: &str = "SELECT current_user::text, current_setting('is_superuser') = 'on', \
    (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' \
     AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')), \
    pg_is_in_recovery()";

/// Inspects a database. `name` is its name in the configuration.
pub async fn inspect(name: &str, settings: &Settings, queries: &[Query<'_>]) -> Vec<Finding> {
    let found = match timeout(PATIENCE, look(settings, queries)).await {
        Ok(found) => found,
        Err(_) => Err(RowsError::TimedOut),
    };
    let findings = found.unwrap_or_else(|error| {
        let remedy = "see whether the server runs, and what its log says about this user and database";
        vec![finding(Grade::Problem, error.to_string(), Some(remedy.to_owned()))]
    });
    let named = |finding: Finding| Finding { words: format!("{name}: {}", finding.words), ..finding };
    findings.into_iter().map(named).collect()
}

async fn look(settings: &Settings, queries: &[Query<'_>]) -> Result<Vec<Finding>, RowsError> {
    let lines = Lines::new(settings.clone(), Handle::current())
        .map_err(|reason| RowsError::Unreachable { reason })?;
    let line = std::sync::Arc::new(lines).line().await?;
    let client = line.client();
    let mut findings = role(client).await.map_err(|error| meaning(&error))?;
    for query in queries {
        findings.push(try_out(client, query).await);
    }
    Ok(findings)
}

async fn role(client: &Client) -> Result<Vec<Finding>, tokio_postgres::Error> {
    let rows = client.query_typed(FACTS, &[]).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let (user, is_superuser): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
    let (writable, is_replica): (i64, bool) = (row.try_get(2)?, row.try_get(3)?);
    let remedy =
        "make a role that may only read: GRANT SELECT on the tables that are counted, and nothing else";
    let mut findings = vec![match (is_superuser, writable) {
        (true, _) => finding(Grade::Warning, format!("{user} is a superuser"), Some(remedy.to_owned())),
        (false, 0) => finding(Grade::Fine, format!("{user} can change no table"), None),
        (false, 1) => finding(Grade::Warning, format!("{user} can change 1 table"), Some(remedy.to_owned())),
        (false, tables) => {
            finding(Grade::Warning, format!("{user} can change {tables} tables"), Some(remedy.to_owned()))
        }
    }];
    if is_replica {
        let words = "the server is a replica: rows that it does not have yet are not counted".to_owned();
        findings.push(finding(Grade::Warning, words, Some("count on the primary server".to_owned())));
    }
    Ok(findings)
}

/// Runs a query with NULL for each value, so that it fits every type and matches no row.
async fn try_out(client: &Client, query: &Query<'_>) -> Finding {
    let deadline = Instant::now() + PATIENCE;
    match super::query::count(client, query.text, &vec![None; query.values], deadline).await.0 {
        Ok(_) => finding(Grade::Fine, format!("the query of {} counts", query.rule), None),
        Err(error) => {
            let words = format!("the query of {}: {error}", query.rule);
            let remedy = "correct the query, or grant the role SELECT on what it reads".to_owned();
            finding(Grade::Problem, words, Some(remedy))
        }
    }
}

fn finding(grade: Grade, words: String, remedy: Option<String>) -> Finding {
    Finding { grade, about: "database", words, remedy }
}
