//! The holds of a counter: all of them, or those that are named and two that stand for the rest.

use std::collections::BTreeMap;

use tollgate_core::limit::{Hold, State};
use tollgate_core::{Ticket, Timestamp};

use super::{Counter, Header};
use crate::codec::{Garbled, moment_of, natural};

/// Up to how many holds all are loaded. The core looks at all of so many when one of them ends.
pub(crate) const FEW: i64 = 64;

/// Ids that the two have that stand for the rest. No id of a caller begins with a zero in the table.
const OLDEST: &str = "\0oldest";
const REST: &str = "\0rest";

/// Whether an id stands for holds that were not loaded.
pub(crate) fn is_stand_in(id: &str) -> bool {
    id == OLDEST || id == REST
}

impl Counter {
    pub(super) fn read_holds(&self, header: &Header) -> Result<State, Garbled> {
        let named = self.loaded.holds.iter().map(|(id, hold)| (Box::from(id.as_str()), *hold));
        if self.loaded.all_holds {
            return Ok(if self.loaded.holds.is_empty() {
                State::Fresh
            } else {
                State::Holds(Box::new(named.collect()))
            });
        }
        let weight: u64 = self.loaded.holds.values().map(|hold| hold.weight).sum();
        let weight = natural(header.held)?.checked_sub(weight).ok_or(Garbled)?;
        let (oldest, newest) = (moment_of(header.oldest)?, moment_of(header.newest)?);
        let stand_in = |weight, renewed| Hold { ticket: Ticket(0), weight, since: renewed, renewed };
        let rest = [(OLDEST.into(), stand_in(0, oldest)), (REST.into(), stand_in(weight, newest))];
        Ok(State::Holds(Box::new(named.chain(rest).collect())))
    }

    /// The holds as they are now, without those that stand for others.
    pub(super) fn held(&self) -> BTreeMap<&str, Hold> {
        let holds = self.states.iter().find_map(State::holds);
        let holds = holds.into_iter().flat_map(|holds| holds.iter());
        holds.filter(|(id, _)| !is_stand_in(id)).collect()
    }

    /// Their weight, and the bounds of their latest renewals.
    pub(super) fn hold_bounds(&self) -> (u64, Timestamp, Timestamp) {
        let limits = self.plan.iter().flat_map(|plan| plan.limits()).zip(&self.states);
        for (limit, state) in limits {
            let (Some(kind), Some(holds)) = (limit.in_flight(), state.holds()) else { continue };
            let weight = holds.iter().map(|(_, hold)| hold.weight).sum();
            let renewals = || holds.iter().map(|(_, hold)| hold.renewed);
            let oldest = renewals().min().unwrap_or_default();
            // The core may know of a later renewal, of a hold that has ended since.
            let newest = match (limit.idle(state), kind.lease()) {
                (tollgate_core::limit::Idle::At(at), Some(lease)) => at - lease,
                _ => renewals().max().unwrap_or_default(),
            };
            return (weight, oldest, newest);
        }
        (0, Timestamp::ZERO, Timestamp::ZERO)
    }
}
