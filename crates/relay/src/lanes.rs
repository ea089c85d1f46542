//! The scheduler: which item is sent next.
//!
//! A lane is one tenant, account and recipient domain. It has one timer, however long it is: a lane that a limit
//! stopped costs nothing until its moment comes. Tenants take turns, and lanes of a tenant take turns, by recipients.
//! Inside a tenant, items of a higher priority come first. Inside a lane, one item at a time asks the limits, so that
//! items pass them by priority and then in the order in which they came. A delivery that takes long gives up its place
//! among those in flight, so that slow servers leave room for others. Everything here is pure: time is an argument.

mod holding;
mod lane;
mod line;
mod park;
mod retry;
mod ring;
mod sleeping;
mod stepping;
mod tenants;
mod view;
mod wait;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate_core::{Span, Timestamp};

use holding::Held;
pub use holding::Scope;
pub use lane::{Cause, LaneKey, Priority, Sleep};
use lane::{Entry, Lane, Rank};
use park::Parks;
pub use retry::{NextTry, Retry};
use tenants::Tenants;
pub use view::LaneView;
pub use wait::{Wait, WaitCause};

use crate::queue::{ItemKey, Waiting};

/// How a scheduler behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// How many recipients a turn is worth.
    pub quantum: u32,
    /// How many items of one lane are in flight at most.
    pub per_lane: u32,
    /// How many items of one tenant are in flight at most, without slow ones.
    pub per_tenant: u32,
    /// How many items are in flight at most, without slow ones.
    pub in_total: u32,
    /// After which time a delivery is slow: it no longer counts among those of its tenant and in total.
    pub slow_after: Span,
    /// After which time a delivery is slow whose server has not let it come as far as its limits: it does not answer.
    pub unanswered_after: Span,
    /// How many deliveries may be slow. Others that are count as before.
    pub most_slow: u32,
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
    /// What has kept it since its last attempt: a limit or an outage until this moment, or the lack of a usable account
    /// since this moment.
    pub kept: Option<(Cause, Timestamp)>,
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
    /// No account can be used. The item is due when the sleep ends. The lane continues: each of its items spends its own
    /// lifetime while it waits.
    Unserved {
        /// Why, and until when.
        sleep: Sleep,
        /// Since when the item waits, as far as its lifetime does not know it yet.
        since: Timestamp,
    },
}

type LaneNumber = u64;

/// Where an item is.
#[derive(Clone, Copy, Debug)]
struct LanePlace {
    lane: LaneNumber,
    rank: Rank,
    /// When it may be sent: later than its rank says while it waits for an account.
    due: Timestamp,
    recipients: u32,
    flight: Flight,
    kept: Option<(Cause, Timestamp)>,
}

/// Whether an item is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    /// It waits.
    No,
    /// Since this moment.
    Since(Timestamp),
    /// For a long time.
    Slow,
}

/// All lanes.
#[derive(Debug)]
pub struct Lanes {
    options: LaneOptions,
    numbers: HashMap<LaneKey, LaneNumber>,
    lanes: HashMap<LaneNumber, Lane>,
    tenants: Tenants,
    timers: BTreeSet<(Timestamp, LaneNumber)>,
    parks: Parks,
    /// By key, so that the oldest message comes first.
    places: BTreeMap<ItemKey, LanePlace>,
    /// What is in flight and not slow, by when it began.
    flights: BTreeSet<(Timestamp, ItemKey)>,
    /// Those of them whose servers have not answered yet.
    unanswered: BTreeSet<(Timestamp, ItemKey)>,
    /// How many deliveries are slow.
    slow: u32,
    /// What an operator paused.
    held: Held,
    /// Numbers lanes and arrivals.
    next: u64,
    /// The latest time that it was told.
    latest: Timestamp,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self {
            quantum: 50,
            per_lane: 20,
            per_tenant: 250,
            in_total: 500,
            slow_after: Span::from_secs(10),
            unanswered_after: Span::from_secs(2),
            most_slow: 2_000,
        }
    }
}

impl LaneOptions {
    /// How many items are in flight at most, slow ones included.
    pub fn most_in_flight(&self) -> u32 {
        self.in_total.saturating_add(self.most_slow)
    }
}

impl Lanes {
    /// A scheduler without items.
    pub fn new(options: LaneOptions) -> Self {
        let tenants = Tenants::new(&options);
        Self {
            options,
            numbers: HashMap::new(),
            lanes: HashMap::new(),
            tenants,
            timers: BTreeSet::new(),
            parks: Parks::default(),
            places: BTreeMap::new(),
            flights: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            slow: 0,
            held: Held::default(),
            next: 0,
            latest: Timestamp::ZERO,
        }
    }

    /// Adds an item. One that waits already is moved to its new due time; one in flight stays there.
    pub fn add(&mut self, waiting: &Waiting, now: Timestamp) {
        self.follow_clock(now);
        if self.places.get(&waiting.key).is_some_and(|place| place.flight != Flight::No) {
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
        let (due, recipients) = (waiting.due, waiting.recipients);
        let rank = (waiting.priority, due, self.next);
        let place = LanePlace { lane, rank, due, recipients, flight: Flight::No, kept: None };
        self.places.insert(waiting.key, place);
        self.put(waiting.key, now);
    }

    /// Removes an item that waits.
    pub fn remove(&mut self, item: ItemKey, now: Timestamp) {
        let Some(place) = self.places.get(&item).copied().filter(|place| place.flight == Flight::No) else {
            return;
        };
        self.places.remove(&item);
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.remove(place.rank, place.due);
        }
        self.refresh(place.lane, now);
    }

    /// The next item to send now. It is in flight until [`Lanes::done`].
    pub fn next(&mut self, now: Timestamp) -> Option<Turn> {
        self.follow_clock(now);
        while let Some((at, number)) = self.timers.first().copied()
            && at <= now
        {
            self.refresh(number, now);
        }
        while let Some((number, bound)) = self.parks.due(now) {
            self.send_probe(number, bound);
            self.refresh(number, now);
        }
        self.note_slow(now);
        if self.is_full() {
            return None;
        }
        let picked = self.pick(now)?;
        let lane = self.lanes.get_mut(&picked.lane)?;
        let ((_, _, number), Entry { item, recipients }) = lane.ready.pop_first()?;
        lane.in_flight += 1;
        lane.asking = Some((number, now));
        let mut turn = Turn { lane: lane.key.clone(), item, recipients, kept: None };
        self.tenants.charge(&picked, recipients);
        self.flights.insert((now, item));
        self.unanswered.insert((now, item));
        if let Some(place) = self.places.get_mut(&item) {
            place.flight = Flight::Since(now);
            turn.kept = place.kept;
        }
        // The next item waits until this one has asked the limits, and may have another priority.
        self.place(picked.lane);
        Some(turn)
    }

    /// Whether as much is in flight as may be.
    fn is_full(&self) -> bool {
        self.flights.len() >= self.options.in_total as usize
    }

    /// Lets deliveries that take long give up their places.
    fn note_slow(&mut self, now: Timestamp) {
        while let Some((at, since, item)) = self.next_slow()
            && at <= now
            && self.slow < self.options.most_slow
        {
            self.flights.remove(&(since, item));
            self.unanswered.remove(&(since, item));
            self.slow += 1;
            let Some(place) = self.places.get_mut(&item) else { continue };
            place.flight = Flight::Slow;
            if let Some(lane) = self.lanes.get(&place.lane) {
                self.tenants.freed(&lane.key.tenant);
            }
        }
    }

    /// The delivery that is slow next, when, and since when it is in flight.
    fn next_slow(&self) -> Option<(Timestamp, Timestamp, ItemKey)> {
        let after = |flights: &BTreeSet<(Timestamp, ItemKey)>, patience: Span| {
            flights.first().map(|(since, item)| (*since + patience, *since, *item))
        };
        let any = after(&self.flights, self.options.slow_after);
        any.into_iter().chain(after(&self.unanswered, self.options.unanswered_after)).min()
    }

    /// The lane whose turn it is.
    fn pick(&mut self, now: Timestamp) -> Option<tenants::Picked> {
        let (lanes, per_lane) = (&mut self.lanes, self.options.per_lane);
        let mut left = Vec::new();
        let picked = self.tenants.pick(|number, priority| {
            let Some(lane) = lanes.get_mut(&number) else { return false };
            let stays = lane.next_priority(per_lane) == Some(priority);
            if !stays {
                lane.in_ring[priority as usize] = false;
                left.push(number);
            }
            stays
        });
        for number in left {
            self.refresh(number, now);
        }
        picked
    }

    /// Ends a turn.
    pub fn done(&mut self, item: ItemKey, end: End, now: Timestamp) {
        self.follow_clock(now);
        let Some(place) = self.places.get(&item).copied().filter(|place| place.flight != Flight::No) else {
            return;
        };
        self.land(item, place);
        let mut place = LanePlace { flight: Flight::No, ..place };
        match end {
            End::Settled => drop(self.places.remove(&item)),
            End::Again { due, recipients } => {
                (place.rank.1, place.due) = (due, due);
                self.places.insert(item, LanePlace { recipients, kept: None, ..place });
            }
            End::Blocked(sleep) => {
                if matches!(sleep.cause, Cause::Limit | Cause::Outage) {
                    place.kept = Some((sleep.cause, sleep.until));
                }
                self.places.insert(item, place);
                self.block(place.lane, sleep, now);
            }
            End::Unserved { sleep, since } => {
                (place.due, place.kept) = (sleep.until, Some((Cause::Paused, since)));
                self.places.insert(item, place);
                self.lack_account(place.lane, sleep);
            }
        }
        self.put(item, now);
        self.refresh(place.lane, now);
    }

    /// Gives up the place of an item in flight.
    fn land(&mut self, item: ItemKey, place: LanePlace) {
        let Some(lane) = self.lanes.get_mut(&place.lane) else { return };
        lane.in_flight -= 1;
        lane.asked(place.rank.2);
        match place.flight {
            Flight::No => {}
            Flight::Slow => self.slow -= 1,
            Flight::Since(since) => {
                self.flights.remove(&(since, item));
                self.unanswered.remove(&(since, item));
                self.tenants.freed(&lane.key.tenant);
            }
        }
    }

    /// When something changes by itself next.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let own = self.timers.first().map(|(at, _)| *at);
        // Only where something waits for a place.
        let crowded = (self.is_full() || self.tenants.any_held_back()) && self.slow < self.options.most_slow;
        let slow = self.next_slow().filter(|_| crowded).map(|(at, ..)| at);
        own.into_iter().chain(self.parks.wake_at()).chain(slow).min()
    }

    fn number_of(&mut self, key: LaneKey) -> LaneNumber {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.next += 1;
        self.numbers.insert(key.clone(), self.next);
        let held = self.held.covers(&key);
        self.lanes.insert(self.next, Lane { held, ..Lane::new(key) });
        self.next
    }

    /// Puts a known item into its lane.
    fn put(&mut self, item: ItemKey, now: Timestamp) {
        let Some(place) = self.places.get(&item).copied() else { return };
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.insert(place.rank, place.due, Entry { item, recipients: place.recipients }, now);
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
        if let Some(priority) = lane.next_priority(self.options.per_lane)
            && !lane.in_ring[priority as usize]
        {
            lane.in_ring[priority as usize] = true;
            self.tenants.join(&lane.key.tenant, priority, number);
        }
        // A lane in a ring is forgotten when the ring drops it.
        if lane.is_idle() {
            self.numbers.remove(&lane.key);
            self.lanes.remove(&number);
        }
    }
}
