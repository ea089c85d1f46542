//! Resets counters. Only their names are read, so a counter with damaged rows can be reset too.

use std::sync::Arc;

use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tollgate_core::StoreError;
use tollgate_core::store::Forget;

use super::PostgresStore;
use super::sweeping::MOST_REMOVED;
use crate::database::Database;
use crate::load::ALL_RULES;
use crate::name::{CounterId, escape};
use crate::pool::Haste;
use crate::transaction::{Statement, ask, commit};

/// One query reads this many counters.
const SLICE: i64 = 2_000;
/// One transaction forgets this many counters.
const AT_ONCE: usize = 64;

// Each query reads this many rows, of any rule. So a rule with few counters among millions is found slice by
// slice, and no query takes long.
const FIND: &str =
    "SELECT id, $2::text IS NULL OR rule = $2 FROM @.counter WHERE id > $1 ORDER BY id LIMIT $3";
const LOCK: &str = "SELECT pg_advisory_xact_lock(l) FROM \
    (SELECT l FROM unnest($1::bigint[]) WITH ORDINALITY u(l, n) ORDER BY n OFFSET 0) s";
const REMOVE: &str = "SELECT removed, more FROM @.remove_counters($1, $2)";
const NOTE: &str = "INSERT INTO @.forgotten AS f (rule, at) \
    VALUES ($1, coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) \
    ON CONFLICT (rule) DO UPDATE SET at = greatest(f.at, excluded.at)";

impl PostgresStore {
    pub(super) async fn forget_now(&self, what: Forget<'_>) -> Result<(), StoreError> {
        let rule = match what {
            Forget::Key(counter) => escape(counter.plan.rule()),
            Forget::Rule(rule) => escape(rule),
            Forget::All => ALL_RULES.to_owned(),
        };
        // Earlier charges can no longer be refunded, neither while counters are removed nor afterwards.
        self.note_forgotten(rule.clone()).await?;
        match what {
            Forget::Key(counter) => {
                self.know_secret(std::iter::once(&**counter.plan)).await?;
                let id = self.names.counter(counter.plan, counter.key)?.id;
                self.forget_ids(vec![id]).await?;
            }
            Forget::Rule(_) => self.forget_found(Some(&rule)).await?,
            Forget::All => self.forget_found(None).await?,
        }
        self.note_forgotten(rule).await
    }

    async fn note_forgotten(&self, rule: String) -> Result<(), StoreError> {
        let own_time = self.database.own_time().map(|now| now.as_micros().cast_signed());
        let note = self.sql(NOTE);
        self.query(Haste::FailFast, move |client| {
            Box::pin(async move {
                let params = vec![(&rule as _, Type::TEXT), (&own_time as _, Type::INT8)];
                ask(client, None, &[Statement { sql: &note, params }]).await.map(|_| ())
            })
        })
        .await
    }

    /// Forgets the counters of one rule, or of all rules.
    async fn forget_found(&self, rule: Option<&str>) -> Result<(), StoreError> {
        let mut last: Vec<u8> = Vec::new();
        loop {
            let (find, rule) = (self.sql(FIND), rule.map(str::to_owned));
            let found: Vec<(Vec<u8>, bool)> = self
                .query(Haste::FailFast, move |client| {
                    Box::pin(async move {
                        let params = vec![
                            (&last as _, Type::BYTEA),
                            (&rule as _, Type::TEXT),
                            (&SLICE as _, Type::INT8),
                        ];
                        let rows = ask(client, None, &[Statement { sql: &find, params }]).await?;
                        let rows = rows.iter().flatten();
                        Ok(rows
                            .filter_map(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?)))
                            .collect())
                    })
                })
                .await?;
            let Some((next, _)) = found.last().cloned() else { return Ok(()) };
            last = next;
            let ids: Vec<CounterId> = found
                .iter()
                .filter(|(_, doomed)| *doomed)
                .filter_map(|(id, _)| CounterId::try_from(&id[..]).ok())
                .collect();
            for some in ids.chunks(AT_ONCE) {
                self.forget_ids(some.to_vec()).await?;
            }
        }
    }

    /// Forgets these counters. Each transaction removes a bounded number of rows.
    async fn forget_ids(&self, ids: Vec<CounterId>) -> Result<(), StoreError> {
        let mut locks: Vec<i64> = ids.iter().map(|id| self.names.lock(id)).collect();
        locks.sort_unstable();
        loop {
            let (database, sql) = (Arc::clone(&self.database), self.sql(REMOVE));
            let (ids, locks) = (ids.clone(), locks.clone());
            let removing = self.query(Haste::FailFast, move |client| {
                Box::pin(async move { remove(&database, client, &locks, &ids, &sql).await })
            });
            if !removing.await? {
                return Ok(());
            }
        }
    }
}

/// Removes rows of counters. Returns whether rows are left.
async fn remove(
    database: &Database,
    client: &Client,
    locks: &Vec<i64>,
    ids: &[CounterId],
    sql: &str,
) -> Result<bool, StoreError> {
    let ids: Vec<&[u8]> = ids.iter().map(|id| &id[..]).collect();
    let lock = Statement { sql: LOCK, params: vec![(locks, Type::INT8_ARRAY)] };
    ask(client, Some(&database.begin.timed), &[lock]).await?;
    let params = vec![(&ids as _, Type::BYTEA_ARRAY), (&MOST_REMOVED as _, Type::INT8)];
    let rows = ask(client, None, &[Statement { sql, params }]).await?;
    let more = rows.iter().flatten().next().and_then(|row| row.try_get(1).ok()).unwrap_or(false);
    commit(client, &[], None).await?;
    Ok(more)
}
