//! Why there is no usable response, with the remedy.

use std::fmt;
use std::io;
use std::time::Duration;

use tollgate_core::Span;

use super::answer::Answer;
use super::exchange::NoResponse;
use super::server::Server;
use super::wire::Problem;

/// Why a request failed.
#[derive(Debug)]
pub enum Fault {
    /// The server cannot be reached, or the connection broke. If it broke after the request was sent, the
    /// server may have acted on it.
    Unreachable {
        /// The server.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// The response took too long. The server may have acted on the request.
    TimedOut {
        /// The server.
        server: String,
        /// The time-out.
        after: Duration,
    },
    /// The response is not that of a tollgate server.
    Unintelligible {
        /// The server.
        server: String,
        /// What is odd about the response.
        why: String,
    },
    /// The server refused: the request was wrong, not allowed, or its store is down. It changed nothing.
    Refused {
        /// The response.
        answer: Answer,
        /// The problem in it.
        problem: Box<Problem>,
    },
}

impl Fault {
    pub(super) fn of(error: NoResponse, server: &Server) -> Self {
        let (server, why) = (server.to_string(), error.to_string());
        match error {
            NoResponse::Broken(_) => Self::Unreachable { server, why },
            NoResponse::NotHttp(_) | NoResponse::TooLong => Self::Unintelligible { server, why },
        }
    }
}

/// The error as text, in plain words instead of the system's numbers where possible.
pub(crate) fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was closed before an answer came".to_owned(),
        _ => error.to_string(),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { server, why } => write!(
                f,
                "cannot reach {server}: {why}. Is `tollgate serve` running? Set --server or TOLLGATE_SERVER."
            ),
            Self::TimedOut { server, after } => write!(
                f,
                "{server} did not answer within {}. It may still have acted. Use --timeout to wait longer.",
                Span::from(*after)
            ),
            Self::Unintelligible { server, why } => {
                write!(f, "{server} does not answer as a tollgate server does: {why}")
            }
            Self::Refused { answer, problem } => {
                write!(f, "{problem}")?;
                let remedy = if answer.status == 401 { ". Set TOLLGATE_TOKEN or --token-file." } else { "" };
                f.write_str(remedy)
            }
        }
    }
}

impl std::error::Error for Fault {}
