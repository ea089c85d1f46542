//! The rows that a transaction must load: first those that its work names, then those that turn out to be
//! missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_core::limit::Limit;
use tollgate_core::{Plan, Span, Ticket, Timestamp};

use crate::codec::{Garbled, Kept, column};
use crate::counter::holds::{FEW, MANY};
use crate::counter::{Loaded, Rows};
use crate::name::{CounterId, Name};

/// The rows that a transaction needs of one counter.
pub(crate) struct Want {
    pub(crate) name: Name,
    /// The plans of the attempts at this counter.
    pub(crate) plans: Vec<Arc<Plan>>,
    /// The highest cost of one attempt, and the total cost of all.
    pub(crate) cost: u64,
    pub(crate) costs: u64,
    /// The number of attempts.
    pub(crate) attempts: u64,
    /// The ids of the holds that the work names.
    pub(crate) ids: BTreeSet<String>,
    /// Whether all holds are needed, even if there are many.
    pub(crate) all_holds: bool,
    /// Whether the work may end holds.
    pub(crate) ends_holds: bool,
}

/// The rows that a transaction needs.
#[derive(Default)]
pub(crate) struct Wants {
    pub(crate) counters: BTreeMap<CounterId, Want>,
    /// The refunded ticket, and the time at which it was taken.
    pub(crate) refund: Option<(Ticket, Timestamp)>,
}

/// More entries of one limit: `place` is the limit's position in the counter's row, entries up to `cutoff` are
/// summed, and of the later ones the oldest `most` are loaded.
pub(crate) struct MoreEntries {
    pub(crate) counter: CounterId,
    pub(crate) place: i64,
    pub(crate) cutoff: i64,
    pub(crate) most: i64,
}

/// More holds of one counter.
pub(crate) enum MoreHolds {
    All,
    /// The total of the holds that were last renewed up to the cutoff, and the holds that expire next, up to
    /// this weight.
    Soonest {
        cutoff: i64,
        weight: i64,
        /// Whether the exact latest renewal is needed, not only a bound.
        exact: bool,
    },
}

impl Want {
    pub(crate) fn new(name: &Name) -> Self {
        Self {
            name: name.clone(),
            plans: Vec::new(),
            cost: 0,
            costs: 0,
            attempts: 0,
            ids: BTreeSet::new(),
            all_holds: false,
            ends_holds: false,
        }
    }

    pub(crate) fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.plans.iter().flat_map(|plan| plan.limits())
    }

    /// Whether one of the plans still has this limit of the counter's row.
    pub(crate) fn keeps(&self, limit: &Limit) -> bool {
        self.limits().any(|other| other.identity() == limit.identity())
    }

    /// Parses the limits of a counter's row. In most cases they are those of a plan at hand.
    pub(super) fn plan_written(&self, text: &str) -> Result<Arc<Plan>, Garbled> {
        let texts = || text.split(", ").filter(|text| !text.is_empty());
        if let Some(plan) = self.plans.iter().find(|plan| plan.written().map(|(_, text)| text).eq(texts())) {
            return Ok(Arc::clone(plan));
        }
        let limits: Result<Vec<Limit>, _> = texts().map(str::parse).collect();
        let plan = Plan::new(Arc::from(&*self.name.rule), limits.map_err(|_| Garbled)?);
        plan.map(Arc::new).map_err(|_| Garbled)
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.limits().any(|limit| Kept::of(limit).is_listed())
    }

    /// The highest amount by which an attempt can exceed a limit that has `used` of `max`: it may have to wait
    /// until so much is free. The limit admits no attempt beyond it, so a later attempt of the batch exceeds it
    /// only by its own cost.
    fn excess(&self, used: u64, max: u64) -> u64 {
        let most = used.saturating_sub(max) + self.cost;
        most.min((used + self.costs).saturating_sub(max))
    }

    fn smallest(&self, limit: &Limit) -> Option<u64> {
        let same = self.limits().filter(|other| other.identity() == limit.identity());
        same.map(Limit::number).min()
    }

    /// The entries to load in addition. A limit's entries suffice if all are loaded, or if the loaded ones that
    /// have not aged out free as much as an attempt may have to wait for.
    pub(crate) fn more_entries(&self, loaded: &Loaded, now: Timestamp) -> Vec<MoreEntries> {
        let mut more = Vec::new();
        let (Some(plan), Some(header)) = (&loaded.plan, &loaded.header) else { return more };
        for (place, limit) in plan.limits().iter().enumerate() {
            let (Some(rows), Some(max)) = (loaded.lists.get(place), self.smallest(limit)) else { continue };
            let Some(used) = header.used_of(place).filter(|used| *used > rows.sum()) else { continue };
            let Some(newest) = rows.newest() else { continue };
            let excess = self.excess(used, max).max(1);
            let wanted = match limit {
                Limit::Sliding(limit) => aged_until(now, limit.period())
                    .filter(|cutoff| newest.at.min(now) > *cutoff)
                    .and_then(|cutoff| lacking(rows, cutoff, excess)),
                // After the clock went back, later slots are moved into the present slot, so all of them are
                // needed.
                Limit::Slotted(_) if newest.at > now => Some((Timestamp::ZERO, u64::MAX >> 1)),
                Limit::Slotted(limit) => {
                    let lasts = Span::from_micros(limit.period().as_micros() + limit.slot().as_micros());
                    aged_until(now, lasts)
                        .filter(|cutoff| newest.at > *cutoff)
                        .and_then(|cutoff| lacking(rows, cutoff, excess))
                }
                Limit::Ladder(ladder) => {
                    let merged = (rows.count + self.attempts).saturating_sub(ladder.most_entries() as u64);
                    let front = rows.rows.len().saturating_sub(1) as u64;
                    (merged > 0 && front < merged + 2).then_some((Timestamp::ZERO, merged + 2))
                }
                Limit::Window(_)
                | Limit::Calendar(_)
                | Limit::Bucket(_)
                | Limit::InFlight(_)
                | Limit::Total(_)
                | Limit::PerAttempt(_) => None,
            };
            if let Some((cutoff, most)) = wanted {
                let [cutoff, most] = [cutoff.as_micros(), most].map(column);
                more.push(MoreEntries { counter: self.name.id, place: place as i64 + 1, cutoff, most });
            }
        }
        more
    }

    /// The holds to load in addition.
    pub(crate) fn more_holds(&self, loaded: &Loaded, now: Timestamp) -> Option<MoreHolds> {
        let header = loaded.header.as_ref().filter(|header| header.holds > FEW && !self.all_holds)?;
        let limits = || self.limits().chain(loaded.plan.iter().flat_map(|plan| plan.limits()));
        let leases = || limits().filter_map(Limit::in_flight).map(|limit| limit.lease());
        if leases().min() != leases().max() {
            return Some(MoreHolds::All);
        }
        let lease = leases().next().flatten()?;
        let held = loaded.plan.as_ref()?.limits().iter().position(Limit::holds)?;
        let held = header.used_of(held).unwrap_or(0);
        let max = limits().filter(|limit| limit.holds()).map(Limit::number).min()?;
        let excess = self.excess(held, max);
        let few = header.holds - loaded.holds.len() as i64 <= MANY;
        let expired = now >= header.oldest_at()? + lease;
        let cutoff = if expired { column((now - lease).as_micros()) } else { header.oldest - 1 };
        let exact = expired || self.ends_holds && few;
        (exact || excess > 0).then(|| MoreHolds::Soonest { cutoff, weight: column(excess), exact })
    }
}

/// The time up to which entries have aged out; `None` if the clock is too low for any to have aged out.
fn aged_until(now: Timestamp, lasts: Span) -> Option<Timestamp> {
    now.as_micros().checked_sub(lasts.as_micros()).map(Timestamp::from_micros)
}

/// The cutoff, and the amount to load, if the live entries before the newest free less than `excess`.
fn lacking(rows: &Rows, cutoff: Timestamp, excess: u64) -> Option<(Timestamp, u64)> {
    let before = rows.rows.values().rev().skip(1);
    let live: u64 = before.filter(|entry| entry.at > cutoff).map(|entry| entry.cost).sum();
    (live < excess).then_some((cutoff, excess))
}

#[cfg(test)]
mod tests;
