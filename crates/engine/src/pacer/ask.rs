//! What is asked of a pacer.

use tollgate_core::{Attempt, Span};

/// An attempt that may wait.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is attempted.
    pub attempt: Attempt<'a>,
    /// The longest that the caller waits. With none, the rules alone say how long that may be.
    pub max_wait: Option<Span>,
    /// Whoever has a higher one goes first; among equals, whoever came first.
    pub priority: i8,
    /// The id by which the caller knows the attempt, if it sent one.
    pub correlation: Option<&'a str>,
}

impl<'a> From<Attempt<'a>> for Ask<'a> {
    /// Waits as long as the rules say, with the priority that everybody has.
    fn from(attempt: Attempt<'a>) -> Self {
        Self { attempt, max_wait: None, priority: 0, correlation: None }
    }
}
