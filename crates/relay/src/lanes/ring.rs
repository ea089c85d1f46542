//! Deficit round robin: members take turns, and each turn is worth the same number of recipients.

use std::collections::VecDeque;

/// Members that take turns.
#[derive(Debug)]
pub(super) struct Ring<T> {
    members: VecDeque<(T, i64)>,
    quantum: i64,
}

impl<T: Clone> Ring<T> {
    pub(super) fn new(quantum: u32) -> Self {
        Self { members: VecDeque::new(), quantum: i64::from(quantum.max(1)) }
    }

    /// Whether the ring has no members.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds a member at the end of the ring.
    pub(super) fn join(&mut self, member: T) {
        self.members.push_back((member, 0));
    }

    /// Adds a member whose turn it is now.
    pub(super) fn join_first(&mut self, member: T) {
        self.members.push_front((member, 0));
    }

    /// Removes the member whose turn it is.
    pub(super) fn leave_first(&mut self) {
        self.members.pop_front();
    }

    /// The member whose turn it is. Those that are not active leave the ring.
    pub(super) fn turn(&mut self, mut active: impl FnMut(&T) -> bool) -> Option<T> {
        loop {
            let (member, deficit) = self.members.front_mut()?;
            if !active(member) {
                self.members.pop_front();
                continue;
            }
            if *deficit > 0 {
                return Some(member.clone());
            }
            // A large item may put a member in debt. It then waits until its turns have paid for the item.
            *deficit += self.quantum;
            if *deficit > 0 {
                return Some(member.clone());
            }
            self.members.rotate_left(1);
        }
    }

    /// Charges the member whose turn it is. Once its turn is used up, the next one follows.
    pub(super) fn charge(&mut self, cost: u32) {
        if let Some((_, deficit)) = self.members.front_mut() {
            *deficit -= i64::from(cost.max(1));
            if *deficit <= 0 {
                self.members.rotate_left(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Over any run, two members that always have something are served alike, whatever their items cost.
        #[test]
        fn turns_are_worth_the_same(costs in prop::collection::vec(1..50_u32, 2..6), quantum in 1..40_u32) {
            let mut ring = Ring::new(quantum);
            (0..costs.len()).for_each(|member| ring.join(member));
            let mut served: HashMap<usize, i64> = (0..costs.len()).map(|member| (member, 0)).collect();
            for _ in 0..2_000 {
                let member = ring.turn(|_| true).expect("all are active");
                ring.charge(costs[member]);
                *served.get_mut(&member).expect("a member") += i64::from(costs[member]);
                let (least, most) = (served.values().min(), served.values().max());
                let apart = most.expect("some") - least.expect("some");
                prop_assert!(apart <= i64::from(2 * quantum) + 2 * 50, "{served:?}");
            }
        }
    }

    #[test]
    fn a_member_that_is_not_active_leaves() {
        let mut ring = Ring::new(1);
        (0..3).for_each(|member| ring.join(member));
        assert_eq!(ring.turn(|member| *member == 2), Some(2));
        assert_eq!(ring.turn(|_| false), None);
        assert!(ring.members.is_empty());
    }
}
