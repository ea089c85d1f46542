//! Takes without a reply, which the store may have made. They are undone once the store can be used again, as
//! far as its tickets record what they took.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::limit::Page;
use tollgate_core::{Charges, Limit, Plan, Ticket};

use crate::retry::Retry;
use crate::shared_store::SharedStore;

/// A take to be undone.
#[derive(Clone, Debug)]
pub(crate) struct Retraction {
    ticket: Ticket,
    id: Option<Box<str>>,
    /// Limits, key and cost of each charge.
    taken: Vec<(Arc<Plan>, Box<str>, u64)>,
    calendar: SmallVec<[Page; 1]>,
}

/// A take that was sent to the store. Unless it is settled it is undone, even if its caller is gone.
pub(crate) struct Unanswered<'s> {
    shared: &'s SharedStore,
    retraction: Option<Retraction>,
}

impl Retraction {
    /// Undoes a take; `None` if none of its limits records tickets.
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
    /// Expects the reply to a take.
    pub(crate) fn new(shared: &'s SharedStore, charges: &Charges<'_>) -> Self {
        Self { shared, retraction: Retraction::of(charges) }
    }

    /// The result of the take is known.
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
