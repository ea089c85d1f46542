//! Looks at the server for `tollgate doctor`: what it is, how it is set up, and whether it can be used.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use tollgate_core::{Clock, Span, StoreError, Timestamp};

use crate::codec::moment_of;
use crate::fault::{Stage, meaning};
use crate::pool::Pool;
use crate::schema;
use crate::settings::{Settings, Tls};

/// One result of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub grade: Grade,
    /// The part that was inspected.
    pub about: &'static str,
    /// The finding, as a sentence.
    pub words: String,
    /// The remedy, if there is one.
    pub remedy: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// Something may go wrong.
    Warning,
    /// Something is wrong.
    Problem,
}

/// The oldest server that is supported.
const LEAST_SERVER: i32 = 140_000;
/// A transaction older than this keeps dead rows from being removed.
const LONG_TRANSACTION_SECS: f64 = 300.0;
/// Fewer updates than these within their page mean that the table bloats.
const LEAST_HOT: f64 = 0.8;
/// Fewer updates than this are too few to judge.
const ENOUGH_UPDATES: i64 = 1_000;
/// The doctor reports clocks that differ by more than this.
const MOST_SKEW: Span = Span::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);

const FACTS: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean, \
    current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), \
    (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began)), 0)::float8 FROM \
     (SELECT xact_start FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' \
      UNION ALL SELECT prepared FROM pg_prepared_xacts) t(began)), \
    (SELECT coalesce(sum(n_tup_upd), 0)::bigint FROM pg_stat_all_tables WHERE schemaname = '@' AND relname = 'counter'), \
    (SELECT coalesce(sum(n_tup_hot_upd), 0)::bigint FROM pg_stat_all_tables WHERE schemaname = '@' AND relname = 'counter'), \
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
    (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_all_tables WHERE schemaname = '@' AND relname = 'counter'), \
    current_setting('max_connections')::int, \
    pg_has_role('pg_read_all_stats', 'USAGE'), \
    ARRAY(SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = '@' AND c.relkind = 'r' AND NOT (has_table_privilege(c.oid, 'SELECT') \
     AND (c.relname = 'version' OR has_table_privilege(c.oid, 'INSERT') \
     AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))) \
     UNION ALL SELECT f.proname::text FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace \
     WHERE n.nspname = '@' AND NOT has_function_privilege(f.oid, 'EXECUTE') ORDER BY 1), \
    ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE NOT active ORDER BY 1)";

/// A name that no program uses, and that a session may set.
const MARK: &str = "SELECT set_config('tollgate.doctor', $1, false)";
const MARKED: &str = "SELECT coalesce(current_setting('tollgate.doctor', true), '')";

/// Looks at the server.
pub async fn inspect(settings: &Settings, clock: &dyn Clock) -> Vec<Finding> {
    match timeout(PATIENCE, look(settings, clock)).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::problem("connection", error.to_string(), remedy(&error))],
        Err(_) => vec![Finding::problem(
            "connection",
            "the server does not answer".to_owned(),
            "see whether it runs, and whether this machine can reach it",
        )],
    }
}

fn remedy(error: &StoreError) -> &'static str {
    let told = error.to_string();
    match error {
        _ if told.ends_with("(53300)") => {
            "raise `max_connections` at the server, or have other programs keep fewer connections open"
        }
        _ if told.ends_with("(57P03)") => "wait until the server has started; its log tells what it does",
        StoreError::Forbidden { .. } => "grant the user the right to use the schema and its tables",
        StoreError::Refused { .. } => "see what the server's log says about this user and database",
        _ => "see whether the server runs, and whether this machine can reach it",
    }
}

async fn look(settings: &Settings, clock: &dyn Clock) -> Result<Vec<Finding>, StoreError> {
    let tls = settings.tls.as_ref().map(Tls::configuration).transpose();
    let tls = tls.map_err(|reason| StoreError::Refused { reason })?;
    let handle = tokio::runtime::Handle::current();
    let pool = Pool::new(std::sync::Arc::new(settings.clone()), tls, handle);
    let line = pool.dial().await?;
    let version = schema::current(&line.client, &settings.schema).await?;
    let before = clock.now();
    let facts = FACTS.replace('@', &settings.schema);
    let rows = line.client.query_typed(&facts, &[]).await;
    let rows = rows.map_err(|error| meaning(&error, Stage::Open))?;
    let after = clock.now();
    let row = rows.first().ok_or_else(|| crate::fault::damaged("the server's answer"))?;
    let judged = judge(settings, version, row, before, after);
    let mut findings = judged.map_err(|error| meaning(&error, Stage::Open))?;
    if shares_sessions(&line.client, &pool.dial().await?.client).await? {
        let words =
            "a pooler hands one session of the server to several connections, which tollgate allows for";
        findings.push(Finding::note("pooler", words.to_owned()));
    }
    Ok(findings)
}

/// Whether what one connection sets for its session is set for another one too.
async fn shares_sessions(one: &Client, other: &Client) -> Result<bool, StoreError> {
    let fails = |error: tokio_postgres::Error| meaning(&error, Stage::Open);
    let mark = format!("{:x}", std::process::id());
    one.query_typed(MARK, &[(&mark, Type::TEXT)]).await.map_err(fails)?;
    let rows = other.query_typed(MARKED, &[]).await.map_err(fails)?;
    let found = rows.first().and_then(|row| row.try_get::<_, String>(0).ok());
    one.query_typed(MARK, &[(&"", Type::TEXT)]).await.map_err(fails)?;
    Ok(found.as_deref() == Some(&mark))
}

fn judge(
    settings: &Settings,
    version: Option<i32>,
    row: &Row,
    before: Timestamp,
    after: Timestamp,
) -> Result<Vec<Finding>, tokio_postgres::Error> {
    let mut findings = vec![judge_version(row.try_get(0)?, row.try_get(1)?)];
    let schema = &settings.schema;
    let rows: i64 = row.try_get(9)?;
    findings.push(match version {
        None => Finding::note("schema", format!("{schema} has no tables yet: the first start makes them")),
        Some(version) => {
            Finding::fine("schema", format!("{schema}, version {version}, with about {rows} counters"))
        }
    });
    if row.try_get(2)? {
        let words = "the server cannot be written to".to_owned();
        findings.push(Finding::problem("role", words, "point the address at the primary server"));
    }
    let isolation: &str = row.try_get(3)?;
    if isolation != "read committed" {
        let words =
            format!("transactions are {isolation} by default; tollgate asks for read committed itself");
        findings.push(Finding::note("isolation", words));
    }
    let sync: &str = row.try_get(4)?;
    let words = match sync {
        "off" => "synchronous_commit is off: a crash of the server may lose the counts of the last second",
        _ => "a decision is durable before it is answered",
    };
    findings.push(Finding::note("durability", words.to_owned()));
    findings.extend(judge_activity(row.try_get(5)?, row.try_get(6)?, row.try_get(7)?));
    let skew = row
        .try_get::<_, i64>(8)
        .ok()
        .and_then(|now| moment_of(now).ok())
        .map_or(Span::ZERO, |now| if now < before { before.since(now) } else { now.since(after) });
    if skew > MOST_SKEW {
        let words = format!("the server's clock and this machine's are {skew} apart; the server's counts");
        findings.push(Finding::note("clock", words));
    }
    let most: i32 = row.try_get(10)?;
    if i64::from(most) < 2 * settings.connections as i64 {
        let words = format!("max_connections is {most}, and one node uses up to {}", settings.connections);
        findings.push(Finding::warning("connections", words, "raise max_connections, or use pgbouncer"));
    }
    let user = settings.user().unwrap_or("the user");
    if !row.try_get(11)? {
        let words = "the user does not see how long transactions of other users have been open".to_owned();
        findings.push(Finding {
            remedy: Some(format!("GRANT pg_read_all_stats TO {user}")),
            ..Finding::note("transactions", words)
        });
    }
    let slots: Vec<String> = row.try_get(13)?;
    if !slots.is_empty() {
        let words =
            format!("the replication slots {} are not in use, and keep old data in place", slots.join(", "));
        findings.push(Finding::warning(
            "replication",
            words,
            "see why, or drop them: pg_drop_replication_slot",
        ));
    }
    let forbidden: Vec<String> = row.try_get(12)?;
    if !forbidden.is_empty() {
        let words = format!("the user may not use {}", forbidden.join(", "));
        let remedy = format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}; \
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {user}"
        );
        findings.push(Finding { remedy: Some(remedy), ..Finding::problem("permissions", words, "") });
    }
    Ok(findings)
}

fn judge_version(number: i32, text: &str) -> Finding {
    if number < LEAST_SERVER {
        let words = format!("PostgreSQL {text} is older than 14");
        return Finding::problem("server", words, "use PostgreSQL 14 or later");
    }
    Finding::fine("server", format!("PostgreSQL {text}"))
}

fn judge_activity(oldest: f64, updates: i64, hot: i64) -> Vec<Finding> {
    let mut findings = Vec::new();
    if oldest > LONG_TRANSACTION_SECS {
        let words = format!("a transaction has been open for {oldest:.0} s, and keeps dead rows in place");
        let remedy = "find it in pg_stat_activity, and end it";
        findings.push(Finding::warning("transactions", words, remedy));
    }
    let ratio = hot as f64 / updates.max(1) as f64;
    if updates >= ENOUGH_UPDATES && ratio < LEAST_HOT {
        let words = format!("only {:.0} % of the updates stayed in their page (HOT)", ratio * 100.0);
        let remedy = "add no index to the table counter, and see that autovacuum runs";
        findings.push(Finding::warning("updates", words, remedy));
    }
    findings
}

impl Finding {
    fn fine(about: &'static str, words: String) -> Self {
        Self { grade: Grade::Fine, about, words, remedy: None }
    }

    fn note(about: &'static str, words: String) -> Self {
        Self { grade: Grade::Note, about, words, remedy: None }
    }

    fn warning(about: &'static str, words: String, remedy: &str) -> Self {
        Self { grade: Grade::Warning, about, words, remedy: Some(remedy.to_owned()) }
    }

    fn problem(about: &'static str, words: String, remedy: &str) -> Self {
        Self { grade: Grade::Problem, about, words, remedy: Some(remedy.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_long_transactions_and_cold_updates_are_told() {
        assert_eq!(judge_version(130_011, "13.11").grade, Grade::Problem);
        assert_eq!(judge_version(140_000, "14.0").grade, Grade::Fine);
        assert!(judge_activity(299.0, 999, 0).is_empty());
        assert!(judge_activity(0.0, 1_000, 800).is_empty());
        let findings = judge_activity(301.0, 1_000, 799);
        let told: Vec<_> = findings.iter().map(|it| (it.grade, it.about)).collect();
        assert_eq!(told, [(Grade::Warning, "transactions"), (Grade::Warning, "updates")]);
        assert!(findings[1].words.contains("80 %"), "{}", findings[1].words);
    }
}
