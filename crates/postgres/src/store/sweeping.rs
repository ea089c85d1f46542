//! Removing rows that say no more than none, a few at a time, so that no decision waits for long.

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

/// How many rows one look takes in.
const SLICE: i64 = 2_000;
/// How many counters one transaction removes.
const AT_ONCE: usize = 64;
/// How long a row stays after it says no more than none, in case the clock goes back a little.
const SLACK: Duration = Duration::from_secs(60);
/// The same for marks of refunds: without its mark, a second refund is told to be the first, though nothing
/// of it counts any more.
const MARK_SLACK: Duration = Duration::from_secs(86_400);
/// How long to rest between two looks.
const REST: Duration = Duration::from_millis(20);
/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(5);

const FIND: &str = "SELECT id, coalesce(idle_at < t.before, false) FROM \
    (SELECT coalesce($4::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $2 AS before) t, \
    LATERAL (SELECT id, idle_at FROM @.counter WHERE id > $1 ORDER BY id LIMIT $3) c";
const LOCK: &str =
    "SELECT id FROM unnest($1::bytea[], $2::bigint[]) u(id, l) WHERE pg_try_advisory_xact_lock(l)";
// The second look is at rows that nobody changes meanwhile.
const IDLE: &str = "SELECT id FROM @.counter WHERE id = ANY($1) \
    AND idle_at < coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $2";
const SPENT: &str = "DELETE FROM @.spent WHERE ctid = ANY(ARRAY(SELECT ctid FROM @.spent \
    WHERE until < coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $1 ORDER BY until LIMIT $2))";
const FORGOTTEN: &str = "DELETE FROM @.forgotten \
    WHERE at < coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) - $1";

/// How long it matters that a rule was forgotten: as long as anything can be given back.
const FORGOTTEN_MATTERS: Duration = Duration::from_secs(33 * 86_400);

/// Removes idle rows.
pub(super) struct Sweeper {
    names: Arc<Names>,
    find: String,
    idle: String,
    remove: [String; 3],
    spent: String,
    forgotten: String,
    interval: Duration,
}

impl Sweeper {
    pub(super) fn new(settings: &Settings, names: Arc<Names>) -> Self {
        let sql = |text: &str| text.replace('@', &settings.schema);
        Self {
            names,
            find: sql(FIND),
            idle: sql(IDLE),
            remove: [
                sql("DELETE FROM @.counter WHERE id = ANY($1)"),
                sql("DELETE FROM @.entry WHERE counter = ANY($1)"),
                sql("DELETE FROM @.hold WHERE counter = ANY($1)"),
            ],
            spent: sql(SPENT),
            forgotten: sql(FORGOTTEN),
            interval: settings.sweep_interval,
        }
    }

    /// Sweeps again and again, until the database is gone.
    pub(super) fn start(self, database: Weak<Database>, handle: &Handle) {
        handle.spawn(async move {
            loop {
                sleep(self.interval).await;
                let Some(database) = database.upgrade() else { return };
                // A server that cannot be used is swept when it can.
                let _ = self.sweep(&database).await;
            }
        });
    }

    /// Looks at all rows once. Answers how many counters were removed.
    pub(super) async fn sweep(&self, database: &Database) -> Result<u64, StoreError> {
        let (mut last, mut removed) = (Vec::new(), 0);
        loop {
            let (next, count) = timed(self.slice(database, last)).await?;
            removed += count;
            match next {
                Some(next) => last = next,
                None => break,
            }
            sleep(REST).await;
        }
        timed(self.sweep_marks(database)).await?;
        Ok(removed)
    }

    /// Looks at the next rows. Answers the last of them, if there may be more, and how many were removed.
    async fn slice(&self, database: &Database, last: Vec<u8>) -> Result<(Option<Vec<u8>>, u64), StoreError> {
        let line = database.pool.line(Haste::FailFast).await?;
        let slack = micros(SLACK);
        let now = own_micros(database);
        let params: Vec<Param<'_>> =
            vec![(&last, Type::BYTEA), (&slack, Type::INT8), (&SLICE, Type::INT8), (&now, Type::INT8)];
        let rows = ask(&line.client, None, &[Statement { sql: &self.find, params }]).await?;
        let rows = rows
            .into_iter()
            .flatten()
            .filter_map(|row| Some((row.try_get::<_, Vec<u8>>(0).ok()?, row.try_get::<_, bool>(1).ok()?)));
        let rows: Vec<(Vec<u8>, bool)> = rows.collect();
        let idle: Vec<&[u8]> = rows.iter().filter(|(_, idle)| *idle).map(|(id, _)| &id[..]).collect();
        let mut removed = 0;
        for some in idle.chunks(AT_ONCE) {
            removed += self.remove(database, &line.client, some).await?;
        }
        database.pool.give_back(line);
        let is_last = rows.len() < usize::try_from(SLICE).unwrap_or(usize::MAX);
        Ok((rows.into_iter().next_back().map(|(id, _)| id).filter(|_| !is_last), removed))
    }

    async fn remove(&self, database: &Database, client: &Client, ids: &[&[u8]]) -> Result<u64, StoreError> {
        let known = ids.iter().filter_map(|id| CounterId::try_from(*id).ok());
        let locks: Vec<i64> = known.map(|id| self.names.lock(&id)).collect();
        let ids: Vec<&[u8]> = ids.to_vec();
        let params: Vec<Param<'_>> = vec![(&ids, Type::BYTEA_ARRAY), (&locks, Type::INT8_ARRAY)];
        let free = ask(client, Some(&database.begin.timed), &[Statement { sql: LOCK, params }]).await?;
        let free = ids_of(&free);
        let slack = micros(SLACK);
        let now = own_micros(database);
        let params: Vec<Param<'_>> =
            vec![(&free, Type::BYTEA_ARRAY), (&slack, Type::INT8), (&now, Type::INT8)];
        let idle = ask(client, None, &[Statement { sql: &self.idle, params }]).await?;
        let idle = ids_of(&idle);
        let all: Vec<Statement<'_>> = self
            .remove
            .iter()
            .map(|sql| Statement { sql, params: vec![(&idle as _, Type::BYTEA_ARRAY)] })
            .collect();
        commit(client, &all).await?;
        Ok(idle.len() as u64)
    }

    /// Removes marks of refunds that nobody needs any more.
    async fn sweep_marks(&self, database: &Database) -> Result<(), StoreError> {
        let line = database.pool.line(Haste::FailFast).await?;
        let (slack, matters, now) = (micros(MARK_SLACK), micros(FORGOTTEN_MATTERS), own_micros(database));
        let spent: Vec<Param<'_>> = vec![(&slack, Type::INT8), (&SLICE, Type::INT8), (&now, Type::INT8)];
        let statements = [
            Statement { sql: &self.spent, params: spent },
            Statement { sql: &self.forgotten, params: vec![(&matters, Type::INT8), (&now, Type::INT8)] },
        ];
        ask(&line.client, None, &statements).await?;
        database.pool.give_back(line);
        Ok(())
    }
}

async fn timed<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    timeout(PATIENCE, work).await.unwrap_or(Err(StoreError::TimedOut))
}

fn ids_of(rows: &[Vec<tokio_postgres::Row>]) -> Vec<Vec<u8>> {
    rows.iter().flatten().filter_map(|row| row.try_get(0).ok()).collect()
}

/// The time by the clock that goes before the server's, where tests move time.
fn own_micros(database: &Database) -> Option<i64> {
    database.own_time().map(|now| column(now.as_micros()))
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
