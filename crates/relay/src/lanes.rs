//! The scheduler: decides which item is sent next.
//!
//! A lane has the items of one tenant, account and recipient domain. It has one timer, whatever its length: a
//! lane that a limit stopped costs nothing until the limit is free. Tenants take turns, and so do the lanes of
//! a tenant, by recipients. Within a tenant, items of a higher priority go first. Within a lane, one item at a
//! time asks the limits, so items pass the limits by priority and then by arrival. A slow delivery gives up its
//! place among the deliveries in flight, so slow servers leave room for others. Servers that do not answer get
//! a share of the places. Everything here is pure: time is an argument.

mod answering;
mod deferrals;
mod flights;
mod holding;
mod items;
mod lane;
mod line;
mod park;
mod retry;
mod ring;
mod roster;

mod sleeping;
mod stepping;
mod tenants;
mod trials;
mod view;
mod wait;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use answering::Answering;
use flights::{Flight, FlightAnswer, Flights};
use holding::Held;
pub use holding::Scope;
pub use lane::{Cause, LaneKey, Priority, Sleep};
use lane::{Lane, Rank};
use park::Parks;
pub(crate) use retry::rest as rest_after;
pub use retry::{NextTry, Retry};
use roster::Offer;
use tenants::Tenants;
pub use view::LaneView;
pub use wait::{Wait, WaitCause};

use crate::meters::AccountLabel;
use crate::queue::{ItemKey, Waiting};

/// The options of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// The number of recipients that one turn is worth.
    pub quantum: u32,
    /// The most items of one lane in flight.
    pub per_lane: u32,
    /// The most items of one tenant in flight, not counting slow ones.
    pub per_tenant: u32,
    /// The most items in flight, not counting slow ones.
    pub in_total: u32,
    /// A delivery that takes longer than this is slow: it no longer counts against the bounds of its tenant and
    /// in total.
    pub slow_after: Span,
    /// After which time a delivery is slow whose server has not let it come as far as its limits: it does not answer.
    pub unanswered_after: Span,
    /// The most deliveries that may count as slow. Beyond that, long deliveries count as before. A quarter of them is
    /// kept for servers that answer.
    pub most_slow: u32,
}

/// An item that may be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub lane: LaneKey,
    pub item: ItemKey,
    /// The number of waiting recipients.
    pub recipients: u32,
    /// The reason why the item was not sent since its last attempt: a limit or an outage until this moment, or
    /// the lack of a usable account since this moment.
    pub kept: Option<(Cause, Timestamp)>,
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No recipient waits any longer.
    Settled,
    /// Recipients wait for an attempt at this time.
    Again {
        /// The time of the attempt.
        due: Timestamp,
        /// The number of waiting recipients.
        recipients: u32,
    },
    /// Nothing was sent. The item keeps its place, and the lane sleeps.
    Blocked(Sleep),
    /// No account can be used. The item is due again when the sleep ends. The lane goes on with its other
    /// items: each uses up its own lifetime while it waits.
    Unserved {
        /// The reason, and the time to try again.
        sleep: Sleep,
        /// The start of the item's wait, as far as it is not yet recorded in its lifetime.
        since: Timestamp,
    },
}

type LaneNumber = u64;

/// The position and the state of an item.
#[derive(Clone, Copy, Debug)]
struct LanePlace {
    lane: LaneNumber,
    priority: Priority,
    /// The rest of its rank.
    order: (Timestamp, u64),
    /// The time at which the item may be sent. While it waits for an account, this is later than in `order`.
    due: Timestamp,
    recipients: u32,
    flight: Flight,
    /// Whether it is a trial that holds a place.
    trial: bool,
    /// Whether a limit defers it, which is counted once.
    deferred: bool,
    kept: Option<(Cause, Timestamp)>,
}

impl LanePlace {
    fn rank(&self) -> Rank {
        (self.priority, self.order.0, self.order.1)
    }
}

/// All lanes, and the items in them.
#[derive(Debug)]
pub struct Lanes {
    options: LaneOptions,
    numbers: HashMap<Arc<LaneKey>, LaneNumber>,
    lanes: HashMap<LaneNumber, Box<Lane>>,
    tenants: Tenants,
    timers: BTreeSet<(Timestamp, LaneNumber)>,
    parks: Parks,
    /// Ordered by key, so the oldest message comes first.
    places: BTreeMap<ItemKey, Box<LanePlace>>,
    /// The names of tenants, each held once. They are those of the configuration, so there are few.
    names: HashSet<Arc<str>>,
    flights: Flights,
    /// Lanes without mail whose servers answer.
    answering: Answering,
    /// The scopes that an operator paused.
    held: Held,
    /// The deferrals that the meters do not know yet. Accounts are those of the configuration, so there are few.
    deferrals: BTreeMap<AccountLabel, u64>,
    /// The last number given to a lane or an arrival.
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
    /// The most items in flight, including slow ones.
    pub fn most_in_flight(&self) -> u32 {
        self.in_total.saturating_add(self.most_slow)
    }
}

impl Lanes {
    pub fn new(options: LaneOptions) -> Self {
        let (tenants, flights) = (Tenants::new(&options), Flights::new(&options));
        Self {
            options,
            numbers: HashMap::new(),
            lanes: HashMap::new(),
            tenants,
            timers: BTreeSet::new(),
            parks: Parks::default(),
            places: BTreeMap::new(),
            names: HashSet::new(),
            flights,
            answering: Answering::default(),
            held: Held::default(),
            deferrals: BTreeMap::new(),
            next: 0,
            latest: Timestamp::ZERO,
        }
    }

    /// Adds an item. If it already waits, it moves to its new due time. If it is in flight, nothing changes.
    pub fn add(&mut self, waiting: &Waiting, now: Timestamp) {
        self.follow_clock(now);
        if self.places.get(&waiting.key).is_some_and(|place| place.flight != Flight::No) {
            return;
        }
        self.remove(waiting.key, now);
        let key = LaneKey {
            tenant: self.name_of(&waiting.tenant),
            account: waiting.account.as_deref().map(Into::into),
            domain: waiting.domain.as_str().into(),
        };
        let lane = self.number_of(key);
        self.next += 1;
        let (due, recipients) = (waiting.due, waiting.recipients);
        let (priority, order) = (waiting.priority, (due, self.next));
        let (flight, trial, deferred, kept) = (Flight::No, false, false, None);
        let place = LanePlace { lane, priority, order, due, recipients, flight, trial, deferred, kept };
        self.places.insert(waiting.key, Box::new(place));
        self.put(waiting.key, now);
    }

    /// Removes a waiting item.
    pub fn remove(&mut self, item: ItemKey, now: Timestamp) {
        let Some(place) =
            self.places.get(&item).map(|place| **place).filter(|place| place.flight == Flight::No)
        else {
            return;
        };
        self.places.remove(&item);
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.remove(place.rank(), place.due);
        }
        self.refresh(place.lane, now);
    }

    /// Returns the next item to send now. It is in flight until [`Lanes::done`].
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
        self.note_silent(now);
        self.note_slow(now);
        if self.flights.is_full() {
            return None;
        }
        let picked = self.pick(now)?;
        let lane = self.lanes.get_mut(&picked.lane)?;
        let ((_, _, number), item) = lane.pop()?;
        lane.in_flight += 1;
        lane.asking = Some(Box::new((number, now)));
        let key = (*lane.key).clone();
        let flight = Flight::Since(now, FlightAnswer::Awaited);
        self.flights.put(item, flight);
        let place = self.places.get_mut(&item)?;
        (place.flight, place.trial) = (flight, picked.trial);
        let turn = Turn { lane: key, item, recipients: place.recipients, kept: place.kept };
        self.tenants.charge(&picked, turn.recipients);
        // The lane's next item waits until this one has asked the limits, and it may have another priority, so
        // the lane's place in the rings may change.
        self.place(picked.lane);
        Some(turn)
    }

    /// Chooses the lane whose turn it is.
    fn pick(&mut self, now: Timestamp) -> Option<tenants::Picked> {
        let (lanes, per_lane) = (&mut self.lanes, self.options.per_lane);
        let mut left = Vec::new();
        let picked = self.tenants.pick(|number, priority| {
            let Some(lane) = lanes.get_mut(&number) else { return Offer::Nothing };
            if lane.next_priority(per_lane) != Some(priority) {
                lane.leave_ring(priority);
                left.push(number);
                return Offer::Nothing;
            }
            match lane.answers {
                Some(true) => Offer::Known,
                Some(false) => Offer::Silent,
                None => Offer::New,
            }
        });
        for number in left {
            self.refresh(number, now);
        }
        picked
    }

    /// Ends a turn.
    pub fn done(&mut self, item: ItemKey, end: End, now: Timestamp) {
        self.follow_clock(now);
        let Some(place) =
            self.places.get(&item).map(|place| **place).filter(|place| place.flight != Flight::No)
        else {
            return;
        };
        self.land(item, place);
        let mut place = LanePlace { flight: Flight::No, trial: false, ..place };
        match end {
            End::Settled => drop(self.places.remove(&item)),
            End::Again { due, recipients } => {
                (place.order.0, place.due) = (due, due);
                self.places
                    .insert(item, Box::new(LanePlace { recipients, kept: None, deferred: false, ..place }));
            }
            End::Blocked(sleep) => {
                if matches!(sleep.cause, Cause::Limit | Cause::Outage) {
                    place.kept = Some((sleep.cause, sleep.until));
                }
                self.places.insert(item, Box::new(place));
                self.block(place.lane, sleep, now);
            }
            End::Unserved { sleep, since } => {
                (place.due, place.kept) = (sleep.until, Some((Cause::Paused, since)));
                self.places.insert(item, Box::new(place));
                self.lack_account(place.lane, sleep);
            }
        }
        self.put(item, now);
        self.refresh(place.lane, now);
    }

    /// Ends an item's flight, and frees its place.
    fn land(&mut self, item: ItemKey, place: LanePlace) {
        let Some(lane) = self.lanes.get_mut(&place.lane) else { return };
        lane.in_flight -= 1;
        lane.asked(place.order.1);
        self.move_flight(item, Flight::No, false);
    }

    /// The next time at which the scheduler changes without a call.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let own = self.timers.first().map(|(at, _)| *at);
        // A delivery that becomes slow matters only if items wait for a free place.
        let crowded = self.flights.is_full() || self.tenants.any_held_back();
        let slow = self.flights.next_slow().filter(|_| crowded).map(|(at, _)| at);
        own.into_iter().chain(self.parks.wake_at()).chain(slow).min()
    }

    fn name_of(&mut self, tenant: &str) -> Arc<str> {
        if let Some(name) = self.names.get(tenant) {
            return Arc::clone(name);
        }
        let name: Arc<str> = tenant.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    fn number_of(&mut self, key: LaneKey) -> LaneNumber {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.next += 1;
        let (held, answers) = (self.held.covers(&key), self.answering.take(&key).then_some(true));
        let key = Arc::new(key);
        self.numbers.insert(Arc::clone(&key), self.next);
        self.lanes.insert(self.next, Box::new(Lane { held, answers, ..Lane::new(key) }));
        self.next
    }

    /// Puts a known item into its lane.
    fn put(&mut self, item: ItemKey, now: Timestamp) {
        let Some(place) = self.places.get(&item).map(|place| **place) else { return };
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.insert(place.rank(), place.due, item, now);
        }
        self.refresh(place.lane, now);
    }

    /// Recomputes a lane. If it asked on behalf of other lanes and is empty now, the next lane takes that over.
    fn refresh(&mut self, number: LaneNumber, now: Timestamp) {
        let mut next = Some(number);
        while let Some(number) = next {
            let per_lane = self.options.per_lane;
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.advance(now);
            }
            let idle = self.lanes.get(&number).is_some_and(|lane| lane.is_idle_probe(per_lane));
            next = if idle { self.follow(number, now) } else { None };
            self.count_deferrals(number);
            self.place(number);
        }
    }

    /// Updates a lane's timer and its place in the rings.
    fn place(&mut self, number: LaneNumber) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let timer = lane.next_timer();
        let at = timer.unwrap_or(Timestamp::ZERO);
        if at != lane.timer {
            self.timers.remove(&(lane.timer, number));
            self.timers.extend(timer.map(|at| (at, number)));
            lane.timer = at;
        }
        if let Some(priority) = lane.next_priority(self.options.per_lane)
            && lane.join_ring(priority)
        {
            self.tenants.join(&lane.key.tenant, priority, number);
        }
        // A lane that is still in a ring is forgotten later, when the ring drops it.
        if lane.is_idle() {
            self.numbers.remove(&lane.key);
            if let Some(lane) = self.lanes.remove(&number).filter(|lane| lane.answers == Some(true)) {
                self.answering.insert(Arc::unwrap_or_clone(lane.key));
            }
        }
    }
}
