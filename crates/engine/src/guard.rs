//! Guarding logins: attempts whose outcome is known only later, over policies with ladders.
//!
//! An attempt is charged when it begins, as if it had failed, so that parallel guesses cannot slip through.
//! When it ends, a success refunds it and clears the ladders that the guard names, a failure leaves the
//! charge, and an abandoned attempt is refunded. An attempt that never ends stays a failure. The ticket
//! carries everything needed between the two calls, so any node that shares the store can end what another
//! began.

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
use tollgate_core::{
    Attempt, Clears, Climb, Decision, Fate, Guard, Line, Plan, Policies, Receipt, ReceiptLine, Rule, Span,
    StoreError, Timestamp,
};

pub use locks::{LadderState, Lock};
pub use notice::Notice;
pub(crate) use unreported::UnreportedEnd;
pub(crate) use watch::Watch;

use crate::counters::Counters;
use crate::engine::{Engine, Fault, Manner};
use crate::followed::RecordStore;
use crate::live_config::Snapshot;
use crate::named_records::NamedRecords;
use crate::observer::Observer;
use crate::receipt::{Forged, Home, Kind, Seals};
use mark::Mark;
use unreported::Reporting;

/// The guards of an engine: the open attempts, and the locks that all nodes know.
pub struct Guards {
    pub(crate) watch: Watch,
    pub(crate) locks: NamedRecords,
    records: Arc<RecordStore>,
    counters: Arc<Counters>,
    observer: Arc<Observer>,
    seals: Arc<Seals>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// The outcome is unknown: the caller gave up, or something else broke.
    Abandoned,
}

/// An attempt that has begun, or was refused.
#[derive(Clone, Debug)]
pub struct Begun<'a> {
    /// What was decided, and why.
    pub decision: Decision<'a>,
    /// Ends the attempt; `None` if it was refused, or took nothing.
    pub ticket: Option<String>,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// How long to wait before the attempt; zero if it may come at once, or if the wait is unknown.
    pub delay: Span,
    /// Present a CAPTCHA.
    pub captcha: bool,
    /// When the lock ends, if the attempt is locked out.
    pub locked_until: Option<Timestamp>,
    /// Notify the user: the attempt just reached a step that asks for it.
    pub notify: bool,
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

impl Engine {
    /// Begins an attempt: it is decided, and charged as if it had failed.
    pub async fn begin_guarded<'a>(
        &self,
        pinned: &'a Snapshot,
        guard: &'a Guard,
        fields: &'a [(&'a str, &'a str)],
    ) -> Result<Begun<'a>, Fault> {
        self.begin_guarded_as(pinned, guard, fields, None, None).await
    }

    /// As [`Engine::begin_guarded`], for a caller that knows when the attempt is over: its holds have this
    /// id. `correlation` is the caller's id of the attempt, if it sent one.
    pub async fn begin_guarded_as<'a>(
        &self,
        pinned: &'a Snapshot,
        guard: &'a Guard,
        fields: &'a [(&'a str, &'a str)],
        id: Option<&'a str>,
        correlation: Option<&'a str>,
    ) -> Result<Begun<'a>, Fault> {
        let attempt = Attempt { policy: &guard.policy, fields, cost: 1, id };
        let mut decision = Decision::for_caller(correlation);
        self.decide_as(Manner::Take, pinned, &attempt, &mut decision).await?;
        let ticket = self.guards.note_begun(guard, &decision).await;
        Ok(Begun { decision, ticket })
    }
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
        Self { watch: Watch::new(policies), locks, records, counters, observer, seals }
    }

    /// Notes an attempt that has begun or was refused. Returns its ticket; `None` if it took nothing.
    async fn note_begun(&self, guard: &Guard, decision: &Decision<'_>) -> Option<String> {
        let ticket = self.ticket(guard, decision);
        if ticket.is_some() {
            // Boxed, since few attempts reach such a step.
            Box::pin(self.reached(guard, decision)).await;
        }
        let allowed = decision.allowed();
        self.watch.meters.count(&guard.name, |counts| if allowed { &counts.begun } else { &counts.refused });
        ticket
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
    async fn reached(&self, guard: &Guard, decision: &Decision<'_>) {
        let home = Home::of(decision);
        for line in decision.lines().filter(|line| line.taken) {
            for climb in line.climbs() {
                self.begin_episode(home, &guard.name, &line, &climb).await;
                if let Some(until) = climb.locked_until().filter(|_| !line.rule.observes()) {
                    self.record_lock(home, &guard.name, &line, &climb, until).await;
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
    fn ticket(&self, guard: &Guard, decision: &Decision<'_>) -> Option<String> {
        if decision.outcome.taken == 0 {
            return None;
        }
        let marks = mark::of(decision);
        let (ticket, at) = (decision.charges.ticket, decision.outcome.now);
        let text = self.seals.with(Home::of(decision), |seal| {
            let mut text = Vec::new();
            let mut draft = seal.draft(Kind::Ticket, ticket, at, &mut text);
            draft.add(&guard.name, &mark::written(&marks), 0);
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

/// What happens to each charge.
fn fates(clears: &Clears, taken: &[(&Rule, &Arc<Plan>)], ending: Ending) -> SmallVec<[Fate; 6]> {
    let fate = |clears| match ending {
        Ending::Success if clears => Fate::Clear,
        Ending::Success | Ending::Abandoned => Fate::Back,
        Ending::Failure => Fate::Keep,
    };
    clears.of(taken).map(fate).collect()
}

impl Begun<'_> {
    /// Whether the attempt may be made.
    pub fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// What the caller must do for this attempt: wait if it was refused, or present a CAPTCHA.
    pub fn advice(&self) -> Advice {
        let mut advice = Advice { delay: self.decision.wait().unwrap_or_default(), ..Advice::default() };
        for line in self.decision.lines() {
            for climb in line.climbs() {
                advice.captcha |= climb.held().is_some_and(|step| step.captcha);
                if climb.refused() && !line.rule.observes() {
                    advice.locked_until = advice.locked_until.max(climb.locked_until());
                }
            }
        }
        advice
    }

    /// What the caller must do for the next attempt if this one fails.
    pub fn if_failed(&self) -> Advice {
        let mut advice = self.decision.lines().fold(Advice::default(), |advice, line| {
            line.climbs().fold(advice, |advice, climb| self.after(&line, &climb, advice))
        });
        advice.delay = advice.delay.max(if self.allowed() { Span::ZERO } else { self.advice().delay });
        advice
    }

    /// Adds what one ladder demands of the next attempt. A rule that only observes locks nothing.
    fn after(&self, line: &Line<'_>, climb: &Climb<'_>, mut advice: Advice) -> Advice {
        let Some(step) = climb.reached() else { return advice };
        advice.captcha |= step.captcha;
        advice.notify |= step.notify && climb.arrives();
        if !line.rule.observes() {
            advice.delay = advice.delay.max(climb.next_at().since(self.decision.outcome.now));
            advice.locked_until = advice.locked_until.max(climb.locked_until());
        }
        advice
    }
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
