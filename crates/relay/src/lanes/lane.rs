//! One lane: the waiting items of one tenant, account and recipient domain.

use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use super::items::Items;
use crate::queue::ItemKey;

/// The tenant, account and recipient domain of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    /// The tenant that the mail belongs to.
    pub tenant: Arc<str>,
    /// The account that the sender named, if any.
    pub account: Option<Arc<str>>,
    /// The recipient domain.
    pub domain: Arc<str>,
}

/// The order of items that are due.
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

/// The reason why a lane sleeps, and the end of the sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// The time at which the lane wakes.
    pub until: Timestamp,
    /// The time at which the obstacle ends. It is before `until` if the rule aligns or spreads deferred
    /// attempts.
    pub free_at: Timestamp,
    /// The obstacle.
    pub cause: Cause,
    /// The rule, or the server's reply.
    pub reason: String,
    /// The limit or the server that other lanes may wait for, too: rule and key, or destination. One lane then
    /// asks on behalf of all of them.
    pub shared: Option<Arc<str>>,
    /// The account that the item was to use, if the obstacle concerns one.
    pub account: Option<Arc<str>>,
}

/// The obstacle that keeps a lane from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A limit.
    Limit,
    /// The server asked to slow down.
    Throttled,
    /// No account can be used.
    Paused,
    /// The server has as many connections as it may have.
    Busy,
    /// The relay's own store or disk cannot be used.
    Outage,
}

impl Sleep {
    /// A sleep that ends when the obstacle ends.
    pub fn new(until: Timestamp, cause: Cause, reason: String) -> Self {
        Self { until, free_at: until, cause, reason, shared: None, account: None }
    }
}

impl Cause {
    /// The name of the cause, for labels.
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

/// If the item that asks the limits gets no answer within this time, because its server is slow, the next item
/// asks.
const ASK_PATIENCE: Span = Span::from_secs(2);

/// The order of items in a lane: by priority, then by arrival or by the due time of a retry, then by number.
pub(super) type Rank = (Priority, Timestamp, u64);

/// An item that is due later, and the rank that it has then. Its number is in its key.
pub(super) type LaterItem = ((Priority, Timestamp), ItemKey);

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: Arc<LaneKey>,
    /// The items that are due, in their order.
    pub(super) ready: Items<Rank, ItemKey>,
    /// The items that became due and were not looked at when deferrals were counted, by their number. An item that
    /// has its lane for itself is left out, because most lanes have one message.
    pub(super) uncounted: Items<u64, ItemKey>,
    /// The items that are due later, by their due time.
    pub(super) later: Items<(Timestamp, u64), LaterItem>,
    pub(super) in_flight: u32,
    /// The item in flight that asks the limits: its number, and the time since when it asks. The next item asks
    /// once the limits have allowed this one, or it has returned. So no item overtakes another at a limit.
    pub(super) asking: Option<Box<(u64, Timestamp)>>,
    pub(super) sleep: Option<Box<Sleep>>,
    /// The sleep of its items that wait for an account; it ends with the last of their waits.
    pub(super) unserved: Option<Box<Sleep>>,
    /// The number of times in a row that the server asked to slow down.
    pub(super) throttled: u8,
    /// The limit or the server that it waits for together with other lanes.
    pub(super) parked: Option<Box<Arc<str>>>,
    /// The limit or the server that it asks on behalf of other lanes.
    pub(super) probes: Option<Box<Arc<str>>>,
    /// The priorities for which the lane is in its tenant's ring, one bit for each.
    pub(super) rings: u8,
    /// Whether an operator paused it.
    pub(super) held: bool,
    /// Whether its server answered the last attempt; `None` before the first one.
    pub(super) answers: Option<bool>,
    /// The time of its entry in the scheduler's timers; zero if it has none.
    pub(super) timer: Timestamp,
    /// The reason of the last temporary failure.
    pub(super) last_error: Option<Box<Arc<str>>>,
}

impl Lane {
    pub(super) fn new(key: Arc<LaneKey>) -> Self {
        Self {
            key,
            ready: Items::default(),
            uncounted: Items::default(),
            later: Items::default(),
            in_flight: 0,
            asking: None,
            sleep: None,
            unserved: None,
            throttled: 0,
            parked: None,
            probes: None,
            rings: 0,
            held: false,
            answers: None,
            timer: Timestamp::ZERO,
            last_error: None,
        }
    }

    pub(super) fn insert(&mut self, rank: Rank, due: Timestamp, item: ItemKey, now: Timestamp) {
        if due <= now {
            self.make_ready(rank, item);
        } else {
            self.later.insert((due, rank.2), ((rank.0, rank.1), item));
        }
    }

    pub(super) fn remove(&mut self, rank: Rank, due: Timestamp) {
        if self.ready.remove(&rank).is_none() {
            self.later.remove(&(due, rank.2));
        }
        self.uncounted.remove(&rank.2);
    }

    /// Adds an item that is due.
    pub(super) fn make_ready(&mut self, rank: Rank, item: ItemKey) {
        let alone = self.ready.first().filter(|_| self.ready.len() == 1);
        if let Some(((_, _, number), first)) = alone.map(|(rank, first)| (*rank, *first)) {
            self.uncounted.insert(number, first);
        }
        if !self.ready.is_empty() {
            self.uncounted.insert(rank.2, item);
        }
        self.ready.insert(rank, item);
    }

    /// Takes the first item that is due.
    pub(super) fn pop(&mut self) -> Option<(Rank, ItemKey)> {
        let first = self.ready.pop_first();
        if let Some(((_, _, number), _)) = first {
            self.uncounted.remove(&number);
        }
        first
    }

    /// Records that an item no longer asks the limits.
    pub(super) fn asked(&mut self, number: u64) {
        self.asking.take_if(|asking| asking.0 == number);
    }

    /// Ends a sleep whose time is over, and makes the due items ready.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if self.parked.is_none() && self.sleep.as_ref().is_some_and(|sleep| sleep.until <= now) {
            self.sleep = None;
        }
        if self.unserved.as_ref().is_some_and(|sleep| sleep.until <= now) {
            self.unserved = None;
        }
        while self.later.first().is_some_and(|((due, _), _)| *due <= now)
            && let Some(((_, number), ((priority, at), item))) = self.later.pop_first()
        {
            self.make_ready((priority, at, number), item);
        }
        self.asking.take_if(|asking| asking.1 + ASK_PATIENCE <= now);
    }

    /// Whether the lane asks on behalf of other lanes and has no item to ask with.
    pub(super) fn is_idle_probe(&self, per_lane: u32) -> bool {
        self.probes.is_some() && self.in_flight == 0 && !self.is_active(per_lane)
    }

    /// Puts the lane to sleep. If it sleeps already, the later end counts for a server's request, and the
    /// earlier end for limits: then its first item asks again.
    pub(super) fn fall_asleep(&mut self, sleep: Sleep) {
        let keeps = self.sleep.as_ref().is_some_and(|known| match (known.cause, sleep.cause) {
            (Cause::Limit, Cause::Limit) => known.until <= sleep.until,
            _ => known.until >= sleep.until,
        });
        if !keeps {
            self.sleep = Some(Box::new(sleep));
        }
    }

    /// The sleep of the lane, or of its items if all of them wait for an account.
    pub(super) fn shown_sleep(&self) -> Option<&Sleep> {
        self.sleep.as_deref().or_else(|| self.unserved.as_deref().filter(|_| self.ready.is_empty()))
    }

    /// Whether the lane has an item that may be sent now.
    pub(super) fn is_active(&self, per_lane: u32) -> bool {
        self.next_priority(per_lane).is_some()
    }

    /// The priority of the item that may be sent now, if there is one.
    pub(super) fn next_priority(&self, per_lane: u32) -> Option<Priority> {
        let may = self.sleep.is_none() && !self.held && self.asking.is_none() && self.in_flight < per_lane;
        self.ready.first().filter(|_| may).map(|((priority, ..), _)| *priority)
    }

    /// The time at which the lane must be recomputed.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        match &self.sleep {
            // Lanes that wait together have one timer, in `Parks`.
            Some(_) if self.parked.is_some() => None,
            Some(sleep) => Some(sleep.until),
            None => {
                let later = self.later.first().map(|((due, _), _)| *due);
                let asking = self.asking.as_ref().filter(|_| !self.ready.is_empty());
                later.into_iter().chain(asking.map(|asking| asking.1 + ASK_PATIENCE)).min()
            }
        }
    }

    /// Records that the lane joins its tenant's ring. Returns whether it was not in it.
    pub(super) fn join_ring(&mut self, priority: Priority) -> bool {
        let known = self.rings;
        self.rings |= 1 << priority as u8;
        self.rings != known
    }

    /// Records that the lane left its tenant's ring.
    pub(super) fn leave_ring(&mut self, priority: Priority) {
        self.rings &= !(1 << priority as u8);
    }

    /// Whether the lane can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        let empty = self.ready.is_empty() && self.later.is_empty() && self.in_flight == 0;
        empty && self.sleep.is_none() && self.rings == 0
    }
}
