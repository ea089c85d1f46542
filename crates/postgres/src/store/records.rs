//! Records: a versioned map for each namespace, one row for each entry. A change loads the entries that it
//! edits into the core's own map, which makes the edits.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use tollgate_core::store::{Answer, MOST_TOGETHER, Records};
use tollgate_core::versioned_map::{Changes, Edit, MOST_CHANGES, Namespace, Scope, Value, VersionedMap};
use tollgate_core::{StoreError, Timestamp};

use super::PostgresStore;
use crate::codec::{Garbled, column, moment_of, natural};
use crate::fault::damaged;
use crate::name::{escape, unescape};
use crate::pool::Haste;
use crate::transaction::{Param, Statement, ask, commit, roll_back};

/// The time-out for reading or changing a whole namespace: no decision waits for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time-out for reading the latest changes: a node must learn soon that it cannot read them.
const POLL_PATIENCE: Duration = Duration::from_secs(1);
/// A namespace with at most this many entries is counted at every call for changes; a larger one only now and
/// then.
const COUNTED_ALWAYS: i64 = 1_000;
const COUNTED_EVERY: Duration = Duration::from_secs(30);

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '4s'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// The first of the two numbers of a namespace's lock.
const RECORD_LOCKS: i32 = 0x74_67_72_65;

const LOCK: &str = "SELECT pg_advisory_xact_lock($1, hashtext($2))";

const STATE: &str = "SELECT coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), s.version, s.size \
    FROM (SELECT $1::text AS space) k LEFT JOIN @.record_space s ON s.space = k.space";

// No record of ours is longer than 8 MiB. A longer one of another program is cut, and so found to be damaged.
const ENTRIES: &str = "SELECT name, substr(bytes, 1, 8388608), until FROM @.record \
    WHERE space = $1 AND name = ANY($2) AND bytes IS NOT NULL \
    UNION SELECT name, substr(bytes, 1, 8388608), until FROM @.record WHERE space = $1 AND bytes IS NOT NULL \
    AND until <= coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)";

const PUT: &str = "INSERT INTO @.record (space, name, bytes, until, version) \
    SELECT $1, u.* FROM unnest($2::text[], $3::bytea[], $4::bigint[], $5::bigint[]) u \
    ON CONFLICT (space, name) DO UPDATE SET bytes = excluded.bytes, until = excluded.until, \
    version = excluded.version";

const PUT_STATE: &str = "INSERT INTO @.record_space (space, version, size) VALUES ($1, $2, $3) \
    ON CONFLICT (space) DO UPDATE SET version = excluded.version, size = excluded.size";

const DROP: &str = "DELETE FROM @.record WHERE space = $1 AND version < $2 AND bytes IS NULL";

const CHANGES: &str = "WITH h AS (SELECT \
    coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now, \
    coalesce((SELECT version FROM @.record_space WHERE space = $1), 0) AS version, \
    (SELECT CASE WHEN $5 OR s.size <= $6 THEN \
    (SELECT count(*) FROM @.record WHERE space = $1 AND bytes IS NOT NULL) ELSE s.size END \
    FROM (SELECT coalesce((SELECT size FROM @.record_space WHERE space = $1), 0) AS size) s) AS size), \
    k AS (SELECT h.*, coalesce($2 <= version AND version - $2 <= $4, false) AS known, \
    EXISTS (SELECT 1 FROM @.record WHERE space = $1 AND until <= h.now AND bytes IS NOT NULL) AS ended FROM h) \
    SELECT k.now, k.version, k.size, k.known, k.ended, r.name, substr(r.bytes, 1, 8388608) FROM k LEFT JOIN LATERAL ( \
    SELECT name, bytes FROM @.record WHERE k.known AND space = $1 AND version > $2 \
    UNION ALL SELECT name, bytes FROM @.record WHERE NOT k.known AND space = $1 AND bytes IS NOT NULL) r ON true";

#[derive(Clone)]
struct ChangeSql {
    state: String,
    entries: String,
    put: String,
    put_state: String,
    drop: String,
}

/// A namespace during a transaction, with the entries that the edits name.
struct Shelf {
    space: Namespace,
    now: Timestamp,
    version: u64,
    size: u64,
    entries: Vec<(String, Value)>,
}

impl PostgresStore {
    async fn change_all(&self, space: Namespace, edits: &[Edit]) -> Result<Vec<bool>, StoreError> {
        let mut held = Vec::with_capacity(edits.len());
        for edits in edits.chunks(MOST_TOGETHER) {
            held.extend(self.change_some(space, edits.to_vec()).await?);
        }
        Ok(held)
    }

    /// Makes edits in one transaction, and removes expired entries.
    async fn change_some(&self, space: Namespace, edits: Vec<Edit>) -> Result<Vec<bool>, StoreError> {
        let sql = ChangeSql {
            state: self.sql(STATE),
            entries: self.sql(ENTRIES),
            put: self.sql(PUT),
            put_state: self.sql(PUT_STATE),
            drop: self.sql(DROP),
        };
        let own_time = self.own_micros();
        let lock = format!("{}.{}", self.settings.schema, space.name());
        self.query_within(PATIENCE, Haste::FailFast, move |client| {
            Box::pin(async move {
                let shelf = sql.load(client, space, &lock, own_time, &edits).await?;
                sql.make(client, shelf, &edits).await
            })
        })
        .await
    }

    async fn read_changes(&self, space: Namespace, since: Option<u64>) -> Result<Changes, StoreError> {
        let secret_was_missing = space == Namespace::Config && self.keep_secret().await?;
        let (mut changes, ended) = self.read_once(space, since).await?;
        if ended {
            // Expired entries are removed first, by a change like any other.
            self.change_some(space, Vec::new()).await?;
            changes = self.read_once(space, since).await?.0;
        }
        Ok(Changes { secret_was_missing, ..changes })
    }

    /// The changes since a version, and whether the namespace has expired entries.
    async fn read_once(&self, space: Namespace, since: Option<u64>) -> Result<(Changes, bool), StoreError> {
        let (sql, own_time) = (self.sql(CHANGES), self.own_micros());
        let patience = if since.is_some() { POLL_PATIENCE } else { PATIENCE };
        let since = since.map(|since| i64::try_from(since).unwrap_or(i64::MAX));
        let counts = self.counts_records(space);
        self.query_within(patience, Haste::FailFast, move |client| {
            Box::pin(async move {
                let (name, most) = (space.name(), MOST_CHANGES as i64);
                let params: Vec<Param<'_>> = vec![
                    (&name, Type::TEXT),
                    (&since, Type::INT8),
                    (&own_time, Type::INT8),
                    (&most, Type::INT8),
                    (&counts, Type::BOOL),
                    (&COUNTED_ALWAYS, Type::INT8),
                ];
                let rows = ask(client, None, &[Statement { sql: &sql, params }]).await?;
                let rows: Vec<Row> = rows.into_iter().flatten().collect();
                read(&rows).map_err(|Garbled| damaged(&format!("record {name}")))
            })
        })
        .await
    }

    /// Whether to count the entries of a namespace, whatever their number, to find out that some were deleted
    /// by hand.
    fn counts_records(&self, space: Namespace) -> bool {
        let mut counted = self.counted.lock();
        let due = counted.get(space.name()).is_none_or(|at| at.elapsed() >= COUNTED_EVERY);
        if due {
            counted.insert(space.name(), Instant::now());
        }
        due
    }

    /// Restores the secret if an operator has deleted it: secret keys are hashed with it. If there is another
    /// secret, all nodes use that one from now on. Returns whether it was missing.
    async fn keep_secret(&self) -> Result<bool, StoreError> {
        let Some(known) = self.names.key_hash.stored() else { return Ok(false) };
        let find = self.sql("SELECT substr(bytes, 1, 33) FROM @.secret");
        let found = self
            .query_within(POLL_PATIENCE, Haste::FailFast, move |client| {
                Box::pin(async move {
                    let rows = ask(client, None, &[Statement { sql: &find, params: Vec::new() }]).await?;
                    Ok(rows.iter().flatten().next().and_then(|row| row.try_get::<_, Vec<u8>>(0).ok()))
                })
            })
            .await?;
        if found.as_deref() != Some(&known[..]) {
            // A node that cannot read the new secret keeps the one that it has.
            let _ = self.read_secret().await;
        }
        Ok(found.is_none())
    }

    fn own_micros(&self) -> Option<i64> {
        self.database.own_time().map(|now| column(now.as_micros()))
    }
}

fn read(rows: &[Row]) -> Result<(Changes, bool), Garbled> {
    let first = rows.first().ok_or(Garbled)?;
    let number = |index: usize| first.try_get(index).map_err(|_| Garbled);
    let flag = |index: usize| first.try_get::<_, bool>(index).map_err(|_| Garbled);
    let mut changes = Changes {
        now: moment_of(number(0)?)?,
        version: natural(number(1)?)?,
        size: usize::try_from(number(2)?).map_err(|_| Garbled)?,
        scope: if flag(3)? { Scope::Changes } else { Scope::All },
        entries: Vec::with_capacity(rows.len()),
        secret_was_missing: false,
    };
    for row in rows {
        let Some(name) = row.try_get::<_, Option<&str>>(5).map_err(|_| Garbled)? else { continue };
        let bytes = row.try_get(6).map_err(|_| Garbled)?;
        changes.entries.push((unescape(name).ok_or(Garbled)?, bytes));
    }
    Ok((changes, flag(4)?))
}

impl ChangeSql {
    async fn load(
        &self,
        client: &Client,
        space: Namespace,
        lock: &str,
        own_time: Option<i64>,
        edits: &[Edit],
    ) -> Result<Shelf, StoreError> {
        let names: Vec<String> = edits.iter().map(|edit| escape(&edit.name)).collect();
        let name = space.name();
        let locking: Vec<Param<'_>> = vec![(&RECORD_LOCKS, Type::INT4), (&lock, Type::TEXT)];
        let state: Vec<Param<'_>> = vec![(&name, Type::TEXT), (&own_time, Type::INT8)];
        let entries: Vec<Param<'_>> =
            vec![(&name, Type::TEXT), (&names, Type::TEXT_ARRAY), (&own_time, Type::INT8)];
        let statements = [
            Statement { sql: LOCK, params: locking },
            Statement { sql: &self.state, params: state },
            Statement { sql: &self.entries, params: entries },
        ];
        let rows = ask(client, Some(BEGIN), &statements).await?;
        Shelf::read(space, &rows).map_err(|Garbled| damaged(&format!("record {name}")))
    }

    async fn make(&self, client: &Client, shelf: Shelf, edits: &[Edit]) -> Result<Vec<bool>, StoreError> {
        let (space, before) = (shelf.space, shelf.size);
        let known = shelf.entries.len() as u64;
        let (held, map) = shelf.change(edits)?;
        if map.version() == 0 {
            roll_back(client).await;
            return Ok(held);
        }
        let version = column(shelf.version + map.version());
        let (_, changed) = map.entries_since(Some(0));
        let left = map.entries_since(None).1.len() as u64;
        let size = column((before + left).saturating_sub(known));
        let names: Vec<String> = changed.iter().map(|(name, _)| escape(name)).collect();
        let bytes: Vec<Option<&[u8]>> =
            changed.iter().map(|(_, value)| value.map(|value| &value.bytes[..])).collect();
        let until =
            |value: Option<&Value>| value.and_then(|value| value.until).map(|it| column(it.as_micros()));
        let ends: Vec<Option<i64>> = changed.iter().map(|(_, value)| until(*value)).collect();
        let versions = vec![version; names.len()];
        let name = space.name();
        let oldest = version - MOST_CHANGES as i64;
        let put: Vec<Param<'_>> = vec![
            (&name, Type::TEXT),
            (&names, Type::TEXT_ARRAY),
            (&bytes, Type::BYTEA_ARRAY),
            (&ends, Type::INT8_ARRAY),
            (&versions, Type::INT8_ARRAY),
        ];
        let state: Vec<Param<'_>> = vec![(&name, Type::TEXT), (&version, Type::INT8), (&size, Type::INT8)];
        let statements = [
            Statement { sql: &self.put, params: put },
            Statement { sql: &self.put_state, params: state },
            Statement { sql: &self.drop, params: vec![(&name, Type::TEXT), (&oldest, Type::INT8)] },
        ];
        commit(client, &statements, None).await?;
        Ok(held)
    }
}

impl Shelf {
    fn read(space: Namespace, rows: &[Vec<Row>]) -> Result<Self, Garbled> {
        let [_, state, rows] = rows else { return Err(Garbled) };
        let state = state.first().ok_or(Garbled)?;
        let number = |index: usize| state.try_get::<_, Option<i64>>(index).map_err(|_| Garbled);
        let mut shelf = Self {
            space,
            now: moment_of(number(0)?.ok_or(Garbled)?)?,
            version: natural(number(1)?.unwrap_or(0))?,
            size: natural(number(2)?.unwrap_or(0))?,
            entries: Vec::with_capacity(rows.len()),
        };
        for row in rows {
            let name = row.try_get::<_, &str>(0).map_err(|_| Garbled)?;
            let until = row.try_get::<_, Option<i64>>(2).map_err(|_| Garbled)?;
            let until = until.map(moment_of).transpose()?;
            let value = Value { bytes: row.try_get(1).map_err(|_| Garbled)?, until };
            shelf.entries.push((unescape(name).ok_or(Garbled)?, value));
        }
        Ok(shelf)
    }

    /// Makes the edits with the core's map, over the entries that they name.
    fn change(&self, edits: &[Edit]) -> Result<(Vec<bool>, VersionedMap), StoreError> {
        let mut map = VersionedMap::new(self.space);
        self.entries.iter().for_each(|(name, value)| map.restore(name, value.clone()));
        let ended = |value: &Value| value.until.is_some_and(|until| until <= self.now);
        let gone = self.entries.iter().filter(|(_, value)| ended(value)).count() as u64;
        let room = (self.space.most_entries() as u64).saturating_sub(self.size.saturating_sub(gone));
        let is_known =
            |name: &String| self.entries.iter().any(|(known, value)| known == name && !ended(value));
        let new = |edit: &&Edit| edit.to.is_some() && !is_known(&edit.name);
        if edits.len() as u64 > room && edits.iter().filter(new).count() as u64 > room {
            return Err(self.space.full());
        }
        let held = map.change(edits, self.now)?;
        Ok((held, map))
    }
}

impl Records for PostgresStore {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        Answer::Later(Box::pin(self.change_all(space, edits)))
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        Answer::Later(Box::pin(self.read_changes(space, since)))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::Later(Box::pin(self.read_secret()))
    }
}
