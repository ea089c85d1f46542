//! Guarding logins: attempts whose outcome is known only later, over policies with ladders.
//!
//! An attempt is charged when it begins, as if it had failed, so that parallel guesses cannot slip through.
//! When it ends, a success refunds it and clears the ladders that the guard names, a failure leaves the
//! charge, and an abandoned attempt is refunded. An attempt that never ends stays a failure. The ticket
//! carries everything needed between the two calls, so any node that shares the store can end what another
//! began.

mod advice;
mod delay;
mod episode;
mod locks;
mod mark;
mod notice;
mod unreported;
mod watch;

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::store::Refunded;
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Clears, Decision, Fate, Line, Plan, Policies, Receipt, ReceiptLine, Rule, StoreError};

pub use advice::Advice;
pub use locks::{LadderState, Lock};
pub use notice::Notice;
pub(crate) use unreported::UnreportedEnd;
pub(crate) use watch::Watch;

use crate::counters::Counters;
use crate::followed::RecordStore;
use crate::live_config::Snapshot;
use crate::named_records::NamedRecords;
use crate::observer::Observer;
use crate::receipt::{Forged, Home, Kind, Seals};
use delay::Delays;
use mark::Mark;
use unreported::Reporting;

/// The guards of an engine: the open attempts, and the locks that all nodes know.
pub struct Guards {
    pub(crate) watch: Watch,
    pub(crate) locks: NamedRecords,
    delays: Delays,
    records: Arc<RecordStore>,
    counters: Arc<Counters>,
    observer: Arc<Observer>,
    seals: Arc<Seals>,
}

/// The way in which an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// No password was checked. The attempt is refunded. A login whose outcome is unknown is a failure.
    Abandoned,
}

/// The result of ending an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The guard at which it began. The guard may no longer exist.
    pub guard: String,
    /// Whether the attempt was ended now, was ended before, or is unknown.
    pub refunded: Refunded,
    /// The locks that this failure confirmed, and the other notifications to send.
    pub notices: Vec<Notice>,
}

/// Why an attempt was not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishFault {
    /// Tollgate did not issue the ticket. The caller's fault. Nothing was done.
    Forged,
    /// It is a receipt. A receipt is refunded, not finished. The caller's fault. Nothing was done.
    Receipt,
    /// The store cannot answer. [`Engine::tend`] reports the end to a shared store again, and the caller may do so too.
    Store(StoreError),
}

/// A decoded ticket.
struct Opened {
    receipt: Receipt,
    home: Home,
    guard: String,
    /// The charges whose ladders are checked if the attempt fails.
    marks: SmallVec<[usize; 2]>,
}

impl Guards {
    pub(crate) fn new(
        policies: &Policies,
        records: Arc<RecordStore>,
        counters: Arc<Counters>,
        observer: Arc<Observer>,
        seals: Arc<Seals>,
    ) -> Self {
        let locks = NamedRecords::new(Namespace::Locks);
        let watch = Watch::new(policies);
        let delays = Delays::new(&watch.meters);
        Self { watch, locks, delays, records, counters, observer, seals }
    }

    /// Records an attempt that has begun or was refused.
    pub(crate) async fn note_begun(&self, guard: &str, decision: &Decision<'_>) {
        let allowed = decision.allowed();
        self.watch.meters.count(guard, |counts| if allowed { &counts.begun } else { &counts.refused });
        if decision.outcome.taken > 0 {
            // Boxed, since few attempts reach such a step.
            Box::pin(self.reached(guard, decision)).await;
        }
    }

    /// Ends an attempt: once for each ticket, which names its guard. If a shared store does not answer, or the
    /// caller goes away meanwhile, the engine reports it again later.
    pub async fn finish(
        &self,
        pinned: &Snapshot,
        ticket: &str,
        ending: Ending,
    ) -> Result<Finished, FinishFault> {
        let opened = self.opened(ticket)?;
        let reporting = Reporting::new(&self.counters, opened.home, ticket, ending);
        let finished = self.end(pinned, opened, ending).await;
        if !finished.as_ref().is_err_and(StoreError::is_passing) {
            reporting.settled();
        }
        finished.map_err(FinishFault::Store)
    }

    /// Ends an attempt, if the store answers.
    async fn end(&self, pinned: &Snapshot, opened: Opened, ending: Ending) -> Result<Finished, StoreError> {
        let clears = pinned.policies.guard(&opened.guard).map_or(&Clears::Narrowest, |guard| &guard.clears);
        let fates = |taken: &[(&Rule, &Arc<Plan>)]| fates(clears, taken, ending);
        let refunded = self.counters.refund_receipt(pinned, &opened.receipt, opened.home, fates).await?;
        self.watch.forget(opened.receipt.ticket);
        let failed = ending == Ending::Failure && refunded == Refunded::Done;
        let notices = if failed { self.failed(pinned, &opened).await } else { Vec::new() };
        Ok(Finished { guard: opened.guard, refunded, notices })
    }

    /// Records the steps that an attempt reaches if it fails, before its outcome is known: a lock begins now.
    async fn reached(&self, guard: &str, decision: &Decision<'_>) {
        let home = Home::of(decision);
        for line in decision.lines().filter(|line| line.taken) {
            for climb in line.climbs() {
                self.begin_episode(home, guard, &line, &climb).await;
                if let Some(until) = climb.locked_until().filter(|_| !line.rule.observes()) {
                    self.record_lock(home, guard, &line, &climb, until).await;
                }
            }
        }
    }

    /// Records a failure and sends the notifications. It reads the ladders again, since other attempts may
    /// have succeeded or begun meanwhile.
    async fn failed(&self, pinned: &Snapshot, opened: &Opened) -> Vec<Notice> {
        self.watch.meters.count(&opened.guard, |counts| &counts.failures);
        let guard = pinned.policies.guard(&opened.guard);
        let guard = guard.map_or_else(|| opened.guard.as_str().into(), |guard| Arc::clone(&guard.name));
        let mut notices = Vec::new();
        for charge in &opened.marks {
            let Some(ReceiptLine { rule, key, .. }) = opened.receipt.taken.get(*charge) else { continue };
            let Some(rule) = pinned.policies_of(opened.home).rule(rule) else { continue };
            let plan = rule.plan_at(key);
            let outcome = match self.counters.look_in(opened.home, plan, key).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    tracing::warn!(component = "guard", %guard, %error, "the state of a lock is unknown");
                    self.watch.meters.missed.inc();
                    continue;
                }
            };
            let line = Line::looked_up(rule, key, plan, &outcome);
            for climb in line.climbs() {
                let Some(notice) = Notice::of(&guard, &line, &climb) else { continue };
                if let Some(until) = notice.locked_until {
                    self.record_lock(opened.home, &guard, &line, &climb, until).await;
                }
                let Some(reached) = climb.reached() else { continue };
                if self.is_first_to_report(opened.home, &guard, &line, &climb, reached).await {
                    self.tell_notice(&notice, pinned);
                    notices.push(notice);
                }
            }
        }
        notices
    }

    /// The ticket of an allowed attempt; `None` if it took nothing. An attempt whose failure locks or
    /// notifies is watched.
    pub(crate) fn ticket(&self, guard: &str, decision: &Decision<'_>) -> Option<String> {
        if decision.outcome.taken == 0 {
            return None;
        }
        let marks = mark::of(decision);
        let (ticket, at) = (decision.charges.ticket, decision.outcome.now);
        let text = self.seals.with(Home::of(decision), |seal| {
            let mut text = Vec::new();
            let mut draft = seal.draft(Kind::Ticket, ticket, at, &mut text);
            draft.add(guard, &mark::written(&marks), 0);
            for line in decision.lines().filter(|line| line.taken) {
                draft.add(&line.rule.name, line.key, line.cost);
            }
            draft.seal();
            String::from_utf8(text).expect("tickets are text")
        })?;
        if let Some(due) = marks.iter().map(Mark::due_after).min() {
            self.watch.keep(ticket, at + due, &text);
        }
        Some(text)
    }

    /// Decodes a ticket.
    fn opened(&self, ticket: &str) -> Result<Opened, FinishFault> {
        let (mut receipt, home) = match self.seals.open(ticket) {
            Ok((Kind::Ticket, receipt, home)) => (receipt, home),
            Ok((Kind::Receipt, ..)) => return Err(FinishFault::Receipt),
            Ok((Kind::Lock | Kind::Pause | Kind::Password | Kind::Decision | Kind::Session, ..))
            | Err(Forged) => {
                return Err(FinishFault::Forged);
            }
        };
        if receipt.taken.is_empty() {
            return Err(FinishFault::Forged);
        }
        let ReceiptLine { rule: guard, key: marks, .. } = receipt.taken.remove(0);
        Ok(Opened { receipt, home, guard, marks: mark::read(&marks) })
    }

    /// Ends overdue attempts whose failure locks or notifies, as failed.
    pub(crate) async fn end_overdue(&self) {
        if self.watch.is_empty() {
            return;
        }
        let mut overdue = self.watch.take_due(self.counters.time()).into_iter();
        while let Some((ticket, due, text)) = overdue.next() {
            let pinned = self.counters.pin();
            let Ok(opened) = self.opened(&text) else { continue };
            if self.end(&pinned, opened, Ending::Failure).await.is_err() {
                // Try again at the next round.
                for (ticket, due, text) in overdue.chain([(ticket, due, text)]) {
                    self.watch.keep(ticket, due, &text);
                }
                return;
            }
        }
    }
}

/// Decides for each charge whether it is kept, refunded or cleared.
fn fates(clears: &Clears, taken: &[(&Rule, &Arc<Plan>)], ending: Ending) -> SmallVec<[Fate; 6]> {
    let fate = |clears| match ending {
        Ending::Success if clears => Fate::Clear,
        Ending::Success | Ending::Abandoned => Fate::Back,
        Ending::Failure => Fate::Keep,
    };
    clears.of(taken).map(fate).collect()
}

impl std::fmt::Display for FinishFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forged => f.write_str("this is not a ticket of this server"),
            Self::Receipt => f.write_str("that is a receipt, and no ticket of a guard: refund it instead"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FinishFault {}
