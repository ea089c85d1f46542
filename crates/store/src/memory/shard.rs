//! One shard: some of the keys, behind one lock.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::limit::{Idle, State};
use tollgate_core::{Plan, Timestamp};

use super::pack::{self, Fit};
use super::plans::Plans;
use super::table::{KeyHash, Slot, Table, Tag};

/// States on their way through a settlement, one for each limit of each charge.
pub(crate) type StateRow = SmallVec<[State; 10]>;

pub(crate) struct Shard {
    narrow: Table<1>,
    wide: Table<2>,
    deep: Vec<Box<[State]>>,
    deep_free: Vec<usize>,
    plans: Plans,
    /// Where the search for a key to forget goes on.
    hand: usize,
    /// The keys that have changed since they were last saved, if somebody saves them.
    dirty: Option<Vec<KeyHash>>,
}

/// Where a key's states are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Narrow(usize),
    Wide(usize),
}

/// What a search for a key under a plan came to.
pub(crate) enum Located {
    At(Place),
    Vacant,
    /// It was there under another plan and has been moved: places found before may be wrong now.
    Moved,
}

/// What may be done with a key to make room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It is as good as new: nobody can tell that it was forgotten.
    Idle,
    /// It counts something but refuses nobody.
    Open,
    /// It refuses attempts now: forgetting it would let them in.
    Blocked,
    /// It must not be forgotten at all.
    Pinned,
}

/// How many open keys are weighed against each other before one is forgotten.
const SAMPLE: usize = 8;
/// How many slots are looked at, at most, to find a key that may be forgotten.
const REACH: usize = 1_024;

impl Shard {
    pub(crate) fn new(tracks_changes: bool) -> Self {
        Self {
            narrow: Table::new(),
            wide: Table::new(),
            deep: Vec::new(),
            deep_free: Vec::new(),
            plans: Plans::default(),
            hand: 0,
            dirty: tracks_changes.then(Vec::new),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    /// Finds a key. If it was written under another plan, its states are carried over first.
    pub(crate) fn locate(&mut self, key: KeyHash, plan: &Arc<Plan>, now: Timestamp) -> Located {
        let place = match Fit::of(plan) {
            Fit::Two => self.find_wide(key).or_else(|| self.find_narrow(key)),
            Fit::One | Fit::Deep => self.find_narrow(key).or_else(|| self.find_wide(key)),
        };
        let Some(place) = place else { return Located::Vacant };
        if self.plans.is(self.tag(place).plan(), plan) {
            return Located::At(place);
        }
        let old = Arc::clone(self.plans.plan(self.tag(place).plan()));
        let dirty = self.tag(place).is_dirty();
        let states = plan.adopt(&old, self.remove(place), now);
        self.insert(key, plan, &states);
        if dirty {
            self.touch(key);
        }
        Located::Moved
    }

    /// Where a key is, if its one state is in a narrow slot under this very plan.
    #[inline]
    pub(crate) fn find_single(&self, key: KeyHash, plan: &Arc<Plan>) -> Option<usize> {
        let index = self.narrow.find(key)?;
        let tag = self.narrow.at(index)?.tag;
        (!tag.is_deep() && self.plans.is(tag.plan(), plan) && plan.limits().len() == 1).then_some(index)
    }

    /// The slot that [`Shard::find_single`] found.
    #[inline]
    pub(crate) fn single(&mut self, index: usize) -> &mut Slot<1> {
        self.narrow.at_mut(index)
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

    /// Appends a key's states to the row. Those of a deep slot are moved out until they are saved.
    pub(crate) fn load(&mut self, place: Place, plan: &Plan, row: &mut StateRow) {
        match place {
            Place::Wide(index) => {
                let slot = self.wide.at_mut(index);
                pack::unpack(plan, &slot.words, &slot.halves, row);
            }
            Place::Narrow(index) => {
                let slot = self.narrow.at_mut(index);
                if Fit::of(plan) == Fit::Deep {
                    row.extend(self.deep[slot.words[0] as usize].iter_mut().map(std::mem::take));
                } else {
                    pack::unpack(plan, &slot.words, &slot.halves, row);
                }
            }
        }
    }

    /// Puts a key's states back.
    pub(crate) fn save(&mut self, place: Place, plan: &Plan, states: &mut [State]) {
        match place {
            Place::Wide(index) => {
                let slot = self.wide.at_mut(index);
                pack::pack(plan, states, &mut slot.words, &mut slot.halves);
            }
            Place::Narrow(index) => {
                let slot = self.narrow.at_mut(index);
                if Fit::of(plan) == Fit::Deep {
                    self.deep[slot.words[0] as usize].swap_with_slice(states);
                } else {
                    pack::pack(plan, states, &mut slot.words, &mut slot.halves);
                }
            }
        }
    }

    /// Puts a key's states back where they were, or in if the key is new and was charged.
    #[inline]
    pub(crate) fn put_back(
        &mut self,
        key: KeyHash,
        place: Option<Place>,
        plan: &Arc<Plan>,
        states: &mut [State],
        changed: bool,
    ) {
        match place {
            Some(place) => {
                self.save(place, plan, states);
                if changed {
                    self.touch_at(place, key);
                }
            }
            None if changed && states.iter().any(|state| *state != State::Fresh) => {
                self.insert(key, plan, states);
                self.touch(key);
            }
            None => {}
        }
    }

    /// Puts a key in that is not there yet.
    pub(crate) fn insert(&mut self, key: KeyHash, plan: &Arc<Plan>, states: &[State]) {
        let tag = Tag::new(self.plans.enter(plan));
        let mut words = [0; 2];
        let mut halves = [0; 2];
        match Fit::of(plan) {
            Fit::Two => {
                pack::pack(plan, states, &mut words, &mut halves);
                self.wide.insert(Slot { key, words, halves, tag });
            }
            Fit::One => {
                pack::pack(plan, states, &mut words[..1], &mut halves[..1]);
                self.narrow.insert(Slot { key, words: [words[0]], halves: [halves[0]], tag });
            }
            Fit::Deep => {
                let index = self.sink(states.to_vec().into());
                self.narrow.insert(Slot { key, words: [index as u64], halves: [0], tag: tag.deep() });
            }
        }
    }

    fn sink(&mut self, states: Box<[State]>) -> usize {
        if let Some(index) = self.deep_free.pop() {
            self.deep[index] = states;
            return index;
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
                if Fit::of(&plan) == Fit::Deep {
                    self.deep[slot.words[0] as usize] = Box::default();
                    self.deep_free.push(slot.words[0] as usize);
                }
            }
        }
        self.plans.leave(number);
        row.into_vec()
    }

    /// Forgets a key.
    pub(crate) fn forget(&mut self, key: KeyHash) {
        if let Some(place) = self.find_narrow(key).or_else(|| self.find_wide(key)) {
            self.remove(place);
            self.note_gone(key);
        }
    }

    /// Forgets every key of a rule, or all of them.
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

    /// The key in the n-th slot of both tables, if it is not empty.
    fn nth(&self, index: usize) -> Option<(KeyHash, Tag)> {
        match index.checked_sub(self.narrow.width()) {
            None => self.narrow.at(index).map(|slot| (slot.key, slot.tag)),
            Some(index) => self.wide.at(index).map(|slot| (slot.key, slot.tag)),
        }
    }

    fn place_of_nth(&self, index: usize) -> Place {
        index.checked_sub(self.narrow.width()).map_or(Place::Narrow(index), Place::Wide)
    }

    /// Forgets one key to make room for another: one that is idle if a bounded search meets it,
    /// else of a few open ones the one that would be idle first, else a blocked one. Answers whether
    /// there was any.
    pub(crate) fn make_room(&mut self, now: Timestamp) -> bool {
        let mut best: Option<(Standing, Idle, usize)> = None;
        let mut open = 0;
        for _ in 0..REACH.min(self.width()) {
            self.hand = if self.hand + 1 >= self.width() { 0 } else { self.hand + 1 };
            if self.nth(self.hand).is_none() {
                continue;
            }
            let (standing, idle) = self.standing(self.place_of_nth(self.hand), now);
            if standing != Standing::Pinned && best.is_none_or(|best| (standing, idle) < (best.0, best.1)) {
                best = Some((standing, idle, self.hand));
            }
            open += usize::from(standing == Standing::Open);
            if standing == Standing::Idle || open == SAMPLE {
                break;
            }
        }
        let Some((_, _, index)) = best else { return false };
        let (key, _) = self.nth(index).expect("the search saw a key there");
        self.forget(key);
        true
    }

    fn standing(&mut self, place: Place, now: Timestamp) -> (Standing, Idle) {
        let plan = Arc::clone(self.plans.plan(self.tag(place).plan()));
        let mut row = StateRow::new();
        self.load(place, &plan, &mut row);
        let idle = plan.idle(&row);
        let standing = match idle {
            Idle::Never => Standing::Pinned,
            Idle::At(at) if at <= now => Standing::Idle,
            Idle::At(_) if plan.blocks(&row, now) => Standing::Blocked,
            Idle::At(_) => Standing::Open,
        };
        self.save(place, &plan, &mut row);
        (standing, idle)
    }

    /// Marks a key as changed since it was last saved.
    pub(crate) fn touch(&mut self, key: KeyHash) {
        let Some(dirty) = &mut self.dirty else { return };
        let tag = if let Some(index) = self.narrow.find(key) {
            &mut self.narrow.at_mut(index).tag
        } else if let Some(index) = self.wide.find(key) {
            &mut self.wide.at_mut(index).tag
        } else {
            return;
        };
        if !tag.is_dirty() {
            *tag = tag.dirty();
            dirty.push(key);
        }
    }

    /// As [`Shard::touch`], where the place is known.
    pub(crate) fn touch_at(&mut self, place: Place, key: KeyHash) {
        let Some(dirty) = &mut self.dirty else { return };
        let tag = match place {
            Place::Narrow(index) => &mut self.narrow.at_mut(index).tag,
            Place::Wide(index) => &mut self.wide.at_mut(index).tag,
        };
        if !tag.is_dirty() {
            *tag = tag.dirty();
            dirty.push(key);
        }
    }

    fn note_gone(&mut self, key: KeyHash) {
        if let Some(dirty) = &mut self.dirty {
            dirty.push(key);
        }
    }

    /// Takes out up to `most` changed keys, each with its plan and states, or with nothing if it is
    /// gone. The second value says whether there are more.
    #[expect(clippy::type_complexity, reason = "a key and what is to be saved of it")]
    pub(crate) fn changed(&mut self, most: usize) -> (Vec<(KeyHash, Option<(Arc<Plan>, Vec<State>)>)>, bool) {
        let Some(dirty) = &mut self.dirty else { return (Vec::new(), false) };
        let rest = dirty.len().saturating_sub(most);
        let keys = dirty.split_off(rest);
        let saved = keys.into_iter().map(|key| (key, self.copy_clean(key))).collect();
        (saved, rest > 0)
    }

    fn copy_clean(&mut self, key: KeyHash) -> Option<(Arc<Plan>, Vec<State>)> {
        let place = self.find_narrow(key).or_else(|| self.find_wide(key))?;
        let plan = Arc::clone(self.plans.plan(self.tag(place).plan()));
        let tag = match place {
            Place::Narrow(index) => &mut self.narrow.at_mut(index).tag,
            Place::Wide(index) => &mut self.wide.at_mut(index).tag,
        };
        *tag = tag.clean();
        let mut row = StateRow::new();
        self.load(place, &plan, &mut row);
        let copy = row.to_vec();
        self.save(place, &plan, &mut row);
        Some((plan, copy))
    }

    /// Forgets the idle keys among the next `most` slots. Answers whether the end was reached.
    pub(crate) fn sweep(&mut self, from: usize, most: usize, now: Timestamp) -> Option<usize> {
        let end = (from + most).min(self.width());
        let mut gone = SmallVec::<[KeyHash; 16]>::new();
        for index in from..end {
            if let Some((key, _)) = self.nth(index)
                && self.standing(self.place_of_nth(index), now).0 == Standing::Idle
            {
                gone.push(key);
            }
        }
        gone.into_iter().for_each(|key| self.forget(key));
        (end < self.width()).then_some(end)
    }
}
