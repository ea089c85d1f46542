//! Lanes without mail whose servers answered when they were last used: mail that comes for them later is not held back
//! with mail to servers of which nothing is known.

use std::collections::HashSet;

use super::lane::LaneKey;

/// How many lanes each of the two halves remembers.
const MOST: usize = 5_000;

/// Remembers at least the last lanes that were told, and at most twice as many.
#[derive(Debug, Default)]
pub(super) struct Answering {
    young: HashSet<LaneKey>,
    old: HashSet<LaneKey>,
}

impl Answering {
    pub(super) fn insert(&mut self, key: LaneKey) {
        if self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
    }

    /// Forgets a lane, and returns whether it was known.
    pub(super) fn take(&mut self, key: &LaneKey) -> bool {
        let young = self.young.remove(key);
        self.old.remove(key) || young
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lanes_are_remembered_and_no_more_than_twice_as_many() {
        let key = |number: usize| LaneKey {
            tenant: "acme".into(),
            account: None,
            domain: format!("d{number}.example").into(),
        };
        let mut answering = Answering::default();
        (0..3 * MOST).for_each(|number| answering.insert(key(number)));
        assert!(answering.young.len() + answering.old.len() <= 2 * MOST);
        assert!(answering.take(&key(3 * MOST - 1)) && !answering.take(&key(3 * MOST - 1)));
        assert!(answering.take(&key(2 * MOST)) && !answering.take(&key(0)));
    }
}
