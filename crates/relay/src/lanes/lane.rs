//! One lane: the items that wait at one tenant, account and recipient domain.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::Timestamp;

use crate::queue::ItemKey;

/// What a lane is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    /// Whose mail it is.
    pub tenant: Arc<str>,
    /// The account that senders named, if they did.
    pub account: Option<Arc<str>>,
    /// The recipient domain.
    pub domain: Arc<str>,
}

/// Which of the items that are due comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others.
    High,
    /// As usual.
    #[default]
    Normal,
    /// After all others.
    Low,
}

/// Why a lane sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Until when.
    pub until: Timestamp,
    /// What keeps it.
    pub cause: Cause,
    /// The rule, or what the server said.
    pub reason: String,
    /// What other lanes wait for too: the rule and key that bind. One lane then asks for all of them.
    pub shared: Option<Arc<str>>,
}

/// What keeps a lane from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A limit.
    Limit,
    /// The server asked to slow down.
    Throttled,
    /// No account can be used.
    Paused,
    /// The relay's own store or disk cannot be used.
    Outage,
}

/// Where an item stands: by priority, then by due time, then by arrival.
pub(super) type Rank = (Priority, Timestamp, u64);

/// An item of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) item: ItemKey,
    pub(super) recipients: u32,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: LaneKey,
    /// Items that are due, in their order.
    pub(super) ready: BTreeMap<Rank, Entry>,
    /// Items that are due later, by that time.
    pub(super) later: BTreeMap<(Timestamp, u64), (Priority, Entry)>,
    pub(super) in_flight: u32,
    pub(super) sleep: Option<Sleep>,
    /// How often the server asked to slow down, in a row.
    pub(super) throttled: u32,
    /// What it waits for together with others.
    pub(super) parked: Option<Arc<str>>,
    /// What it asks for, while others wait.
    pub(super) probes: Option<Arc<str>>,
    /// Whether it is in its tenant's ring.
    pub(super) in_ring: bool,
    /// Its entry among the timers.
    pub(super) timer: Option<Timestamp>,
}

impl Lane {
    pub(super) fn new(key: LaneKey) -> Self {
        Self {
            key,
            ready: BTreeMap::new(),
            later: BTreeMap::new(),
            in_flight: 0,
            sleep: None,
            throttled: 0,
            parked: None,
            probes: None,
            in_ring: false,
            timer: None,
        }
    }

    pub(super) fn insert(&mut self, rank: Rank, entry: Entry, now: Timestamp) {
        let (priority, due, number) = rank;
        if due <= now {
            self.ready.insert(rank, entry);
        } else {
            self.later.insert((due, number), (priority, entry));
        }
    }

    pub(super) fn remove(&mut self, rank: Rank) -> Option<Entry> {
        let (_, due, number) = rank;
        self.ready.remove(&rank).or_else(|| self.later.remove(&(due, number)).map(|(_, entry)| entry))
    }

    /// Ends a sleep that is over, and makes ready what is due.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if self.parked.is_none() && self.sleep.as_ref().is_some_and(|sleep| sleep.until <= now) {
            self.sleep = None;
        }
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= now
        {
            let ((due, number), (priority, entry)) = first.remove_entry();
            self.ready.insert((priority, due, number), entry);
        }
    }

    /// Whether it asks for others and has nothing to ask for.
    pub(super) fn is_idle_probe(&self, per_lane: u32) -> bool {
        self.probes.is_some() && self.in_flight == 0 && !self.is_active(per_lane)
    }

    /// Sleeps. A lane that sleeps already keeps the later moment for what a server said, and the earlier one for
    /// limits: the first item asks again then.
    pub(super) fn fall_asleep(&mut self, sleep: Sleep) {
        let keeps = self.sleep.as_ref().is_some_and(|known| match (known.cause, sleep.cause) {
            (Cause::Limit, Cause::Limit) => known.until <= sleep.until,
            _ => known.until >= sleep.until,
        });
        if !keeps {
            self.sleep = Some(sleep);
        }
    }

    /// Whether it can give an item away.
    pub(super) fn is_active(&self, per_lane: u32) -> bool {
        self.sleep.is_none() && !self.ready.is_empty() && self.in_flight < per_lane
    }

    /// When it has to be looked at again.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        match &self.sleep {
            // Its park has a timer for all.
            Some(_) if self.parked.is_some() => None,
            Some(sleep) => Some(sleep.until),
            None => self.later.first_key_value().map(|((due, _), _)| *due),
        }
    }

    /// Whether nothing is left to remember.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.later.is_empty() && self.in_flight == 0 && self.sleep.is_none()
    }
}
