//! Decisions on a shared store. The engine calls the store while it is available, and caches its denials.
//! During an outage, each rule's `on_outage` decides.

use std::sync::Arc;

use tollgate_core::store::{Counter, HoldsOrder, HoldsReport};
use tollgate_core::{
    Attempt, Charges, Clock, Decision, Limit, Origin, Outcome, Policies, Reason, Span, Store, StoreError,
};

use crate::breaker::Pass;
use crate::breaker_gate::BreakerGate;
use crate::condition::Condition;
use crate::counters::{Aim, Counters, time_of};
use crate::denied::{Denied, Trace};
use crate::engine::Fault;
use crate::live_config::Snapshot;
use crate::meter::StoreMeters;
use crate::receipt::Home;
use crate::retract::Unanswered;
use crate::retry::Retries;
use crate::tend::Schedule;

/// Decides while the shared store cannot be used.
pub struct Fallback {
    /// Counters of this process. They are kept across outages.
    pub store: Arc<dyn Store>,
    /// A monotonic clock that keeps running; its zero does not matter.
    pub clock: Arc<dyn Clock>,
    /// The interval at which every server of the shared store is probed.
    pub probe_every: Span,
}

/// The health of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can be used, as far as is known.
    Up,
    /// Decisions are made without it.
    Degraded(Reason),
}

/// The engine's own state for a shared store: the fallback counters, the circuit breaker, cached denials,
/// retries and metrics.
pub(crate) struct SharedStore {
    pub(crate) fallback: Arc<dyn Store>,
    pub(crate) gate: Arc<BreakerGate>,
    pub(crate) denied: Denied,
    pub(crate) retries: Retries,
    pub(crate) schedule: Schedule,
    pub(crate) condition: Arc<Condition>,
    pub(crate) meters: StoreMeters,
}

impl SharedStore {
    pub(crate) fn new(fallback: Fallback) -> Self {
        let gate = Arc::new(BreakerGate::new(fallback.clock));
        let retries = Retries::default();
        let dropped = [retries.retractions_dropped.clone(), retries.refunds_dropped.clone()];
        let condition = Arc::<Condition>::default();
        let meters = StoreMeters::new(Arc::clone(&gate), Arc::clone(&condition), dropped);
        let schedule = Schedule::new(gate.now(), fallback.probe_every);
        let (fallback, denied) = (fallback.store, Denied::new());
        Self { fallback, gate, denied, retries, schedule, condition, meters }
    }
}

impl Counters {
    /// Whether several nodes share them.
    pub fn are_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The metrics of the store, if it is shared.
    pub fn store_meters(&self) -> Option<&StoreMeters> {
        self.shared.as_ref().map(|shared| &shared.meters)
    }

    /// The health of the store, without a call to it.
    pub fn health(&self) -> Health {
        let Some(shared) = &self.shared else { return Health::Up };
        let outage = shared.gate.outage().map(|(_, reason)| reason);
        let reason = outage.or_else(|| shared.condition.impaired().map(|(reason, _)| reason));
        reason.map_or(Health::Up, Health::Degraded)
    }

    /// Why decisions are made without the store, in words; `None` if they are not.
    pub fn outage_cause(&self) -> Option<String> {
        let shared = self.shared.as_ref()?;
        match shared.gate.outage() {
            Some(_) => shared.gate.cause(),
            None => shared.condition.impaired().map(|(_, detail)| detail),
        }
    }

    /// Calls the store for something that has no fallback.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(shared) = &self.shared else { return call.await };
        let pass = shared.gate.pass().ok_or_else(not_asked)?;
        self.measured(shared, pass, call).await
    }

    /// Calls the store for an order whose size may make it slow. A timeout of such a call does not count as
    /// an outage.
    async fn ask_slow<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let Some(shared) = &self.shared else { return call.await };
        let pass = shared.gate.pass().ok_or_else(not_asked)?;
        let answer = call.await;
        if !matches!(answer, Err(StoreError::TimedOut)) {
            shared.note(pass, &answer);
        }
        answer
    }

    /// Calls the store, and records the result and the time it took.
    async fn measured<T>(
        &self,
        shared: &SharedStore,
        pass: Pass,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let start = self.stopwatch.raw();
        let answer = call.await;
        let nanos = self.stopwatch.delta_as_nanos(start, self.stopwatch.raw());
        shared.meters.calls.observe(nanos as f64 / 1e9);
        shared.note(pass, &answer);
        answer
    }

    /// Decides an attempt whose charges are not empty.
    pub(crate) async fn decide_shared<'a>(
        &self,
        shared: &SharedStore,
        aim: Aim,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        let reason = match shared.gate.pass() {
            None => Reason::Open,
            Some(pass) => {
                let asked = match aim {
                    Aim::Take => self.take_shared(shared, pass, pinned, decision).await,
                    Aim::Peek => self.settle_shared(shared, pass, Aim::Peek, decision).await,
                };
                match asked {
                    Ok(()) => return Ok(()),
                    Err(error) => self.reason_of(error, shared)?,
                }
            }
        };
        self.decide_without(shared, pinned, attempt, decision, reason, aim).await?;
        if aim == Aim::Take {
            shared.meters.count_degraded(&decision.policy().name, reason);
        }
        Ok(())
    }

    /// Calls the store, and concludes the decision by its reply.
    async fn settle_shared(
        &self,
        shared: &SharedStore,
        pass: Pass,
        aim: Aim,
        decision: &mut Decision<'_>,
    ) -> Result<(), StoreError> {
        let Decision { charges, outcome, .. } = &mut *decision;
        self.measured(shared, pass, self.settle(&*self.store, aim, charges, outcome)).await?;
        decision.conclude(Origin::Store);
        Ok(())
    }

    /// Takes from the store, unless a cached denial applies.
    async fn take_shared(
        &self,
        shared: &SharedStore,
        pass: Pass,
        pinned: &Snapshot,
        decision: &mut Decision<'_>,
    ) -> Result<(), StoreError> {
        let trace = shared.denied.trace(pinned.number, &decision.charges, shared.gate.now());
        if shared.denied.recall(&trace, &decision.charges, &mut decision.outcome) {
            shared.meters.denied_locally.inc();
            decision.conclude(Origin::Store);
            return Ok(());
        }
        let unanswered = Unanswered::new(shared, &decision.charges);
        let answer = self.settle_shared(shared, pass, Aim::Take, decision).await;
        if !answer.as_ref().is_err_and(StoreError::is_uncertain) {
            unanswered.settled();
        }
        if answer.is_ok() {
            shared.learn(&trace, decision);
        }
        answer
    }

    /// Why a decision has to be made without the store.
    fn reason_of(&self, error: StoreError, shared: &SharedStore) -> Result<Reason, Fault> {
        let Some(reason) = error.reason() else { return Err(Fault::Store(error)) };
        self.log_partial_fault(&error, reason, shared);
        Ok(reason)
    }

    /// Decides by the rules' `on_outage`.
    async fn decide_without<'a>(
        &self,
        shared: &SharedStore,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        decision: &mut Decision<'a>,
        reason: Reason,
        aim: Aim,
    ) -> Result<(), Fault> {
        let local =
            pinned.local.as_ref().expect("a snapshot has local policies whenever the store is shared");
        let ticket = decision.charges.ticket;
        let policy = local.find(attempt.policy).map_err(Fault::Mistake)?;
        decision.open(policy, ticket, attempt.cost, attempt.id);
        policy.charge_listed(attempt, local.roster(), &mut decision.charges).map_err(Fault::Mistake)?;
        if let Some(index) = decision.denied_in_outage() {
            decision.refuse(index, reason, time_of(&*shared.fallback));
            return Ok(());
        }
        if decision.charges.is_empty() {
            decision.outcome =
                Outcome { now: time_of(&*shared.fallback), allowed: true, ..Outcome::default() };
            decision.conclude(Origin::Outage(reason));
            return Ok(());
        }
        let Decision { charges, outcome, .. } = &mut *decision;
        if self.settle(&*shared.fallback, aim, charges, outcome).await.is_err() {
            // The counters of this process are full too.
            decision.refuse(0, reason, time_of(&*shared.fallback));
            return Ok(());
        }
        let whole = pinned.policies.find(attempt.policy).map_err(Fault::Mistake)?;
        match decision.beyond_share(whole) {
            Some(index) if !decision.outcome.allowed => decision.refuse(index, reason, decision.outcome.now),
            _ => decision.conclude(Origin::Local(reason)),
        }
        Ok(())
    }

    /// The store in which these charges were taken: the shared one, or the fallback of this process.
    pub(crate) fn own_store(&self, home: Home) -> &dyn Store {
        match (&self.shared, home) {
            (Some(shared), Home::Local) => &*shared.fallback,
            _ => &*self.store,
        }
    }

    /// Renews or releases a hold wherever it was taken: in the store, or in this process during an outage.
    /// All other orders go to the store alone.
    pub(crate) async fn order_shared(
        &self,
        shared: &SharedStore,
        pinned: &Snapshot,
        counter: &Counter<'_>,
        order: HoldsOrder<'_>,
    ) -> Result<HoldsReport, StoreError> {
        let local = match order {
            HoldsOrder::Renew(_) | HoldsOrder::Release(_) => pinned.local_counter(counter),
            _ => None,
        };
        let here = match &local {
            Some(counter) => shared.fallback.holds(counter, order).await.ok().filter(|report| report.found),
            None => None,
        };
        let there = match order {
            HoldsOrder::List | HoldsOrder::Replace(..) => {
                self.ask_slow(self.store.holds(counter, order)).await
            }
            _ => self.ask(self.store.holds(counter, order)).await,
        };
        match (there, here) {
            (Ok(report), here) => Ok(HoldsReport { found: report.found || here.is_some(), ..report }),
            (Err(_), Some(here)) => Ok(here),
            (Err(error), None) => Err(error),
        }
    }

    /// Whether holds in this home are released without waiting.
    pub(crate) fn release_at_once(&self, home: Home) -> bool {
        !self.is_remote(home) && self.own_store(home).answers_at_once()
    }

    /// Executes an order on holds in the store where they were taken.
    pub(crate) async fn order_at(
        &self,
        home: Home,
        counter: &Counter<'_>,
        order: HoldsOrder<'_>,
    ) -> Result<HoldsReport, StoreError> {
        let report = match (&self.shared, home) {
            (Some(shared), Home::Local) => shared.fallback.holds(counter, order).await,
            _ => self.ask(self.store.holds(counter, order)).await,
        };
        self.ordered(counter, order);
        report
    }

    /// Records what an order on holds may have freed.
    pub(crate) fn ordered(&self, counter: &Counter<'_>, order: HoldsOrder<'_>) {
        if let Some(shared) = &self.shared {
            shared.denied.free(counter.plan, counter.key);
        }
        match order {
            HoldsOrder::Release(_) | HoldsOrder::ReleaseMany(_) | HoldsOrder::Replace(..) => {
                self.wakeups.freed_at(counter.plan.rule(), counter.key);
            }
            HoldsOrder::List | HoldsOrder::Renew(_) | HoldsOrder::RenewMany(_) | HoldsOrder::Claim(..) => {}
        }
    }

    /// Records that these charges, except the kept ones, may have made room at their keys.
    pub(crate) fn freed(&self, charges: &Charges<'_>) {
        if let Some(shared) = &self.shared {
            shared.freed(charges);
        }
        self.wakeups.freed(charges);
    }

    /// Whether the breaker lets calls to the store pass.
    pub(crate) fn are_reachable(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.gate.pass().is_some())
    }

    /// Logs a fault that does not open the circuit breaker: the store is full, the data of one key is damaged, or
    /// the keys cannot be reached while others can.
    fn log_partial_fault(&self, error: &StoreError, reason: Reason, shared: &SharedStore) {
        let is_partial = matches!(
            error,
            StoreError::Full { .. } | StoreError::Damaged { .. } | StoreError::PartUnavailable { .. }
        );
        if is_partial && let Some(held_back) = self.log.admit(shared.gate.now()) {
            let reason = reason.name();
            tracing::warn!(component = "store", reason, %error, held_back, "a decision was made without the store");
        }
    }
}

impl SharedStore {
    /// Records the result of a call to the store.
    fn note<T>(&self, pass: Pass, answer: &Result<T, StoreError>) {
        self.gate.note(pass, answer);
        self.condition.note(answer);
    }

    /// Caches a denial, or records what an attempt took. After a hold is taken, attempts with its id pass, so
    /// cached denials of that key are dropped.
    fn learn(&self, trace: &Trace, decision: &Decision<'_>) {
        if !decision.outcome.allowed {
            self.denied.remember(trace, decision, self.gate.now());
            return;
        }
        for line in decision.lines().filter(|line| line.taken) {
            self.denied.took(line.plan, line.key);
            if decision.charges.id.is_some() && line.limits.iter().any(Limit::holds) {
                self.denied.free(line.plan, line.key);
            }
        }
    }

    /// These charges may have been freed, except those that were kept.
    pub(crate) fn freed(&self, charges: &Charges<'_>) {
        for charge in charges.iter().filter(|charge| charge.frees()) {
            self.denied.free(charge.plan, charges.key(charge));
        }
    }
}

impl Snapshot {
    /// The counter in this process that stands for one in the store.
    fn local_counter<'s>(&'s self, counter: &Counter<'s>) -> Option<Counter<'s>> {
        let local: &Policies = self.local.as_ref()?;
        let plan = local.rule(counter.plan.rule())?.plan_at(counter.key);
        Some(Counter { plan, key: counter.key })
    }
}

fn not_asked() -> StoreError {
    StoreError::Unavailable { reason: "it failed a moment ago; it is used again when it answers".to_owned() }
}
