//! The holds of a counter. If there are few, all are loaded. If there are many, only those that the caller
//! names and those that expire next; up to three stand-ins represent the rest.

use std::collections::BTreeMap;

use tollgate_core::limit::{Hold, Idle, State};
use tollgate_core::{Ticket, Timestamp};

use super::{Counter, Header};
use crate::codec::{Garbled, moment_of, natural};

/// With at most this many holds, all are loaded.
pub(crate) const FEW: i64 = 16;
/// If at most this many holds are not loaded, ending the latest renewed one makes the core need the exact
/// latest renewal of the rest.
pub(crate) const MANY: i64 = 64;

/// The ids of the stand-ins: for the expired holds, for the earliest renewal of the others, and for their
/// weight and latest renewal. In the table, no id of a caller begins with a zero byte.
const EXPIRED: &str = "\0expired";
const OLDEST: &str = "\0oldest";
const REST: &str = "\0rest";

/// Whether all holds were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HoldsKnown {
    #[default]
    Some,
    All,
}

/// Sums over the holds that were not loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldBounds {
    /// Holds whose last renewal is not after this moment have expired.
    pub(crate) cutoff: Option<i64>,
    /// The number and total weight of the expired holds.
    pub(crate) expired: i64,
    pub(crate) expired_weight: u64,
    /// The latest renewal of the holds that have not expired.
    pub(crate) newest: Option<Timestamp>,
    /// Whether `newest` is exact, and so replaces the bound in the counter's row.
    pub(crate) exact: bool,
}

/// Whether an id is that of a stand-in.
fn is_stand_in(id: &str) -> bool {
    [EXPIRED, OLDEST, REST].contains(&id)
}

impl Counter {
    pub(super) fn read_holds(&self, header: &Header, used: Option<i64>) -> Result<State, Garbled> {
        let holds = &self.loaded.holds;
        let mut all: Vec<(Box<str>, Hold)> =
            holds.iter().map(|(id, hold)| (Box::from(id.as_str()), *hold)).collect();
        if self.loaded.holds_known == HoldsKnown::Some {
            let bounds = &self.loaded.hold_bounds;
            let known = holds.values().map(|hold| hold.weight).sum::<u64>() + bounds.expired_weight;
            let weight = natural(used.unwrap_or(0))?.checked_sub(known).ok_or(Garbled)?;
            let count = header.holds - holds.len() as i64 - bounds.expired;
            let stand_in = |weight, renewed| Hold { ticket: Ticket(0), weight, since: renewed, renewed };
            if bounds.expired > 0 {
                let oldest = moment_of(header.oldest)?;
                all.push((EXPIRED.into(), stand_in(bounds.expired_weight, oldest)));
            }
            if count > 0 {
                let oldest = moment_of(bounds.cutoff.map_or(header.oldest, |cutoff| cutoff + 1))?;
                let newest = moment_of(header.newest)?;
                let newest = bounds.newest.filter(|_| bounds.exact).unwrap_or(newest);
                all.push((OLDEST.into(), stand_in(0, oldest)));
                all.push((REST.into(), stand_in(weight, newest)));
            }
        }
        Ok(if all.is_empty() { State::Fresh } else { State::Holds(Box::new(all.into_iter().collect())) })
    }

    /// The current holds, without the stand-ins.
    pub(super) fn held(&self) -> BTreeMap<&str, Hold> {
        let holds = self.states.iter().find_map(State::holds);
        let holds = holds.into_iter().flat_map(|holds| holds.iter());
        holds.filter(|(id, _)| !is_stand_in(id)).collect()
    }

    fn has_stand_in(&self, which: impl Fn(&str) -> bool) -> bool {
        let holds = self.states.iter().find_map(State::holds);
        holds.is_some_and(|holds| holds.iter().any(|(id, _)| which(id)))
    }

    /// Whether the counter still has holds that were not loaded.
    pub(super) fn has_others(&self) -> bool {
        self.has_stand_in(is_stand_in)
    }

    /// The cutoff up to which holds that were not loaded have expired; `None` if none of them has.
    pub(super) fn expired(&self) -> Option<i64> {
        let bounds = &self.loaded.hold_bounds;
        let ended = bounds.expired > 0 && !self.has_stand_in(|id| id == EXPIRED);
        bounds.cutoff.filter(|_| ended)
    }

    /// The total weight, if the plan limits holds; and the earliest and the latest renewal.
    pub(super) fn hold_bounds(&self) -> (Option<u64>, Timestamp, Timestamp) {
        let limits = self.plan.iter().flat_map(|plan| plan.limits()).zip(&self.states);
        for (limit, state) in limits {
            let (Some(kind), Some(holds)) = (limit.in_flight(), state.holds()) else { continue };
            let weight = holds.iter().map(|(_, hold)| hold.weight).sum();
            let renewals = || holds.iter().map(|(_, hold)| hold.renewed);
            let oldest = renewals().min().unwrap_or_default();
            // The core's latest renewal may be that of a hold that has ended since.
            let newest = match (limit.idle(state), kind.lease()) {
                (Idle::At(at), Some(lease)) => at - lease,
                (Idle::At(_) | Idle::Never, _) => renewals().max().unwrap_or_default(),
            };
            return (Some(weight), oldest, newest);
        }
        // Rows of expired holds may remain. They must not count again, so the bound does not go back.
        let oldest = self.loaded.header.as_ref().and_then(Header::oldest_at);
        (None, oldest.unwrap_or_default(), Timestamp::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_core::Plan;

    use super::*;
    use crate::counter::Loaded;
    use crate::name::Name;

    #[test]
    fn holds_that_are_all_loaded_leave_none_to_stand_for() {
        let at = Timestamp::from_micros(7);
        let plan = Plan::new("rule".into(), vec!["100 at once".parse().unwrap()]).unwrap();
        for (loaded, has_others) in [(20, false), (19, true)] {
            let header = Header {
                used: vec![Some(20)],
                marks: vec![0],
                logs: vec![None],
                holds: 20,
                oldest: 7,
                newest: 7,
                ..Header::default()
            };
            let hold = Hold { ticket: Ticket(1), weight: 1, since: at, renewed: at };
            let holds = (0..loaded).map(|number: i32| (number.to_string(), hold)).collect();
            let plan = Some(Arc::new(plan.clone()));
            let loaded = Loaded { header: Some(header), plan, holds, ..Loaded::default() };
            let name = Name { id: [7; 16], lock: 7, rule: "rule".into(), key: "key".into() };
            let counter = Counter::new(name, loaded, |_| true).unwrap();
            assert_eq!(counter.has_others(), has_others);
            assert_eq!(counter.hold_bounds(), (Some(20), at, at));
        }
    }
}
