//! Counts rows of the application before an attempt is allowed.
//!
//! The store has allowed the attempt, and has taken everything. What was taken is refunded if the rows deny
//! the attempt, and if the caller disconnects before the rows are counted.

mod meter;
mod recent;

use std::sync::Arc;

use tollgate_core::rows::{Exceeded, RowsToCount};
use tollgate_core::{
    Attempt, Decision, Line, OnOutage, Origin, Outcome, Reason, RowSource, RowsError, Rule, Span, StoreError,
    Timestamp,
};

use crate::admit::Unsettled;
use crate::counters::{Aim, Counters};
use crate::engine::{Engine, Fault};
use crate::live_config::Snapshot;
use crate::log_limiter::PacedLog;
use crate::taken::Taken;
use recent::Recent;

pub use meter::RowMeters;

/// For this long after rows denied an attempt at a key, attempts there look before they take.
const LOOKS_FIRST: Span = Span::from_secs(1);

/// Counts rows of applications.
pub struct Rows {
    counters: Arc<Counters>,
    source: Option<Arc<dyn RowSource>>,
    recent: Recent,
    /// The keys at which rows have just denied an attempt.
    denied: Recent,
    log: PacedLog,
    /// The metrics.
    pub meters: RowMeters,
}

impl Rows {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            source: None,
            recent: Recent::default(),
            denied: Recent::default(),
            log: PacedLog::default(),
            meters: RowMeters::default(),
        }
    }
}

impl Engine {
    /// The same engine, which counts rows in these databases.
    #[must_use]
    pub fn counting_rows(mut self, source: Arc<dyn RowSource>) -> Self {
        self.rows.source = Some(source);
        self
    }
}

impl Rows {
    /// Decides an attempt whose policy counts rows, and whose charges are not empty.
    pub(crate) async fn decide<'a>(
        &self,
        aim: Aim,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        let ticket = decision.charges.ticket;
        if self.looks_first(aim, decision) {
            self.settle_and_count(Aim::Peek, pinned, attempt, decision).await?;
            if !decision.allowed() {
                return Ok(());
            }
            pinned.open(attempt, ticket, decision)?;
        }
        self.settle_and_count(aim, pinned, attempt, decision).await
    }

    async fn settle_and_count<'a>(
        &self,
        aim: Aim,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        self.counters.decide(aim, pinned, attempt, decision).await?;
        if decision.outcome.allowed {
            self.count_rows(aim, decision).await;
        }
        Ok(())
    }

    /// Whether rows have just denied an attempt at a key of this decision. Then it looks before it takes:
    /// attempts that are made again and again would deny each other by their reservations, although there
    /// is room for one of them.
    fn looks_first(&self, aim: Aim, decision: &Decision<'_>) -> bool {
        let now = self.steady_now();
        let denied =
            |line: &Line<'_>| self.denied.recall(&line.rule.name, line.key, LOOKS_FIRST, now).is_some();
        aim == Aim::Take && decision.lines().any(|line| line.rule.rows.is_some() && denied(&line))
    }

    fn steady_now(&self) -> Timestamp {
        let stopwatch = &self.counters.stopwatch;
        Timestamp::from_micros(stopwatch.delta_as_nanos(0, stopwatch.raw()) / 1_000)
    }

    /// Remembers whether rows denied an attempt at this key.
    fn note_rows(&self, ask: &RowsToCount, rows: u64, is_denied: bool, decision: &Decision<'_>) {
        let Some(line) = decision.lines().nth(ask.charge) else { return };
        let rule = Arc::clone(&line.rule.name);
        if is_denied {
            self.denied.remember(rule, line.key, rows, self.steady_now());
        } else {
            self.denied.forget(rule, line.key);
        }
    }

    /// Counts the rows that the rules of a decision ask for, and weighs it again. A refund that the store does not
    /// take now is offered to it again.
    async fn count_rows(&self, aim: Aim, decision: &mut Decision<'_>) {
        let asked = decision.rows_to_count();
        if asked.is_empty() {
            return;
        }
        let mut taken = Taken::new(&self.counters, decision, None, Unsettled::Refund);
        let mut degraded = false;
        for ask in &asked {
            match self.rows_for(aim, ask, decision).await {
                Ok(rows) => {
                    let is_denied = decision.add_rows(ask.charge, rows);
                    if is_denied || aim == Aim::Take {
                        self.note_rows(ask, rows, is_denied, decision);
                    }
                    if is_denied {
                        break;
                    }
                }
                Err(error) if self.denies_uncounted(ask, &error, decision) => {
                    decision.refuse(ask.charge, Reason::Uncounted, decision.outcome.now);
                    self.note_uncounted(aim, decision);
                    let _ = taken.refund_unused(|_| true).await;
                    return;
                }
                Err(_) => degraded = true,
            }
        }
        match decision.weigh_rows() {
            Exceeded::Enforced => {
                let _ = taken.refund_unused(|_| true).await;
                return;
            }
            Exceeded::Observed(0) => taken.keep(),
            Exceeded::Observed(charges) => {
                let _ = taken.refund_unused(|index| charges & (1 << index) != 0).await;
            }
        }
        if degraded {
            decision.origin = Origin::Outage(Reason::Uncounted);
            self.note_uncounted(aim, decision);
        }
    }

    /// The rows for one charge: as they were a moment ago, if that is enough to deny it.
    async fn rows_for(&self, aim: Aim, ask: &RowsToCount, decision: &Decision<'_>) -> Result<u64, RowsError> {
        let line = decision.lines().nth(ask.charge).expect("what is to be counted is for a charge");
        let (rule, key, now) = (Arc::clone(&line.rule.name), line.key, decision.outcome.now);
        if let Some(rows) = self.recent.recall(&rule, key, ask.rows.cache, now)
            && (aim == Aim::Peek || decision.exceeds_with_rows(ask.charge, rows))
        {
            return Ok(rows);
        }
        let rows = self.count(ask).await?;
        if ask.rows.cache > Span::ZERO {
            self.recent.remember(rule, key, rows, now);
        }
        Ok(rows)
    }

    async fn count(&self, ask: &RowsToCount) -> Result<u64, RowsError> {
        let counted = match &self.source {
            Some(source) => source.count(&ask.rows, &ask.values).await,
            None => Err(RowsError::Unreachable { reason: "no database is configured".to_owned() }),
        };
        self.meters.count(&ask.rows.database, counted.is_ok());
        counted
    }

    /// Whether a rule denies an attempt whose rows could not be counted. It is logged either way.
    fn denies_uncounted(&self, ask: &RowsToCount, error: &RowsError, decision: &Decision<'_>) -> bool {
        let line = decision.lines().nth(ask.charge).expect("what is to be counted is for a charge");
        let denies = !line.rule.observes() && line.rule.on_outage != OnOutage::Allow;
        if let Some(held_back) = self.log.admit(decision.outcome.now) {
            let (rule, database) = (&*line.rule.name, &*ask.rows.database);
            let held_back = Some(held_back).filter(|lines| *lines > 0);
            tracing::warn!(
                component = "rows",
                rule,
                database,
                %error,
                held_back,
                "rows cannot be counted: the rule applies its `on_outage`"
            );
        }
        denies
    }

    fn note_uncounted(&self, aim: Aim, decision: &Decision<'_>) {
        if let (Some(shared), Aim::Take) = (&self.counters.shared, aim) {
            shared.meters.count_degraded(&decision.policy().name, Reason::Uncounted);
        }
    }

    /// The readings of every limit of a rule at a key, including the counted rows.
    ///
    /// # Errors
    ///
    /// If the store cannot answer, or the rows cannot be counted.
    pub async fn look(&self, rule: &Rule, key: &str) -> Result<Outcome, StoreError> {
        let plan = rule.plan_at(key);
        let mut outcome = self.counters.look(plan, key).await?;
        if let (Some(rows), Some(values)) = (&rule.rows, rule.values_of(key)) {
            let values = values.into_iter().map(|(_, value)| value).collect();
            let ask = RowsToCount { charge: 0, rows: Arc::clone(rows), values };
            let counted = self.count(&ask).await;
            let rows = counted.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
            plan.add_rows(&mut outcome.readings, rows);
        }
        Ok(outcome)
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}
