//! Deciding: from an attempt to a decision.

use tollgate_core::store::Answer;
use tollgate_core::{Attempt, Charges, Decision, Origin, Outcome, Store, StoreError, Ticket, Verdict};

use super::{Engine, Fault};
use crate::counters::{Aim, Counters};
use crate::live_config::Snapshot;
use crate::meter::Meters;
use crate::ticket;

/// The way in which an attempt is decided and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The attempt takes everything that it asks for, or nothing.
    Take,
    /// As [`Manner::Take`], for a caller that takes a waiting attempt to a pacer. An attempt that has to wait
    /// for a hold to be released goes there too, though its wait is unknown.
    TakeOrWait,
    /// As [`Manner::Take`], without recording: a pacer decides one attempt many times, and records the final
    /// result.
    TakeInTurn,
    /// As [`Manner::Take`], without recording: a login is decided again after each delay, and its final decision is
    /// recorded.
    TakeUnrecorded,
    /// Nothing is taken or recorded; only the decision is computed.
    Peek,
}

/// One decision fetches calendar pages at most this often. It is enough unless the store's clock jumps from
/// page to page.
const MOST_TURNS: usize = 3;

impl Manner {
    fn aim(self) -> Aim {
        match self {
            Self::Take | Self::TakeOrWait | Self::TakeInTurn | Self::TakeUnrecorded => Aim::Take,
            Self::Peek => Aim::Peek,
        }
    }

    fn may_wait(self) -> bool {
        matches!(self, Self::TakeOrWait | Self::TakeInTurn)
    }

    fn is_noted(self) -> bool {
        matches!(self, Self::Take | Self::TakeOrWait)
    }
}

impl Engine {
    /// Whether a decision by this policy is ready at its first poll: the store answers at once, and no rows
    /// are counted.
    #[inline]
    pub(crate) fn decides_at_once(&self, pinned: &Snapshot, policy: &str) -> bool {
        self.counters.answer_at_once() && !pinned.policies.count_rows(policy)
    }

    /// Decides an attempt. The decision is written in place. Doors call [`Pinned::admit`](crate::Pinned::admit)
    /// instead.
    ///
    /// If nothing has to be waited for, the decision is ready when this returns. It is not an `async fn`,
    /// because even a future that is ready at its first poll takes a tenth of the time of a decision.
    #[inline]
    pub(crate) fn decide_as<'d, 'a: 'd>(
        &'d self,
        manner: Manner,
        pinned: &'a Snapshot,
        attempt: &'d Attempt<'a>,
        decision: &'d mut Decision<'a>,
    ) -> Answer<'d, (), Fault> {
        let ticket = ticket::next();
        let start = ticket.0.is_multiple_of(Meters::SAMPLED).then(|| self.counters.stopwatch.raw());
        if let Err(fault) = self.open(pinned, attempt, ticket, decision) {
            return Answer::ready(Err(fault));
        }
        if decision.charges.is_empty() {
            allow_unless_blocked(decision);
        } else if !self.counters.settled_at_once(manner.aim(), decision) {
            return Answer::Later(Box::pin(async move {
                self.decide_later(manner.aim(), pinned, attempt, decision).await?;
                self.finish(manner, pinned, decision, start);
                Ok(())
            }));
        }
        self.finish(manner, pinned, decision, start);
        Answer::ready(Ok(()))
    }

    /// Ends a concluded decision: turns a denial into a wait and records it, as its manner says. `start` is the
    /// stopwatch's time at which it began, if its duration is measured.
    #[inline]
    fn finish(&self, manner: Manner, pinned: &Snapshot, decision: &mut Decision<'_>, start: Option<u64>) {
        if manner.may_wait() {
            decision.let_wait();
        }
        if manner.is_noted() {
            self.note(pinned, decision);
            if let Some(start) = start {
                let nanos = self.counters.stopwatch.delta_as_nanos(start, self.counters.stopwatch.raw());
                self.observer.meters.latency.observe(nanos as f64 / 1e9);
            }
        }
    }

    /// Decides by a store that may have to be waited for, or by counting rows.
    async fn decide_later<'a>(
        &self,
        aim: Aim,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        if decision.policy().counts_rows() {
            self.rows.decide(aim, pinned, attempt, decision).await
        } else {
            self.counters.decide(aim, pinned, attempt, decision).await
        }
    }

    /// Begins a decision: blocks the attempt if it is on the blocklist, or computes its charges.
    pub(crate) fn open<'a>(
        &self,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        ticket: Ticket,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        if self.lists.have_entries() && self.block(pinned, attempt, ticket, decision)? {
            return Ok(());
        }
        pinned.open(attempt, ticket, decision)
    }

    /// Counts a decision, and records it for operators.
    #[inline]
    pub(crate) fn note(&self, pinned: &Snapshot, decision: &Decision<'_>) {
        self.observer.note(pinned, decision);
        if decision.verdict == Verdict::Deny {
            self.bans.note(decision);
        }
    }
}

impl Snapshot {
    /// Begins a decision: finds the policy and computes the charges.
    #[inline]
    pub(crate) fn open<'a>(
        &'a self,
        attempt: &Attempt<'a>,
        ticket: Ticket,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        if !self.policies.enabled {
            return self.open_unlimited(attempt, ticket, decision);
        }
        let policy = self.policies.find(attempt.policy).map_err(Fault::Mistake)?;
        decision.open(policy, ticket, attempt.cost, attempt.id);
        policy.charge_listed(attempt, self.policies.roster(), &mut decision.charges).map_err(Fault::Mistake)
    }

    /// Begins a decision while limits are switched off. The attempt is still checked, so that mistakes show
    /// before limits are switched on.
    #[cold]
    fn open_unlimited<'a>(
        &'a self,
        attempt: &Attempt<'a>,
        ticket: Ticket,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        if self.policies.iter().next().is_some() {
            let policy = self.policies.find(attempt.policy).map_err(Fault::Mistake)?;
            let mut charges = Charges::new(ticket, attempt.cost, attempt.id);
            policy.charge_listed(attempt, self.policies.roster(), &mut charges).map_err(Fault::Mistake)?;
        }
        decision.open(&self.off, ticket, attempt.cost, attempt.id);
        Ok(())
    }
}

impl Counters {
    /// Takes or peeks the charges of a decision, of which there are some, and concludes it.
    pub(crate) async fn decide<'a>(
        &self,
        aim: Aim,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        if let Some(shared) = &self.shared {
            return self.decide_shared(shared, aim, pinned, attempt, decision).await;
        }
        let Decision { charges, outcome, .. } = &mut *decision;
        self.settle(&*self.store, aim, charges, outcome).await.map_err(Fault::Store)?;
        decision.conclude(Origin::Store);
        Ok(())
    }

    /// Settles and concludes a decision if the store answers at once. Returns whether it did. After an error nothing
    /// was done, and [`Counters::decide`] calls the store again, and handles the error.
    #[inline]
    fn settled_at_once(&self, aim: Aim, decision: &mut Decision<'_>) -> bool {
        if !self.answer_at_once() || decision.policy().counts_rows() {
            return false;
        }
        let Decision { charges, outcome, .. } = &mut *decision;
        let settled = matches!(self.call(&*self.store, aim, charges, outcome), Answer::Ready(Some(Ok(()))));
        if settled {
            decision.conclude(Origin::Store);
        }
        settled
    }

    /// Takes or peeks. If the store's time has left the known calendar pages, calls the store again with the
    /// pages around it.
    pub(crate) async fn settle(
        &self,
        store: &dyn Store,
        aim: Aim,
        charges: &mut Charges<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        let mut turns = 0;
        loop {
            match self.call(store, aim, charges, outcome).await {
                Err(StoreError::Stale { now }) if turns < MOST_TURNS => self.calendars.turn(charges, now),
                answer => return answer,
            }
            turns += 1;
        }
    }

    /// Takes or peeks, with the known calendar pages.
    #[inline]
    fn call<'a>(
        &self,
        store: &'a dyn Store,
        aim: Aim,
        charges: &'a mut Charges<'_>,
        outcome: &'a mut Outcome,
    ) -> Answer<'a, ()> {
        if charges.by_calendar() {
            self.calendars.fill(charges);
        }
        match aim {
            Aim::Take => store.take(charges, outcome),
            Aim::Peek => store.peek(charges, outcome),
        }
    }
}

/// Allows an attempt without charges, unless it has none because it is blocked.
#[cold]
fn allow_unless_blocked(decision: &mut Decision<'_>) {
    if decision.blocked().is_none() {
        decision.allow_unmetered();
    }
}
