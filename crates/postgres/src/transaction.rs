//! The statements that begin and end a transaction.

use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, SimpleQueryMessage};
use tollgate_core::StoreError;

use crate::fault::{Stage, meaning};
use crate::settings::Settings;

/// A value for a statement, and its type. Statements are never prepared by name, because a pooler may send each
/// transaction to another server process.
pub(crate) type Param<'p> = (&'p (dyn ToSql + Sync), Type);

/// One statement with its values.
pub(crate) struct Statement<'p> {
    pub(crate) sql: &'p str,
    pub(crate) params: Vec<Param<'p>>,
}

/// The statements that begin every transaction. They set the isolation level, so it does not depend on the
/// settings of the role. They set time-outs, so a node that is slow or paused makes others wait only for a
/// bounded time.
pub(crate) struct Begin {
    /// The beginning of a transaction whose first statement sets the time-outs.
    pub(crate) plain: String,
    /// In milliseconds: for a lock, for a statement, and for a pause within the transaction.
    time_outs: [i64; 3],
    /// The beginning of a transaction with time-outs.
    pub(crate) timed: String,
}

impl Begin {
    pub(crate) fn new(settings: &Settings) -> Self {
        let millis = i64::try_from(settings.command_timeout.as_millis()).unwrap_or(i64::MAX / 8).max(5);
        let time_outs = [millis * 4 / 5, millis, millis * 2];
        let plain = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
        let [lock, statement, idle] = &time_outs;
        let timed = format!(
            "{plain}; SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {statement}; \
             SET LOCAL idle_in_transaction_session_timeout = {idle}"
        );
        Self { plain, time_outs, timed }
    }

    /// The time-outs of a transaction whose callers wait for this long. A lock must time out before its callers give
    /// up, because a late lock is no outage.
    pub(crate) fn time_outs_within(&self, remaining: Duration) -> [i64; 3] {
        let [lock, statement, idle] = self.time_outs;
        let patience = i64::try_from(remaining.as_millis() * 4 / 5).unwrap_or(i64::MAX);
        [lock.min(patience).max(1), statement, idle]
    }
}

pub(crate) struct Answers {
    /// The first column of the rows of the statement that was sent as text.
    pub(crate) lines: Vec<String>,
    /// The rows of each statement.
    pub(crate) rows: Vec<Vec<Row>>,
}

/// Sends all statements at once and returns the rows of each. If `begin` is given, it begins a transaction
/// first.
pub(crate) async fn ask(
    client: &Client,
    begin: Option<&str>,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, StoreError> {
    let fails = |error: tokio_postgres::Error| meaning(&error, Stage::Open);
    match begin {
        Some(begin) => Ok(ask_after(client, begin, statements).await?.rows),
        // If several statements failed, the first error is the cause of the others.
        None => run(client, statements).await.into_iter().collect::<Result<_, _>>().map_err(fails),
    }
}

/// Sends a text, and the statements after it, without waiting in between. The server gets the text as one
/// message and answers with one, so that a decision costs two exchanges of one message each. The text must not
/// contain anything that a caller chose: only numbers.
pub(crate) async fn ask_after(
    client: &Client,
    text: &str,
    statements: &[Statement<'_>],
) -> Result<Answers, StoreError> {
    let fails = |error: tokio_postgres::Error| meaning(&error, Stage::Open);
    let (lines, rows) = tokio::join!(read_lines(client, text), run(client, statements));
    // If several statements failed, the first error is the cause of the others.
    let lines = lines.map_err(|(error, _)| fails(error))?;
    Ok(Answers { lines, rows: rows.into_iter().collect::<Result<_, _>>().map_err(fails)? })
}

/// Sends the writes and the commit without waiting in between. `last` goes to the server in one message with
/// the commit, and must not contain anything that a caller chose. If a statement fails, nothing is committed.
pub(crate) async fn commit(
    client: &Client,
    statements: &[Statement<'_>],
    last: Option<&str>,
) -> Result<(), StoreError> {
    let ending = last.map_or_else(|| "COMMIT".to_owned(), |last| format!("{last}; COMMIT"));
    let (written, committed) = tokio::join!(run(client, statements), read_lines(client, &ending));
    for result in written {
        // If the server refused a statement, it rolled the transaction back. If the connection broke, it may
        // have broken after the commit.
        result.map_err(|error| {
            let stage = if error.as_db_error().is_some() { Stage::Open } else { Stage::Committing };
            meaning(&error, stage)
        })?;
    }
    let is_last = |done: usize| last.is_some() && done == 0;
    committed.map(drop).map_err(|(error, done)| {
        let was_refused = error.as_db_error().is_some() && is_last(done);
        meaning(&error, if was_refused { Stage::Open } else { Stage::Committing })
    })
}

/// Rolls the transaction back. Returns whether the connection can be used again.
pub(crate) async fn roll_back(client: &Client) -> bool {
    client.batch_execute("ROLLBACK").await.is_ok()
}

async fn run(client: &Client, statements: &[Statement<'_>]) -> Vec<Result<Vec<Row>, tokio_postgres::Error>> {
    join_all(statements.iter().map(|statement| client.query_typed(statement.sql, &statement.params))).await
}

/// Sends a text. Returns the first column of its rows, or the error and the number of statements that
/// succeeded.
async fn read_lines(client: &Client, text: &str) -> Result<Vec<String>, (tokio_postgres::Error, usize)> {
    let (mut lines, mut done) = (Vec::new(), 0);
    let sent = client.simple_query_raw(text).await.map_err(|error| (error, 0))?;
    let mut messages = std::pin::pin!(sent);
    loop {
        match messages.try_next().await {
            Ok(Some(SimpleQueryMessage::Row(row))) => lines.extend(row.get(0).map(str::to_owned)),
            Ok(Some(SimpleQueryMessage::CommandComplete(_))) => done += 1,
            Ok(Some(_)) => {}
            Ok(None) => return Ok(lines),
            Err(error) => return Err((error, done)),
        }
    }
}
