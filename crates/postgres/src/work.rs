//! The calls of the engine as work that outlives its caller, and the code that settles it over loaded counters.

mod attempt;
mod caller;
mod holding;

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::charge::Stale;
use tollgate_core::limit::{Entry, State};
use tollgate_core::store::{HoldsReport, Refunded};
use tollgate_core::{Charges, Outcome, Plan, StoreError, Timestamp};

pub(crate) use attempt::Attempt;
pub(crate) use caller::{Caller, Failing};
pub(crate) use holding::Order;

use crate::counter::Counter;
use crate::fault::damaged;
use crate::load::{ALL_RULES, Scene, Want, Wants};
use crate::name::{CounterId, Name, escape};
use crate::write::Spent;

/// One call of the engine, and the caller that waits for its result.
pub(crate) enum Work {
    Take(Attempt, Caller<Outcome>),
    Peek(Attempt, Caller<Outcome>),
    Refund(Attempt, Timestamp, Caller<Refunded>),
    Retract(Attempt, Caller<()>),
    Holds { plan: Arc<Plan>, name: Name, order: Order, caller: Caller<HoldsReport> },
}

/// Sends a result to its caller. The transaction calls it after the commit.
pub(crate) type Reply = Box<dyn FnOnce() + Send>;

/// The counters of a transaction, and its other writes.
pub(crate) struct Table {
    pub(crate) now: Timestamp,
    pub(crate) counters: HashMap<CounterId, Counter>,
    pub(crate) spent: Vec<Spent>,
}

impl Work {
    /// The counters that the work reads or changes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        let (attempt, one) = match self {
            Self::Take(attempt, _)
            | Self::Peek(attempt, _)
            | Self::Refund(attempt, _, _)
            | Self::Retract(attempt, _) => (Some(attempt), None),
            Self::Holds { name, .. } => (None, Some(name)),
        };
        attempt.into_iter().flat_map(Attempt::names).chain(one)
    }

    /// The caller that waits for the result.
    pub(crate) fn caller(&self) -> Box<dyn Failing> {
        match self {
            Self::Take(_, caller) | Self::Peek(_, caller) => Box::new(caller.clone()),
            Self::Refund(_, _, caller) => Box::new(caller.clone()),
            Self::Retract(_, caller) => Box::new(caller.clone()),
            Self::Holds { caller, .. } => Box::new(caller.clone()),
        }
    }

    /// Whether the work may share a transaction with other work.
    pub(crate) fn is_shareable(&self) -> bool {
        matches!(self, Self::Take(..) | Self::Peek(..))
    }

    /// Adds the rows that the work needs.
    pub(crate) fn want(&self, wants: &mut Wants) {
        match self {
            Self::Take(attempt, _) | Self::Peek(attempt, _) => {
                for part in &attempt.parts {
                    let want = wants.of(&part.name, &part.plan);
                    want.cost = want.cost.max(part.cost);
                    want.costs += part.cost;
                    want.attempts += 1;
                    want.ids.extend(attempt.id.as_deref().map(escape));
                }
            }
            Self::Refund(attempt, taken_at, _) => attempt.want_own(wants, *taken_at),
            Self::Retract(attempt, _) => attempt.want_own(wants, Timestamp::ZERO),
            Self::Holds { plan, name, order, .. } => {
                let want = wants.of(name, plan);
                want.all_holds |= order.is_about_all();
                want.ends_holds |= order.ends_holds();
                want.ids.extend(order.ids().map(escape));
            }
        }
    }

    /// Settles the work. It fails if one of its counters is damaged.
    pub(crate) fn settle(&self, table: &mut Table, scene: &Scene) -> Result<Reply, StoreError> {
        if let Some(name) = self.names().find(|name| !table.counters.contains_key(&name.id)) {
            return Err(damaged(&format!("{}:{}", name.rule, name.key)));
        }
        match self {
            Self::Take(attempt, caller) => table
                .take(attempt, |charges, states, now| charges.settle(states, now))
                .map(|outcome| caller.reply(outcome)),
            Self::Peek(attempt, caller) => table
                .take(attempt, |charges, states, now| charges.survey(states, now))
                .map(|outcome| caller.reply(outcome)),
            Self::Refund(attempt, taken_at, caller) => {
                Ok(caller.reply(table.refund(attempt, *taken_at, scene)))
            }
            Self::Retract(attempt, caller) => {
                table.retract(attempt);
                Ok(caller.reply(()))
            }
            Self::Holds { plan, name, order, caller } => {
                let now = table.now;
                let Some(counter) = table.counters.get_mut(&name.id) else {
                    return Ok(caller.reply(HoldsReport { found: false, now, holds: Vec::new() }));
                };
                counter.stand_under(plan, now);
                let mut states = counter.states();
                let report = order.borrowed(|order| order.settle(plan, &mut states, now)).0;
                if order.changes() {
                    counter.ordered(states)
                } else {
                    counter.put_back(states)
                }
                Ok(caller.reply(report))
            }
        }
    }
}

impl Wants {
    fn of(&mut self, name: &Name, plan: &Arc<Plan>) -> &mut Want {
        let want = self.counters.entry(name.id).or_insert_with(|| Want::new(name));
        if !want.plans.iter().any(|known| Arc::ptr_eq(known, plan)) {
            want.plans.push(Arc::clone(plan));
        }
        want
    }
}

impl Attempt {
    /// Asks for the rows of a refund: the entries and holds of the ticket.
    fn want_own(&self, wants: &mut Wants, taken_at: Timestamp) {
        wants.refund = Some((self.ticket, taken_at));
        for part in &self.parts {
            wants.of(&part.name, &part.plan).ends_holds = true;
        }
    }
}

impl Table {
    /// Lends the states of the chosen charges, in their order.
    fn states(&mut self, attempt: &Attempt, chosen: &[bool]) -> (Vec<State>, Vec<usize>) {
        let (mut row, mut widths) = (Vec::new(), Vec::new());
        for part in attempt.parts.iter().zip(chosen).filter_map(|(part, chosen)| chosen.then_some(part)) {
            let counter = self.counters.get_mut(&part.name.id).expect("every counter is loaded");
            counter.stand_under(&part.plan, self.now);
            let states = counter.states();
            widths.push(states.len());
            row.extend(states);
        }
        (row, widths)
    }

    fn take(
        &mut self,
        attempt: &Attempt,
        settle: impl FnOnce(&Charges<'_>, &mut [State], Timestamp) -> Result<Outcome, Stale>,
    ) -> Result<Outcome, StoreError> {
        let all = vec![true; attempt.parts.len()];
        let (mut row, widths) = self.states(attempt, &all);
        let settled = settle(&attempt.charges(), &mut row, self.now);
        let taken = settled.as_ref().map_or(0, |outcome| outcome.taken);
        for (index, (part, width)) in attempt.parts.iter().zip(widths).enumerate() {
            let rest = row.split_off(width);
            let states = std::mem::replace(&mut row, rest);
            let entry = Entry { at: self.now, ticket: attempt.ticket, cost: part.cost };
            let entry = (taken & (1 << index) != 0).then_some(entry);
            let counter = self.counters.get_mut(&part.name.id).expect("every counter is loaded");
            match settled {
                Ok(_) => counter.settled(states, entry, self.now),
                Err(_) => counter.put_back(states),
            }
        }
        settled.map_err(|stale| StoreError::Stale { now: stale.now })
    }

    fn refund(&mut self, attempt: &Attempt, taken_at: Timestamp, scene: &Scene) -> Refunded {
        let now = self.now;
        let charges = attempt.charges();
        if charges.ages_out().is_some_and(|span| taken_at + span <= now) {
            return Refunded::TooOld;
        }
        let matters_for = attempt.parts.iter().map(|part| part.plan.matters_for()).max();
        let until = taken_at.max(now) + matters_for.unwrap_or_default();
        let mut refunded = Refunded::Already;
        let mut chosen = Vec::with_capacity(attempt.parts.len());
        let mut left = Charges::new(attempt.ticket, attempt.cost, None);
        left.calendar = charges.calendar.clone();
        for part in &attempt.parts {
            let counter = part.name.id;
            let known = scene.spent.contains(&counter) || self.spent.iter().any(|it| it.counter == counter);
            let forgotten = [part.name.rule.as_str(), ALL_RULES]
                .iter()
                .any(|rule| scene.forgotten.get(*rule).is_some_and(|at| taken_at <= *at));
            chosen.push(!known && !forgotten);
            if known {
                continue;
            }
            self.spent.push(Spent { counter, ticket: attempt.ticket, taken_at, until });
            refunded = Refunded::TooOld;
            if !forgotten {
                left.push_taken(&part.plan, &part.key, part.cost, part.fate);
            }
        }
        if left.is_empty() {
            return refunded;
        }
        let (mut row, widths) = self.states(attempt, &chosen);
        left.refund(&mut row, taken_at, now);
        self.refund_states(attempt, &chosen, row, widths);
        Refunded::Done
    }

    /// Puts the states back after a refund.
    fn refund_states(&mut self, attempt: &Attempt, chosen: &[bool], mut row: Vec<State>, widths: Vec<usize>) {
        let parts = attempt.parts.iter().zip(chosen).filter_map(|(part, chosen)| chosen.then_some(part));
        for (part, width) in parts.zip(widths) {
            let rest = row.split_off(width);
            let states = std::mem::replace(&mut row, rest);
            let counter = self.counters.get_mut(&part.name.id).expect("every counter is loaded");
            counter.refunded(states);
        }
    }

    /// Undoes an attempt, as far as the states can tell its entries by its ticket.
    fn retract(&mut self, attempt: &Attempt) {
        let all = vec![true; attempt.parts.len()];
        let (mut row, widths) = self.states(attempt, &all);
        attempt.charges().retract(&mut row, self.now);
        self.refund_states(attempt, &all, row, widths);
    }
}
