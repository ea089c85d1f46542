//! Rows in a database of the application that count beside what a rule holds.
//!
//! A rule that counts rows has one limit, `10 at once for 30s`, whose holds are reservations. An attempt
//! reserves first, like any other that takes a hold, and so learns how much is reserved. Then the rows are
//! counted, and rows and reservations together must be within the limit; otherwise the whole attempt is
//! refunded. The application inserts its row and releases the reservation after its commit. Whatever a
//! count does not show yet is still reserved, so two attempts cannot both get the last place.
//!
//! Stores know nothing of this: to them it is a limit on holds.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::pin::Pin;

use crate::charge::Charges;
use crate::decision::Decision;
use crate::limit::{Holding, InFlight, Limit};
use crate::outage::OnOutage;
use crate::plan::{Plan, PlanError};
use crate::reading::{Reading, When};
use crate::rule::Rule;
use crate::time::Span;

/// Which rows a rule counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCount {
    /// The name of the database they are in.
    pub database: Arc<str>,
    /// The query that counts them. Its parameters are the values of the rule's key, in order.
    pub query: Arc<str>,
    /// How long counting may take.
    pub timeout: Span,
    /// How long a count is remembered. A remembered count may deny an attempt, and never allows one.
    pub cache: Span,
}

/// A place that counts rows.
pub trait RowSource: Send + Sync {
    /// Counts the rows for these values of a rule's key.
    fn count<'a>(&'a self, rows: &'a RowCount, values: &'a [String]) -> Counting<'a>;
}

/// A count to come.
pub type Counting<'a> = Pin<Box<dyn Future<Output = Result<u64, RowsError>> + Send + 'a>>;

/// Why rows could not be counted. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsError {
    /// No answer came in time. The operator's fault, or the network's.
    TimedOut,
    /// The database cannot be reached. The operator's fault, or the network's.
    Unreachable {
        /// What happened. It is logged, so it holds no password.
        reason: String,
    },
    /// The database refuses the query. The fault of the query, or of a value that does not fit it.
    Refused {
        /// What the database said.
        reason: String,
    },
    /// The answer is not one whole number. The fault of the query.
    NotACount {
        /// What came instead.
        answer: String,
    },
}

/// What is to be counted for one charge of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsToCount {
    /// Which charge it is.
    pub charge: usize,
    /// Which rows.
    pub rows: Arc<RowCount>,
    /// The values of the rule's key.
    pub values: Vec<String>,
}

/// What of a key's reservations is the attempt's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Nothing.
    None,
    /// The one that it takes.
    Taken,
    /// One that it took when it was made before.
    Held,
}

/// Which charges rows have denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// No enforced charge. Bit `i` is set if charge `i` is observed, was taken, and must be refunded.
    Observed(u32),
    /// An enforced charge: everything that was taken must be refunded.
    Enforced,
}

impl Rule {
    /// A rule by these fields that counts rows: rows and reservations together are at most `max`, and a
    /// reservation ends by itself after `reserve`. Without the database or the store it denies.
    pub fn counting_rows(
        name: &str,
        by: &[&str],
        (max, reserve): (u64, Span),
        rows: RowCount,
    ) -> Result<Self, PlanError> {
        let limit = Limit::InFlight(InFlight::new(max, Some(reserve)));
        let rule = Self::new(name, by, alloc::vec![limit])?;
        Ok(Self { rows: Some(Arc::new(rows)), on_outage: OnOutage::Deny, ..rule })
    }

    /// The first of these limits that a rule which counts rows cannot have: it needs holds that end by
    /// themselves, and nothing else.
    pub fn unfit_for_rows<'l>(&self, limits: &'l [Limit]) -> Option<&'l Limit> {
        let unfit = |limit: &&Limit| limit.holding() != Holding::ForATime;
        self.rows.as_ref().and_then(|_| limits.iter().find(unfit))
    }
}

impl InFlight {
    /// What this limit shows an attempt of this cost when so many rows count beside its holds. `reading` is
    /// what it showed without them. If they deny the attempt, its reservation counts as refunded.
    fn with_rows(&self, reading: Reading, rows: u64, cost: u64, own: Own) -> Reading {
        let reserved = reading.capacity.saturating_sub(reading.remaining);
        let asked = if own == Own::None { cost } else { 0 };
        let used = rows.saturating_add(reserved);
        if cost == 0 || reading.when > When::Now || used.saturating_add(asked) <= self.max {
            return Reading { remaining: self.max.saturating_sub(used), ..reading };
        }
        let when = if rows.saturating_add(cost) <= self.max {
            // Only reservations are in the way. All that are there now have ended by then.
            self.lease.map_or(When::OnRelease, When::After)
        } else {
            When::OnRelease
        };
        let used = if own == Own::Taken { used.saturating_sub(cost) } else { used };
        Reading { remaining: self.max.saturating_sub(used), when, ..reading }
    }
}

impl Plan {
    /// Adds rows to what was read of these limits without asking for anything.
    pub fn add_rows(&self, readings: &mut [Reading], rows: u64) {
        self.read_with_rows(readings, rows, 0, Own::None);
    }

    fn read_with_rows(&self, readings: &mut [Reading], rows: u64, cost: u64, own: Own) {
        for (limit, reading) in self.limits().iter().zip(readings) {
            if let Some(holds) = limit.in_flight() {
                *reading = holds.with_rows(*reading, rows, cost, own);
            }
        }
    }
}

impl Decision<'_> {
    /// What is to be counted before an attempt that the store allows may pass.
    pub fn rows_to_count(&self) -> Vec<RowsToCount> {
        let lines = self.lines().enumerate().filter(|_| self.outcome.allowed);
        let asked = lines.filter_map(|(charge, line)| {
            let rows = Arc::clone(line.rule.rows.as_ref()?);
            let values = line.rule.values_of(line.key)?.into_iter().map(|(_, value)| value).collect();
            Some(RowsToCount { charge, rows, values })
        });
        asked.collect()
    }

    /// Whether so many rows deny the charge at `index`.
    pub fn exceeds_with_rows(&self, index: usize, rows: u64) -> bool {
        let mut readings = self.outcome.of(&self.charges, index).to_vec();
        self.read_with_rows(index, rows, &mut readings);
        readings.iter().any(|reading| reading.when > When::Now)
    }

    /// Adds the rows that were counted for the charge at `index` to what it shows. Returns whether they deny
    /// the attempt.
    pub fn add_rows(&mut self, index: usize, rows: u64) -> bool {
        let mut readings = self.outcome.of(&self.charges, index).to_vec();
        self.read_with_rows(index, rows, &mut readings);
        let start = self.charges.readings_before(index);
        if let Some(own) = self.outcome.readings.get_mut(start..start + readings.len()) {
            own.copy_from_slice(&readings);
        }
        let enforced = self.charges.iter().as_slice().get(index).is_some_and(|charge| charge.enforced);
        enforced && readings.iter().any(|reading| reading.when > When::Now)
    }

    fn read_with_rows(&self, index: usize, rows: u64, readings: &mut [Reading]) {
        let Some(charge) = self.charges.iter().as_slice().get(index) else { return };
        let own = match (self.outcome.taken & (1 << index) != 0, self.outcome.repeated) {
            (true, _) => Own::Taken,
            (false, true) => Own::Held,
            (false, false) => Own::None,
        };
        charge.plan.read_with_rows(readings, rows, charge.cost, own);
    }

    /// Weighs the attempt again, now that rows were added. If an enforced charge is exceeded, the attempt is denied and
    /// takes nothing. Returns which of the taken charges the caller must refund.
    pub fn weigh_rows(&mut self) -> Exceeded {
        let exceeded =
            |index: usize| self.outcome.of(&self.charges, index).iter().any(|r| r.when > When::Now);
        let charges = self.charges.iter().enumerate();
        let (mut observed, mut enforced) = (0, false);
        for (index, charge) in charges.filter(|(index, _)| exceeded(*index)) {
            enforced |= charge.enforced;
            observed |= 1 << index;
        }
        if enforced {
            self.refund_readings(self.outcome.taken);
            (self.outcome.allowed, self.outcome.repeated, self.outcome.taken) = (false, false, 0);
            self.conclude(self.origin);
            return Exceeded::Enforced;
        }
        let back = observed & self.outcome.taken;
        self.refund_readings(back);
        self.outcome.taken &= !back;
        Exceeded::Observed(back)
    }

    /// Changes the readings of these charges to what they will be once the charges are refunded.
    fn refund_readings(&mut self, charges: u32) {
        let mut start = 0;
        for (index, charge) in self.charges.iter().enumerate() {
            let limits = charge.plan.limits();
            let own = self.outcome.readings.get_mut(start..start + limits.len()).unwrap_or_default();
            start += limits.len();
            if charges & (1 << index) == 0 {
                continue;
            }
            // What rows have denied says so already.
            for (limit, reading) in limits.iter().zip(own).filter(|(_, reading)| reading.when == When::Now) {
                *reading = limit.read_refunded(*reading, charge.cost);
            }
        }
    }
}

impl Charges<'_> {
    /// How many readings an outcome has before those of the charge at `index`.
    fn readings_before(&self, index: usize) -> usize {
        self.iter().take(index).map(|charge| charge.plan.limits().len()).sum()
    }
}

impl fmt::Display for RowsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the database did not answer in time"),
            Self::Unreachable { reason } => write!(f, "the database cannot be reached: {reason}"),
            Self::Refused { reason } => write!(f, "the database refuses the query: {reason}"),
            Self::NotACount { answer } => {
                write!(
                    f,
                    "the query must select one whole number, as `SELECT count(*)` does, and selected {answer}"
                )
            }
        }
    }
}

impl core::error::Error for RowsError {}
