//! The results of a pacer.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Span, When};

use crate::engine::Fault;

/// Permission to proceed, with what the caller's `see` returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paced<T> {
    /// The time that the attempt waited.
    pub waited: Span,
    /// The value that the caller's `see` returned for the decision that let the attempt pass.
    pub seen: T,
}

/// Why the attempt may not proceed. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unpaced<T = ()> {
    /// A rule refuses it, whatever the queue: it rejects, it defers, or the wait exceeds what the rule
    /// allows.
    Denied {
        /// The rule that refuses it.
        refusal: Refusal,
        /// The value that the caller's `see` returned for the decision.
        seen: T,
    },
    /// Its turn comes too late, or has come too late.
    TooLate {
        /// The time that it waited.
        waited: Span,
        /// A lower bound of the further wait, computed from the queue before the attempt.
        wait: Span,
        /// The bound that the wait exceeds.
        bound: Bound,
    },
    /// Too many attempts are waiting already.
    Full {
        /// The number of waiting attempts: for the same keys, or in total.
        waiting: usize,
    },
    /// The attempt cannot be decided at all.
    Fault(Fault),
    /// The pacer, or the runtime that it worked in, has ended.
    Ended,
}

/// The rule that refused an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule that the refusal names, if one was exceeded.
    pub rule: Option<Arc<str>>,
    /// Its key, as operators may see it.
    pub key: Option<String>,
    /// When the same attempt would pass.
    pub retry: When,
}

/// The bound on the wait of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The caller's own bound.
    Caller,
    /// The longest wait that this rule allows.
    Rule(Arc<str>),
}

impl<T> fmt::Display for Unpaced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { refusal: Refusal { rule: Some(rule), .. }, .. } => write!(f, "denied by {rule}"),
            Self::Denied { .. } => f.write_str("denied"),
            Self::TooLate { wait, bound, .. } => {
                write!(f, "the wait would be {wait}, longer than {bound} allows")
            }
            Self::Full { waiting } => write!(f, "{waiting} attempts are waiting already"),
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
