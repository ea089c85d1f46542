//! Why there is no answer, in words that say what to do about it.

use std::fmt;
use std::io;
use std::time::Duration;

use tollgate_core::Span;

use super::answer::Answer;
use super::server::Server;
use super::wire::Problem;

/// Why a question was not answered.
#[derive(Debug)]
pub enum Fault {
    /// Nobody could be asked: no connection came about, or it broke. When it broke after the
    /// question was sent, the server may have acted on it.
    Unreachable {
        /// Who was to be asked.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// The answer took too long. The server may have acted on the question.
    TimedOut {
        /// Who was asked.
        server: String,
        /// How long was waited.
        after: Duration,
    },
    /// Something answered, but not as a tollgate server does.
    Unintelligible {
        /// Who was asked.
        server: String,
        /// What is odd about the answer.
        why: String,
    },
    /// The server refused: the question was wrong, not allowed, or its store is out. It changed
    /// nothing.
    Refused {
        /// The answer as it came.
        answer: Answer,
        /// What it says.
        problem: Box<Problem>,
    },
}

impl Fault {
    pub(super) fn of(error: ureq::Error, server: &Server, timeout: Duration) -> Self {
        let server = server.to_string();
        let why = match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                let after = Span::from(timeout.min(super::CONNECT_TIMEOUT));
                format!("no connection within {after}")
            }
            ureq::Error::Timeout(_) => return Self::TimedOut { server, after: timeout },
            ureq::Error::Protocol(error) => {
                return Self::Unintelligible { server, why: format!("it does not speak HTTP: {error}") };
            }
            ureq::Error::BodyExceedsLimit(most) => {
                return Self::Unintelligible { server, why: format!("more than {most} bytes") };
            }
            ureq::Error::Io(error) => in_words(&error),
            ureq::Error::HostNotFound => "there is no such host".to_owned(),
            error => error.to_string(),
        };
        Self::Unreachable { server, why }
    }
}

/// What went wrong, without the operating system's numbers where there is a plain word for it.
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
