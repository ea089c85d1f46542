//! What a limit shows of itself.

use crate::time::{Span, Timestamp};

/// When an attempt conforms to a limit, with no other traffic.
///
/// Ordered by how long one has to wait, so that the maximum over several limits is the answer for
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// At once.
    Now,
    /// After exactly this long: a microsecond less is too early.
    After(Span),
    /// When somebody releases a hold; no time can be told.
    OnRelease,
    /// Never: it asks for more than the limit's capacity.
    Never,
}

/// What one limit shows, after what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The most that can ever be taken at once; of a ladder, the failures that its last step takes, or
    /// those that there are if they are more.
    pub capacity: u64,
    /// What can still be taken now.
    pub remaining: u64,
    /// When the limit is whole again if nothing more is taken; `None` if not by itself.
    pub reset: Option<Timestamp>,
    /// When the attempt conforms.
    pub when: When,
}
