//! Those who wait for the same keys, in the order in which they go.

use crate::owned_attempt::OwnedAttempt;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::answer::Bound;
use super::ids::WaitKeyId;
use super::notifications::Listener;

/// A place in a line: by priority, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i8>,
    number: u64,
}

/// Somebody who waits.
pub(super) struct Waiter {
    pub(super) ask: Arc<OwnedAttempt>,
    pub(super) listener: Box<dyn Listener>,
    pub(super) arrived: Instant,
    /// When it is too late, and why.
    pub(super) deadline: Option<(Instant, Bound)>,
    /// Whether it is known to others that it has to wait.
    pub(super) noted: bool,
}

/// Everybody who waits for the same keys. Only the first is ever asked about.
pub(super) struct Lane {
    /// All that those in it have to pass.
    pub(super) wait_keys: SmallVec<[WaitKeyId; 4]>,
    /// Where it waits for its turn, and its place there.
    pub(super) stand: WaitKeyId,
    pub(super) turn: Rank,
    /// Who is being asked about: then the lane is in no ring.
    pub(super) asked: Option<Rank>,
    /// Whether it was sent on, at its turn, to wait elsewhere: once until it is asked about.
    pub(super) moved: bool,
    waiters: BTreeMap<Rank, Waiter>,
    /// What all of them take together.
    cost: u64,
}

impl Rank {
    pub(super) fn new(priority: i8, number: u64) -> Self {
        Self { priority: Reverse(priority), number }
    }

    /// The same place among those of another's priority.
    pub(super) fn with_priority_of(self, other: Self) -> Self {
        Self { priority: other.priority, ..self }
    }

    /// Whether nobody of this place has a lower priority than one of another.
    pub(super) fn is_no_lower_than(self, other: Self) -> bool {
        self.priority <= other.priority
    }

    /// A later place among those of the same priority.
    pub(super) fn renumbered(self, number: u64) -> Self {
        Self { number, ..self }
    }
}

impl Lane {
    pub(super) fn new(wait_keys: SmallVec<[WaitKeyId; 4]>, stand: WaitKeyId, turn: Rank) -> Self {
        Self { wait_keys, stand, turn, asked: None, moved: false, waiters: BTreeMap::new(), cost: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn push(&mut self, rank: Rank, waiter: Waiter) {
        self.cost = self.cost.saturating_add(waiter.ask.cost);
        self.waiters.insert(rank, waiter);
    }

    pub(super) fn remove(&mut self, rank: Rank) -> Option<Waiter> {
        let waiter = self.waiters.remove(&rank)?;
        self.cost = self.cost.saturating_sub(waiter.ask.cost);
        Some(waiter)
    }

    pub(super) fn first(&self) -> Option<(Rank, &Waiter)> {
        self.waiters.first_key_value().map(|(rank, waiter)| (*rank, waiter))
    }

    pub(super) fn waiter(&self, rank: Rank) -> Option<&Waiter> {
        self.waiters.get(&rank)
    }

    pub(super) fn waiter_mut(&mut self, rank: Rank) -> Option<&mut Waiter> {
        self.waiters.get_mut(&rank)
    }

    pub(super) fn into_waiters(self) -> impl Iterator<Item = Waiter> {
        self.waiters.into_values()
    }

    /// What those take together who go before a place.
    pub(super) fn cost_before(&self, rank: Rank) -> u64 {
        match self.waiters.last_key_value() {
            Some((last, _)) if *last < rank => self.cost,
            _ => self.waiters.range(..rank).map(|(_, waiter)| waiter.ask.cost).sum(),
        }
    }
}
