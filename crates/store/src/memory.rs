//! Counters in memory: shards of packed states, settled under locks taken in one order.

mod pack;
mod plans;
mod shard;
mod spent;
mod table;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use smallvec::SmallVec;
use tollgate_core::limit::{Draft, Limit, State};
use tollgate_core::store::{Answer, Forget, Given, HoldsOrder, HoldsReport, Spot, Store, StoreError};
use tollgate_core::{Charges, Clock, Outcome, Plan, Timestamp};

use shard::{Located, Place, Shard, StateRow};
use spent::Spent;
use table::KeyHash;

/// A store in memory. Its counters end with the process.
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    clock: Arc<dyn Clock>,
    spent: Mutex<Spent>,
    /// Two keys for two hashes, so that nobody outside can make keys collide.
    secrets: [RapidSecrets; 2],
    max_keys: usize,
}

/// How many shards there are: enough that two threads seldom meet, few enough to cost nothing.
const SHARDS: usize = 256;

type Guards<'s> = SmallVec<[(usize, MutexGuard<'s, Shard>); 6]>;

/// One charge on its way to its shard.
struct Stop {
    key: KeyHash,
    /// Which of the guards holds its shard.
    guard: usize,
    place: Option<Place>,
}

impl MemoryStore {
    /// An empty store for about `max_keys` keys that goes by this clock.
    pub fn new(clock: Arc<dyn Clock>, max_keys: usize) -> Self {
        Self::with_seed(clock, max_keys, random_seed(), Tracking::Off)
    }

    pub(crate) fn with_seed(
        clock: Arc<dyn Clock>,
        max_keys: usize,
        seed: [u64; 2],
        tracking: Tracking,
    ) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(tracking == Tracking::On))).collect();
        Self { shards, clock, spent: Mutex::default(), secrets: seed.map(RapidSecrets::seed), max_keys }
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn hash(&self, plan: &Plan, key: &str) -> KeyHash {
        // A rule's salt sets its keys apart from equal ones of other rules.
        self.secrets
            .map(|secrets| rapidhash_v3_nano_inline::<true, false>(key.as_bytes(), &secrets) ^ plan.salt())
    }

    /// Locks the shards of all charges, in ascending order, each once.
    fn lock(&self, keys: &[KeyHash]) -> Guards<'_> {
        let mut numbers: SmallVec<[usize; 6]> = keys.iter().map(|key| shard_of(*key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| (number, self.shards[number].lock())).collect()
    }

    /// Runs `settle` over the states of all charges, with every shard they touch locked.
    fn with_states<T>(
        &self,
        charges: &Charges<'_>,
        settle: impl FnOnce(&mut [State], Timestamp) -> Result<(T, u32), StoreError>,
    ) -> Result<T, StoreError> {
        if charges.len() == 1 {
            return self.with_one(charges, settle);
        }
        let keys: SmallVec<[KeyHash; 6]> =
            charges.iter().map(|charge| self.hash(charge.plan, charges.key(charge))).collect();
        let mut guards = self.lock(&keys);
        let now = self.clock.now();
        let mut stops = self.locate(charges, &keys, &mut guards, now)?;
        let mut row = StateRow::new();
        for (charge, stop) in charges.iter().zip(&stops) {
            match stop.place {
                Some(place) => guards[stop.guard].1.load(place, charge.plan, &mut row),
                None => row.extend(charge.plan.limits().iter().map(|_| State::Fresh)),
            }
        }
        let settled = settle(&mut row, now);
        let changed = settled.as_ref().map_or(0, |(_, changed)| *changed);
        put_back(charges, &mut stops, &mut guards, &mut row, changed);
        settled.map(|(value, _)| value)
    }

    /// As [`MemoryStore::with_states`], for one charge: one lock and no bookkeeping.
    #[inline]
    fn with_one<T>(
        &self,
        charges: &Charges<'_>,
        settle: impl FnOnce(&mut [State], Timestamp) -> Result<(T, u32), StoreError>,
    ) -> Result<T, StoreError> {
        let charge = charges.iter().next().expect("there is one charge");
        let key = self.hash(charge.plan, charges.key(charge));
        let mut shard = self.shards[shard_of(key)].lock();
        let now = self.clock.now();
        if let Some(index) = shard.find_single(key, charge.plan) {
            let slot = shard.single(index);
            let mut states = [pack::unpack_one(&charge.plan.limits()[0], slot.words[0], slot.halves[0])];
            let settled = settle(&mut states, now);
            (slot.words[0], slot.halves[0]) = pack::pack_one(&states[0]);
            if settled.as_ref().is_ok_and(|(_, changed)| *changed != 0) {
                shard.touch_at(Place::Narrow(index), key);
            }
            return settled.map(|(value, _)| value);
        }
        let place = self.place(&mut shard, key, charge.plan, charges.cost, now)?;
        let mut row = StateRow::new();
        match place {
            Some(place) => shard.load(place, charge.plan, &mut row),
            None => row.extend(charge.plan.limits().iter().map(|_| State::Fresh)),
        }
        let settled = settle(&mut row, now);
        let changed = settled.as_ref().is_ok_and(|(_, changed)| *changed != 0);
        shard.put_back(key, place, charge.plan, &mut row, changed);
        settled.map(|(value, _)| value)
    }

    /// Finds the place of a key, after making room for it if it has none.
    #[inline]
    fn place(
        &self,
        shard: &mut Shard,
        key: KeyHash,
        plan: &Arc<Plan>,
        cost: u64,
        now: Timestamp,
    ) -> Result<Option<Place>, StoreError> {
        loop {
            match shard.locate(key, plan, now) {
                Located::At(place) => return Ok(Some(place)),
                Located::Moved => {}
                Located::Vacant if shard.len() >= self.max_keys.div_ceil(SHARDS) && cost > 0 => {
                    if !shard.make_room(now) {
                        return Err(StoreError::Full { max_keys: self.max_keys });
                    }
                }
                Located::Vacant => return Ok(None),
            }
        }
    }

    /// Finds the place of every charge, after making room for those that have none yet.
    fn locate(
        &self,
        charges: &Charges<'_>,
        keys: &[KeyHash],
        guards: &mut Guards<'_>,
        now: Timestamp,
    ) -> Result<SmallVec<[Stop; 6]>, StoreError> {
        let most = self.max_keys.div_ceil(SHARDS);
        'again: loop {
            let mut stops = SmallVec::new();
            for (charge, key) in charges.iter().zip(keys) {
                let number = shard_of(*key);
                let guard = guards.iter().position(|(locked, _)| *locked == number).expect("it is locked");
                let shard = &mut guards[guard].1;
                let place = match shard.locate(*key, charge.plan, now) {
                    Located::At(place) => Some(place),
                    Located::Moved => continue 'again,
                    Located::Vacant if shard.len() >= most && charges.cost > 0 => {
                        if !shard.make_room(now) {
                            return Err(StoreError::Full { max_keys: self.max_keys });
                        }
                        continue 'again;
                    }
                    Located::Vacant => None,
                };
                stops.push(Stop { key: *key, guard, place });
            }
            return Ok(stops);
        }
    }
}

/// Whether changed keys are noted for somebody who saves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    On,
    Off,
}

/// Writes the states back: first where there is a place, then those of new keys, because putting a
/// key in may move others.
fn put_back(
    charges: &Charges<'_>,
    stops: &mut [Stop],
    guards: &mut Guards<'_>,
    row: &mut StateRow,
    changed: u32,
) {
    for fresh in [false, true] {
        let mut start = 0;
        for (index, (charge, stop)) in charges.iter().zip(&mut *stops).enumerate() {
            let states = &mut row[start..start + charge.plan.limits().len()];
            start += states.len();
            if stop.place.is_none() == fresh {
                let taken = changed & (1 << index) != 0;
                guards[stop.guard].1.put_back(stop.key, stop.place, charge.plan, states, taken);
            }
        }
    }
}

impl Store for MemoryStore {
    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::ready(self.with_states(charges, |states, now| {
            charges.settle_into(states, now, outcome).map_err(stale)?;
            Ok(((), outcome.taken))
        }))
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::ready(self.with_states(charges, |states, now| {
            charges.survey_into(states, now, outcome).map_err(stale)?;
            Ok(((), 0))
        }))
    }

    fn give<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Given> {
        let given = self.spent.lock().spend(taken_at, charges.ticket);
        if given != Given::Back {
            return Answer::ready(Ok(given));
        }
        Answer::ready(self.with_states(charges, |states, now| {
            charges.refund(states, taken_at, now);
            Ok((given, u32::MAX))
        }))
    }

    fn holds<'a>(&'a self, spot: &'a Spot<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        let mut charges = Charges::new(tollgate_core::Ticket(0), 1, None);
        charges.push(spot.plan, spot.key, true);
        Answer::ready(
            self.with_states(&charges, |states, now| {
                Ok((order_holds(spot.plan, states, order, now), u32::MAX))
            }),
        )
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        match what {
            Forget::Key(spot) => {
                let key = self.hash(spot.plan, spot.key);
                self.shards[shard_of(key)].lock().forget(key);
            }
            Forget::Rule(rule) => self.shards.iter().for_each(|shard| shard.lock().forget_all(Some(rule))),
            Forget::All => self.shards.iter().for_each(|shard| shard.lock().forget_all(None)),
        }
        Answer::ready(Ok(()))
    }
}

fn order_holds(plan: &Plan, states: &mut [State], order: HoldsOrder<'_>, now: Timestamp) -> HoldsReport {
    let mut report = HoldsReport { found: false, now, holds: Vec::new() };
    let Some(index) = plan.limits().iter().position(Limit::holds) else { return report };
    let state = &mut states[index];
    let draft =
        Draft { cost: 0, id: None, ticket: tollgate_core::Ticket(0), now, amounts: &[], calendar: &[] };
    plan.limits()[index].freshen(state, &draft);
    match order {
        HoldsOrder::List => {}
        HoldsOrder::Renew(id) => report.found = state.holds_mut().renew(id, now),
        HoldsOrder::Release(id) => report.found = state.holds_mut().release(id),
        HoldsOrder::Replace(ids, ticket) => state.holds_mut().replace(ids.iter().copied(), ticket, now),
    }
    plan.limits()[index].freshen(state, &draft);
    let holds = state.holds().into_iter().flat_map(|holds| holds.iter());
    report.holds = holds.map(|(id, hold)| (id.to_owned(), hold)).collect();
    report
}

fn shard_of(key: KeyHash) -> usize {
    key[0] as usize % SHARDS
}

fn stale(stale: tollgate_core::charge::Stale) -> StoreError {
    StoreError::Stale { now: stale.now }
}

/// A seed nobody can guess.
pub(crate) fn random_seed() -> [u64; 2] {
    let random = || getrandom::u64().expect("the system gives random numbers");
    [random(), random()]
}
