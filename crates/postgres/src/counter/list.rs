//! The entries of one limit during a transaction.

use std::collections::{BTreeMap, VecDeque};

use tollgate_core::limit::{Entry, Failure, Limit, State};
use tollgate_core::{Ticket, Timestamp};

use super::{EntryRow, Rows};
use crate::codec::{Garbled, Kept};

/// The entries of one limit: the loaded rows, and the entries that the core gets for them.
#[derive(Clone, Debug)]
pub(super) struct List {
    kept: Kept,
    /// The number of the log in the entry table.
    pub(super) log: i64,
    /// The number of the first row that may count. It is used if the first row that counts was not loaded.
    pub(super) born: i64,
    /// The loaded rows. For a slotted limit, the number of a row is the number of its slot.
    known: BTreeMap<i64, Entry>,
    /// The entries that the core got, in order, with the rows that each represents. Not used for slots.
    places: VecDeque<(Place, Entry)>,
    /// The length of a slot, in microseconds.
    slot: u64,
    /// Rows to delete that are not at the front.
    removed: Vec<i64>,
    /// The moment of the newest loaded row.
    latest: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Row(i64),
    /// A stand-in for all rows before this number.
    Before(i64),
    /// A stand-in for rows that were not loaded, between the loaded ones, or for some of these rows.
    Others,
}

/// The slot number of a stand-in: that of the first slot since the epoch.
const STAND_IN: u64 = 0;

/// The rows to write or delete for one list.
#[derive(Debug, Default)]
pub(super) struct ListEdit {
    pub(super) put: Vec<EntryRow>,
    pub(super) removed: Vec<i64>,
    pub(super) used: Option<u64>,
    pub(super) born: i64,
}

impl List {
    pub(super) fn new(limit: &Limit, log: i64, born: i64) -> Self {
        Self {
            kept: Kept::of(limit),
            log,
            born,
            known: BTreeMap::new(),
            places: VecDeque::new(),
            slot: limit.slotted().map_or(1, |limit| limit.slot().as_micros()),
            removed: Vec::new(),
            latest: None,
        }
    }

    pub(super) fn newest_at(&self) -> Option<Timestamp> {
        self.latest.filter(|_| self.kept != Kept::Slots)
    }

    /// Makes the state from the loaded rows, with stand-ins for the others.
    pub(super) fn read(&mut self, rows: &Rows, used: u64) -> Result<State, Garbled> {
        let others = used.checked_sub(rows.sum()).ok_or(Garbled)?;
        let newest = rows.newest().ok_or(Garbled)?;
        self.latest = Some(newest.at);
        self.known = rows.rows.clone();
        match self.kept {
            Kept::Slots => self.read_slots(rows, others),
            Kept::Log => {
                let entries = self.place(rows, others, newest);
                Ok(State::Log(Box::new(entries.collect())))
            }
            Kept::Failures => {
                let entries = self.place(rows, others, newest);
                let failures = entries.map(|it| Failure { at: it.at, ticket: it.ticket, count: it.cost });
                Ok(State::Failures(Box::new(failures.collect())))
            }
            // Limits of these kinds have no entries.
            Kept::Numbers | Kept::Holds => Err(Garbled),
        }
    }

    /// Orders the loaded rows, and puts stand-ins where rows are missing. Returns all of them.
    fn place(&mut self, rows: &Rows, others: u64, newest: Entry) -> impl Iterator<Item = Entry> {
        let stand_in = |at, cost| Entry { at, ticket: Ticket(0), cost };
        if let Some(aged) = rows.aged {
            self.places.push_back((Place::Before(aged.first_live), stand_in(aged.at, aged.sum)));
        }
        let last = rows.rows.keys().next_back().copied().unwrap_or_default();
        let prefix = rows.prefix.filter(|_| others > 0);
        let mut others = others;
        if let Some(prefix) = prefix {
            // The sum of the prefix includes the loaded rows up to its last one. The last one is also an entry
            // of its own.
            let known: u64 = rows.rows.range(..=prefix.last).map(|(_, entry)| entry.cost).sum();
            let own = rows.rows.get(&prefix.last).map_or(0, |entry| entry.cost);
            let rest: u64 = prefix.sum.saturating_sub(known);
            others = others.saturating_sub(rest);
            if prefix.sum > own {
                let at = prefix.at.min(newest.at);
                self.places.push_back((Place::Before(prefix.last), stand_in(at, prefix.sum - own)));
            }
        }
        let from = prefix.map_or(i64::MIN, |prefix| prefix.last);
        for (seq, entry) in rows.rows.range(from..) {
            if *seq == last && others > 0 {
                self.places.push_back((Place::Others, stand_in(newest.at, others)));
                // A ladder merges its oldest failures if it has too many, so the number of failures must be
                // right.
                let missing = rows.count.saturating_sub(rows.rows.len() as u64 + 1);
                let missing = if prefix.is_some() { 0 } else { missing };
                (0..missing).for_each(|_| self.places.push_back((Place::Others, stand_in(newest.at, 0))));
            }
            self.places.push_back((Place::Row(*seq), *entry));
        }
        self.places.iter().map(|(_, entry)| *entry)
    }

    fn read_slots(&mut self, rows: &Rows, others: u64) -> Result<State, Garbled> {
        let number = |seq: i64| u64::try_from(seq).map_err(|_| Garbled);
        let mut counts = Vec::with_capacity(rows.rows.len() + 2);
        if let Some(aged) = rows.aged {
            counts.push((STAND_IN, aged.sum));
        }
        let last = rows.rows.keys().next_back().copied().unwrap_or_default();
        for (seq, entry) in &rows.rows {
            if *seq == last && others > 0 {
                counts.push((STAND_IN, others));
            }
            counts.push((number(*seq)?, entry.cost));
        }
        Ok(State::Slots(Box::new(counts.into_iter().collect())))
    }

    /// Follows the settled state: entries aged out or were merged at the front, and the attempt may have added
    /// one.
    pub(super) fn settled(&mut self, state: &State, added: Option<i64>) {
        if self.kept == Kept::Slots {
            return;
        }
        let after = entries_of(state);
        let gone = (self.places.len() + usize::from(added.is_some())).saturating_sub(after.len());
        for _ in 0..gone {
            match self.places.pop_front() {
                Some((Place::Row(seq), _)) => self.born = seq + 1,
                Some((Place::Before(seq), _)) => self.born = seq,
                Some((Place::Others, _)) | None => {}
            }
        }
        if let (Some(seq), Some(entry)) = (added, after.last()) {
            self.places.push_back((Place::Row(seq), *entry));
        }
        for ((_, entry), now) in self.places.iter_mut().zip(after) {
            *entry = now;
        }
    }

    /// Follows the refunded state: entries were removed, at the front or elsewhere.
    pub(super) fn refunded(&mut self, state: &State) {
        if self.kept == Kept::Slots {
            return;
        }
        let mut after = entries_of(state);
        let mut left = VecDeque::with_capacity(after.len());
        while let Some((place, entry)) = self.places.pop_back() {
            match after.last() {
                Some(last) if last.ticket == entry.ticket && last.at == entry.at => {
                    left.push_front((place, *last));
                    after.pop();
                }
                _ => match place {
                    Place::Row(seq) => self.removed.push(seq),
                    Place::Before(seq) => self.born = self.born.max(seq),
                    Place::Others => {}
                },
            }
        }
        self.places = left;
    }

    /// The rows to write or delete if this is the new state. `next` is the number of the next entry.
    pub(super) fn edit(&self, state: &State, next: i64) -> ListEdit {
        if self.kept == Kept::Slots {
            return self.edit_slots(state);
        }
        let mut edit = ListEdit { removed: self.removed.clone(), born: next, ..ListEdit::default() };
        let mut used = None;
        for (index, (place, entry)) in self.places.iter().enumerate() {
            *used.get_or_insert(0) += entry.cost;
            match place {
                Place::Row(seq) => {
                    if index == 0 {
                        edit.born = *seq;
                    }
                    if self.known.get(seq) != Some(entry) {
                        edit.put.push(EntryRow { log: self.log, seq: *seq, entry: *entry });
                    }
                }
                Place::Before(_) | Place::Others if index == 0 => edit.born = self.born,
                Place::Before(_) | Place::Others => {}
            }
        }
        edit.used = used;
        edit
    }

    fn edit_slots(&self, state: &State) -> ListEdit {
        let mut edit = ListEdit { born: self.born, ..ListEdit::default() };
        let State::Slots(slots) = state else {
            edit.born = self.known.keys().next_back().map_or(self.born, |last| last + 1);
            return edit;
        };
        let mut kept = Vec::new();
        for (place, (index, count)) in slots.counts().enumerate() {
            *edit.used.get_or_insert(0) += count;
            if index == STAND_IN {
                continue;
            }
            let seq = crate::codec::column(index);
            kept.push(seq);
            if place == 0 {
                edit.born = seq;
            }
            let at = Timestamp::from_micros(index.saturating_mul(self.slot));
            let entry = Entry { at, ticket: Ticket(0), cost: count };
            if self.known.get(&seq) != Some(&entry) {
                edit.put.push(EntryRow { log: self.log, seq, entry });
            }
        }
        let gone = self.known.keys().filter(|seq| **seq >= edit.born && !kept.contains(seq));
        edit.removed = gone.copied().collect();
        edit
    }
}

/// The entries of a log, or the failures of a ladder as entries.
fn entries_of(state: &State) -> Vec<Entry> {
    match state {
        State::Log(log) => log.entries().collect(),
        State::Failures(failures) => {
            failures.iter().map(|it| Entry { at: it.at, ticket: it.ticket, cost: it.count }).collect()
        }
        State::Fresh
        | State::Tally(_)
        | State::Slots(_)
        | State::Level(_)
        | State::Holds(_)
        | State::Total(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Aged;

    fn entry(at: u64, cost: u64) -> Entry {
        Entry { at: Timestamp::from_micros(at), ticket: Ticket(at), cost }
    }

    /// A list with these rows and this amount used, and the state that the list makes.
    fn list(limit: &str, rows: &[(i64, Entry)], aged: Option<Aged>, used: u64) -> (List, State) {
        let rows = Rows { rows: rows.iter().copied().collect(), aged, ..Rows::default() };
        let mut list = List::new(&limit.parse().unwrap(), 0, 3);
        let state = list.read(&rows, used).unwrap();
        (list, state)
    }

    fn log(entries: impl IntoIterator<Item = Entry>) -> State {
        State::Log(Box::new(entries.into_iter().collect()))
    }

    #[test]
    fn the_first_entry_that_counts_is_behind_those_that_aged_out() {
        let (mut list, state) = list("100/min sliding", &[(5, entry(1, 1)), (9, entry(8, 1))], None, 10);
        let edit = list.edit(&state, 10);
        assert_eq!((edit.born, edit.used), (5, Some(10)), "nothing has aged out");
        let left = log(entries_of(&state).into_iter().skip(1));
        list.settled(&left, None);
        let edit = list.edit(&left, 10);
        assert_eq!((edit.born, edit.used), (6, Some(9)), "the next one was not read");
        assert!(edit.put.is_empty() && edit.removed.is_empty());
        list.settled(&State::Fresh, None);
        let edit = list.edit(&State::Fresh, 10);
        assert_eq!((edit.born, edit.used), (10, None), "only later ones count");
    }

    #[test]
    fn the_first_slot_that_counts_is_known_or_stays() {
        let limit = "100/min sliding by 1s";
        let rows = [(100, entry(100, 1)), (200, entry(200, 1))];
        let (known, state) = list(limit, &rows, None, 2);
        assert_eq!(known.edit(&state, 10).born, 100);
        assert_eq!(known.edit(&State::Fresh, 10).born, 201, "only later ones count");
        let aged = Aged { first_live: 100, at: Timestamp::from_micros(50), sum: 4 };
        let (summed, state) = list(limit, &rows, Some(aged), 6);
        assert_eq!((summed.edit(&state, 10).born, summed.edit(&state, 10).used), (3, Some(6)));
    }
}
