//! Computes the rows to write: the difference between a counter and its loaded rows.

use tollgate_core::Timestamp;
use tollgate_core::limit::{Entry, Hold, Idle, Limit, State};

use super::{Counter, Header, HoldsKnown, heading};
use crate::codec::{Kept, column, numbers};
use crate::name::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRow {
    pub(crate) log: i64,
    pub(crate) seq: i64,
    pub(crate) entry: Entry,
}

/// The rows to write or delete for one counter.
#[derive(Debug, Default)]
pub(crate) struct CounterEdit {
    pub(crate) header: Option<HeaderRow>,
    pub(crate) put: Vec<EntryRow>,
    /// Entries to delete that are not at the front: their log and number.
    pub(crate) removed: Vec<(i64, i64)>,
    /// For each log, the first entry that still counts. All entries before it are deleted.
    pub(crate) drop_below: Vec<(i64, i64)>,
    /// The clock went back: every later moment in the rows is set to this one.
    pub(crate) clamp: Option<Timestamp>,
    pub(crate) put_holds: Vec<(String, Hold)>,
    pub(crate) end_holds: Vec<String>,
    pub(crate) end_all_holds: bool,
    /// Holds whose last renewal is not after this moment have expired and are deleted.
    pub(crate) end_expired: Option<i64>,
}

/// The new row of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderRow {
    /// Whether the counter already has a row with these limits and logs, so that an update of numbers is
    /// enough.
    pub(crate) is_known: bool,
    pub(crate) limits: String,
    pub(crate) used: Vec<Option<i64>>,
    pub(crate) marks: Vec<i64>,
    pub(crate) logs: Vec<Option<i64>>,
    /// The number of the next entry, the number of holds, and the earliest and latest renewal.
    pub(crate) numbers: [i64; 4],
    pub(crate) idle_at: Option<i64>,
}

impl Counter {
    /// The rows to write; `None` if nothing changed.
    pub(crate) fn edit(&self) -> Option<(&Name, CounterEdit)> {
        let plan = self.plan.as_ref()?;
        if self.loaded.header.is_none() && self.states.iter().all(|state| *state == State::Fresh) {
            return None;
        }
        let mut edit = CounterEdit { clamp: self.clamp, ..CounterEdit::default() };
        self.edit_holds(&mut edit);
        let mut row = HeaderRow {
            is_known: false,
            limits: heading(plan),
            used: Vec::with_capacity(self.states.len()),
            marks: Vec::with_capacity(self.states.len()),
            logs: Vec::with_capacity(self.states.len()),
            numbers: [0; 4],
            idle_at: match plan.idle(&self.states) {
                Idle::At(at) => Some(column(at.as_micros())),
                Idle::Never => None,
            },
        };
        let (weight, oldest, newest) = self.hold_bounds();
        let mut moved = self.touched || self.clamp.is_some();
        for ((list, state), limit) in self.lists.iter().zip(&self.states).zip(plan.limits()) {
            let (used, mark) = match (list, Kept::of(limit)) {
                (Some(list), _) => {
                    let list_edit = list.edit(state, self.seq);
                    moved |= !list_edit.put.is_empty();
                    edit.add_list(list.log, &list_edit);
                    (list_edit.used.map(column), list_edit.born)
                }
                (None, Kept::Holds) => (weight.map(column), 0),
                (None, Kept::Numbers | Kept::Log | Kept::Slots | Kept::Failures) => numbers(state),
            };
            moved |= self.has_moved(row.used.len(), (used, mark), limit, state);
            row.used.push(used);
            row.marks.push(mark);
            row.logs.push(list.as_ref().map(|list| list.log));
        }
        if !moved && edit.put_holds.is_empty() {
            return None;
        }
        // A hold that has expired and is not deleted yet must not count as held.
        let dead = self.expired().map_or(0, |cutoff| cutoff + 1);
        let [oldest, newest] = [oldest, newest].map(|at| column(at.as_micros()));
        row.numbers = [self.seq, self.count_holds(&edit), oldest.max(dead), newest];
        if let Some(header) = &self.loaded.header {
            edit.drop_below = self.drops(header, &row);
            row.is_known = row.limits == header.limits && row.logs == header.logs;
            edit.header = (!row.is(header)).then_some(row);
        } else {
            edit.header = Some(row);
        }
        Some((&self.name, edit))
    }

    /// Whether the state of a limit that is stored as two numbers has changed, other than by ageing.
    fn has_moved(&self, place: usize, now: (Option<i64>, i64), limit: &Limit, state: &State) -> bool {
        let Some(header) = &self.loaded.header else { return true };
        let before = (header.used.get(place).copied().flatten(), header.marks.get(place).copied());
        Kept::of(limit) == Kept::Numbers && *state != State::Fresh && before != (now.0, Some(now.1))
    }

    /// The first entry of each log that still counts, if it is not the same as before.
    fn drops(&self, header: &Header, row: &HeaderRow) -> Vec<(i64, i64)> {
        let mut drops = Vec::new();
        let first = |marks: &[i64], logs: &[Option<i64>], log: i64| {
            marks.iter().zip(logs).filter(|(_, it)| **it == Some(log)).map(|(mark, _)| *mark).min()
        };
        let mut seen = Vec::new();
        for log in header.logs.iter().flatten().copied() {
            if seen.contains(&log) {
                continue;
            }
            seen.push(log);
            let before = first(&header.marks, &header.logs, log);
            let after = first(&row.marks, &row.logs, log).unwrap_or(i64::MAX);
            if before.is_some_and(|before| after > before) {
                drops.push((log, after));
            }
        }
        drops
    }

    fn edit_holds(&self, edit: &mut CounterEdit) {
        let (before, after) = (&self.loaded.holds, self.held());
        let changed = after.iter().filter(|(id, hold)| before.get(**id) != Some(*hold));
        edit.put_holds = changed.map(|(id, hold)| ((*id).to_owned(), *hold)).collect();
        edit.end_expired = self.expired();
        let kept_rows = self.loaded.header.as_ref().is_some_and(|header| header.holds > 0);
        let counts_holds = self.plan.iter().flat_map(|plan| plan.limits()).any(Limit::holds);
        let all_ended = after.is_empty() && !self.has_others() && edit.end_expired.is_none();
        edit.end_all_holds = kept_rows && (all_ended || !counts_holds);
        if !edit.end_all_holds {
            let ended = before.keys().filter(|id| !after.contains_key(id.as_str()));
            edit.end_holds = ended.cloned().collect();
        }
    }

    fn count_holds(&self, edit: &CounterEdit) -> i64 {
        let known = self.loaded.header.as_ref().map_or(0, |header| header.holds);
        if edit.end_all_holds || self.loaded.holds_known == HoldsKnown::All || known == 0 {
            return self.held().len() as i64;
        }
        let new = edit.put_holds.iter().filter(|(id, _)| !self.loaded.holds.contains_key(id)).count();
        let expired = edit.end_expired.map_or(0, |_| self.loaded.hold_bounds.expired);
        known + new as i64 - edit.end_holds.len() as i64 - expired
    }
}

impl CounterEdit {
    /// Adds the changes of one list. All sliding limits of a counter share one log, so an entry is added once.
    fn add_list(&mut self, log: i64, list: &super::list::ListEdit) {
        for row in &list.put {
            if !self.put.iter().rev().any(|known| (known.log, known.seq) == (row.log, row.seq)) {
                self.put.push(*row);
            }
        }
        self.removed.extend(list.removed.iter().map(|seq| (log, *seq)));
    }
}

impl HeaderRow {
    fn is(&self, header: &Header) -> bool {
        self.is_known
            && self.used == header.used
            && self.marks == header.marks
            && self.numbers == [header.seq, header.holds, header.oldest, header.newest]
    }
}
