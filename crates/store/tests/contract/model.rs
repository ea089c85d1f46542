//! The specification as a store: `Charges::settle` over a plain map.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::limit::{Draft, Hold, Limit, State};
use tollgate_core::store::{Counter, HoldsOrder, HoldsReport, Refunded};
use tollgate_core::{Charges, Outcome, Plan, StoreError, Ticket, Timestamp};

/// States by rule and key, each with its latest plan.
#[derive(Default)]
pub(crate) struct Model {
    states: HashMap<(String, String), (Arc<Plan>, Vec<State>)>,
    /// The refunds: time, ticket and rule of the charge.
    spent: HashSet<(Timestamp, Ticket, String)>,
    /// When a key of a rule was last forgotten.
    forgotten: HashMap<String, Timestamp>,
}

impl Model {
    fn with_states<T>(
        &mut self,
        charges: &Charges<'_>,
        now: Timestamp,
        settle: impl FnOnce(&mut [State]) -> T,
    ) -> T {
        let mut row = Vec::new();
        for charge in charges.iter() {
            let name = (charge.plan.rule().to_string(), charges.key(charge).to_owned());
            let fresh = || (charge.plan.clone(), vec![State::Fresh; charge.plan.limits().len()]);
            let (old, states) = self.states.remove(&name).unwrap_or_else(fresh);
            let same = old == *charge.plan;
            row.extend(if same { states } else { charge.plan.adopt(&old, states, now) });
        }
        let result = settle(&mut row);
        for charge in charges.iter() {
            let name = (charge.plan.rule().to_string(), charges.key(charge).to_owned());
            let rest = row.split_off(charge.plan.limits().len());
            self.states.insert(name, (charge.plan.clone(), std::mem::replace(&mut row, rest)));
        }
        result
    }

    pub(crate) fn take(&mut self, charges: &Charges<'_>, now: Timestamp) -> Result<Outcome, StoreError> {
        let settled = self.with_states(charges, now, |states| charges.settle(states, now));
        settled.map_err(|stale| StoreError::Stale { now: stale.now })
    }

    pub(crate) fn peek(&mut self, charges: &Charges<'_>, now: Timestamp) -> Result<Outcome, StoreError> {
        let surveyed = self.with_states(charges, now, |states| charges.survey(states, now));
        surveyed.map_err(|stale| StoreError::Stale { now: stale.now })
    }

    pub(crate) fn refund(&mut self, charges: &Charges<'_>, taken_at: Timestamp, now: Timestamp) -> Refunded {
        if charges.ages_out().is_some_and(|span| taken_at + span <= now) {
            return Refunded::TooOld;
        }
        let mut left = Charges::new(charges.ticket, charges.cost, None);
        left.calendar = charges.calendar.clone();
        let mut given = Refunded::Already;
        for charge in charges.iter() {
            if !self.spent.insert((taken_at, charges.ticket, charge.plan.rule().to_string())) {
                continue;
            }
            given = Refunded::TooOld;
            if self.forgotten.get(&**charge.plan.rule()).is_none_or(|forgotten| taken_at > *forgotten) {
                left.push_taken(charge.plan, charges.key(charge), charge.cost, charge.fate);
            }
        }
        if left.is_empty() {
            return given;
        }
        self.with_states(&left, now, |states| left.refund(states, taken_at, now));
        Refunded::Done
    }

    pub(crate) fn holds(
        &mut self,
        counter: &Counter<'_>,
        order: HoldsOrder<'_>,
        now: Timestamp,
    ) -> HoldsReport {
        let mut charges = Charges::new(Ticket(0), 1, None);
        charges.push(counter.plan, counter.key, true);
        let mut report = HoldsReport { found: false, now, holds: Vec::new() };
        let draft = Draft { cost: 0, id: None, ticket: Ticket(0), now, amounts: &[], calendar: &[] };
        self.with_states(&charges, now, |states| {
            let Some((index, limit)) = counter.plan.in_flight() else { return };
            counter.plan.limits()[index].freshen(&mut states[index], &draft);
            states[index].change_holds(|holds| {
                // Of the ids that are named, those that are found, one by one.
                let mut some: BTreeMap<&str, Hold> = BTreeMap::new();
                let mut each = |id, hold: Option<Hold>| {
                    some.extend(hold.map(|hold| (id, hold)));
                    hold.is_some()
                };
                let all = |found: bool, one: bool| found & one;
                match order {
                    HoldsOrder::List => {}
                    HoldsOrder::Renew(id) => {
                        holds.renew(id, now);
                        report.found = each(id, holds.find(id));
                    }
                    HoldsOrder::Release(id) => {
                        report.found = each(id, holds.find(id));
                        holds.release(id);
                    }
                    HoldsOrder::Replace(ids, ticket) => holds.replace(ids.iter().copied(), ticket, now),
                    HoldsOrder::RenewMany(ids) => {
                        let renewed = ids.iter().map(|id| {
                            holds.renew(id, now);
                            each(id, holds.find(id))
                        });
                        report.found = renewed.fold(true, all);
                    }
                    HoldsOrder::ReleaseMany(ids) => {
                        let ended = ids.iter().map(|id| {
                            let found = each(id, holds.find(id));
                            holds.release(id);
                            found
                        });
                        report.found = ended.fold(true, all);
                    }
                    HoldsOrder::Claim(ids, ticket) => {
                        let claimed =
                            ids.iter().map(|claim| each(claim.0, limit.claim(holds, *claim, ticket, now)));
                        report.found = claimed.fold(true, all);
                    }
                }
                report.holds = if matches!(order, HoldsOrder::List | HoldsOrder::Replace(..)) {
                    holds.iter().map(|(id, hold)| (id.to_owned(), hold)).collect()
                } else {
                    some.into_iter().map(|(id, hold)| (id.to_owned(), hold)).collect()
                };
            });
        });
        report
    }

    pub(crate) fn forget(&mut self, rule: &str, key: &str, now: Timestamp) {
        let forgotten = self.forgotten.entry(rule.to_owned()).or_default();
        *forgotten = now.max(*forgotten);
        self.states.remove(&(rule.to_owned(), key.to_owned()));
    }
}
