//! The request to a pacer.

use tollgate_core::{Attempt, Span};

/// An attempt that may wait.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is attempted.
    pub attempt: Attempt<'a>,
    /// The longest that the caller waits. Without it, only the rules bound the wait.
    pub max_wait: Option<Span>,
    /// Attempts of higher priority go first; among equals, those that came first.
    pub priority: i8,
    /// The id by which the caller knows the attempt, if it sent one.
    pub correlation: Option<&'a str>,
}

impl<'a> From<Attempt<'a>> for Ask<'a> {
    /// Waits as long as the rules allow, with the default priority.
    fn from(attempt: Attempt<'a>) -> Self {
        Self { attempt, max_wait: None, priority: 0, correlation: None }
    }
}
