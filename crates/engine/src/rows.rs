//! Counting rows of the application before an attempt may pass.
//!
//! The store has allowed the attempt, and has taken everything. Until the rows are counted, and also if the
//! caller goes away meanwhile, what was taken is to be given back.

mod meter;
mod recent;

use std::sync::Arc;

use tollgate_core::rows::{Exceeded, RowsToCount};
use tollgate_core::{
    Decision, OnOutage, Origin, Outcome, Reason, RowSource, RowsError, Rule, Span, StoreError,
};

use crate::admit::{Unsettled, at_first_poll};
use crate::engine::{Aim, Engine};
use crate::log_limiter::PacedLog;
use crate::receipt::Home;
use crate::taken::{Pending, Refund};
use recent::Recent;

pub use meter::RowMeters;

/// What an engine counts rows with.
pub(crate) struct Rows {
    source: Option<Arc<dyn RowSource>>,
    recent: Recent,
    log: PacedLog,
    meters: RowMeters,
}

/// What an attempt has taken whose rows are being counted. Dropped, it is given back.
struct Reserved<'e> {
    engine: &'e Engine,
    pending: Option<Pending>,
}

impl Rows {
    pub(crate) fn new() -> Self {
        Self {
            source: None,
            recent: Recent::default(),
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

    /// What is counted about counting rows.
    pub fn row_meters(&self) -> &RowMeters {
        &self.rows.meters
    }

    /// Counts the rows that the rules of a decision ask for, and weighs it again.
    pub(crate) async fn count_rows(&self, aim: Aim, decision: &mut Decision<'_>) {
        let asked = decision.rows_to_count();
        if asked.is_empty() {
            return;
        }
        let mut reserved = Reserved::new(self, decision);
        let mut degraded = false;
        for ask in &asked {
            match self.rows_for(aim, ask, decision).await {
                Ok(rows) if decision.add_rows(ask.charge, rows) => break,
                Ok(_) => {}
                Err(error) if self.denies_uncounted(ask, &error, decision) => {
                    decision.refuse(ask.charge, Reason::Uncounted, decision.outcome.now);
                    self.note_uncounted(aim, decision);
                    return reserved.refund(|_| true).await;
                }
                Err(_) => degraded = true,
            }
        }
        match decision.weigh_rows() {
            Exceeded::Enforced => return reserved.refund(|_| true).await,
            Exceeded::Observed(0) => reserved.keep(),
            Exceeded::Observed(charges) => reserved.refund(|index| charges & (1 << index) != 0).await,
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
        if let Some(rows) = self.rows.recent.recall(&rule, key, ask.rows.cache, now)
            && (aim == Aim::Peek || decision.exceeds_with_rows(ask.charge, rows))
        {
            return Ok(rows);
        }
        let rows = self.count(ask).await?;
        if ask.rows.cache > Span::ZERO {
            self.rows.recent.remember(rule, key, rows, now);
        }
        Ok(rows)
    }

    async fn count(&self, ask: &RowsToCount) -> Result<u64, RowsError> {
        let counted = match &self.rows.source {
            Some(source) => source.count(&ask.rows, &ask.values).await,
            None => Err(RowsError::Unreachable { reason: "no database is configured".to_owned() }),
        };
        self.rows.meters.count(&ask.rows.database, counted.is_ok());
        counted
    }

    /// Whether a rule denies an attempt whose rows could not be counted. It is logged either way.
    fn denies_uncounted(&self, ask: &RowsToCount, error: &RowsError, decision: &Decision<'_>) -> bool {
        let line = decision.lines().nth(ask.charge).expect("what is to be counted is for a charge");
        let denies = !line.rule.observes() && line.rule.on_outage != OnOutage::Allow;
        if let Some(held_back) = self.rows.log.admit(decision.outcome.now) {
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
        if let (Some(shared), Aim::Take) = (&self.shared, aim) {
            shared.meters.count_degraded(&decision.policy().name, Reason::Uncounted);
        }
    }

    /// What every limit of a rule shows at a key, with the rows that count there.
    ///
    /// # Errors
    ///
    /// If the store cannot answer, or the rows cannot be counted.
    pub async fn look_with_rows(&self, rule: &Rule, key: &str) -> Result<Outcome, StoreError> {
        let plan = rule.plan_at(key);
        let mut outcome = self.look(plan, key).await?;
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

impl<'e> Reserved<'e> {
    fn new(engine: &'e Engine, decision: &Decision<'_>) -> Self {
        Self { engine, pending: Pending::of(decision, Unsettled::Refund) }
    }

    /// Keeps what was taken.
    fn keep(mut self) {
        self.pending = None;
    }

    /// Gives back the charges that `is_owed` names by their place in the decision, and keeps the others.
    async fn refund(&mut self, is_owed: impl Fn(usize) -> bool) {
        let Some(pending) = &mut self.pending else { return };
        pending.retain(is_owed);
        let engine = self.engine;
        if engine.is_far(pending.home()) {
            if let Some(pending) = self.pending.take() {
                // What the store does not take now is offered to it again.
                let _ = Refund::new(engine, pending).make().await;
            }
            return;
        }
        // Nothing can be lacking for a refund in this process.
        let _ = engine.refund_here(pending).await;
        self.pending = None;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        if self.engine.is_far(pending.home()) {
            drop(Refund::new(self.engine, pending));
        } else {
            drop(at_first_poll(self.engine.refund_here(&pending)));
        }
    }
}

impl Engine {
    /// Whether what was taken there is in a store that others share.
    fn is_far(&self, home: Home) -> bool {
        self.shared.is_some() && home == Home::Store
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}
