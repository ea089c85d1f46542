//! The units and holds that an admitted attempt took. They are kept, or refunded once the outcome of the
//! attempt is known.
//!
//! A rule may count only some outcomes. Its charge is still taken immediately, so that parallel attempts cannot slip
//! through. It is refunded if the attempt ends with another outcome.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::store::{Answer, Refunded, SaveMark};
use tollgate_core::{
    Charges, Decision, OutcomeClass, OutcomeClasses, Policies, StoreError, Ticket, Timestamp,
};

use crate::admit::{Unsettled, at_first_poll};
use crate::calendar::page;
use crate::counters::Counters;
use crate::engine::Engine;
use crate::guard::{Ending, FinishFault};
use crate::leases::Lease;
use crate::live_config::Snapshot;
use crate::receipt::Home;
use crate::retry::Retry;

/// The units and holds that an attempt took. Dropping it releases the holds, and keeps or refunds the units as
/// the terms say.
#[derive(Debug, Default)]
#[must_use = "dropping it releases its holds"]
pub struct Taken {
    lease: Option<Lease>,
    /// The charges or the login that depend on the end of the attempt; `None` if nothing was taken, if it was
    /// settled or kept, or if the attempt is no login, has [`Unsettled::Keep`], and every rule counts all
    /// outcomes.
    open: Option<Box<OpenTake>>,
}

/// The part of a take that depends on the outcome of the attempt.
#[derive(Debug)]
enum OpenTake {
    Charges(Owed),
    Login(OpenLogin),
}

/// A login that has not ended.
struct OpenLogin {
    engine: Arc<Engine>,
    ticket: String,
}

/// The charges of an attempt that may be refunded, and the counters that refund them.
struct Owed {
    counters: Arc<Counters>,
    pending: Pending,
    unsettled: Unsettled,
    /// The store's mark for this take, for [`Taken::durable`].
    mark: SaveMark,
}

/// A refund, or the report of a login's end, in progress. The caller may drop it:
/// [`Engine::tend`](crate::Engine::tend) then completes it, and retries it if a shared store fails. If too many
/// retries are pending, the oldest is dropped.
#[must_use = "a refund from a shared store is made when it is awaited, or else a little later"]
pub struct Refunding(Option<Making>);

/// A refund that is being sent to its store.
type Making = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// The charges of a take that may be refunded.
#[derive(Debug)]
pub(crate) struct Pending {
    ticket: Ticket,
    at: Timestamp,
    home: Home,
    charged: SmallVec<[Charged; 1]>,
    wakes: Wakes,
}

/// Whether a refund wakes attempts that wait for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wakes {
    Waiting,
    /// The units were taken a moment ago and never used, so nothing has become free.
    Nothing,
}

/// One charge.
#[derive(Debug)]
struct Charged {
    /// Its place among the charges of its decision.
    place: usize,
    rule: Arc<str>,
    key: Box<str>,
    cost: u64,
    /// The outcomes that count; `None` if all do.
    counts: Option<OutcomeClasses>,
}

/// A refund that is sent to a shared store. If it is dropped before the store has answered, the engine retries it.
pub(crate) struct Refund {
    counters: Arc<Counters>,
    pending: Option<Pending>,
}

impl Taken {
    /// The units and holds that a decision took.
    pub(crate) fn new(
        counters: &Arc<Counters>,
        decision: &Decision<'_>,
        lease: Option<Lease>,
        unsettled: Unsettled,
    ) -> Self {
        let pending = Pending::of(decision, unsettled);
        let owed = pending.map(|pending| {
            let mark = counters.own_store(pending.home).mark();
            Owed { counters: Arc::clone(counters), pending, unsettled, mark }
        });
        Self { lease, open: owed.map(|owed| Box::new(OpenTake::Charges(owed))) }
    }

    /// The units and holds that a login took. A login is charged as if it had failed.
    pub(crate) fn of_login(
        engine: &Arc<Engine>,
        guard: &str,
        decision: &Decision<'_>,
        lease: Option<Lease>,
    ) -> Self {
        let ticket = engine.guards.ticket(guard, decision);
        let open = ticket.map(|ticket| OpenTake::Login(OpenLogin { engine: Arc::clone(engine), ticket }));
        Self { lease, open: open.map(Box::new) }
    }

    /// Whether the take has neither holds nor charges that can be refunded.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.lease.is_none() && self.open.is_none()
    }

    /// Keeps everything counted, however the attempt ends. Its holds are still released.
    pub fn keep(&mut self) {
        self.open = None;
    }

    /// The ticket that ends the login, for a caller that reports the end later; `None` if this is no login, or if it
    /// was refused, took nothing or has ended.
    pub fn ticket(&self) -> Option<&str> {
        match self.open.as_deref() {
            Some(OpenTake::Login(login)) => Some(&login.ticket),
            Some(OpenTake::Charges(_)) | None => None,
        }
    }

    /// Reports how the login ended: once. A login without a report stays a failure.
    pub fn end_login(&mut self, ending: Ending) -> Refunding {
        match self.open.take_if(|open| matches!(**open, OpenTake::Login(_))).map(|open| *open) {
            Some(OpenTake::Login(login)) => login.end(ending),
            Some(OpenTake::Charges(_)) | None => Refunding(None),
        }
    }

    /// Reports how the attempt ended. Charges of rules that do not count this outcome are refunded, once.
    pub fn settle(&mut self, outcome: OutcomeClass) -> Refunding {
        let is_owed = |charged: &Charged| charged.counts.is_some_and(|counts| !counts.contains(outcome));
        self.refund_where(is_owed, Wakes::Waiting)
    }

    /// Refunds everything, unless this is a login: see [`Taken::end_login`].
    pub fn refund(&mut self) -> Refunding {
        self.refund_where(|_| true, Wakes::Waiting)
    }

    /// Refunds the charges that `is_owed` names by their place in the decision, and keeps the others. They were taken
    /// a moment ago and never used, so this wakes no waiting attempt: it would take and refund them again, in an
    /// endless loop.
    pub(crate) fn refund_unused(&mut self, is_owed: impl Fn(usize) -> bool) -> Refunding {
        self.refund_where(|charged| is_owed(charged.place), Wakes::Nothing)
    }

    /// Is ready when the charges that may still be refunded survive a crash of this process, as far as their
    /// store promises that ([`Store::durable`](tollgate_core::Store::durable)). Call it before
    /// [`Taken::keep`], after which it waits for nothing. For a login it waits for nothing either.
    pub fn durable(&self) -> Answer<'_, ()> {
        match self.open.as_deref() {
            Some(OpenTake::Charges(owed)) => owed.counters.own_store(owed.pending.home).durable(owed.mark),
            Some(OpenTake::Login(_)) | None => Answer::ready(Ok(())),
        }
    }

    /// Its holds, for a caller that keeps them longer than the attempt.
    pub fn lease(&mut self) -> Option<Lease> {
        self.lease.take()
    }

    fn refund_where(&mut self, is_owed: impl Fn(&Charged) -> bool, wakes: Wakes) -> Refunding {
        let open = self.open.take_if(|open| matches!(**open, OpenTake::Charges(_))).map(|open| *open);
        let Some(OpenTake::Charges(Owed { counters, mut pending, .. })) = open else {
            return Refunding(None);
        };
        pending.charged.retain(|charged| is_owed(charged));
        pending.wakes = wakes;
        if pending.charged.is_empty() { Refunding(None) } else { counters.begin_refund(pending) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if matches!(self.open.as_deref(), Some(OpenTake::Charges(owed)) if owed.unsettled == Unsettled::Refund)
        {
            drop(self.refund());
        }
    }
}

impl OpenLogin {
    /// Reports the end. A store in this process has it when this returns. A shared store that fails gets it again, even
    /// if the caller is gone.
    fn end(self, ending: Ending) -> Refunding {
        let Self { engine, ticket } = self;
        let mut reporting: Making = Box::pin(async move {
            let pinned = Guard::into_inner(engine.pin());
            match engine.guards.finish(&pinned, &ticket, ending).await {
                Err(FinishFault::Store(error)) => Err(error),
                // The ticket is the engine's own.
                Ok(_) | Err(FinishFault::Forged | FinishFault::Receipt) => Ok(()),
            }
        });
        match at_first_poll(reporting.as_mut()) {
            Some(_) => Refunding(None),
            None => Refunding(Some(reporting)),
        }
    }
}

impl std::fmt::Debug for OpenLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenLogin")
    }
}

impl std::fmt::Debug for Owed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pending.fmt(f)
    }
}

impl Pending {
    /// The charges of a decision that may be refunded: all, or those of rules that count only some outcomes.
    fn of(decision: &Decision<'_>, unsettled: Unsettled) -> Option<Self> {
        let all = unsettled == Unsettled::Refund;
        if decision.outcome.taken == 0 || !(all || decision.policy().counts_outcomes()) {
            return None;
        }
        let charged: SmallVec<[Charged; 1]> = decision
            .lines()
            .enumerate()
            .filter(|(_, line)| line.taken && (all || line.rule.count_when.is_some()))
            .map(|(place, line)| Charged {
                place,
                rule: Arc::clone(&line.rule.name),
                key: line.key.into(),
                cost: line.cost,
                counts: line.rule.count_when,
            })
            .collect();
        let (ticket, at) = (decision.charges.ticket, decision.outcome.now);
        (!charged.is_empty()).then(|| Self {
            ticket,
            at,
            home: Home::of(decision),
            charged,
            wakes: Wakes::Waiting,
        })
    }

    /// The charges to refund, under the current limits.
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

impl Refund {
    pub(crate) fn new(counters: Arc<Counters>, pending: Pending) -> Self {
        Self { counters, pending: Some(pending) }
    }

    /// Calls the shared store.
    pub(crate) async fn make(mut self) -> Result<(), StoreError> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let refunded = self.counters.refund_pending(pending).await;
        // A damaged key cannot be refunded later either.
        if refunded.as_ref().err().is_none_or(|error| !error.is_passing()) {
            self.pending = None;
        }
        refunded
    }
}

impl Drop for Refund {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take()
            && let Some(shared) = &self.counters.shared
        {
            shared.retries.push(Retry::Refund(pending), shared.gate.now());
        }
    }
}

impl Counters {
    /// Refunds from an in-process store at once; a shared store is called when the caller awaits the refund.
    fn begin_refund(self: Arc<Self>, pending: Pending) -> Refunding {
        if self.is_remote(pending.home) {
            return Refunding(Some(Box::pin(Refund::new(self, pending).make())));
        }
        let mut refund = Box::pin(async move { self.refund_pending(&pending).await });
        match at_first_poll(refund.as_mut()) {
            // A refund needs no room, so it cannot fail in this process.
            Some(_) => Refunding(None),
            None => Refunding(Some(refund)),
        }
    }

    /// Refunds what is pending, under the limits in force, and notes what that has freed.
    async fn refund_pending(&self, pending: &Pending) -> Result<(), StoreError> {
        let pinned = self.pin();
        let charges = pending.charges(pinned.policies_of(pending.home));
        let refunded = self.refund(pending.home, &charges, pending.at).await;
        match (pending.wakes, &self.shared) {
            (Wakes::Waiting, _) => self.freed(&charges),
            (Wakes::Nothing, Some(shared)) => shared.freed(&charges),
            (Wakes::Nothing, None) => {}
        }
        refunded.map(|_: Refunded| ())
    }

    /// Whether a home is a store that other nodes share.
    pub(crate) fn is_remote(&self, home: Home) -> bool {
        self.shared.is_some() && home == Home::Store
    }
}

impl Refunding {
    /// Whether there is nothing to await: nothing was to be refunded, the store is in this process, or the report of
    /// a login has failed at once and [`Engine::tend`](crate::Engine::tend) repeats it.
    pub fn is_made(&self) -> bool {
        self.0.is_none()
    }
}

impl Future for Refunding {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(refund) = &mut self.0 else { return Poll::Ready(Ok(())) };
        let refunded = refund.as_mut().poll(context);
        if refunded.is_ready() {
            self.0 = None;
        }
        refunded
    }
}

impl Snapshot {
    /// The policies that apply in a home.
    pub(crate) fn policies_of(&self, home: Home) -> &Policies {
        match home {
            Home::Store => &self.policies,
            Home::Local => self.local.as_ref().unwrap_or(&self.policies),
        }
    }
}
