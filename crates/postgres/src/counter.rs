//! One counter while a transaction has it: how it is loaded and settled in this process, and the changes to write.
//!
//! Logs are not loaded whole. The core gets the entries that settling needs, and one entry that stands for all
//! others: the decision depends on nothing else. Of many holds, it gets those that an attempt names or may have to
//! wait for, and two that stand for the rest.

mod edit;
pub(crate) mod holds;
mod list;

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::limit::{Entry, Hold, Holding, Limit, State};
use tollgate_core::{Plan, Timestamp};

pub(crate) use edit::{CounterEdit, EntryRow, HeaderRow};
pub(crate) use holds::{HoldBounds, HoldsKnown};
use list::List;

use crate::codec::{Garbled, Kept, column, moment_of, natural, read_numbers};
use crate::name::Name;

/// The row of a counter. `used`, `marks` and `logs` have one item for each limit, as the columns of the table
/// do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Header {
    pub(crate) limits: String,
    pub(crate) used: Vec<Option<i64>>,
    pub(crate) marks: Vec<i64>,
    pub(crate) logs: Vec<Option<i64>>,
    pub(crate) seq: i64,
    pub(crate) holds: i64,
    pub(crate) oldest: i64,
    pub(crate) newest: i64,
}

/// The loaded entries of one limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// Entries by their numbers: some of the oldest, the newest, and the entry of a ticket that is refunded.
    pub(crate) rows: BTreeMap<i64, Entry>,
    /// The number of failures of a ladder in the table, loaded or not.
    pub(crate) count: u64,
    pub(crate) aged: Option<Aged>,
    pub(crate) prefix: Option<Prefix>,
}

/// The sum of the entries that have aged out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aged {
    pub(crate) first_live: i64,
    pub(crate) at: Timestamp,
    pub(crate) sum: u64,
}

/// The sum of a ladder's entries up to and including the entry `last`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) last: i64,
    pub(crate) at: Timestamp,
    pub(crate) sum: u64,
}

/// The rows that were loaded of one counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) header: Option<Header>,
    /// The limits that the header was written under.
    pub(crate) plan: Option<Arc<Plan>>,
    /// The loaded entries of each limit of `plan`.
    pub(crate) lists: Vec<Rows>,
    pub(crate) holds: BTreeMap<String, Hold>,
    pub(crate) holds_known: HoldsKnown,
    pub(crate) hold_bounds: HoldBounds,
}

/// A counter while a transaction has it.
pub(crate) struct Counter {
    pub(crate) name: Name,
    loaded: Loaded,
    /// The limits that `states` belong to; `None` for a new counter.
    plan: Option<Arc<Plan>>,
    states: Vec<State>,
    /// The list of entries of each limit that has entries.
    lists: Vec<Option<List>>,
    seq: i64,
    /// The clock went back: every later moment in the rows is set to this one.
    clamp: Option<Timestamp>,
    /// Whether an attempt, a refund or an order about holds changed the states. States that only aged need not
    /// be written.
    touched: bool,
}

impl Header {
    /// The amount that is used of a limit; `None` if nothing is used or the column is damaged.
    pub(crate) fn used_of(&self, place: usize) -> Option<u64> {
        self.used.get(place).copied().flatten().and_then(|used| natural(used).ok())
    }

    /// A lower bound of the earliest renewal of a hold.
    pub(crate) fn oldest_at(&self) -> Option<Timestamp> {
        moment_of(self.oldest).ok()
    }
}

impl Rows {
    /// The total cost of the loaded entries and of the aged ones.
    pub(crate) fn sum(&self) -> u64 {
        let rows: u64 = self.rows.values().map(|entry| entry.cost).sum();
        rows + self.aged.map_or(0, |aged| aged.sum)
    }

    pub(crate) fn newest(&self) -> Option<Entry> {
        self.rows.values().next_back().copied()
    }
}

fn is_leased(limit: &Limit) -> bool {
    limit.holding() == Holding::ForATime
}

/// The text of a plan's limits, as the column `limits` has it.
pub(crate) fn heading(plan: &Plan) -> String {
    let texts: Vec<&str> = plan.written().map(|(_, text)| text).collect();
    texts.join(", ")
}

impl Counter {
    /// Makes a counter of its loaded rows. A limit that none of the current plans has starts fresh.
    pub(crate) fn new(name: Name, loaded: Loaded, keeps: impl Fn(&Limit) -> bool) -> Result<Self, Garbled> {
        let mut counter = Self {
            name,
            plan: None,
            states: Vec::new(),
            lists: Vec::new(),
            seq: loaded.header.as_ref().map_or(0, |header| header.seq),
            loaded,
            clamp: None,
            touched: false,
        };
        counter.read(keeps)?;
        Ok(counter)
    }

    /// Converts the loaded rows to states.
    fn read(&mut self, keeps: impl Fn(&Limit) -> bool) -> Result<(), Garbled> {
        let (Some(header), Some(plan)) = (&self.loaded.header, self.loaded.plan.clone()) else {
            return Ok(());
        };
        for (place, limit) in plan.limits().iter().enumerate() {
            let (used, mark, log) = (header.used[place], header.marks[place], header.logs[place]);
            let (state, list) = match Kept::of(limit) {
                Kept::Numbers => (read_numbers(limit, used, mark)?, None),
                Kept::Holds => (self.read_holds(header, used)?, None),
                Kept::Log | Kept::Slots | Kept::Failures => {
                    let mut list = List::new(limit, log.ok_or(Garbled)?, mark);
                    let state = match used {
                        Some(used) if keeps(limit) => list.read(&self.loaded.lists[place], natural(used)?)?,
                        // Nothing counts, or the entries were not loaded because no plan keeps the limit.
                        Some(_) | None => State::Fresh,
                    };
                    (state, Some(list))
                }
            };
            self.states.push(state);
            self.lists.push(list);
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Converts the states to this plan's limits, if they belong to other limits.
    pub(crate) fn stand_under(&mut self, plan: &Arc<Plan>, now: Timestamp) {
        let old = match self.plan.replace(Arc::clone(plan)) {
            Some(old) if old.limits() == plan.limits() => return,
            old => old,
        };
        let mut lists = std::mem::take(&mut self.lists);
        if let Some(old) = &old {
            self.states = plan.adopt(old, std::mem::take(&mut self.states), now);
            self.touched = true;
        } else {
            self.states = vec![State::Fresh; plan.limits().len()];
        }
        for limit in plan.limits() {
            let same =
                old.iter().flat_map(|old| old.limits()).position(|it| it.identity() == limit.identity());
            let kept = same.and_then(|place| lists.get_mut(place)?.take());
            let list = Kept::of(limit).is_listed().then(|| kept.unwrap_or_else(|| self.fresh_list(limit)));
            self.lists.push(list);
        }
    }

    /// An empty list for a limit that had none. A counter never uses a number twice.
    fn fresh_list(&mut self, limit: &Limit) -> List {
        let log = match Kept::of(limit) {
            Kept::Slots => self.seq + 1,
            Kept::Failures => -(self.seq + 1),
            Kept::Log | Kept::Numbers | Kept::Holds => 0,
        };
        self.seq += i64::from(log != 0);
        List::new(limit, log, self.seq)
    }

    /// Lends the states to `Charges`; the caller puts them back.
    pub(crate) fn states(&mut self) -> Vec<State> {
        std::mem::take(&mut self.states)
    }

    /// Puts the states back after an attempt was settled. `taken` is the entry that the attempt added.
    pub(crate) fn settled(&mut self, states: Vec<State>, taken: Option<Entry>, now: Timestamp) {
        for (list, state) in self.lists.iter_mut().zip(&states) {
            let Some(list) = list else { continue };
            if list.newest_at().is_some_and(|at| at > now) {
                self.clamp = Some(now);
            }
            list.settled(state, taken.map(|_| self.seq));
        }
        let leased = || self.plan.iter().flat_map(|plan| plan.limits()).any(is_leased);
        let header = self.loaded.header.as_ref().filter(|header| header.holds > 0);
        if header.is_some_and(|header| header.newest > column(now.as_micros())) && leased() {
            self.clamp = Some(now);
        }
        self.states = states;
        if taken.is_some() {
            self.touched = true;
            self.seq += i64::from(self.lists.iter().any(Option::is_some));
        }
    }

    /// Puts the states back after a refund.
    pub(crate) fn refunded(&mut self, states: Vec<State>) {
        for (list, state) in self.lists.iter_mut().zip(&states) {
            if let Some(list) = list {
                list.refunded(state);
            }
        }
        self.touched = true;
        self.states = states;
    }

    /// Puts unchanged states back.
    pub(crate) fn put_back(&mut self, states: Vec<State>) {
        self.states = states;
    }

    /// Puts the states back after an order about holds.
    pub(crate) fn ordered(&mut self, states: Vec<State>) {
        self.touched = true;
        self.states = states;
    }
}
