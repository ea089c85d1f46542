//! The request to a pacer.

use tollgate_core::{Attempt, Span};

/// An attempt that may wait.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The attempt.
    pub attempt: Attempt<'a>,
    /// The longest that the caller waits. Without it, only the rules bound the wait.
    pub max_wait: Option<Span>,
    /// Attempts of higher priority go first. Among attempts of the same priority, the one that came first goes
    /// first.
    pub priority: i8,
    /// The id by which the caller knows the attempt, if it sent one.
    pub correlation: Option<&'a str>,
    /// Whether the attempt is decided before it queues.
    pub first: First,
}

/// The first step of an attempt if its store does not answer at once. With other stores, the attempt is always
/// decided first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The attempt is decided, and queues if it has to wait. It also queues if others wait for its keys.
    Decide,
    /// The attempt queues. So attempts are decided in the order of arrival, and only a few at once.
    Queue,
}

impl<'a> From<Attempt<'a>> for Ask<'a> {
    /// Queues first, and waits as long as the rules allow, with the default priority.
    fn from(attempt: Attempt<'a>) -> Self {
        Self { attempt, max_wait: None, priority: 0, correlation: None, first: First::Queue }
    }
}
