//! The specification as a store: `Charges::settle` over a plain map.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::limit::{Draft, Hold, State};
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
    /// Whether a look leaves a state as it was if only time has passed.
    looks_leave_no_trace: bool,
}

impl Model {
    pub(crate) fn new(forgets_by_looking: bool) -> Self {
        Self { looks_leave_no_trace: !forgets_by_looking, ..Self::default() }
    }

    /// Does what leaves no trace at charges of which nothing was taken, where only time has passed.
    fn look<T>(
        &mut self,
        charges: &Charges<'_>,
        now: Timestamp,
        settle: impl FnOnce(&mut [State]) -> T,
        taken: impl FnOnce(&T) -> u32,
    ) -> T {
        let name = |charge: &tollgate_core::Charge<'_>| {
            (charge.plan.rule().to_string(), charges.key(charge).to_owned())
        };
        let before: Vec<_> = charges.iter().map(|charge| self.states.get(&name(charge)).cloned()).collect();
        let result = self.with_states(charges, now, settle);
        let taken = taken(&result);
        for (index, (charge, before)) in charges.iter().zip(before).enumerate() {
            let Some((plan, states)) = before.filter(|_| self.looks_leave_no_trace) else { continue };
            let after = &self.states[&name(charge)].1;
            let only_aged =
                || states.iter().zip(after).all(|(before, after)| has_only_aged(before, after, now));
            if taken & (1 << index) == 0 && plan == *charge.plan && only_aged() {
                self.states.insert(name(charge), (plan, states));
            }
        }
        result
    }

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
        let taken = |settled: &Result<Outcome, _>| settled.as_ref().map_or(0, |outcome| outcome.taken);
        let settled = self.look(charges, now, |states| charges.settle(states, now), taken);
        settled.map_err(|stale| StoreError::Stale { now: stale.now })
    }

    pub(crate) fn peek(&mut self, charges: &Charges<'_>, now: Timestamp) -> Result<Outcome, StoreError> {
        let surveyed = self.look(charges, now, |states| charges.survey(states, now), |_| 0);
        surveyed.map_err(|stale| StoreError::Stale { now: stale.now })
    }

    pub(crate) fn refund(&mut self, charges: &Charges<'_>, taken_at: Timestamp, now: Timestamp) -> Refunded {
        if charges.is_empty() || charges.ages_out().is_some_and(|span| taken_at + span <= now) {
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
        let changes = u32::from(!matches!(order, HoldsOrder::List));
        let carry_out = |states: &mut [State]| {
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
        };
        self.look(&charges, now, carry_out, |()| changes);
        report
    }

    pub(crate) fn forget(&mut self, rule: &str, key: &str, now: Timestamp) {
        let forgotten = self.forgotten.entry(rule.to_owned()).or_default();
        *forgotten = now.max(*forgotten);
        self.states.remove(&(rule.to_owned(), key.to_owned()));
    }
}

/// Whether a state has changed by the passing of time and by nothing else: the clock has not gone back.
fn has_only_aged(before: &State, after: &State, now: Timestamp) -> bool {
    match (before, after) {
        (before, after) if before == after => true,
        (State::Log(log), _) => log.entries().all(|entry| entry.at <= now),
        (State::Failures(failures), _) => failures.iter().all(|failure| failure.at <= now),
        (State::Holds(holds), _) => holds.iter().all(|(_, hold)| hold.renewed <= now),
        (State::Slots(before), State::Slots(after)) => before.counts().last() == after.counts().last(),
        (_, after) => *after == State::Fresh,
    }
}
