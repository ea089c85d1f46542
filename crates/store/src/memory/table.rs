//! An open-addressed table of packed states.
//!
//! A lookup mostly reads one cache line: the slot holds the hashed key, the state and the number of its plan,
//! without a pointer to follow. A slot's index is the hash's upper half scaled to the capacity, so that a
//! table can grow by a quarter instead of doubling.

/// A key in a table: 128 bits of a keyed hash. Two numbers and not an array: those stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(pub(crate) u64, pub(crate) u64);

/// `N` packed states of one key. It is aligned, so that a lookup reads one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(32))]
pub(crate) struct Slot<const N: usize> {
    pub(crate) key: KeyHash,
    pub(crate) words: [u64; N],
    pub(crate) halves: [u32; N],
    /// The number of the plan and three flags; 0 in an empty slot.
    pub(crate) tag: Tag,
}

/// The plan of a slot, whether it has changed since it was last saved, whether it was ever saved, and whether
/// its states are elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

pub(crate) struct Table<const N: usize> {
    slots: Vec<Slot<N>>,
    len: usize,
}

impl Tag {
    const EMPTY: Self = Self(0);

    pub(crate) fn new(plan: u32) -> Self {
        Self((plan + 1) << 3)
    }

    /// Marks a slot that only points to its states.
    pub(crate) fn deep(self) -> Self {
        Self(self.0 | 4)
    }

    pub(crate) fn is_deep(self) -> bool {
        self.0 & 4 == 4
    }

    pub(crate) fn plan(self) -> u32 {
        (self.0 >> 3) - 1
    }

    pub(crate) fn is_dirty(self) -> bool {
        self.0 & 1 == 1
    }

    pub(crate) fn dirty(self) -> Self {
        Self(self.0 | 1)
    }

    /// Marks it as unchanged since it was saved.
    pub(crate) fn saved(self) -> Self {
        Self((self.0 & !1) | 2)
    }

    /// Whether the file has this key, so that it must be removed there when it is gone.
    pub(crate) fn is_saved(self) -> bool {
        self.0 & 2 == 2
    }

    pub(crate) fn once_saved(self) -> Self {
        Self(self.0 | 2)
    }

    fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

impl<const N: usize> Table<N> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of slots, full or empty.
    pub(crate) fn width(&self) -> usize {
        self.slots.len()
    }

    fn home(&self, key: KeyHash) -> usize {
        ((u128::from(key.1) * self.slots.len() as u128) >> 64) as usize
    }

    /// The index of a key.
    #[inline]
    pub(crate) fn find(&self, key: KeyHash) -> Option<usize> {
        // An empty table has no slot at any index.
        let mut index = self.home(key);
        let mut slot = self.slots.get(index)?;
        while !slot.tag.is_empty() {
            if slot.key == key {
                return Some(index);
            }
            index = self.after(index);
            slot = &self.slots[index];
        }
        None
    }

    /// Reads the slot at which a search for the key begins.
    #[inline]
    pub(crate) fn fetch(&self, key: KeyHash) -> bool {
        self.slots.get(self.home(key)).is_some_and(|slot| slot.tag.is_empty())
    }

    /// The slot at an index, if it is not empty.
    pub(crate) fn at(&self, index: usize) -> Option<&Slot<N>> {
        self.slots.get(index).filter(|slot| !slot.tag.is_empty())
    }

    pub(crate) fn at_mut(&mut self, index: usize) -> &mut Slot<N> {
        &mut self.slots[index]
    }

    /// Inserts a slot whose key is not stored yet. Returns its index.
    pub(crate) fn insert(&mut self, slot: Slot<N>) -> usize {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.grow();
        }
        self.len += 1;
        self.place(slot)
    }

    fn place(&mut self, slot: Slot<N>) -> usize {
        let mut index = self.home(slot.key);
        while !self.slots[index].tag.is_empty() {
            index = self.after(index);
        }
        self.slots[index] = slot;
        index
    }

    fn grow(&mut self) {
        let width = (self.slots.len() * 5 / 4).max(16);
        let empty = Slot { key: KeyHash(0, 0), words: [0; N], halves: [0; N], tag: Tag::EMPTY };
        let old = std::mem::replace(&mut self.slots, vec![empty; width]);
        old.into_iter().filter(|slot| !slot.tag.is_empty()).for_each(|slot| {
            self.place(slot);
        });
    }

    /// Removes a slot and closes the gap, so that no search ends too early.
    pub(crate) fn remove(&mut self, index: usize) -> Slot<N> {
        let removed = self.slots[index];
        let mut gap = index;
        let mut next = self.after(gap);
        while !self.slots[next].tag.is_empty() {
            let home = self.home(self.slots[next].key);
            if self.steps(home, next) >= self.steps(gap, next) {
                self.slots[gap] = self.slots[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.slots[gap].tag = Tag::EMPTY;
        self.len -= 1;
        removed
    }

    fn after(&self, index: usize) -> usize {
        if index + 1 == self.slots.len() { 0 } else { index + 1 }
    }

    /// The steps of a search from one index to another.
    fn steps(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn slot(key: u64, word: u64) -> Slot<1> {
        // Few distinct indices, so that searches collide and wrap around.
        let home = (key % 5).wrapping_mul(u64::MAX / 5).wrapping_add(key % 3);
        Slot { key: KeyHash(key, home), words: [word], halves: [0], tag: Tag::new(0) }
    }

    #[test]
    fn the_marks_of_a_tag_are_apart_and_marking_twice_is_marking_once() {
        for plan in [0, 1, 77, u32::MAX / 8 - 1] {
            let said = |tag: Tag| (tag.plan(), tag.is_dirty(), tag.is_saved(), tag.is_deep());
            let tag = Tag::new(plan);
            assert!(!tag.is_empty());
            assert_eq!(said(tag), (plan, false, false, false));
            assert_eq!(said(tag.dirty().dirty()), (plan, true, false, false));
            assert_eq!(said(tag.once_saved().once_saved()), (plan, false, true, false));
            assert_eq!(said(tag.deep().deep()), (plan, false, false, true));
            assert_eq!(said(tag.deep().dirty().once_saved()), (plan, true, true, true));
            assert_eq!(said(tag.deep().dirty().saved().saved()), (plan, false, true, true));
        }
    }

    #[test]
    fn a_table_grows_by_a_quarter_when_four_fifths_of_it_are_full() {
        let (mut table, mut widths) = (Table::<1>::new(), Vec::new());
        assert_eq!((table.width(), table.fetch(KeyHash(0, 0)), table.at(0)), (0, false, None));
        for key in 0..100 {
            table.insert(slot(key, key));
            if widths.last().is_none_or(|(_, width)| *width != table.width()) {
                widths.push((table.len(), table.width()));
            }
        }
        let expected = [
            (1, 16),
            (13, 20),
            (17, 25),
            (21, 31),
            (25, 38),
            (31, 47),
            (38, 58),
            (47, 72),
            (58, 90),
            (73, 112),
            (90, 140),
        ];
        assert_eq!(widths, expected);
    }

    #[test]
    fn a_search_begins_at_the_slot_that_is_fetched_and_wraps_around() {
        let mut table = Table::<1>::new();
        let index = table.insert(slot(3, 1));
        assert!(!table.fetch(slot(3, 0).key), "the slot is taken");
        assert!(table.fetch(KeyHash(0, slot(3, 0).key.1.wrapping_add(u64::MAX / 2))), "this one is empty");
        assert_eq!([(3, 5), (5, 5), (14, 1), (0, 15)].map(|(from, to)| table.steps(from, to)), [2, 0, 3, 15]);
        assert_eq!([0, 14, 15].map(|index| table.after(index)), [1, 15, 0]);
        assert_eq!(table.remove(index), slot(3, 1));
        assert!(table.fetch(slot(3, 0).key));
    }

    proptest! {
        #[test]
        fn behaves_as_a_map_does(steps in prop::collection::vec((0..60_u64, any::<bool>()), 0..400)) {
            let mut table = Table::<1>::new();
            let mut model = HashMap::new();
            for (count, (key, put)) in steps.into_iter().enumerate() {
                let probe = slot(key, count as u64);
                match (table.find(probe.key), put) {
                    (None, true) => { table.insert(probe); model.insert(key, probe.words[0]); }
                    (Some(index), false) => { table.remove(index); model.remove(&key); }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                for key in 0..60 {
                    let found = table.find(slot(key, 0).key).map(|index| table.at(index).unwrap().words[0]);
                    prop_assert_eq!(found, model.get(&key).copied());
                }
            }
        }
    }
}
