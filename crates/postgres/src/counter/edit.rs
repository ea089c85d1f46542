//! What has to be written of a counter: the difference to what was loaded.

use tollgate_core::Timestamp;
use tollgate_core::limit::{Hold, Idle, State};

use super::{Counter, LogRow, heading, log_of};
use crate::codec::{column, encode};
use crate::name::Name;

/// What has to be written of one counter.
#[derive(Debug, Default)]
pub(crate) struct CounterEdit {
    pub(crate) header: Option<HeaderRow>,
    pub(crate) added: Vec<LogRow>,
    /// Entries before this one no longer count.
    pub(crate) drop_below: Option<i64>,
    /// Entries after this moment were made by a clock that went back: they were made then.
    pub(crate) clamp: Option<Timestamp>,
    /// An entry that was given back, and what is left of it.
    pub(crate) given: Option<(i64, u64)>,
    pub(crate) put_holds: Vec<(String, Hold)>,
    pub(crate) end_holds: Vec<String>,
    pub(crate) end_all_holds: bool,
    pub(crate) forget: bool,
}

/// The row of a counter, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderRow {
    pub(crate) limits: String,
    pub(crate) states: Vec<u8>,
    pub(crate) born: Vec<i64>,
    pub(crate) used: Vec<i64>,
    pub(crate) numbers: [i64; 5],
    pub(crate) idle_at: Option<i64>,
}

impl Counter {
    /// What has to be written, if anything.
    pub(crate) fn edit(&self) -> Option<(&Name, CounterEdit)> {
        if self.forgotten {
            return Some((&self.name, CounterEdit { forget: true, ..CounterEdit::default() }));
        }
        let plan = self.plan.as_ref()?;
        let mut edit = CounterEdit { added: self.added.clone(), clamp: self.clamp, ..Default::default() };
        self.edit_holds(&mut edit);
        let mut row = HeaderRow {
            limits: heading(plan),
            states: encode(&self.states),
            born: Vec::new(),
            used: Vec::new(),
            numbers: [0; 5],
            idle_at: match plan.idle(&self.states) {
                Idle::At(at) => Some(column(at.as_micros())),
                Idle::Never => None,
            },
        };
        for (track, state) in self.tracks.iter().zip(&self.states) {
            let Some(track) = track else { continue };
            let used = log_of(state).map_or(0, |log| log.entries().map(|entry| entry.cost).sum());
            row.born.push(track.first(self.seq));
            row.used.push(column(used));
        }
        let (weight, oldest, newest) = self.hold_bounds();
        let [oldest, newest] = [oldest, newest].map(|at| column(at.as_micros()));
        row.numbers = [self.seq, self.count_holds(&edit), column(weight), oldest, newest];
        edit.given = self.loaded.own.zip(self.own_left).map(|(own, left)| (own.seq, left));
        edit.given = edit.given.filter(|(_, left)| self.loaded.own.is_none_or(|own| own.entry.cost != *left));
        let first = row.born.iter().min().copied().unwrap_or(self.seq);
        match &self.loaded.header {
            None if self.states.iter().all(|state| *state == State::Fresh) => return None,
            None => edit.header = Some(row),
            Some(header) => {
                let before = header.born.iter().min().copied().unwrap_or(header.seq);
                edit.drop_below = (first > before && header.last_at.is_some()).then_some(first);
                let numbers = [header.seq, header.holds, header.held, header.oldest, header.newest];
                let same = row.limits == header.limits
                    && row.states == header.states
                    && row.born == header.born
                    && row.used == header.used
                    && row.numbers == numbers;
                edit.header = (!same).then_some(row);
            }
        }
        let changes = edit.header.is_some() || edit.clamp.is_some() || edit.given.is_some();
        (changes || !edit.put_holds.is_empty()).then_some((&self.name, edit))
    }

    fn edit_holds(&self, edit: &mut CounterEdit) {
        let (before, after) = (&self.loaded.holds, self.held());
        let changed = after.iter().filter(|(id, hold)| before.get(**id) != Some(*hold));
        edit.put_holds = changed.map(|(id, hold)| ((*id).to_owned(), *hold)).collect();
        let kept_rows = self.loaded.header.as_ref().is_some_and(|header| header.holds > 0);
        // Then the limit that counts holds is gone, or all of them ended.
        edit.end_all_holds = kept_rows && after.is_empty() && !self.has_stand_ins();
        if !edit.end_all_holds {
            let ended = before.keys().filter(|id| !after.contains_key(id.as_str()));
            edit.end_holds = ended.cloned().collect();
        }
    }

    fn has_stand_ins(&self) -> bool {
        let holds = self.states.iter().find_map(State::holds);
        holds.is_some_and(|holds| holds.iter().any(|(id, _)| super::holds::is_stand_in(id)))
    }

    fn count_holds(&self, edit: &CounterEdit) -> i64 {
        let known = self.loaded.header.as_ref().map_or(0, |header| header.holds);
        if edit.end_all_holds || self.loaded.all_holds || known == 0 {
            return self.held().len() as i64;
        }
        let new = edit.put_holds.iter().filter(|(id, _)| !self.loaded.holds.contains_key(id)).count();
        known + new as i64 - edit.end_holds.len() as i64
    }
}

impl super::Track {
    /// The first row that counts.
    fn first(&self, next: i64) -> i64 {
        match self.places.front() {
            Some(super::Place::Row(seq)) => *seq,
            Some(super::Place::Rest) => self.born,
            None => next,
        }
    }
}
