//! One shard: a part of the keys, behind one lock.

mod evict;
mod track;

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::limit::State;
use tollgate_core::{Plan, Timestamp};

pub(crate) use track::{Change, Dirty};

use super::pack::{self, Fit};
use super::plans::Plans;
use super::table::{KeyHash, Slot, Table, Tag};

/// The states of a settlement, one for each limit of each charge.
pub(crate) type StateRow = SmallVec<[State; 10]>;

pub(crate) struct Shard {
    narrow: Table<1>,
    wide: Table<2>,
    deep: Vec<Box<[State]>>,
    deep_free: Vec<usize>,
    plans: Plans,
    /// Where the search for a key to evict continues.
    hand: usize,
    /// Whether no key here may be evicted.
    all_pinned: bool,
    /// When a key that counted something was last evicted.
    evicted: Timestamp,
    /// The keys that have changed since they were last saved, if they are saved at all.
    dirty: Option<Dirty>,
}

/// The place of a key's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Narrow(usize),
    Wide(usize),
}

/// The result of a search for a key under a plan.
pub(crate) enum Located {
    At(Place),
    /// Here, but stored under another plan.
    UnderAnotherPlan(Place),
    Vacant,
}

impl Shard {
    /// An empty shard. It tracks changes in `dirty`, if there is one.
    pub(crate) fn new(dirty: Option<Dirty>) -> Self {
        Self {
            narrow: Table::new(),
            wide: Table::new(),
            deep: Vec::new(),
            deep_free: Vec::new(),
            plans: Plans::default(),
            hand: 0,
            all_pinned: false,
            evicted: Timestamp::ZERO,
            dirty,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    /// Finds a key.
    #[inline(always)]
    pub(crate) fn locate(&self, key: KeyHash, plan: &Arc<Plan>) -> Located {
        let place = if pack::is_probably_wide(plan) {
            self.find_wide(key).or_else(|| self.find_narrow(key))
        } else {
            self.find(key)
        };
        let Some(place) = place else { return Located::Vacant };
        if self.plans.is(self.tag(place).plan(), plan) {
            Located::At(place)
        } else {
            Located::UnderAnotherPlan(place)
        }
    }

    /// Converts the states of a key to another plan. Places found before may be wrong then.
    pub(crate) fn move_to(&mut self, key: KeyHash, place: Place, plan: &Arc<Plan>, now: Timestamp) {
        let old = Arc::clone(self.plans.plan(self.tag(place).plan()));
        let tag = self.tag(place);
        let states = self.remove(place);
        // Equal limits, as after a reload, need no conversion, which would age the states.
        let states = if old == *plan { states } else { plan.adopt(&old, states, now) };
        let place = self.insert(key, plan, &states);
        self.carry_mark(place, key, tag);
    }

    /// Reads the slot in which a key of this plan probably is.
    #[inline]
    pub(crate) fn fetch(&self, key: KeyHash, plan: &Plan) -> bool {
        if pack::is_probably_wide(plan) { self.wide.fetch(key) } else { self.narrow.fetch(key) }
    }

    fn find(&self, key: KeyHash) -> Option<Place> {
        self.find_narrow(key).or_else(|| self.find_wide(key))
    }

    fn find_narrow(&self, key: KeyHash) -> Option<Place> {
        self.narrow.find(key).map(Place::Narrow)
    }

    fn find_wide(&self, key: KeyHash) -> Option<Place> {
        self.wide.find(key).map(Place::Wide)
    }

    fn tag(&self, place: Place) -> Tag {
        match place {
            Place::Narrow(index) => self.narrow.at(index).expect("a place is not empty").tag,
            Place::Wide(index) => self.wide.at(index).expect("a place is not empty").tag,
        }
    }

    fn tag_mut(&mut self, place: Place) -> &mut Tag {
        match place {
            Place::Narrow(index) => &mut self.narrow.at_mut(index).tag,
            Place::Wide(index) => &mut self.wide.at_mut(index).tag,
        }
    }

    /// Appends a key's states to the row. Those of a deep slot are moved out until they are saved.
    #[inline(always)]
    pub(crate) fn load(&mut self, place: Place, plan: &Plan, row: &mut StateRow) {
        match place {
            Place::Wide(index) => {
                let slot = self.wide.at_mut(index);
                pack::unpack(plan, &slot.words, &slot.halves, row);
            }
            Place::Narrow(index) => {
                let slot = self.narrow.at_mut(index);
                if slot.tag.is_deep() {
                    row.extend(self.deep[slot.words[0] as usize].iter_mut().map(std::mem::take));
                } else {
                    pack::unpack(plan, &slot.words, &slot.halves, row);
                }
            }
        }
    }

    /// Puts a key's states back.
    #[inline(always)]
    pub(crate) fn save(&mut self, place: Place, plan: &Plan, states: &mut [State]) {
        match place {
            Place::Wide(index) => {
                let slot = self.wide.at_mut(index);
                pack::pack(plan, states, &mut slot.words, &mut slot.halves);
            }
            Place::Narrow(index) => {
                let slot = self.narrow.at_mut(index);
                if slot.tag.is_deep() {
                    self.deep[slot.words[0] as usize].swap_with_slice(states);
                } else {
                    pack::pack(plan, states, &mut slot.words, &mut slot.halves);
                }
            }
        }
    }

    /// Puts a key's states back in place.
    #[inline(always)]
    pub(crate) fn put_back(
        &mut self,
        key: KeyHash,
        place: Place,
        plan: &Arc<Plan>,
        states: &mut [State],
        changed: bool,
    ) {
        self.note_standing(plan, states);
        self.save(place, plan, states);
        if changed {
            self.touch_at(place, key);
        }
    }

    /// Inserts a charged key, unless it has nothing to store.
    pub(crate) fn put_in(&mut self, key: KeyHash, plan: &Arc<Plan>, states: &[State]) {
        if states.iter().any(|state| *state != State::Fresh) {
            let place = self.insert(key, plan, states);
            self.touch_at(place, key);
        }
    }

    /// Inserts a key that is not stored yet. Returns its place.
    pub(crate) fn insert(&mut self, key: KeyHash, plan: &Arc<Plan>, states: &[State]) -> Place {
        self.note_standing(plan, states);
        let tag = Tag::new(self.plans.enter(plan));
        let mut words = [0; 2];
        let mut halves = [0; 2];
        match Fit::of(plan) {
            Fit::Two => {
                pack::pack(plan, states, &mut words, &mut halves);
                Place::Wide(self.wide.insert(Slot { key, words, halves, tag }))
            }
            Fit::One => {
                pack::pack(plan, states, &mut words[..1], &mut halves[..1]);
                Place::Narrow(self.narrow.insert(Slot { key, words: [words[0]], halves: [halves[0]], tag }))
            }
            Fit::Deep => {
                let index = self.sink(states.to_vec().into());
                Place::Narrow(self.narrow.insert(Slot {
                    key,
                    words: [index as u64],
                    halves: [0],
                    tag: tag.deep(),
                }))
            }
        }
    }

    fn sink(&mut self, states: Box<[State]>) -> usize {
        if let Some(index) = self.deep_free.pop() {
            self.deep[index] = states;
            return index;
        }
        if self.deep.len() == self.deep.capacity() {
            // By a quarter, as the tables do: doubling would leave half of it empty.
            self.deep.reserve_exact((self.deep.len() / 4).max(4));
        }
        self.deep.push(states);
        self.deep.len() - 1
    }

    fn remove(&mut self, place: Place) -> Vec<State> {
        let number = self.tag(place).plan();
        let mut row = StateRow::new();
        let plan = Arc::clone(self.plans.plan(number));
        self.load(place, &plan, &mut row);
        match place {
            Place::Wide(index) => drop(self.wide.remove(index)),
            Place::Narrow(index) => {
                let slot = self.narrow.remove(index);
                if slot.tag.is_deep() {
                    self.deep[slot.words[0] as usize] = Box::default();
                    self.deep_free.push(slot.words[0] as usize);
                }
            }
        }
        self.plans.leave(number);
        row.into_vec()
    }

    /// Removes a key.
    pub(crate) fn forget(&mut self, key: KeyHash) {
        if let Some(place) = self.find(key) {
            let tag = self.tag(place);
            self.remove(place);
            self.note_gone(key, tag);
        }
    }

    /// Removes every key of a rule, or all keys.
    pub(crate) fn forget_all(&mut self, rule: Option<&str>) {
        let keys: Vec<KeyHash> = (0..self.width())
            .filter_map(|index| self.nth(index))
            .filter(|(_, tag)| rule.is_none_or(|rule| **self.plans.plan(tag.plan()).rule() == *rule))
            .map(|(key, _)| key)
            .collect();
        keys.into_iter().for_each(|key| self.forget(key));
    }

    fn width(&self) -> usize {
        self.narrow.width() + self.wide.width()
    }

    /// The key in the n-th slot of both tables, if there is one.
    fn nth(&self, index: usize) -> Option<(KeyHash, Tag)> {
        match index.checked_sub(self.narrow.width()) {
            None => self.narrow.at(index).map(|slot| (slot.key, slot.tag)),
            Some(index) => self.wide.at(index).map(|slot| (slot.key, slot.tag)),
        }
    }

    fn place_of_nth(&self, index: usize) -> Place {
        index.checked_sub(self.narrow.width()).map_or(Place::Narrow(index), Place::Wide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_beside_the_tables_grow_by_a_quarter_and_a_free_one_is_used_first() {
        let mut shard = Shard::new(None);
        for count in 0..200 {
            let before = shard.deep.capacity();
            assert_eq!(shard.sink(Box::new([State::Fresh])), count);
            let grown = before + (before / 4).max(4);
            assert_eq!(shard.deep.capacity(), if count == before { grown } else { before });
        }
        shard.deep_free.push(7);
        assert_eq!((shard.sink(Box::default()), shard.sink(Box::default())), (7, 200));
    }
}
