//! The tables and their migrations: numbered, each applied once, under one lock.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use tollgate_core::StoreError;

use crate::fault::{Stage, meaning};

/// Each migration takes the tables from its index to the next number. `@` stands for the schema. None
/// may destroy what an older program still reads.
const MIGRATIONS: [&str; 4] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
];

/// The version of the tables that this program uses.
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

/// The first of the two numbers of the migration lock.
const MIGRATION_LOCKS: i32 = 0x70_6c_67_74;

/// The version of the tables in one round trip; `None` if there are none.
///
/// # Errors
///
/// If the tables are newer than this program, or the server refuses.
pub(crate) async fn current(client: &Client, schema: &str) -> Result<Option<i32>, StoreError> {
    let found = client.query_typed(&format!("SELECT number FROM {schema}.version"), &[]).await;
    match found {
        Ok(rows) => number_in(&rows, schema).map(Some),
        Err(error)
            if error.code() == Some(&SqlState::UNDEFINED_TABLE)
                || error.code() == Some(&SqlState::INVALID_SCHEMA_NAME) =>
        {
            Ok(None)
        }
        Err(error) => Err(meaning(&error, Stage::Open)),
    }
}

/// Brings the tables to the version of this program.
///
/// # Errors
///
/// If the tables are newer, or the server refuses.
pub(crate) async fn migrate(client: &Client, schema: &str) -> Result<(), StoreError> {
    let fails = |error: tokio_postgres::Error| meaning(&error, Stage::Open);
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s'; \
                 SET LOCAL statement_timeout = '30s'";
    client.batch_execute(begin).await.map_err(fails)?;
    let lock = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
    client
        .query_typed(lock, &[(&MIGRATION_LOCKS, Type::INT4), (&schema, Type::TEXT)])
        .await
        .map_err(fails)?;
    let found = version(client, schema).await?;
    let from = match found {
        None => 0,
        Some(number @ 0..=VERSION) => number,
        Some(newer) => {
            let _ = client.batch_execute("ROLLBACK").await;
            return Err(too_new(schema, newer));
        }
    };
    if found.is_none() {
        // If the schema exists already, the user needs no right to create schemas.
        let known = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
        let known = client.query_typed(known, &[(&schema, Type::TEXT)]).await.map_err(fails)?;
        if known.is_empty() {
            client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.map_err(fails)?;
        }
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(from as usize) {
        client.batch_execute(&migration.replace('@', schema)).await.map_err(fails)?;
        let set = format!("UPDATE {schema}.version SET number = {}", index + 1);
        client.batch_execute(&set).await.map_err(fails)?;
    }
    client.batch_execute("COMMIT").await.map_err(|error| meaning(&error, Stage::Committing))
}

/// The version of the tables, read without an error, because an error would end the transaction; `None` if
/// there are no tables.
async fn version(client: &Client, schema: &str) -> Result<Option<i32>, StoreError> {
    let fails = |error: tokio_postgres::Error| meaning(&error, Stage::Open);
    // Not by `to_regclass`, whose cache may still say, from before the lock, that there is no table.
    let known = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = $1 AND c.relname = 'version'";
    let known = client.query_typed(known, &[(&schema, Type::TEXT)]).await.map_err(fails)?;
    if known.is_empty() {
        return Ok(None);
    }
    let rows =
        client.query_typed(&format!("SELECT number FROM {schema}.version"), &[]).await.map_err(fails)?;
    number_in(&rows, schema).map(Some)
}

fn number_in(rows: &[Row], schema: &str) -> Result<i32, StoreError> {
    let number = rows.first().and_then(|row| row.try_get(0).ok());
    let number = number.ok_or_else(|| crate::fault::damaged(&format!("{schema}.version")))?;
    if number > VERSION { Err(too_new(schema, number)) } else { Ok(number) }
}

fn too_new(schema: &str, found: i32) -> StoreError {
    let reason = format!(
        "schema {schema} has version {found}, and this program knows up to {VERSION}: \
         start a newer version of this program, or use another schema"
    );
    StoreError::Refused { reason }
}
