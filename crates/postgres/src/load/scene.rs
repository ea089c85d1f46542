//! Reads the loaded rows. A damaged row makes its own counter unreadable, and no other.

use std::collections::{BTreeSet, HashMap, HashSet};

use data_encoding::HEXLOWER;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use tollgate_core::limit::{Entry, Hold};
use tollgate_core::{StoreError, Timestamp};

use super::Wants;
use crate::codec::{Garbled, moment_of, natural, ticket_of};
use crate::counter::{Aged, Header, Loaded, Prefix, Rows};
use crate::fault::damaged;
use crate::name::{CounterId, unescape};

/// The rows that a transaction has loaded.
pub(crate) struct Scene {
    pub(crate) now: Timestamp,
    pub(crate) counters: HashMap<CounterId, Loaded>,
    /// The locks that other nodes hold.
    pub(crate) taken: HashSet<i64>,
    /// The counters whose rows cannot be read.
    pub(crate) damaged: HashSet<CounterId>,
    /// The counters at which the ticket was already refunded.
    pub(crate) spent: BTreeSet<CounterId>,
    /// The time at which each rule was reset.
    pub(crate) forgotten: HashMap<String, Timestamp>,
}

/// The content of a statement's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    Entries,
    Holds,
    HoldBounds,
    Spent,
    Forgotten,
}

/// The parts of a row about entries. The SQL functions use the same numbers.
const ENTRY: i64 = 0;
const COUNT: i64 = 1;
const AGED: i64 = 2;
const PREFIX: i64 = 3;

impl Scene {
    /// Reads the lines that the server sends once it has the locks: first its time and the locks that other
    /// nodes hold, then the counters.
    ///
    /// # Errors
    ///
    /// If the first line is not what the server writes.
    pub(super) fn read_counters(lines: &[String], wants: &Wants) -> Result<Self, StoreError> {
        let first = lines.first().and_then(|line| line.split_once(' '));
        let parse = |(now, taken): (&str, &str)| {
            let now = moment_of(now.parse().map_err(|_| Garbled)?)?;
            Ok::<_, Garbled>((now, numbers_in(taken)?.into_iter().flatten().collect()))
        };
        let (now, taken) = first.ok_or(Garbled).and_then(parse).map_err(|_| damaged("the server's time"))?;
        let mut scene = Self {
            now,
            taken,
            counters: HashMap::new(),
            damaged: HashSet::new(),
            spent: BTreeSet::new(),
            forgotten: HashMap::new(),
        };
        for line in &lines[1..] {
            let Some((id, rest)) = line.split_once(' ') else { continue };
            let mut bytes = CounterId::default();
            if id.len() == 2 * bytes.len()
                && HEXLOWER.decode_mut(id.as_bytes(), &mut bytes).is_ok()
                && scene.read_header(bytes, rest, wants).is_err()
            {
                scene.damaged.insert(bytes);
            }
        }
        Ok(scene)
    }

    /// Reads the rows of a statement.
    ///
    /// # Errors
    ///
    /// If a row is damaged that belongs to no counter.
    pub(super) fn read(&mut self, kind: RowKind, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            match kind {
                RowKind::Entries => self.read_counter_row(row, 0, Self::read_entry),
                RowKind::Holds => self.read_counter_row(row, 0, Self::read_hold),
                RowKind::HoldBounds => self.read_counter_row(row, 0, Self::read_bounds),
                RowKind::Spent => {
                    self.spent.extend(id_of(row, 0));
                }
                RowKind::Forgotten => {
                    let note = |row| Ok::<_, Garbled>((cell(row, 0)?, moment_of(cell(row, 1)?)?));
                    let (rule, at) = note(row).map_err(|_| damaged("a row of the table forgotten"))?;
                    self.forgotten.insert(rule, at);
                }
            }
        }
        Ok(())
    }

    /// Reads a row of a counter, and marks the counter as damaged if that fails.
    fn read_counter_row(
        &mut self,
        row: &Row,
        column: usize,
        read: impl FnOnce(&mut Self, CounterId, &Row) -> Result<(), Garbled>,
    ) {
        if let Some(id) = id_of(row, column)
            && read(self, id, row).is_err()
        {
            self.damaged.insert(id);
        }
    }

    fn read_header(&mut self, id: CounterId, line: &str, wants: &Wants) -> Result<(), Garbled> {
        let mut cells = line.splitn(8, ' ');
        let mut next = || cells.next().ok_or(Garbled);
        let (used, marks, logs) = (numbers_in(next()?)?, numbers_in(next()?)?, numbers_in(next()?)?);
        let mut number = || next()?.parse().map_err(|_| Garbled);
        let [seq, holds, oldest, newest] = [number()?, number()?, number()?, number()?];
        let marks = marks.into_iter().collect::<Option<_>>().ok_or(Garbled)?;
        let header = Header { limits: next()?.to_owned(), used, marks, logs, seq, holds, oldest, newest };
        let want = wants.counters.get(&id).ok_or(Garbled)?;
        let plan = want.plan_written(&header.limits)?;
        let count = plan.limits().len();
        if [header.used.len(), header.marks.len(), header.logs.len()] != [count; 3] || header.seq < 0 {
            return Err(Garbled);
        }
        natural(header.holds)?;
        moment_of(header.oldest)?;
        moment_of(header.newest)?;
        let lists = vec![Rows::default(); count];
        let loaded = Loaded { header: Some(header), plan: Some(plan), lists, ..Loaded::default() };
        self.counters.insert(id, loaded);
        Ok(())
    }

    fn read_entry(&mut self, id: CounterId, row: &Row) -> Result<(), Garbled> {
        let Some(loaded) = self.counters.get_mut(&id) else { return Ok(()) };
        let place = usize::try_from(cell::<i64>(row, 1)? - 1).map_err(|_| Garbled)?;
        let list = loaded.lists.get_mut(place).ok_or(Garbled)?;
        let seq: i64 = cell(row, 3)?;
        let (at, cost) = (moment_of(cell(row, 4)?)?, natural(cell(row, 6)?)?);
        match cell::<i64>(row, 2)? {
            ENTRY => {
                let entry = Entry { at, ticket: ticket_of(cell(row, 5)?), cost };
                list.rows.insert(seq, entry);
            }
            COUNT => list.count = natural(seq)?,
            AGED => {
                // The sum includes entries that were loaded before.
                list.rows.retain(|number, _| *number >= seq);
                list.aged = Some(Aged { first_live: seq, at, sum: cost });
            }
            PREFIX => list.prefix = Some(Prefix { last: seq, at, sum: cost }),
            _ => return Err(Garbled),
        }
        Ok(())
    }

    fn read_hold(&mut self, id: CounterId, row: &Row) -> Result<(), Garbled> {
        let Some(loaded) = self.counters.get_mut(&id) else { return Ok(()) };
        let hold = Hold {
            ticket: ticket_of(cell(row, 2)?),
            weight: natural(cell(row, 3)?)?,
            since: moment_of(cell(row, 4)?)?,
            renewed: moment_of(cell(row, 5)?)?,
        };
        loaded.holds.insert(unescape(cell(row, 1)?).ok_or(Garbled)?, hold);
        Ok(())
    }

    fn read_bounds(&mut self, id: CounterId, row: &Row) -> Result<(), Garbled> {
        let Some(loaded) = self.counters.get_mut(&id) else { return Ok(()) };
        let bounds = &mut loaded.hold_bounds;
        bounds.expired = cell(row, 1)?;
        bounds.expired_weight = natural(cell(row, 2)?)?;
        bounds.newest = cell::<Option<i64>>(row, 3)?.map(moment_of).transpose()?;
        bounds.cutoff = Some(cell(row, 4)?);
        Ok(())
    }
}

fn cell<'r, T: FromSql<'r>>(row: &'r Row, index: usize) -> Result<T, Garbled> {
    row.try_get(index).map_err(|_| Garbled)
}

/// Parses an array of numbers in the server's text form.
fn numbers_in(text: &str) -> Result<Vec<Option<i64>>, Garbled> {
    let inside = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or(Garbled)?;
    let number = |text: &str| match text {
        "NULL" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| Garbled),
    };
    inside.split(',').filter(|_| !inside.is_empty()).map(number).collect()
}

fn id_of(row: &Row, index: usize) -> Option<CounterId> {
    row.try_get::<_, Option<&[u8]>>(index).ok()??.try_into().ok()
}
