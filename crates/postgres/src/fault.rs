//! Converts an error of the database to the engine's `StoreError`.

use tokio_postgres::error::SqlState;
use tollgate_core::StoreError;

use crate::connection::OpenError;

/// The longest message of a server that is passed on.
const MOST_SAID: usize = 300;

/// The stage of a transaction at which an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before the commit was sent: nothing was done.
    Open,
    /// The commit was sent, and may have taken effect unless the server says otherwise.
    Committing,
}

/// Converts an error of the database, by its code and by the stage of the transaction.
pub(crate) fn meaning(error: &tokio_postgres::Error, stage: Stage) -> StoreError {
    let Some(fault) = error.as_db_error() else {
        return StoreError::Unavailable { reason: clipped(&with_cause(error)) };
    };
    let reason = clipped(&format!("{} ({})", fault.message(), fault.code().code()));
    let code = fault.code();
    match code.code().get(..2) {
        _ if *code == SqlState::LOCK_NOT_AVAILABLE
            || *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE =>
        {
            StoreError::Busy
        }
        _ if *code == SqlState::QUERY_CANCELED => StoreError::TimedOut,
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::Forbidden { reason },
        _ if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY => {
            StoreError::OutOfMemory { reason }
        }
        // The server stops, starts, crashed, has no connection left, or ended a transaction that was idle:
        // a moment later all may be well.
        Some("08" | "53" | "57" | "58") => StoreError::Unavailable { reason },
        _ if stage == Stage::Committing => StoreError::Unavailable { reason },
        _ => StoreError::Refused { reason },
    }
}

/// Converts the error of a failed connection attempt.
pub(crate) fn of_opening(error: &OpenError) -> StoreError {
    match error {
        OpenError::Server(error) => meaning(error, Stage::Open),
        OpenError::Socket(_) => StoreError::Unavailable { reason: clipped(&error.to_string()) },
    }
}

/// An error with its causes, which hold the reason.
fn with_cause(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn clipped(text: &str) -> String {
    text.chars().take(MOST_SAID).collect()
}

/// The error for a row that this program cannot have written.
pub(crate) fn damaged(what: &str) -> StoreError {
    let reason = "it is not what this program writes".into();
    StoreError::Damaged { key: what.to_owned(), reason }
}
