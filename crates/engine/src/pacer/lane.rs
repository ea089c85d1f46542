//! The attempts that wait for the same keys, in the order in which they go.

use crate::owned_attempt::OwnedAttempt;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::answer::Bound;
use super::ids::WaitKeyId;
use super::notifications::Listener;

/// A position in a queue: by priority, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i8>,
    number: u64,
}

/// A waiting attempt.
pub(super) struct Waiter {
    pub(super) ask: Arc<OwnedAttempt>,
    pub(super) listener: Box<dyn Listener>,
    pub(super) arrived: Instant,
    /// The deadline, and the bound that sets it.
    pub(super) deadline: Option<(Instant, Bound)>,
    /// Whether its wait was recorded in the metrics and the journal.
    pub(super) noted: bool,
}

/// The attempts that wait for the same keys. Only the first of them is ever decided.
pub(super) struct Lane {
    /// The wait keys that its attempts have to pass.
    pub(super) wait_keys: SmallVec<[WaitKeyId; 4]>,
    /// The wait key at which it waits for its turn, and its position there.
    pub(super) stand: WaitKeyId,
    pub(super) turn: Rank,
    /// The attempt that is being decided. The lane is in no ring then.
    pub(super) asked: Option<Rank>,
    /// Whether the lane was sent, at its turn, to wait at another key: at most once between two decisions.
    pub(super) moved: bool,
    waiters: BTreeMap<Rank, Waiter>,
    /// The cost of all its attempts together.
    cost: u64,
}

impl Rank {
    pub(super) fn new(priority: i8, number: u64) -> Self {
        Self { priority: Reverse(priority), number }
    }

    /// The same position, with the priority of another.
    pub(super) fn with_priority_of(self, other: Self) -> Self {
        Self { priority: other.priority, ..self }
    }

    /// Whether the priority of this position is not lower than that of another.
    pub(super) fn is_no_lower_than(self, other: Self) -> bool {
        self.priority <= other.priority
    }

    /// A later position of the same priority.
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

    /// The cost of all attempts before a position.
    pub(super) fn cost_before(&self, rank: Rank) -> u64 {
        match self.waiters.last_key_value() {
            Some((last, _)) if *last < rank => self.cost,
            _ => self.waiters.range(..rank).map(|(_, waiter)| waiter.ask.cost).sum(),
        }
    }
}
