//! Forgetting counters.

use std::sync::Arc;

use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tollgate_core::StoreError;
use tollgate_core::store::Forget;

use super::PostgresStore;
use crate::database::Database;
use crate::load::ALL_RULES;
use crate::name::{CounterId, escape};
use crate::pool::Haste;
use crate::transaction::{Statement, ask, commit};
use crate::work::Work;

/// How many counters one transaction forgets.
const AT_ONCE: i64 = 64;

const FIND: &str =
    "SELECT id FROM @.counter WHERE id > $1 AND ($2::text IS NULL OR rule = $2) ORDER BY id LIMIT $3";
const LOCK: &str = "SELECT pg_advisory_xact_lock(l) FROM \
    (SELECT l FROM unnest($1::bigint[]) WITH ORDINALITY u(l, n) ORDER BY n OFFSET 0) s";
const NOTE: &str = "INSERT INTO @.forgotten AS f (rule, at) \
    VALUES ($1, coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) \
    ON CONFLICT (rule) DO UPDATE SET at = greatest(f.at, excluded.at)";

impl PostgresStore {
    pub(super) async fn forget_now(&self, what: Forget<'_>) -> Result<(), StoreError> {
        let rule = match what {
            Forget::Key(counter) => {
                self.know_secret(std::iter::once(&**counter.plan)).await?;
                let name = self.names.counter(counter.plan, counter.key)?;
                let work = Work::Forget { plan: Arc::clone(counter.plan), name };
                return self.lanes.run(work, self.patience()).await.map(|_| ());
            }
            Forget::Rule(rule) => Some(escape(rule)),
            Forget::All => None,
        };
        let mut last: Vec<u8> = Vec::new();
        while let Some(next) = self.forget_some(rule.clone(), last).await? {
            last = next;
        }
        // Once they are gone: what was taken before can no longer be given back.
        let own_time = self.database.own_time().map(|now| now.as_micros().cast_signed());
        let note = self.sql(NOTE);
        let name = rule.unwrap_or_else(|| ALL_RULES.to_owned());
        self.errand(Haste::FailFast, move |client| {
            Box::pin(async move {
                let params = vec![(&name as _, Type::TEXT), (&own_time as _, Type::INT8)];
                ask(client, None, &[Statement { sql: &note, params }]).await.map(|_| ())
            })
        })
        .await
    }

    /// Forgets the next few counters, and answers the last of them.
    async fn forget_some(&self, rule: Option<String>, last: Vec<u8>) -> Result<Option<Vec<u8>>, StoreError> {
        let find = self.sql(FIND);
        let found = self
            .errand(Haste::FailFast, move |client| {
                Box::pin(async move {
                    let params = vec![
                        (&last as _, Type::BYTEA),
                        (&rule as _, Type::TEXT),
                        (&AT_ONCE as _, Type::INT8),
                    ];
                    let rows = ask(client, None, &[Statement { sql: &find, params }]).await?;
                    let ids = rows.iter().flatten().filter_map(|row| row.try_get::<_, Vec<u8>>(0).ok());
                    Ok(ids.collect::<Vec<Vec<u8>>>())
                })
            })
            .await?;
        let Some(last) = found.last().cloned() else { return Ok(None) };
        let ids = found.iter().filter_map(|id| CounterId::try_from(&id[..]).ok());
        let mut locks: Vec<i64> = ids.map(|id| self.names.lock(&id)).collect();
        locks.sort_unstable();
        let doomed = [("counter", "id"), ("entry", "counter"), ("hold", "counter")]
            .map(|(table, column)| self.sql(&format!("DELETE FROM @.{table} WHERE {column} = ANY($1)")));
        let database = Arc::clone(&self.database);
        self.errand(Haste::FailFast, move |client| {
            Box::pin(async move { delete(&database, client, &locks, &found, &doomed).await })
        })
        .await?;
        Ok(Some(last))
    }
}

async fn delete(
    database: &Database,
    client: &Client,
    locks: &Vec<i64>,
    ids: &Vec<Vec<u8>>,
    statements: &[String],
) -> Result<(), StoreError> {
    let lock = Statement { sql: LOCK, params: vec![(locks, Type::INT8_ARRAY)] };
    ask(client, Some(&database.begin.timed), &[lock]).await?;
    let all: Vec<_> =
        statements.iter().map(|sql| Statement { sql, params: vec![(ids as _, Type::BYTEA_ARRAY)] }).collect();
    commit(client, &all).await
}
