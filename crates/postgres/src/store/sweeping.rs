//! Removes rows that equal a fresh key, a few at a time, so that no decision waits for long.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tollgate_core::StoreError;

use crate::codec::column;
use crate::database::Database;
use crate::name::{CounterId, Names};
use crate::pool::Haste;
use crate::settings::Settings;
use crate::transaction::{Param, Statement, ask, commit};

/// One query reads this many rows.
const SLICE: i64 = 2_000;
/// One transaction removes this many counters.
const AT_ONCE: usize = 64;
/// A transaction removes at most this many rows of one table, so that it ends in time even if logs are long.
pub(super) const MOST_REMOVED: i64 = 2_000;
/// An idle row stays for this long, in case the clock goes back a little.
const SLACK: Duration = Duration::from_secs(60);
/// A refund's mark stays for this long after it is no longer needed. Without its mark, a repeated refund would
/// be reported as the first one, although its charge no longer counts.
const MARK_SLACK: Duration = Duration::from_secs(86_400);
/// The pause between two queries of a sweep.
const REST: Duration = Duration::from_millis(20);
/// The time-out of one query or removal.
const PATIENCE: Duration = Duration::from_secs(5);

// A time in the future was written before the server's clock went back.
const CLAIM: &str = "WITH t AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) \
    UPDATE @.swept SET at = t.now FROM t WHERE at NOT BETWEEN t.now - $1 AND t.now RETURNING at";
const FIND: &str = "SELECT id, coalesce(idle_at < t.before, false) FROM \
    (SELECT coalesce($4::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $2 AS before) t, \
    LATERAL (SELECT id, idle_at FROM @.counter WHERE id > $1 ORDER BY id LIMIT $3) c";
const LOCK: &str =
    "SELECT id FROM unnest($1::bytea[], $2::bigint[]) u(id, l) WHERE pg_try_advisory_xact_lock(l)";
// The check runs again on locked rows, which no caller can change meanwhile.
const IDLE: &str = "SELECT id FROM @.counter WHERE id = ANY($1) \
    AND idle_at < coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $2";
const SPENT: &str = "WITH gone AS (DELETE FROM @.spent WHERE ctid = ANY(ARRAY(SELECT ctid FROM @.spent \
    WHERE until < coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $1 \
    ORDER BY until LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone";
const FORGOTTEN: &str = "DELETE FROM @.forgotten \
    WHERE at < coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $1";

/// The reset of a rule is remembered for this long: a refund of an earlier charge could come until then.
const FORGOTTEN_MATTERS: Duration = Duration::from_secs(33 * 86_400);

pub(super) struct Sweeper {
    names: Arc<Names>,
    claim: String,
    find: String,
    idle: String,
    remove: String,
    spent: String,
    forgotten: String,
    interval: Duration,
}

impl Sweeper {
    pub(super) fn new(settings: &Settings, names: Arc<Names>) -> Self {
        let sql = |text: &str| text.replace('@', &settings.schema);
        Self {
            names,
            claim: sql(CLAIM),
            find: sql(FIND),
            idle: sql(IDLE),
            remove: sql("SELECT removed, more FROM @.remove_counters($1, $2)"),
            spent: sql(SPENT),
            forgotten: sql(FORGOTTEN),
            interval: settings.sweep_interval,
        }
    }

    /// Sweeps at every interval, until the store is dropped.
    pub(super) fn start(self, database: Weak<Database>, handle: &Handle) {
        handle.spawn(async move {
            loop {
                sleep(self.interval).await;
                let Some(database) = database.upgrade() else { return };
                // If the server is down, the sweep waits until it is back. The circuit breaker reports the
                // outage.
                let swept = match self.claim(&database).await {
                    Ok(true) => self.sweep(&database).await.map(drop),
                    other => other.map(drop),
                };
                if let Err(error) = swept
                    && !error.is_outage()
                {
                    tracing::warn!(component = "store", %error, "idle rows could not be removed");
                }
            }
        });
    }

    /// Whether this node may sweep: no node has begun a sweep within half of the interval. With the whole
    /// interval, two nodes of equal rhythm could block each other.
    pub(super) async fn claim(&self, database: &Database) -> Result<bool, StoreError> {
        let recent = micros(self.interval / 2);
        let statement = Statement { sql: &self.claim, params: vec![(&recent, Type::INT8)] };
        let claiming = async |client: &Client| ask(client, None, &[statement]).await;
        Ok(with_line(database, claiming).await?.iter().flatten().next().is_some())
    }

    /// Reads all rows once. Returns the number of removed counters. If a counter cannot be removed now, the
    /// sweep goes on with the next.
    pub(super) async fn sweep(&self, database: &Database) -> Result<u64, StoreError> {
        let (mut last, mut removed, mut failed) = (Vec::new(), 0, None);
        loop {
            let (next, idle) = self.find(database, last).await?;
            for some in idle.chunks(AT_ONCE) {
                match self.remove_all(database, some).await {
                    Ok(count) => removed += count,
                    Err(error @ (StoreError::Unavailable { .. } | StoreError::Refused { .. })) => {
                        return Err(error);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            match next {
                Some(next) => last = next,
                None => break,
            }
            sleep(REST).await;
        }
        while self.sweep_marks(database).await? == SLICE {
            sleep(REST).await;
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Reads the next rows. Returns the last of them, if there may be more, and the idle ones.
    async fn find(
        &self,
        database: &Database,
        last: Vec<u8>,
    ) -> Result<(Option<Vec<u8>>, Vec<CounterId>), StoreError> {
        let (slack, now) = (micros(SLACK), own_micros(database));
        let params: Vec<Param<'_>> =
            vec![(&last, Type::BYTEA), (&slack, Type::INT8), (&SLICE, Type::INT8), (&now, Type::INT8)];
        let finding = async |client: &Client| {
            let rows = ask(client, None, &[Statement { sql: &self.find, params }]).await?;
            let rows = rows.into_iter().flatten().filter_map(|row| {
                Some((row.try_get::<_, Vec<u8>>(0).ok()?, row.try_get::<_, bool>(1).ok()?))
            });
            Ok(rows.collect::<Vec<(Vec<u8>, bool)>>())
        };
        let rows = with_line(database, finding).await?;
        let idle = rows.iter().filter(|(_, idle)| *idle);
        let idle = idle.filter_map(|(id, _)| CounterId::try_from(&id[..]).ok()).collect();
        let is_last = rows.len() < usize::try_from(SLICE).unwrap_or(usize::MAX);
        Ok((rows.into_iter().next_back().map(|(id, _)| id).filter(|_| !is_last), idle))
    }

    /// Removes counters that are still idle, transaction by transaction.
    async fn remove_all(&self, database: &Database, ids: &[CounterId]) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            let removing = async |client: &Client| self.remove(database, client, ids).await;
            let (removed, more) = with_line(database, removing).await?;
            all += removed;
            if !more {
                return Ok(all);
            }
        }
    }

    async fn remove(
        &self,
        database: &Database,
        client: &Client,
        ids: &[CounterId],
    ) -> Result<(u64, bool), StoreError> {
        let locks: Vec<i64> = ids.iter().map(|id| self.names.lock(id)).collect();
        let ids: Vec<&[u8]> = ids.iter().map(|id| &id[..]).collect();
        let params: Vec<Param<'_>> = vec![(&ids, Type::BYTEA_ARRAY), (&locks, Type::INT8_ARRAY)];
        let free = ask(client, Some(&database.begin.timed), &[Statement { sql: LOCK, params }]).await?;
        let free = ids_of(&free);
        let slack = micros(SLACK);
        let now = own_micros(database);
        let params: Vec<Param<'_>> =
            vec![(&free, Type::BYTEA_ARRAY), (&slack, Type::INT8), (&now, Type::INT8)];
        let idle = ask(client, None, &[Statement { sql: &self.idle, params }]).await?;
        let idle = ids_of(&idle);
        let params: Vec<Param<'_>> = vec![(&idle, Type::BYTEA_ARRAY), (&MOST_REMOVED, Type::INT8)];
        let rows = ask(client, None, &[Statement { sql: &self.remove, params }]).await?;
        let row = rows.iter().flatten().next();
        let removed = row.and_then(|row| row.try_get::<_, i64>(0).ok()).unwrap_or_default();
        let more = row.and_then(|row| row.try_get(1).ok()).unwrap_or_default();
        commit(client, &[], None).await?;
        Ok((removed.cast_unsigned(), more))
    }

    /// Removes the marks of refunds that are too old to be repeated. Returns their number.
    async fn sweep_marks(&self, database: &Database) -> Result<i64, StoreError> {
        let (slack, matters, now) = (micros(MARK_SLACK), micros(FORGOTTEN_MATTERS), own_micros(database));
        let spent: Vec<Param<'_>> = vec![(&slack, Type::INT8), (&SLICE, Type::INT8), (&now, Type::INT8)];
        let statements = [
            Statement { sql: &self.spent, params: spent },
            Statement { sql: &self.forgotten, params: vec![(&matters, Type::INT8), (&now, Type::INT8)] },
        ];
        let rows = with_line(database, async |client: &Client| ask(client, None, &statements).await).await?;
        let count = rows.first().and_then(|rows| rows.first()?.try_get(0).ok());
        Ok(count.unwrap_or_default())
    }
}

/// Uses a connection, with the time-out of one query.
async fn with_line<T>(
    database: &Database,
    work: impl AsyncFnOnce(&Client) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let working = async {
        let _place = database.pool.queries.acquire().await;
        let line = database.pool.line(Haste::FailFast).await?;
        let result = work(&line.client).await;
        match &result {
            Ok(_) => database.pool.give_back(line),
            Err(error) => database.end(line, error).await,
        }
        result
    };
    timeout(PATIENCE, working).await.unwrap_or(Err(StoreError::TimedOut))
}
fn ids_of(rows: &[Vec<tokio_postgres::Row>]) -> Vec<Vec<u8>> {
    rows.iter().flatten().filter_map(|row| row.try_get(0).ok()).collect()
}

/// The time by the clock that replaces the server's in tests that move time.
fn own_micros(database: &Database) -> Option<i64> {
    database.own_time().map(|now| column(now.as_micros()))
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
