//! What a pacer answers.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Span, When};

use crate::engine::Fault;

/// Leave to go on: everything was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// How long it had to wait.
    pub waited: Span,
    /// What it can be given back with; `None` if nothing was taken.
    pub receipt: Option<String>,
}

/// Leave to go on, with what the caller made of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paced<T> {
    /// How long it had to wait.
    pub waited: Span,
    /// What the caller made of the decision that let it pass.
    pub seen: T,
}

/// Why there is no leave. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unpaced<T = ()> {
    /// A rule refuses it, whatever the queue: it rejects, it defers, or the time to wait is beyond what
    /// it lets anybody wait.
    Denied {
        /// Who refuses it.
        refusal: Refusal,
        /// What the caller made of the decision.
        seen: T,
    },
    /// Its turn comes too late, or has come too late.
    TooLate {
        /// How long it waited.
        waited: Span,
        /// How much longer it would have to wait, as far as the queue before it tells: never less.
        wait: Span,
        /// What it is too late for.
        bound: Bound,
    },
    /// Too many wait already.
    Full {
        /// How many: for the same keys, or in all.
        waiting: usize,
    },
    /// It cannot be decided at all.
    Fault(Fault),
    /// The pacer, or the runtime that it worked in, has ended.
    Ended,
}

/// The rule that refused an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule that is named, if one was exceeded.
    pub rule: Option<Arc<str>>,
    /// Its key, as people may see it.
    pub key: Option<String>,
    /// When the same attempt would pass.
    pub retry: When,
}

/// How long an attempt may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// As long as its caller said.
    Caller,
    /// As long as this rule lets anybody wait.
    Rule(Arc<str>),
}

impl<T> Unpaced<T> {
    /// The same, with something else made of the decision.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Unpaced<U> {
        match self {
            Self::Denied { refusal, seen } => Unpaced::Denied { refusal, seen: change(seen) },
            Self::TooLate { waited, wait, bound } => Unpaced::TooLate { waited, wait, bound },
            Self::Full { waiting } => Unpaced::Full { waiting },
            Self::Fault(fault) => Unpaced::Fault(fault),
            Self::Ended => Unpaced::Ended,
        }
    }
}

impl<T> fmt::Display for Unpaced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { refusal: Refusal { rule: Some(rule), .. }, .. } => write!(f, "denied by {rule}"),
            Self::Denied { .. } => f.write_str("denied"),
            Self::TooLate { wait, bound, .. } => {
                write!(f, "the wait would be {wait}, longer than {bound} allows")
            }
            Self::Full { waiting } => write!(f, "{waiting} wait already"),
            Self::Fault(fault) => write!(f, "{fault}"),
            Self::Ended => f.write_str("the pacer has ended"),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller => f.write_str("the caller"),
            Self::Rule(rule) => f.write_str(rule),
        }
    }
}

impl<T: fmt::Debug> std::error::Error for Unpaced<T> {}
