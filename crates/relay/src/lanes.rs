//! The scheduler: which item is sent next.
//!
//! A lane is one tenant, account and recipient domain. It has one timer, however long it is: a lane that a limit
//! stopped costs nothing until its moment comes. Tenants take turns, and lanes of a tenant take turns, by recipients.
//! Everything here is pure: time is an argument.

mod lane;
mod park;
mod retry;
mod ring;
mod view;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::Timestamp;

pub use lane::{Cause, LaneKey, Priority, Sleep};
use lane::{Entry, Lane, Rank};
use park::Parks;
pub use retry::{Next, Retry};
use ring::Ring;
pub use view::LaneView;

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
    /// Until when a limit deferred it last, if one did.
    pub deferred: Option<Timestamp>,
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

type LaneNumber = u64;

/// Where an item is.
#[derive(Clone, Copy, Debug)]
struct Place {
    lane: LaneNumber,
    rank: Rank,
    recipients: u32,
    in_flight: bool,
    deferred: Option<Timestamp>,
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
    parks: Parks,
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
            parks: Parks::default(),
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
        self.places.insert(waiting.key, Place { lane, rank, recipients, in_flight: false, deferred: None });
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
        while let Some((number, bound)) = self.parks.due(now) {
            self.send_probe(number, bound);
            self.refresh(number, now);
        }
        if self.in_flight >= self.options.in_total {
            return None;
        }
        let (tenant, number) = self.pick(now)?;
        let lane = self.lanes.get_mut(&number)?;
        let (_, Entry { item, recipients }) = lane.ready.pop_first()?;
        lane.in_flight += 1;
        let mut turn = Turn { lane: lane.key.clone(), item, recipients, deferred: None };
        self.in_flight += 1;
        self.tenants.charge(recipients);
        if let Some(ring) = self.rings.get_mut(&tenant) {
            ring.charge(recipients);
        }
        if let Some(place) = self.places.get_mut(&item) {
            place.in_flight = true;
            turn.deferred = place.deferred;
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
        }
        let mut place = Place { in_flight: false, ..place };
        match end {
            End::Settled => drop(self.places.remove(&item)),
            End::Again { due, recipients } => {
                place.rank.1 = due;
                self.places.insert(item, Place { recipients, deferred: None, ..place });
            }
            End::Blocked(sleep) => {
                place.deferred = (sleep.cause == Cause::Limit).then_some(sleep.until);
                self.places.insert(item, place);
                self.block(place.lane, sleep, now);
            }
        }
        self.put(item, now);
        self.refresh(place.lane, now);
    }

    /// Lets a lane sleep, together with others that wait for the same.
    fn block(&mut self, number: LaneNumber, sleep: Sleep, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let (until, shared) = (sleep.until, sleep.shared.clone());
        // A sleep that is over counts no more.
        lane.advance(now);
        lane.fall_asleep(sleep);
        let limited = lane.sleep.as_ref().is_some_and(|sleep| sleep.cause == Cause::Limit);
        let Some(bound) = shared.filter(|_| limited) else { return };
        if lane.parked.as_ref() == Some(&bound) {
            self.parks.put_off(&bound, until, now);
        } else if lane.parked.is_none() {
            if lane.probes.as_ref() == Some(&bound) {
                lane.probes = None;
            }
            lane.parked = Some(Arc::clone(&bound));
            self.parks.join(&bound, number, until, now);
        }
    }

    /// Notes that the limits of a lane allowed an item: a lane that waits for the same may ask, too.
    pub fn admitted(&mut self, key: &LaneKey, now: Timestamp) {
        let Some(number) = self.numbers.get(key).copied() else { return };
        if let Some(next) = self.follow(number, now) {
            self.refresh(next, now);
        }
    }

    /// Wakes the lane that follows a probe.
    fn follow(&mut self, number: LaneNumber, now: Timestamp) -> Option<LaneNumber> {
        let bound = self.lanes.get_mut(&number)?.probes.take()?;
        let next = self.parks.follow(&bound, number, now)?;
        self.send_probe(next, bound);
        Some(next)
    }

    fn send_probe(&mut self, number: LaneNumber, bound: Arc<str>) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            (lane.parked, lane.probes, lane.sleep) = (None, Some(bound), None);
        }
    }

    /// Lets a lane rest because its server asked to slow down. Answers until when.
    pub fn throttle(&mut self, key: &LaneKey, reason: &str, now: Timestamp) -> Option<Timestamp> {
        let number = *self.numbers.get(key)?;
        let lane = self.lanes.get_mut(&number)?;
        let until = now + retry::rest(lane.throttled);
        lane.throttled += 1;
        let reason = reason.to_owned();
        lane.fall_asleep(Sleep { until, cause: Cause::Throttled, reason, shared: None });
        if let Some(bound) = lane.parked.take() {
            // What the server said comes first: it has a moment of its own.
            self.parks.leave(&bound, number);
        }
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
        let own = self.timers.first().map(|(at, _)| *at);
        own.into_iter().chain(self.parks.wake_at()).min()
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
                if let Some(bound) = lane.parked.take() {
                    self.parks.leave(&bound, number);
                }
            }
            self.refresh(number, now);
        }
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

    /// Brings a lane up to date. If it asked for others and has nothing to ask for, so is the one that follows.
    fn refresh(&mut self, number: LaneNumber, now: Timestamp) {
        let mut next = Some(number);
        while let Some(number) = next {
            let per_lane = self.options.per_lane;
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.advance(now);
            }
            let idle = self.lanes.get(&number).is_some_and(|lane| lane.is_idle_probe(per_lane));
            next = if idle { self.follow(number, now) } else { None };
            self.place(number);
        }
    }

    /// Sets a lane's timer and its place in the ring.
    fn place(&mut self, number: LaneNumber) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
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
