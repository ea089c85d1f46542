//! Which tickets have been given back, so that none is twice.

use std::collections::BTreeSet;

use tollgate_core::store::Given;
use tollgate_core::{Ticket, Timestamp};

/// The tickets given back, by the time they were taken. When there are too many, the oldest are
/// forgotten, and from then on nothing that old can be given back.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    tickets: BTreeSet<(Timestamp, Ticket)>,
    /// Everything up to here is too old to tell.
    horizon: Timestamp,
}

impl Spent {
    /// How many tickets are remembered.
    pub(crate) const MOST: usize = 1_000_000;

    /// Marks a ticket as given back, if it was not before.
    pub(crate) fn spend(&mut self, taken_at: Timestamp, ticket: Ticket) -> Given {
        if taken_at <= self.horizon {
            return Given::TooOld;
        }
        if !self.tickets.insert((taken_at, ticket)) {
            return Given::Already;
        }
        while self.tickets.len() > Self::MOST {
            if let Some((oldest, _)) = self.tickets.pop_first() {
                self.horizon = oldest;
            }
        }
        Given::Back
    }
}
