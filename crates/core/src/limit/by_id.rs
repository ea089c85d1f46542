//! A map from ids to holds, in the order of the ids. A few are kept in a list, which takes a tenth of the
//! memory of a tree. Many are kept in a tree, whose operations stay fast (O(log n)).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Hold;

/// Holds by id.
#[derive(Clone, Debug)]
pub(super) enum ById {
    /// In the order of the ids, at most [`ById::FEW`].
    Few(Vec<(Box<str>, Hold)>),
    /// It stays a tree when holds end, so that a key at the bound does not switch back and forth.
    Many(BTreeMap<Box<str>, Hold>),
}

impl ById {
    /// How many are kept in a list: shifting them costs less than one cache miss in a tree.
    const FEW: usize = 16;

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(tree) => tree.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn find(&self, id: &str) -> Option<&Hold> {
        match self {
            Self::Few(list) => position(list, id).ok().map(|index| &list[index].1),
            Self::Many(tree) => tree.get(id),
        }
    }

    pub(super) fn find_mut(&mut self, id: &str) -> Option<&mut Hold> {
        match self {
            Self::Few(list) => position(list, id).ok().map(|index| &mut list[index].1),
            Self::Many(tree) => tree.get_mut(id),
        }
    }

    /// Inserts a hold; it replaces one with the same id.
    pub(super) fn insert(&mut self, id: Box<str>, hold: Hold) {
        match self {
            Self::Many(tree) => drop(tree.insert(id, hold)),
            Self::Few(list) => match position(list, &id) {
                Ok(index) => list[index].1 = hold,
                Err(index) if list.len() < Self::FEW => {
                    if list.len() == list.capacity() {
                        // Grow by half; doubling would waste memory.
                        list.reserve_exact((list.len() / 2).max(1));
                    }
                    list.insert(index, (id, hold));
                }
                Err(_) => {
                    let mut tree: BTreeMap<_, _> = core::mem::take(list).into_iter().collect();
                    tree.insert(id, hold);
                    *self = Self::Many(tree);
                }
            },
        }
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<(Box<str>, Hold)> {
        match self {
            Self::Few(list) => position(list, id).ok().map(|index| list.remove(index)),
            Self::Many(tree) => tree.remove_entry(id),
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Hold) -> bool) {
        match self {
            Self::Few(list) => list.retain(|(_, hold)| keep(hold)),
            Self::Many(tree) => tree.retain(|_, hold| keep(hold)),
        }
    }

    /// All holds, in the order of the ids.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Hold)> {
        let (list, tree) = match self {
            Self::Few(list) => (Some(list.iter()), None),
            Self::Many(tree) => (None, Some(tree.iter())),
        };
        Iter { list, tree }
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.iter().map(|(_, hold)| hold)
    }

    pub(super) fn for_each_mut(&mut self, change: impl FnMut(&mut Hold)) {
        match self {
            Self::Few(list) => list.iter_mut().map(|(_, hold)| hold).for_each(change),
            Self::Many(tree) => tree.values_mut().for_each(change),
        }
    }
}

fn position(list: &[(Box<str>, Hold)], id: &str) -> Result<usize, usize> {
    list.binary_search_by(|(known, _)| (**known).cmp(id))
}

/// Exactly one of the two is present.
struct Iter<'h> {
    list: Option<core::slice::Iter<'h, (Box<str>, Hold)>>,
    tree: Option<alloc::collections::btree_map::Iter<'h, Box<str>, Hold>>,
}

impl<'h> Iterator for Iter<'h> {
    type Item = (&'h str, &'h Hold);

    fn next(&mut self) -> Option<Self::Item> {
        match (&mut self.list, &mut self.tree) {
            (Some(list), _) => list.next().map(|(id, hold)| (&**id, hold)),
            (None, Some(tree)) => tree.next().map(|(id, hold)| (&**id, hold)),
            (None, None) => None,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let list = self.list.as_ref().map_or(0, ExactSizeIterator::len);
        let tree = self.tree.as_ref().map_or(0, ExactSizeIterator::len);
        (list + tree, Some(list + tree))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl Default for ById {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// Compares the holds, not their representation.
impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ById {}

impl FromIterator<(Box<str>, Hold)> for ById {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Hold)>>(holds: I) -> Self {
        let mut all = Self::default();
        holds.into_iter().for_each(|(id, hold)| all.insert(id, hold));
        all
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::{Ticket, Timestamp};

    fn hold(number: u64) -> (Box<str>, Hold) {
        let now = Timestamp::from_micros(number);
        (format!("{number:02}").into(), Hold { ticket: Ticket(number), weight: 1, since: now, renewed: now })
    }

    #[test]
    fn a_full_list_grows_by_half_until_it_becomes_a_tree() {
        let mut holds = ById::default();
        for number in 0..16 {
            let before = if let ById::Few(list) = &holds { list.capacity() } else { panic!("a list") };
            let (id, hold) = hold(number);
            holds.insert(id, hold);
            let after = if let ById::Few(list) = &holds { list.capacity() } else { panic!("a list") };
            let grown = before + (before / 2).max(1);
            assert_eq!(after, if number == before as u64 { grown } else { before });
        }
        let (id, again) = hold(3);
        holds.insert(id, again);
        assert!(matches!(&holds, ById::Few(list) if list.len() == 16), "the id was there already");
        let (id, one_more) = hold(16);
        holds.insert(id, one_more);
        assert!(matches!(&holds, ById::Many(tree) if tree.len() == 17));
    }

    #[test]
    fn a_list_and_a_tree_do_the_same() {
        let mut list: ById = (0..16).map(hold).collect();
        let mut tree: ById = (0..17).map(hold).collect();
        assert_eq!((list.len(), tree.len()), (16, 17));
        assert_ne!(list, tree);
        assert_eq!(tree.remove("16").map(|(id, hold)| (id, hold.ticket)), Some(("16".into(), Ticket(16))));
        assert_eq!(tree.remove("16").map(|(id, _)| id), None);
        assert_eq!(list, tree, "compared by their holds");
        for holds in [&mut list, &mut tree] {
            assert_eq!((holds.iter().len(), holds.iter().size_hint()), (16, (16, Some(16))));
            assert_eq!(holds.find("05").map(|hold| hold.ticket), Some(Ticket(5)));
            assert!(holds.find("5").is_none() && holds.find_mut("5").is_none());
            holds.find_mut("05").expect("it is held").weight = 7;
            holds.for_each_mut(|hold| hold.weight += 1);
            assert_eq!(holds.holds().map(|hold| hold.weight).sum::<u64>(), 15 * 2 + 8);
            let (id, replaced) = hold(5);
            holds.insert(id, replaced);
            assert_eq!(holds.find("05").map(|hold| hold.weight), Some(1));
            holds.retain(|hold| hold.ticket.0 % 2 == 0);
            let ids: Vec<&str> = holds.iter().map(|(id, _)| id).collect();
            assert_eq!(ids, ["00", "02", "04", "06", "08", "10", "12", "14"]);
            holds.retain(|_| false);
            assert!(holds.is_empty() && holds.iter().next().is_none());
        }
    }
}
