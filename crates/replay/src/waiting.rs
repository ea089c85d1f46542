//! Attempts that wait for their turn, as a server's pacer lets them: in order of arrival, for as long as the rule allows.
//!
//! A waiting attempt takes nothing. Attempts that meet a key for which others wait queue behind them. When the first
//! one's time has come, it is decided again.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use tollgate_core::{Span, Timestamp};
use tollgate_engine::PacerOptions;

use crate::hash;
use crate::lane::{Moment, Named};
use crate::order::Entry;

/// All attempts that wait.
#[derive(Default)]
pub(crate) struct WaitRoom {
    queues: HashMap<u64, Queue>,
    due: BTreeSet<(Timestamp, u64)>,
    waiting: usize,
}

/// The attempts that wait for one key.
pub(crate) struct Queue {
    /// The key.
    pub(crate) named: Named,
    /// How long its rule lets an attempt wait.
    pub(crate) most: Span,
    pub(crate) attempts: VecDeque<Deferred>,
}

/// An attempt that waits.
pub(crate) struct Deferred {
    pub(crate) policy: Box<str>,
    pub(crate) route: Option<Box<str>>,
    pub(crate) at: Timestamp,
    number: u64,
    duration: Span,
    status: u16,
    agent: u64,
    values: Vec<Option<Box<str>>>,
}

impl Named {
    /// The id of its queue.
    pub(crate) fn id(&self) -> u64 {
        id(&self.rule, &self.key)
    }
}

/// The id of the queue for a key.
pub(crate) fn id(rule: &str, key: &str) -> u64 {
    hash(rule.as_bytes()).rotate_left(1) ^ hash(key.as_bytes())
}

impl WaitRoom {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// When the next turn is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The first of these keys that attempts wait for.
    pub(crate) fn queue_of(&self, keys: &[u64]) -> Option<u64> {
        keys.iter().copied().find(|key| self.queues.contains_key(key))
    }

    /// Adds an attempt to a queue. Returns it, with the key, if there is no room.
    pub(crate) fn join(&mut self, queue: u64, attempt: Deferred) -> Option<(Deferred, Named)> {
        let bounds = PacerOptions::default();
        let queue = self.queues.get_mut(&queue)?;
        if queue.attempts.len() >= bounds.most_per_key || self.waiting >= bounds.most_waiting {
            return Some((attempt, queue.named.clone()));
        }
        queue.attempts.push_back(attempt);
        self.waiting += 1;
        None
    }

    /// Opens a queue for a key, whose first turn is due at a time.
    pub(crate) fn open(&mut self, named: &Named, most: Span, due: Timestamp, attempt: Deferred) {
        let id = named.id();
        let queue = self.queues.entry(id).or_insert_with(|| {
            self.due.insert((due, id));
            Queue { named: named.clone(), most, attempts: VecDeque::new() }
        });
        queue.attempts.push_back(attempt);
        self.waiting += 1;
    }

    /// Takes out the queue whose turn is due.
    pub(crate) fn take(&mut self) -> Option<Queue> {
        let (_, id) = self.due.pop_first()?;
        let queue = self.queues.remove(&id)?;
        self.waiting -= queue.attempts.len();
        Some(queue)
    }

    /// Puts a queue back, whose next turn is due at a time.
    pub(crate) fn put_back(&mut self, queue: Queue, due: Timestamp) {
        if queue.attempts.is_empty() {
            return;
        }
        self.waiting += queue.attempts.len();
        let id = queue.named.id();
        self.due.insert((due, id));
        self.queues.insert(id, queue);
    }
}

impl Deferred {
    pub(crate) fn new(policy: &str, route: Option<&str>, moment: &Moment<'_>) -> Self {
        let Entry { at, duration, status, agent, .. } = *moment.entry;
        Self {
            policy: policy.into(),
            route: route.map(Into::into),
            at,
            number: moment.number,
            duration,
            status,
            agent,
            values: moment.values.iter().map(|value| value.map(Into::into)).collect(),
        }
    }

    /// The attempt in the form that it came in.
    pub(crate) fn with<T>(&self, see: impl FnOnce(&Moment<'_>) -> T) -> T {
        let values: Vec<Option<&str>> = self.values.iter().map(Option::as_deref).collect();
        let entry = Entry::bare(self.at, self.duration, self.status, self.agent);
        see(&Moment { number: self.number, entry: &entry, values: &values })
    }
}
