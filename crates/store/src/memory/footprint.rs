//! Estimates the memory of keys, for operators. `tests/memory_kinds.rs` measures it.

use tollgate_core::limit::Limit;
use tollgate_core::{Attempt, Plan};

use super::pack::Fit;

/// An upper bound of the memory of one key under a plan, in bytes, free room for growth included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Without any entry.
    pub key: u64,
    /// For each entry: a take in a log, a slot, a hold, a failure.
    pub entry: u64,
    /// The most entries that the limits allow.
    pub most_entries: u64,
    /// The memory of the most entries that each limit allows, with the longest ids that there may be.
    pub most_of_entries: u64,
    /// The most holds, and their memory: a part of the above.
    pub most_of_holds: (u64, u64),
}

/// A slot of a table, with its share of free ones.
const NARROW: u64 = 80;
const WIDE: u64 = 112;
/// The index entry of a key beside the table, and each of its limits there.
const BESIDE: u64 = 60;
const STATE: u64 = 24;
/// The fixed part of a limit with entries.
const LOG: u64 = 32;
const HOLDS: u64 = 32;
const CLIMB: u64 = 120;
/// An entry, with its share of free room.
const TAKE: u64 = 34;
const SLOT: u64 = 20;
/// With an id of 36 bytes, as a UUID has.
const HOLD: u64 = 144;
/// What the longest id takes more.
const LONGEST_ID: u64 = (Attempt::MOST_ID_BYTES - 36) as u64;
const FAILURE: u64 = 48;

impl Footprint {
    /// The memory of a key under this plan.
    pub fn of(plan: &Plan) -> Self {
        let limits = plan.limits();
        let key = match Fit::of(plan) {
            Fit::One => NARROW,
            Fit::Two => WIDE,
            Fit::Deep => NARROW + BESIDE + STATE * limits.len() as u64,
        };
        let mut footprint =
            Self { key, entry: 0, most_entries: 0, most_of_entries: 0, most_of_holds: (0, 0) };
        for limit in limits {
            let (fixed, entry, most) = match limit {
                Limit::Sliding(limit) => (LOG, TAKE, limit.max()),
                Limit::Slotted(limit) => {
                    let slots = limit.period().as_micros().div_ceil(limit.slot().as_micros()) + 1;
                    (LOG, SLOT, slots.min(limit.max()))
                }
                Limit::InFlight(limit) => (HOLDS, HOLD, limit.max()),
                Limit::Ladder(ladder) => (CLIMB, FAILURE, ladder.most_entries() as u64),
                Limit::Window(_)
                | Limit::Calendar(_)
                | Limit::Bucket(_)
                | Limit::PerAttempt(_)
                | Limit::Total(_) => (0, 0, 0),
            };
            footprint.key += fixed;
            let longest = if limit.holds() { entry + LONGEST_ID } else { entry };
            let all = longest.saturating_mul(most);
            footprint.most_of_entries = footprint.most_of_entries.saturating_add(all);
            if limit.holds() {
                footprint.most_of_holds = (most, all);
            }
            footprint = footprint.joined(entry, most);
        }
        footprint
    }

    /// Adds the entries of another limit. One take is an entry in each.
    fn joined(self, entry: u64, most: u64) -> Self {
        Self { entry: self.entry + entry, most_entries: self.most_entries.max(most), ..self }
    }

    /// The memory of a key with this many entries.
    pub fn with_entries(&self, entries: u64) -> u64 {
        self.key.saturating_add(self.entry.saturating_mul(entries))
    }

    /// The memory of a key with the most entries that its limits allow.
    pub fn most(&self) -> u64 {
        self.key.saturating_add(self.most_of_entries)
    }
}
