//! The reading of a limit.

use crate::time::{Span, Timestamp};

/// When an attempt conforms to a limit, without other traffic.
///
/// Ordered by the length of the wait, so that the maximum over several limits applies to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// At once.
    Now,
    /// After exactly this long: a microsecond less is too early.
    After(Span),
    /// When a hold is released; the time is unknown.
    OnRelease,
    /// Never: the cost exceeds the limit's capacity.
    Never,
}

/// The reading of one limit after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The most that can ever be taken at once. For a ladder, the failures of its last step, or the counted
    /// ones if they are more.
    pub capacity: u64,
    /// What can still be taken now.
    pub remaining: u64,
    /// When the limit is unused again if nothing more is taken; `None` if that needs a release or a reset.
    pub reset: Option<Timestamp>,
    /// When the attempt conforms.
    pub when: When,
}

/// The units of a limit: how many there are, how many are left, and when all are back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) capacity: u64,
    pub(crate) remaining: u64,
    pub(crate) reset: Option<Timestamp>,
}

impl Reading {
    /// A reading that shows no units yet.
    #[inline]
    pub(crate) fn at(when: When) -> Self {
        Self { capacity: 0, remaining: 0, reset: None, when }
    }

    /// Shows these units.
    #[inline]
    pub(crate) fn show(&mut self, Stock { capacity, remaining, reset }: Stock) {
        (self.capacity, self.remaining, self.reset) = (capacity, remaining, reset);
    }
}
