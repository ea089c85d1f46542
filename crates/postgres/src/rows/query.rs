//! One count: a read-only transaction around the query, with its values bound.

use std::error::Error;
use std::pin::pin;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Format, IsNull, ToSql, Type};
use tokio_postgres::{Client, Row};
use tollgate_core::RowsError;

/// The longest message of a server that is passed on.
const MOST_SAID: usize = 300;

/// The value of a field. The server infers its type from the query, and parses it like a quoted value.
#[derive(Debug)]
struct Value<'v>(Option<&'v str>);

/// Runs one count. Returns its result, and whether the connection can be used again.
pub(super) async fn count(
    client: &Client,
    query: &str,
    values: &[Option<&str>],
    deadline: Instant,
) -> (Result<u64, RowsError>, bool) {
    // The server times out before this node does, so the connection can stay open.
    let millis = (deadline - Instant::now()).as_millis() * 9 / 10;
    let millis = millis.max(1);
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = {millis}; \
         SET LOCAL lock_timeout = {millis}; SET LOCAL idle_in_transaction_session_timeout = {millis}"
    );
    // All three statements are sent before the first answer arrives.
    let steps = [CountStep::Plain(&begin), CountStep::Count(query, values), CountStep::Plain("ROLLBACK")];
    let mut answers = join_all(steps.into_iter().map(|step| step.done(client))).await.into_iter();
    let (began, counted, ended) = (answers.next(), answers.next(), answers.next());
    let usable = matches!((&began, &ended), (Some(Ok(_)), Some(Ok(_))));
    // If several steps failed, the first error is the cause of the others.
    let answer = match (began, counted) {
        (Some(Err(error)), _) | (_, Some(Err(error))) => Err(meaning(&error)),
        (_, Some(Ok(answer))) => answer,
        (_, None) => Err(RowsError::TimedOut),
    };
    (answer, usable)
}

enum CountStep<'s> {
    Plain(&'s str),
    Count(&'s str, &'s [Option<&'s str>]),
}

type Answered = Result<Result<u64, RowsError>, tokio_postgres::Error>;

impl CountStep<'_> {
    async fn done(self, client: &Client) -> Answered {
        match self {
            Self::Plain(sql) => client.batch_execute(sql).await.map(|()| Ok(0)),
            Self::Count(query, values) => ask(client, query, values).await,
        }
    }
}

async fn ask(client: &Client, query: &str, values: &[Option<&str>]) -> Answered {
    let values: Vec<Value<'_>> = values.iter().map(|value| Value(*value)).collect();
    let values = values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN));
    let mut rows = pin!(client.query_typed_raw(query, values).await?);
    let first = rows.next().await.transpose()?;
    let Some(first) = first else { return Ok(Err(not_a_count("no row"))) };
    // The other rows are dropped: a wrong query may select a whole table.
    let mut more = false;
    while rows.next().await.transpose()?.is_some() {
        more = true;
    }
    Ok(if more { Err(not_a_count("more than one row")) } else { number(&first) })
}

/// The single whole number of a row.
fn number(row: &Row) -> Result<u64, RowsError> {
    let [column] = row.columns() else {
        return Err(not_a_count(&format!("{} columns", row.columns().len())));
    };
    let number = match *column.type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(0),
        Type::INT4 => row.try_get::<_, Option<i32>>(0).map(|number| number.map(i64::from)),
        Type::INT2 => row.try_get::<_, Option<i16>>(0).map(|number| number.map(i64::from)),
        _ => return Err(not_a_count(&format!("a value of type {}", column.type_()))),
    };
    match number {
        Ok(Some(number)) => {
            u64::try_from(number).map_err(|_| not_a_count(&format!("the negative number {number}")))
        }
        Ok(None) => Err(not_a_count("NULL")),
        Err(error) => Err(meaning(&error)),
    }
}

fn not_a_count(answer: &str) -> RowsError {
    RowsError::NotACount { answer: answer.to_owned() }
}

/// Converts an error of the database.
pub(super) fn meaning(error: &tokio_postgres::Error) -> RowsError {
    let clipped = |text: String| text.chars().take(MOST_SAID).collect();
    let Some(fault) = error.as_db_error() else {
        let cause = error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
        return RowsError::Unreachable { reason: clipped(cause) };
    };
    let reason = clipped(format!("{} ({})", fault.message(), fault.code().code()));
    match fault.code().code().get(..2) {
        _ if *fault.code() == SqlState::QUERY_CANCELED || *fault.code() == SqlState::LOCK_NOT_AVAILABLE => {
            RowsError::TimedOut
        }
        // The server stops, starts, crashed, or has no connection left.
        Some("08" | "53" | "57" | "58") => RowsError::Unreachable { reason },
        _ => RowsError::Refused { reason },
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(ty, out)
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }
}
