//! Asks the server whether it can be used, which rights the user has, and for its time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tollgate_core::store::{Impairment, ImpairmentKind};
use tollgate_core::{StoreError, Timestamp};

use super::PostgresStore;
use crate::codec::moment_of;
use crate::fault::damaged;
use crate::pool::Haste;
use crate::transaction::{Statement, ask};

/// The future of a query on a connection.
pub(crate) type QueryFuture<'c, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'c>>;

const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

// A list of privileges is true if the user has any of them, so each is queried by itself.
const STANDING: &str = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, \
    ARRAY(SELECT t FROM unnest(ARRAY['counter', 'entry', 'hold', 'spent', 'forgotten', 'record', 'record_space', 'secret', 'swept']) t \
    WHERE NOT (SELECT bool_and(has_table_privilege('@.' || t, p)) \
    FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p)), \
    ARRAY(SELECT f.oid::regprocedure::text FROM pg_proc f WHERE f.pronamespace = '@'::regnamespace \
    AND NOT has_function_privilege(f.oid, 'EXECUTE') ORDER BY 1)";

impl PostgresStore {
    /// A statement with the schema filled in.
    pub(crate) fn sql(&self, text: &str) -> String {
        text.replace('@', &self.settings.schema)
    }

    /// Runs a query on a connection of its own, on the runtime of this store.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        haste: Haste,
        query: impl for<'c> FnOnce(&'c Client) -> QueryFuture<'c, T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.query_within(self.settings.command_timeout.max(Duration::from_secs(1)), haste, query).await
    }

    /// As [`PostgresStore::query`], with this time-out.
    pub(crate) async fn query_within<T: Send + 'static>(
        &self,
        patience: Duration,
        haste: Haste,
        query: impl for<'c> FnOnce(&'c Client) -> QueryFuture<'c, T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (database, deadline) = (Arc::clone(&self.database), Instant::now() + patience);
        let timed = async move {
            let running = async {
                // A health check does not queue behind queries that wait for the server.
                let _place = match haste {
                    Haste::FailFast => Some(database.pool.queries.acquire().await),
                    Haste::Try => None,
                };
                let line = database.pool.line(haste).await?;
                let result = query(&line.client).await;
                match &result {
                    Ok(_) => database.pool.give_back(line),
                    Err(error) => database.end(line, error).await,
                }
                result
            };
            let done = tokio::time::timeout_at(deadline, running).await;
            done.unwrap_or_else(|_| {
                database.pool.distrust();
                Err(StoreError::TimedOut)
            })
        };
        let stopped = || StoreError::Unavailable { reason: "the store was stopped".into() };
        self.handle.spawn(timed).await.unwrap_or_else(|_| Err(stopped()))
    }

    pub(super) async fn ask_time(&self) -> Result<Timestamp, StoreError> {
        if let Some(now) = self.database.own_time() {
            return Ok(now);
        }
        self.query_within(self.settings.command_timeout, Haste::FailFast, |client| {
            Box::pin(async move {
                let rows = ask(client, None, &[Statement { sql: TIME, params: Vec::new() }]).await?;
                let time = rows.iter().flatten().next().and_then(|row| row.try_get(0).ok());
                time.and_then(|time| moment_of(time).ok()).ok_or_else(|| damaged("the server's time"))
            })
        })
        .await
    }

    /// Checks that the server can do everything that decisions need. If the server is read-only, this is an
    /// error, and its connection is closed: another host may be the primary.
    pub(super) async fn ping(&self) -> Result<Vec<Impairment>, StoreError> {
        let sql = self.sql(STANDING);
        let forbidden = self
            .query(Haste::Try, move |client| {
                Box::pin(async move {
                    let rows = ask(client, None, &[Statement { sql: &sql, params: Vec::new() }]).await?;
                    let row = rows.first().and_then(|rows| rows.first());
                    let list = |index: usize| row?.try_get::<_, Vec<String>>(index).ok();
                    match row.and_then(|row| row.try_get(0).ok()).zip(list(1).zip(list(2))) {
                        None => Err(damaged("the server's standing")),
                        Some((true, _)) => {
                            Err(StoreError::Refused { reason: "the server cannot be written to".into() })
                        }
                        Some((false, forbidden)) => Ok(forbidden),
                    }
                })
            })
            .await?;
        let mut impairments = Vec::new();
        if let Some(reason) = self.database.full() {
            let detail = format!("the server has no room for new rows: {reason}; give it more disk space");
            impairments.push(Impairment { kind: ImpairmentKind::Full, detail });
        }
        let (schema, user) = (&self.settings.schema, self.settings.server.get_user().unwrap_or("its user"));
        let mut forbid = |what: String, grant: &str| {
            let detail =
                format!("the user may not {what}; grant it: GRANT {grant} IN SCHEMA {schema} TO {user}");
            impairments.push(Impairment { kind: ImpairmentKind::Forbidden, detail });
        };
        if !forbidden.0.is_empty() {
            let grant = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES";
            forbid(format!("read and change {}", forbidden.0.join(", ")), grant);
        } else if !forbidden.1.is_empty() {
            forbid(format!("call {}", forbidden.1.join(", ")), "EXECUTE ON ALL FUNCTIONS");
        }
        Ok(impairments)
    }

    /// Reads the stored secret, or creates one. Secret keys are hashed with it unless the configuration has
    /// another.
    pub(crate) async fn read_secret(&self) -> Result<[u8; 32], StoreError> {
        self.read_secret_for(self.settings.command_timeout.max(Duration::from_secs(1))).await
    }

    /// As [`PostgresStore::read_secret`], with this time-out.
    pub(crate) async fn read_secret_for(&self, patience: Duration) -> Result<[u8; 32], StoreError> {
        let own = self.names.key_hash.stored().unwrap_or_else(|| {
            let mut fresh = [0; 32];
            getrandom::fill(&mut fresh).expect("the system gives random numbers");
            fresh
        });
        let put = self.sql("INSERT INTO @.secret (bytes) VALUES ($1) ON CONFLICT DO NOTHING");
        let find = self.sql("SELECT substr(bytes, 1, 33) FROM @.secret");
        let secret = self
            .query_within(patience, Haste::FailFast, move |client| {
                Box::pin(async move {
                    let own = &own[..];
                    let put = Statement { sql: &put, params: vec![(&own as _, Type::BYTEA)] };
                    let rows =
                        ask(client, None, &[put, Statement { sql: &find, params: Vec::new() }]).await?;
                    let bytes = rows.get(1).and_then(|rows| rows.first()?.try_get::<_, Vec<u8>>(0).ok());
                    let secret = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
                    secret.ok_or_else(|| damaged("the secret"))
                })
            })
            .await?;
        self.names.key_hash.learn(secret);
        Ok(secret)
    }
}
