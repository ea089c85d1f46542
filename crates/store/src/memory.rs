//! Counters in memory: shards of packed states, settled under locks that are taken in a fixed order.

mod calls;
mod footprint;
mod hash;
mod pack;
mod plans;
mod records;
mod saving;
mod shard;
mod spent;
mod table;

use std::hint::black_box;
use std::sync::Arc;

use arrayvec::ArrayVec;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tollgate_core::limit::State;
use tollgate_core::store::StoreError;
use tollgate_core::{Charges, Clock, Outcome, Plan, Timestamp};

use hash::Secrets;
use records::RecordMaps;
use shard::{Dirty, Located, Place, Shard, StateRow};
use spent::Spent;

pub use footprint::Footprint;
pub(crate) use records::Unsaved;
pub(crate) use saving::Saving;
pub(crate) use shard::Change;
pub(crate) use spent::Mark;
pub(crate) use table::KeyHash;

/// A store in memory. Its counters end with the process.
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>; SHARDS]>,
    clock: Arc<dyn Clock>,
    spent: Mutex<Spent>,
    records: RecordMaps,
    secrets: Secrets,
    secret: [u8; 32],
    max_keys: usize,
}

/// The number of shards: enough that two threads seldom collide, few enough to cost nothing.
const SHARDS: usize = 256;

/// The purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// Take: may insert keys, and so needs room for them.
    Take,
    Look,
    /// Refund charges that were taken at this time, unless they may have been forgotten since.
    Refund(Timestamp),
}

/// What is known once the states are loaded.
struct Scene {
    now: Timestamp,
    /// Bit `i` is set if charge `i` may have been forgotten since it was taken.
    lost: u32,
}

/// Whether a call changed anything that must be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    Left,
    None,
}

type Locked<'s> = MutexGuard<'s, Shard>;
type Guards<'s> = ArrayVec<Locked<'s>, { Charges::MOST }>;
type Stops = ArrayVec<Stop, { Charges::MOST }>;

/// One charge and its shard.
struct Stop {
    key: KeyHash,
    /// The index of the guard that locks its shard.
    guard: usize,
    place: Option<Place>,
}

impl MemoryStore {
    /// An empty store for about `max_keys` keys, with this clock.
    pub fn new(clock: Arc<dyn Clock>, max_keys: usize) -> Self {
        let secret = random_bytes();
        Self::with(clock, max_keys, random_seeds(), secret, Saving::Off)
    }

    pub(crate) fn with(
        clock: Arc<dyn Clock>,
        max_keys: usize,
        seeds: [u64; 2],
        secret: [u8; 32],
        saving: Saving,
    ) -> Self {
        let dirty = || (saving == Saving::On).then(Dirty::default);
        Self {
            shards: Box::new(std::array::from_fn(|_| Mutex::new(Shard::new(dirty())))),
            clock,
            spent: Mutex::new(Spent::new(saving)),
            records: RecordMaps::new(),
            secrets: Secrets::new(seeds, &secret),
            secret,
            max_keys,
        }
    }

    /// Random bytes that last as long as the counters, for signatures that refer to them.
    pub fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// When a key that counted something was last evicted to make room for another. Its counters started anew.
    pub fn last_eviction(&self) -> Option<Timestamp> {
        let last = self.shards.iter().map(|shard| shard.lock().evicted()).max();
        last.filter(|at| *at > Timestamp::ZERO)
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn hash(&self, plan: &Plan, key: &[u8]) -> KeyHash {
        self.secrets.hash(plan, key)
    }

    /// Locks the shards of all stops, in ascending order, each once. The guards are written in place, since
    /// they are too large to move.
    #[inline(always)]
    fn lock<'s>(&'s self, stops: &mut [Stop], guards: &mut Guards<'s>) {
        let mut next = stops.iter().map(|stop| shard_of(stop.key)).min();
        while let Some(shard) = next {
            next = None;
            for stop in &mut *stops {
                let other = shard_of(stop.key);
                if other == shard {
                    stop.guard = guards.len();
                } else if other > shard {
                    next = Some(next.map_or(other, |next| other.min(next)));
                }
            }
            guards.push(self.shards[shard].lock());
        }
    }

    /// Runs `settle` over the states of all charges, with all their shards locked.
    #[inline]
    fn with_states<T>(
        &self,
        charges: &Charges<'_>,
        aim: Aim,
        settle: impl FnOnce(&mut [State], Scene) -> Result<(T, u32), StoreError>,
    ) -> Result<T, StoreError> {
        let mut stops = Stops::new();
        for charge in charges.iter() {
            let key = self.hash(charge.plan, charges.key_bytes(charge));
            stops.push(Stop { key, guard: 0, place: None });
        }
        let mut guards = Guards::new();
        self.lock(&mut stops, &mut guards);
        if stops.len() > 1 {
            fetch(charges, &stops, &guards);
        }
        let now = self.clock.now();
        let mut row = StateRow::new();
        let lost = self.load(charges, aim, &mut stops, &mut guards, &mut row, now)?;
        let settled = settle(&mut row, Scene { now, lost });
        let changed = settled.as_ref().map_or(0, |(_, changed)| *changed);
        put_back(charges, &stops, &mut guards, &mut row, changed);
        settled.map(|(value, _)| value)
    }

    /// Loads the states of every charge, and makes room for new keys. Returns the charges that may have been
    /// forgotten since they were taken.
    #[inline(always)]
    fn load(
        &self,
        charges: &Charges<'_>,
        aim: Aim,
        stops: &mut [Stop],
        guards: &mut [Locked<'_>],
        row: &mut StateRow,
        now: Timestamp,
    ) -> Result<u32, StoreError> {
        let mut lost = 0;
        let mut index = 0;
        let mut conversions = 0;
        while let Some(charge) = charges.iter().as_slice().get(index) {
            let Stop { key, guard, .. } = stops[index];
            let shard = &mut guards[guard];
            let place = match shard.locate(key, charge.plan) {
                Located::At(place) => Some(place),
                Located::Vacant if !self.lacks_room(shard, charge.plan, aim) => None,
                located => {
                    conversions += usize::from(matches!(located, Located::UnderAnotherPlan(_)));
                    assert!(conversions <= charges.len(), "no two charges of an attempt share a key");
                    self.rearrange(charges, located, &stops[..=index], guards, row, now)?;
                    (index, lost) = (0, 0);
                    continue;
                }
            };
            let late = aim.is_late(shard, charge.plan);
            lost |= u32::from(late) << index;
            stops[index].place = place.filter(|_| !late);
            match stops[index].place {
                Some(place) => shard.load(place, charge.plan, row),
                None => charge.plan.limits().iter().for_each(|_| row.push(State::Fresh)),
            }
            index += 1;
        }
        Ok(lost)
    }

    /// Makes the key of the last stop loadable: converts its states to its plan, or removes another key to make
    /// room for it. Either moves other keys, so all that was loaded is put back first, and loading starts over:
    /// at most once for the conversion of each charge, and otherwise with one key less each time.
    #[cold]
    fn rearrange(
        &self,
        charges: &Charges<'_>,
        located: Located,
        stops: &[Stop],
        guards: &mut [Locked<'_>],
        row: &mut StateRow,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some((last, loaded)) = stops.split_last() else { return Ok(()) };
        put_back(charges, loaded, guards, row, 0);
        row.clear();
        let shard = &mut guards[last.guard];
        if let Located::UnderAnotherPlan(place) = located {
            shard.move_to(last.key, place, charges.iter().as_slice()[loaded.len()].plan, now);
            return Ok(());
        }
        let keep: SmallVec<[KeyHash; 6]> =
            charges.iter().map(|charge| self.hash(charge.plan, charges.key_bytes(charge))).collect();
        if shard.make_room(now, &keep) { Ok(()) } else { Err(StoreError::Full { max_keys: self.max_keys }) }
    }

    fn lacks_room(&self, shard: &Shard, plan: &Plan, aim: Aim) -> bool {
        aim == Aim::Take && shard.len() >= self.max_keys.div_ceil(SHARDS) && pack::keeps_state(plan)
    }

    #[inline]
    pub(crate) fn take_now(&self, charges: &Charges<'_>, outcome: &mut Outcome) -> Result<(), StoreError> {
        let aim = if charges.takes() { Aim::Take } else { Aim::Look };
        self.with_states(charges, aim, |states, Scene { now, .. }| {
            charges.settle_into(states, now, outcome).map_err(stale)?;
            Ok(((), outcome.taken))
        })
    }

    pub(crate) fn peek_now(&self, charges: &Charges<'_>, outcome: &mut Outcome) -> Result<(), StoreError> {
        self.with_states(charges, Aim::Look, |states, Scene { now, .. }| {
            charges.survey_into(states, now, outcome).map_err(stale)?;
            Ok(((), 0))
        })
    }
}

impl Aim {
    /// Whether it is too late for a refund to a key of this plan.
    #[inline]
    fn is_late(self, shard: &Shard, plan: &Plan) -> bool {
        matches!(self, Self::Refund(taken_at) if shard.may_have_lost(plan, taken_at))
    }
}

/// Reads the slots of all keys at once, so that their cache misses overlap.
#[inline]
fn fetch(charges: &Charges<'_>, stops: &[Stop], guards: &[Locked<'_>]) {
    let stops = charges.iter().zip(stops);
    let touched = stops.map(|(charge, stop)| guards[stop.guard].fetch(stop.key, charge.plan));
    black_box(touched.fold(false, |touched, slot| touched | slot));
}

/// Writes the states back: first those with a place, then those of new keys, because an insertion may move
/// others.
#[inline(always)]
fn put_back(
    charges: &Charges<'_>,
    stops: &[Stop],
    guards: &mut [Locked<'_>],
    row: &mut [State],
    changed: u32,
) {
    let mut vacant = 0;
    let mut rest = &mut *row;
    for (index, (charge, stop)) in charges.iter().zip(stops).enumerate() {
        let (states, after) = rest.split_at_mut(charge.plan.limits().len());
        rest = after;
        match stop.place {
            Some(place) => {
                let is_changed = changed & (1 << index) != 0;
                guards[stop.guard].put_back(stop.key, place, charge.plan, states, is_changed);
            }
            None => vacant |= changed & (1 << index),
        }
    }
    if vacant != 0 {
        put_in(charges, stops, guards, row, vacant);
    }
}

/// Inserts the new keys of these charges.
#[cold]
fn put_in(
    charges: &Charges<'_>,
    stops: &[Stop],
    guards: &mut [Locked<'_>],
    mut row: &mut [State],
    vacant: u32,
) {
    for (index, (charge, stop)) in charges.iter().zip(stops).enumerate() {
        let (states, after) = row.split_at_mut(charge.plan.limits().len());
        row = after;
        if vacant & (1 << index) != 0 {
            guards[stop.guard].put_in(stop.key, charge.plan, states);
        }
    }
}

fn shard_of(key: KeyHash) -> usize {
    key.0 as usize % SHARDS
}

fn stale(stale: tollgate_core::charge::Stale) -> StoreError {
    StoreError::Stale { now: stale.now }
}

/// Random seeds.
pub(crate) fn random_seeds() -> [u64; 2] {
    let random = || getrandom::u64().expect("the system gives random numbers");
    [random(), random()]
}

/// Random bytes.
pub(crate) fn random_bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system gives random numbers");
    bytes
}
