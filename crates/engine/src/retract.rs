//! Takes that nobody got: the store was asked, and no answer came, so they may have been taken. They
//! are undone once the store is up again, as far as a ticket tells what they took.

use std::collections::VecDeque;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use smallvec::SmallVec;
use std::sync::Arc;
use tollgate_core::limit::Page;
use tollgate_core::{Charges, Limit, Plan, Span, Ticket, Timestamp};

/// The takes that are to be undone, oldest first.
#[derive(Default)]
pub(crate) struct Retractions {
    queue: Mutex<VecDeque<Retraction>>,
    /// How many were dropped because there were too many.
    pub(crate) dropped: Counter,
}

/// A take that is to be undone.
#[derive(Clone, Debug)]
pub(crate) struct Retraction {
    ticket: Ticket,
    id: Option<Box<str>>,
    /// Limits, key and cost of each charge.
    taken: Vec<(Arc<Plan>, Box<str>, u64)>,
    calendar: SmallVec<[Page; 1]>,
    asked: Timestamp,
}

/// A take that was asked for. Unless it is settled it is to be undone: even if whoever asked has gone.
pub(crate) struct Pending<'r> {
    retractions: &'r Retractions,
    retraction: Option<Retraction>,
}

impl Retractions {
    /// How many are kept.
    const MOST: usize = 10_000;
    /// How long to wait before undoing a take, so that it does not come to the store after that.
    const SETTLES_IN: Span = Span::from_secs(1);

    /// Expects an answer to a take.
    pub(crate) fn pending(&self, charges: &Charges<'_>, now: Timestamp) -> Pending<'_> {
        Pending { retractions: self, retraction: Retraction::of(charges, now) }
    }

    /// The oldest that can be undone now.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Retraction> {
        self.queue.lock().pop_front_if(|oldest| oldest.asked + Self::SETTLES_IN <= now)
    }

    /// Puts one back that could not be undone.
    pub(crate) fn put_back(&self, retraction: Retraction) {
        self.queue.lock().push_front(retraction);
    }

    /// Puts one behind all others that could not be undone, to be tried again in a while.
    pub(crate) fn put_last(&self, retraction: Retraction, now: Timestamp) {
        self.push(Retraction { asked: now, ..retraction });
    }

    fn push(&self, retraction: Retraction) {
        let mut queue = self.queue.lock();
        if queue.len() >= Self::MOST {
            queue.pop_front();
            self.dropped.inc();
        }
        queue.push_back(retraction);
    }
}

impl Retraction {
    /// What undoes a take; `None` if the ticket leaves no trace in anything it takes.
    fn of(charges: &Charges<'_>, now: Timestamp) -> Option<Self> {
        let traced =
            |limit: &Limit| matches!(limit, Limit::Sliding(_) | Limit::InFlight(_) | Limit::Ladder(_));
        let taken: Vec<_> = charges
            .iter()
            .filter(|charge| charge.cost > 0 && charge.plan.limits().iter().any(traced))
            .map(|charge| (Arc::clone(charge.plan), charges.key(charge).into(), charge.cost))
            .collect();
        (!taken.is_empty()).then(|| Self {
            ticket: charges.ticket,
            id: charges.id.map(Into::into),
            taken,
            calendar: charges.calendar.clone(),
            asked: now,
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

impl Pending<'_> {
    /// It is known what became of it.
    pub(crate) fn settled(mut self) {
        self.retraction = None;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(retraction) = self.retraction.take() {
            self.retractions.push(retraction);
        }
    }
}
