//! The scheduler: which item is sent next.
//!
//! A lane is one tenant, account and recipient domain. It has one timer, however long it is: a lane that a limit
//! stopped costs nothing until its moment comes. Tenants take turns, and lanes of a tenant take turns, by recipients.
//! Everything here is pure: time is an argument.

mod lane;
mod retry;
mod ring;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::Timestamp;

pub use lane::{Cause, LaneKey, Priority, Sleep};
use lane::{Entry, Lane, Rank};
pub use retry::{Next, Retry};
use ring::Ring;

use crate::queue::{ItemKey, Waiting};

/// How a scheduler behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// How many recipients a turn is worth.
    pub quantum: u32,
    /// How many items of one lane are in flight at most.
    pub per_lane: u32,
    /// How many items are in flight at most.
    pub in_total: u32,
}

/// An item whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its lane.
    pub lane: LaneKey,
    /// The item.
    pub item: ItemKey,
    /// How many recipients wait.
    pub recipients: u32,
}

/// What came of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No recipient waits any more.
    Settled,
    /// Recipients wait for an attempt at this time.
    Again {
        /// When it is due.
        due: Timestamp,
        /// How many recipients wait.
        recipients: u32,
    },
    /// Nothing was tried. The item keeps its place, and the lane sleeps.
    Blocked(Sleep),
}

/// What is seen of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Which lane.
    pub key: LaneKey,
    /// How many items wait.
    pub waiting: usize,
    /// How many are in flight.
    pub in_flight: u32,
    /// When the first of those that are due later is due, if none is due now.
    pub next_due: Option<Timestamp>,
    /// Why and until when it sleeps.
    pub sleep: Option<Sleep>,
}

type LaneNumber = u64;

/// Where an item is.
#[derive(Clone, Copy, Debug)]
struct Place {
    lane: LaneNumber,
    rank: Rank,
    recipients: u32,
    in_flight: bool,
}

/// All lanes.
#[derive(Debug)]
pub struct Lanes {
    options: LaneOptions,
    numbers: HashMap<LaneKey, LaneNumber>,
    lanes: HashMap<LaneNumber, Lane>,
    rings: HashMap<Arc<str>, Ring<LaneNumber>>,
    tenants: Ring<Arc<str>>,
    timers: BTreeSet<(Timestamp, LaneNumber)>,
    places: HashMap<ItemKey, Place>,
    in_flight: u32,
    /// Numbers lanes and arrivals.
    next: u64,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self { quantum: 50, per_lane: 5, in_total: 500 }
    }
}

impl Lanes {
    /// A scheduler without items.
    pub fn new(options: LaneOptions) -> Self {
        let tenants = Ring::new(options.quantum);
        Self {
            options,
            numbers: HashMap::new(),
            lanes: HashMap::new(),
            rings: HashMap::new(),
            tenants,
            timers: BTreeSet::new(),
            places: HashMap::new(),
            in_flight: 0,
            next: 0,
        }
    }

    /// Adds an item. One that waits already is moved to its new due time; one in flight stays there.
    pub fn add(&mut self, waiting: &Waiting, priority: Priority, now: Timestamp) {
        if self.places.get(&waiting.key).is_some_and(|place| place.in_flight) {
            return;
        }
        self.remove(waiting.key, now);
        let key = LaneKey {
            tenant: waiting.tenant.as_str().into(),
            account: waiting.account.as_deref().map(Into::into),
            domain: waiting.domain.as_str().into(),
        };
        let lane = self.number_of(key);
        self.next += 1;
        let rank = (priority, waiting.due, self.next);
        let recipients = waiting.recipients;
        self.places.insert(waiting.key, Place { lane, rank, recipients, in_flight: false });
        self.put(waiting.key, now);
    }

    /// Removes an item that waits.
    pub fn remove(&mut self, item: ItemKey, now: Timestamp) {
        let Some(place) = self.places.get(&item).copied().filter(|place| !place.in_flight) else { return };
        self.places.remove(&item);
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.remove(place.rank);
        }
        self.refresh(place.lane, now);
    }

    /// The next item to send now. It is in flight until [`Lanes::done`].
    pub fn next(&mut self, now: Timestamp) -> Option<Turn> {
        while let Some((at, number)) = self.timers.first().copied()
            && at <= now
        {
            self.refresh(number, now);
        }
        if self.in_flight >= self.options.in_total {
            return None;
        }
        let (tenant, number) = self.pick(now)?;
        let lane = self.lanes.get_mut(&number)?;
        let (_, Entry { item, recipients }) = lane.ready.pop_first()?;
        lane.in_flight += 1;
        let turn = Turn { lane: lane.key.clone(), item, recipients };
        self.in_flight += 1;
        self.tenants.charge(recipients);
        if let Some(ring) = self.rings.get_mut(&tenant) {
            ring.charge(recipients);
        }
        if let Some(place) = self.places.get_mut(&item) {
            place.in_flight = true;
        }
        Some(turn)
    }

    /// The tenant and the lane whose turn it is.
    fn pick(&mut self, now: Timestamp) -> Option<(Arc<str>, LaneNumber)> {
        let (lanes, per_lane) = (&mut self.lanes, self.options.per_lane);
        let mut left = Vec::new();
        let mut active = |number: &LaneNumber| {
            let Some(lane) = lanes.get_mut(number) else { return false };
            lane.in_ring = lane.is_active(per_lane);
            if !lane.in_ring {
                left.push(*number);
            }
            lane.in_ring
        };
        let mut found = None;
        let rings = &mut self.rings;
        let tenant = self.tenants.turn(|tenant| {
            found = rings.get_mut(tenant).and_then(|ring| ring.turn(&mut active));
            if found.is_none() {
                rings.remove(tenant);
            }
            found.is_some()
        });
        for number in left {
            self.refresh(number, now);
        }
        tenant.zip(found)
    }

    /// Ends a turn.
    pub fn done(&mut self, item: ItemKey, end: End, now: Timestamp) {
        let Some(place) = self.places.get(&item).copied().filter(|place| place.in_flight) else { return };
        self.in_flight -= 1;
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.in_flight -= 1;
            if let End::Blocked(sleep) = &end {
                lane.fall_asleep(sleep.clone());
            }
        }
        let (priority, due, number) = place.rank;
        match end {
            End::Settled => drop(self.places.remove(&item)),
            End::Again { due, recipients } => {
                let rank = (priority, due, number);
                self.places.insert(item, Place { rank, recipients, in_flight: false, ..place });
                self.put(item, now);
            }
            End::Blocked(_) => {
                let rank = (priority, due, number);
                self.places.insert(item, Place { rank, in_flight: false, ..place });
                self.put(item, now);
            }
        }
        self.refresh(place.lane, now);
    }

    /// Lets a lane rest because its server asked to slow down. Answers until when.
    pub fn throttle(&mut self, key: &LaneKey, reason: &str, now: Timestamp) -> Option<Timestamp> {
        let number = *self.numbers.get(key)?;
        let lane = self.lanes.get_mut(&number)?;
        let until = now + retry::rest(lane.throttled);
        lane.throttled += 1;
        lane.fall_asleep(Sleep { until, cause: Cause::Throttled, reason: reason.to_owned() });
        self.refresh(number, now);
        Some(until)
    }

    /// Notes that a server took a message: the next request to slow down is the first one again.
    pub fn relax(&mut self, key: &LaneKey) {
        if let Some(lane) = self.numbers.get(key).and_then(|number| self.lanes.get_mut(number)) {
            lane.throttled = 0;
        }
    }

    /// When something changes by itself next.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Wakes all lanes of a tenant that sleep for this cause.
    pub fn wake(&mut self, tenant: &str, cause: Cause, now: Timestamp) {
        let sleeping = |lane: &Lane| {
            *lane.key.tenant == *tenant && lane.sleep.as_ref().is_some_and(|sleep| sleep.cause == cause)
        };
        let numbers: Vec<LaneNumber> =
            self.lanes.iter().filter(|(_, lane)| sleeping(lane)).map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.sleep = None;
            }
            self.refresh(number, now);
        }
    }

    /// How many items wait or are in flight.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many items are in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// All lanes as they are.
    pub fn views(&self) -> impl Iterator<Item = LaneView> {
        self.lanes.values().map(Lane::view)
    }

    /// The lane of an item.
    pub fn lane_of(&self, item: ItemKey) -> Option<LaneView> {
        self.lanes.get(&self.places.get(&item)?.lane).map(Lane::view)
    }

    fn number_of(&mut self, key: LaneKey) -> LaneNumber {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.next += 1;
        self.numbers.insert(key.clone(), self.next);
        self.lanes.insert(self.next, Lane::new(key));
        self.next
    }

    /// Puts a known item into its lane.
    fn put(&mut self, item: ItemKey, now: Timestamp) {
        let Some(place) = self.places.get(&item).copied() else { return };
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.insert(place.rank, Entry { item, recipients: place.recipients }, now);
        }
        self.refresh(place.lane, now);
    }

    /// Brings a lane up to date: its ready items, its timer, its place in the ring.
    fn refresh(&mut self, number: LaneNumber, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.advance(now);
        let timer = lane.next_timer();
        if timer != lane.timer {
            if let Some(old) = lane.timer {
                self.timers.remove(&(old, number));
            }
            self.timers.extend(timer.map(|at| (at, number)));
            lane.timer = timer;
        }
        if lane.is_active(self.options.per_lane) && !lane.in_ring {
            lane.in_ring = true;
            let tenant = Arc::clone(&lane.key.tenant);
            let quantum = self.options.quantum;
            let ring = self.rings.entry(Arc::clone(&tenant)).or_insert_with(|| {
                self.tenants.join(tenant);
                Ring::new(quantum)
            });
            ring.join(number);
        }
        // A lane in the ring is forgotten when the ring drops it.
        if lane.is_idle() && !lane.in_ring {
            self.numbers.remove(&lane.key);
            self.lanes.remove(&number);
        }
    }
}

impl Lane {
    /// Sleeps. A lane that sleeps already keeps the later moment for what a server said, and the earlier one for
    /// limits: the first item asks again then.
    fn fall_asleep(&mut self, sleep: Sleep) {
        let keeps = self.sleep.as_ref().is_some_and(|known| match (known.cause, sleep.cause) {
            (Cause::Limit, Cause::Limit) => known.until <= sleep.until,
            _ => known.until >= sleep.until,
        });
        if !keeps {
            self.sleep = Some(sleep);
        }
    }

    fn view(&self) -> LaneView {
        LaneView {
            key: self.key.clone(),
            waiting: self.ready.len() + self.later.len(),
            in_flight: self.in_flight,
            next_due: self
                .later
                .first_key_value()
                .map(|((due, _), _)| *due)
                .filter(|_| self.ready.is_empty()),
            sleep: self.sleep.clone(),
        }
    }
}
