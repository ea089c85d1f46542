//! Takes whose answer never came, so that they may have been made. They are undone once the store can be
//! used again, as far as a ticket tells what they took.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::limit::Page;
use tollgate_core::{Charges, Limit, Plan, Ticket};

use crate::retry::Retry;
use crate::shared_store::SharedStore;

/// A take that is to be undone.
#[derive(Clone, Debug)]
pub(crate) struct Retraction {
    ticket: Ticket,
    id: Option<Box<str>>,
    /// Limits, key and cost of each charge.
    taken: Vec<(Arc<Plan>, Box<str>, u64)>,
    calendar: SmallVec<[Page; 1]>,
}

/// A take that the store was asked for. Unless it is settled it is undone, even if its caller has gone.
pub(crate) struct Unanswered<'s> {
    shared: &'s SharedStore,
    retraction: Option<Retraction>,
}

impl Retraction {
    /// What undoes a take; `None` if the ticket leaves no trace in anything it takes.
    fn of(charges: &Charges<'_>) -> Option<Self> {
        let taken: Vec<_> = charges
            .iter()
            .filter(|charge| charge.cost > 0 && charge.plan.limits().iter().any(Limit::keeps_tickets))
            .map(|charge| (Arc::clone(charge.plan), charges.key(charge).into(), charge.cost))
            .collect();
        (!taken.is_empty()).then(|| Self {
            ticket: charges.ticket,
            id: charges.id.map(Into::into),
            taken,
            calendar: charges.calendar.clone(),
        })
    }

    /// The charges of the take.
    pub(crate) fn charges(&self) -> Charges<'_> {
        let mut charges = Charges::new(self.ticket, 1, self.id.as_deref());
        charges.calendar = self.calendar.clone();
        for (plan, key, cost) in &self.taken {
            charges.push_costing(plan, key, true, *cost);
        }
        charges
    }
}

impl<'s> Unanswered<'s> {
    /// Expects an answer to a take.
    pub(crate) fn new(shared: &'s SharedStore, charges: &Charges<'_>) -> Self {
        Self { shared, retraction: Retraction::of(charges) }
    }

    /// It is known what became of it.
    pub(crate) fn settled(mut self) {
        self.retraction = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(retraction) = self.retraction.take() {
            self.shared.retries.push(Retry::Retract(retraction), self.shared.gate.now());
        }
    }
}
