//! Attempts whose answer is still to come: what was charged by rules that count only some answers, and
//! is given back once the answer turns out to be another.
//!
//! What is never answered stays counted: whoever hangs up before the answer does not guess for free.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use smallvec::SmallVec;
use tollgate_core::store::{Answer, Refunded};
use tollgate_core::{Charges, Decision, Policies, Statuses, StoreError, Ticket, Timestamp};

use crate::calendar::page;
use crate::engine::{Engine, Snapshot};
use crate::receipt::Home;
use crate::shared_store::SharedStore;

/// What may be given back once an answer is known. Dropped, it stays counted.
#[derive(Debug)]
#[must_use = "what is not told its answer stays counted"]
pub struct Pending {
    ticket: Ticket,
    at: Timestamp,
    home: Home,
    charged: SmallVec<[Charged; 1]>,
}

/// One charge of a rule that counts only some answers.
#[derive(Debug)]
struct Charged {
    rule: Arc<str>,
    key: Box<str>,
    cost: u64,
    counts: Statuses,
}

/// What a shared store did not take back, oldest first. It is offered again: a ticket is given back
/// once, however often that is asked for.
#[derive(Default)]
pub(crate) struct Refunds {
    queue: Mutex<VecDeque<Pending>>,
    /// How many were dropped, and stayed counted, because there were too many.
    pub(crate) dropped: Counter,
}

/// Something that is being given back. Unless it is settled it is offered again: even if whoever gave it
/// has gone.
struct Refund<'r> {
    refunds: &'r Refunds,
    pending: Option<Pending>,
}

impl Pending {
    /// Keeps what does not count, now that the status is known; nothing if all of it does.
    fn owed(mut self, status: u16) -> Option<Self> {
        self.charged.retain(|charged| !charged.counts.contains(status));
        (!self.charged.is_empty()).then_some(self)
    }

    /// The charges that are to be given back, under the limits that hold now.
    fn charges<'a>(&'a self, policies: &'a Policies) -> Charges<'a> {
        let mut charges = Charges::new(self.ticket, 1, None);
        for Charged { rule, key, cost, .. } in &self.charged {
            if let Some(rule) = policies.rule(rule) {
                charges.push_costing(rule.plan_at(key), key, true, *cost);
            }
        }
        charges.calendar = charges.periods().map(|period| page(period, self.at)).collect();
        charges
    }
}

impl Refunds {
    /// How many are kept.
    const MOST: usize = 10_000;

    fn begin(&self, pending: Pending) -> Refund<'_> {
        Refund { refunds: self, pending: Some(pending) }
    }

    /// The oldest.
    fn next(&self) -> Option<Pending> {
        self.queue.lock().pop_front()
    }

    fn push(&self, pending: Pending) {
        let mut queue = self.queue.lock();
        if queue.len() >= Self::MOST {
            queue.pop_front();
            self.dropped.inc();
        }
        queue.push_back(pending);
    }
}

impl Refund<'_> {
    fn pending(&self) -> &Pending {
        self.pending.as_ref().expect("it is there until it is settled")
    }

    fn settled(mut self) {
        self.pending = None;
    }
}

impl Drop for Refund<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.refunds.push(pending);
        }
    }
}

impl Engine {
    /// What may be given back once the answer is known; `None` if every rule counts at once, or nothing
    /// was taken.
    pub fn pending(&self, decision: &Decision<'_>) -> Option<Pending> {
        if decision.outcome.taken == 0 || !decision.policy().counts_answers() {
            return None;
        }
        let charged: SmallVec<[Charged; 1]> = decision
            .lines()
            .filter(|line| line.taken)
            .filter_map(|line| {
                let (rule, key, cost) = (&line.rule.name, line.key, line.cost);
                let charged = |counts| Charged { rule: Arc::clone(rule), key: key.into(), cost, counts };
                line.rule.count_when.map(charged)
            })
            .collect();
        let (ticket, at) = (decision.charges.ticket, decision.outcome.now);
        let home = Home::of(decision);
        (!charged.is_empty()).then_some(Pending { ticket, at, home, charged })
    }

    /// Tells what an attempt was answered with: what rules charged that do not count this status is
    /// given back, once, as far as it still counts. If a shared store does not take it back now, it is
    /// offered again by [`Engine::tend`]; the error says why.
    pub async fn answered(&self, pending: Pending, status: u16) -> Result<(), StoreError> {
        let Some(pending) = pending.owed(status) else { return Ok(()) };
        match &self.shared {
            Some(shared) if pending.home == Home::Store => self.refund_pending(shared, pending).await,
            _ => {
                let pinned = self.pin();
                let charges = pending.charges(pinned.policies_of(pending.home));
                let given = self.own_store(pending.home).refund(&charges, pending.at).await;
                self.freed(&charges);
                given.map(|_: Refunded| ())
            }
        }
    }

    /// As [`Engine::answered`], without waiting, if nobody need wait: nothing is to be given back, or
    /// the store answers at once. Otherwise what is pending comes back, to be told by
    /// [`Engine::answered`].
    pub fn answered_at_once(&self, pending: Pending, status: u16) -> Option<Pending> {
        let pending = pending.owed(status)?;
        let far = self.shared.is_some() && pending.home == Home::Store;
        let store = self.own_store(pending.home);
        if far || !store.answers_at_once() {
            return Some(pending);
        }
        let pinned = self.pin();
        let charges = pending.charges(pinned.policies_of(pending.home));
        match store.refund(&charges, pending.at) {
            // Giving back needs no room, and nothing else can be lacking in this process.
            Answer::Ready(_) => {}
            Answer::Later(_) => unreachable!("it says that it answers at once"),
        }
        self.freed(&charges);
        None
    }

    /// Offers again what the shared store did not take back, a few at a time.
    pub(crate) async fn refund_again(&self, shared: &SharedStore, most: usize) {
        for _ in 0..most {
            let Some(pending) = shared.refunds.next() else { return };
            if self.refund_pending(shared, pending).await.is_err() {
                return;
            }
        }
    }

    async fn refund_pending(&self, shared: &SharedStore, pending: Pending) -> Result<(), StoreError> {
        let refund = shared.refunds.begin(pending);
        let pinned = self.pin();
        let charges = refund.pending().charges(&pinned.policies);
        let given = self.ask(self.store.refund(&charges, refund.pending().at)).await;
        self.freed(&charges);
        drop(charges);
        // What is damaged cannot be given back later either.
        if given.as_ref().err().is_none_or(|error| !error.is_passing()) {
            refund.settled();
        }
        given.map(|_: Refunded| ())
    }
}

impl Snapshot {
    /// The policies under which something was taken.
    pub(crate) fn policies_of(&self, home: Home) -> &Policies {
        match home {
            Home::Store => &self.policies,
            Home::Local => self.local.as_ref().unwrap_or(&self.policies),
        }
    }
}
