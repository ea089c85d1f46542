//! One transaction: what it begins with, and how it ends.

use futures_util::future::join_all;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use tollgate_core::StoreError;

use crate::fault::{Stage, meaning};
use crate::settings::Settings;

/// A value for a statement, and its type. Statements are never prepared by name, because a pooler may send
/// each transaction to another server process.
pub(crate) type Param<'p> = (&'p (dyn ToSql + Sync), Type);

/// One statement with its values.
pub(crate) struct Statement<'p> {
    pub(crate) sql: &'p str,
    pub(crate) params: Vec<Param<'p>>,
}

/// What every transaction begins with. The isolation level does not depend on how the role is set up; the
/// time-outs bound how long this node can keep others waiting, also when it is paused.
pub(crate) struct Begin {
    /// The beginning of a transaction whose first statement sets the time-outs.
    pub(crate) plain: String,
    /// In milliseconds: for a lock, for a statement, and for a pause within the transaction.
    pub(crate) time_outs: [String; 3],
    /// The beginning of a transaction with time-outs.
    pub(crate) timed: String,
}

impl Begin {
    pub(crate) fn new(settings: &Settings) -> Self {
        let millis = settings.command_timeout.as_millis().max(5);
        // A lock that comes too late must be told from a server that does not answer.
        let time_outs = [millis * 4 / 5, millis, millis * 2].map(|millis| millis.to_string());
        let plain = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
        let [lock, statement, idle] = &time_outs;
        let timed = format!(
            "{plain}; SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {statement}; \
             SET LOCAL idle_in_transaction_session_timeout = {idle}"
        );
        Self { plain, time_outs, timed }
    }
}

/// Sends statements one after the other without waiting in between, and answers the rows of each. With
/// `begin` before them a transaction is begun.
pub(crate) async fn ask(
    client: &Client,
    begin: Option<&str>,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, StoreError> {
    let opening = begin.map(|begin| Step::Plain(client, begin));
    let steps = statements.iter().map(|statement| Step::Typed(client, statement));
    let rows = run(opening.into_iter().chain(steps)).await;
    let skipped = usize::from(begin.is_some());
    // The first error is the cause of the others.
    let rows =
        rows.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| meaning(&error, Stage::Open))?;
    Ok(rows.into_iter().skip(skipped).collect())
}

/// Writes and commits, without waiting in between. If a statement fails, nothing is committed.
pub(crate) async fn commit(client: &Client, statements: &[Statement<'_>]) -> Result<(), StoreError> {
    let steps = statements.iter().map(|statement| Step::Typed(client, statement));
    let mut results = run(steps.chain([Step::Plain(client, "COMMIT")])).await;
    let committed = results.pop();
    for result in results {
        result.map_err(|error| {
            // A statement that the server refused undoes the transaction; a connection that broke may have
            // broken after the commit.
            let stage = if error.as_db_error().is_some() { Stage::Open } else { Stage::Committing };
            meaning(&error, stage)
        })?;
    }
    match committed {
        Some(Err(error)) => Err(meaning(&error, Stage::Committing)),
        _ => Ok(()),
    }
}

/// Undoes what a transaction did, and answers whether its connection can be used again.
pub(crate) async fn roll_back(client: &Client) -> bool {
    client.batch_execute("ROLLBACK").await.is_ok()
}

enum Step<'s> {
    Plain(&'s Client, &'s str),
    Typed(&'s Client, &'s Statement<'s>),
}

async fn run<'s>(steps: impl Iterator<Item = Step<'s>>) -> Vec<Result<Vec<Row>, tokio_postgres::Error>> {
    join_all(steps.map(|step| async move {
        match step {
            Step::Plain(client, sql) => client.batch_execute(sql).await.map(|()| Vec::new()),
            Step::Typed(client, statement) => client.query_typed(statement.sql, &statement.params).await,
        }
    }))
    .await
}
