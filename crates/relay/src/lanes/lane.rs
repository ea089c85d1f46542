//! One lane: the items that wait at one tenant, account and recipient domain.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

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

impl Priority {
    /// All priorities, the first one first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];
}

/// Why a lane sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Until when.
    pub until: Timestamp,
    /// When what keeps it is over: before `until` if the rule aligns or spreads what it defers.
    pub free_at: Timestamp,
    /// What keeps it.
    pub cause: Cause,
    /// The rule, or what the server said.
    pub reason: String,
    /// What other lanes wait for too: the rule and key that bind. One lane then asks for all of them.
    pub shared: Option<Arc<str>>,
    /// The account that was asked for, if it is about one.
    pub account: Option<Arc<str>>,
}

/// What keeps a lane from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A limit.
    Limit,
    /// The server asked to slow down.
    Throttled,
    /// No account can be used.
    Paused,
    /// All connections that the server gets are in use.
    Busy,
    /// The relay's own store or disk cannot be used.
    Outage,
}

impl Sleep {
    /// A sleep that ends when what keeps the lane is over.
    pub fn new(until: Timestamp, cause: Cause, reason: String) -> Self {
        Self { until, free_at: until, cause, reason, shared: None, account: None }
    }
}

impl Cause {
    /// Its name, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Throttled => "throttled",
            Self::Paused => "paused",
            Self::Busy => "busy",
            Self::Outage => "outage",
        }
    }
}

/// If the item that asks the limits gets no answer for so long, because its server is slow, the next one asks.
const ASK_PATIENCE: Span = Span::from_secs(2);

/// The order of a lane: by priority, then by the time at which an item came or its retry was due, then by arrival.
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
    pub(super) later: BTreeMap<(Timestamp, u64), (Rank, Entry)>,
    pub(super) in_flight: u32,
    /// The item in flight that asks the limits, by its number, and since when. The next one follows when the limits
    /// have allowed it, or it is back: so no item overtakes another at a limit.
    pub(super) asking: Option<(u64, Timestamp)>,
    pub(super) sleep: Option<Sleep>,
    /// Why its items wait for an account, and until when the last of them does.
    pub(super) unserved: Option<Sleep>,
    /// How often the server asked to slow down, in a row.
    pub(super) throttled: u32,
    /// What it waits for together with others.
    pub(super) parked: Option<Arc<str>>,
    /// What it asks for, while others wait.
    pub(super) probes: Option<Arc<str>>,
    /// Whether it is in the rings of its tenant, for each priority.
    pub(super) in_ring: [bool; Priority::ALL.len()],
    /// Whether an operator paused it.
    pub(super) held: bool,
    /// Its entry among the timers.
    pub(super) timer: Option<Timestamp>,
    /// Why an attempt last failed for now.
    pub(super) last_error: Option<Arc<str>>,
}

impl Lane {
    pub(super) fn new(key: LaneKey) -> Self {
        Self {
            key,
            ready: BTreeMap::new(),
            later: BTreeMap::new(),
            in_flight: 0,
            asking: None,
            sleep: None,
            unserved: None,
            throttled: 0,
            parked: None,
            probes: None,
            in_ring: [false; Priority::ALL.len()],
            held: false,
            timer: None,
            last_error: None,
        }
    }

    pub(super) fn insert(&mut self, rank: Rank, due: Timestamp, entry: Entry, now: Timestamp) {
        if due <= now {
            self.ready.insert(rank, entry);
        } else {
            self.later.insert((due, rank.2), (rank, entry));
        }
    }

    pub(super) fn remove(&mut self, rank: Rank, due: Timestamp) {
        if self.ready.remove(&rank).is_none() {
            self.later.remove(&(due, rank.2));
        }
    }

    /// Notes that an item no longer asks the limits.
    pub(super) fn asked(&mut self, number: u64) {
        self.asking.take_if(|(asking, _)| *asking == number);
    }

    /// Ends a sleep that is over, and makes ready what is due.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if self.parked.is_none() && self.sleep.as_ref().is_some_and(|sleep| sleep.until <= now) {
            self.sleep = None;
        }
        if self.unserved.as_ref().is_some_and(|sleep| sleep.until <= now) {
            self.unserved = None;
        }
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= now
        {
            let (rank, entry) = first.remove();
            self.ready.insert(rank, entry);
        }
        self.asking.take_if(|(_, since)| *since + ASK_PATIENCE <= now);
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

    /// Why and until when it sleeps, or all of its items wait for an account.
    pub(super) fn shown_sleep(&self) -> Option<&Sleep> {
        self.sleep.as_ref().or_else(|| self.unserved.as_ref().filter(|_| self.ready.is_empty()))
    }

    /// Whether it can give an item away.
    pub(super) fn is_active(&self, per_lane: u32) -> bool {
        self.next_priority(per_lane).is_some()
    }

    /// The priority of the item that it can give away, if it can.
    pub(super) fn next_priority(&self, per_lane: u32) -> Option<Priority> {
        let may = self.sleep.is_none() && !self.held && self.asking.is_none() && self.in_flight < per_lane;
        self.ready.first_key_value().filter(|_| may).map(|((priority, ..), _)| *priority)
    }

    /// When it has to be looked at again.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        match &self.sleep {
            // Its park has a timer for all.
            Some(_) if self.parked.is_some() => None,
            Some(sleep) => Some(sleep.until),
            None => {
                let later = self.later.first_key_value().map(|((due, _), _)| *due);
                let asking = self.asking.filter(|_| !self.ready.is_empty());
                later.into_iter().chain(asking.map(|(_, since)| since + ASK_PATIENCE)).min()
            }
        }
    }

    /// Whether nothing is left to remember.
    pub(super) fn is_idle(&self) -> bool {
        let empty = self.ready.is_empty() && self.later.is_empty() && self.in_flight == 0;
        empty && self.sleep.is_none() && self.in_ring == [false; Priority::ALL.len()]
    }
}
