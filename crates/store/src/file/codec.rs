//! Encodes a key's states for the file: the number of its plan and one state for each limit, with numbers of
//! variable length.
//!
//! Decoding trusts nothing. An impossible state of the plan's limits is an error, and never causes a panic,
//! now or later.

use tollgate_core::limit::{Entry, Failure, Hold, Holds, Level, Limit, Slots, State, Tally};
use tollgate_core::{MAX_EXACT, Plan, Ticket, Timestamp};

/// The bytes are not a valid row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// Later than any time at which a bucket could be full, and far from an overflow.
const MAX_MOMENT: u64 = 1 << 60;

const FRESH: u8 = 0;
const TALLY: u8 = 1;
const LOG: u8 = 2;
const SLOTS: u8 = 3;
const LEVEL: u8 = 4;
const HOLDS: u8 = 5;
const TOTAL: u8 = 6;
const FAILURES: u8 = 7;

/// Appends a row.
pub(super) fn encode(plan: u32, states: &[State], out: &mut Vec<u8>) {
    put(u64::from(plan), out);
    states.iter().for_each(|state| put_state(state, out));
}

/// The number of a row's plan.
pub(super) fn plan_of(row: &[u8]) -> Result<u32, Garbled> {
    let mut cursor = Cursor(row);
    u32::try_from(cursor.number()?).map_err(|_| Garbled)
}

/// The states in a row, one for each limit of its plan.
pub(super) fn decode(row: &[u8], plan: &Plan, states: &mut Vec<State>) -> Result<(), Garbled> {
    let mut cursor = Cursor(row);
    cursor.number()?;
    states.clear();
    for limit in plan.limits() {
        states.push(cursor.state(limit)?);
    }
    if cursor.0.is_empty() { Ok(()) } else { Err(Garbled) }
}

fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_state(state: &State, out: &mut Vec<u8>) {
    match state {
        State::Fresh => out.push(FRESH),
        State::Tally(tally) => {
            out.push(TALLY);
            put(tally.edge.as_micros(), out);
            put(tally.count, out);
        }
        State::Log(log) => {
            out.push(LOG);
            put_log(log.entries().map(|entry| (entry.at, entry.ticket, entry.cost)), out);
        }
        State::Failures(failures) => {
            out.push(FAILURES);
            put_log(failures.iter().map(|failure| (failure.at, failure.ticket, failure.count)), out);
        }
        State::Slots(slots) => {
            out.push(SLOTS);
            put(slots.counts().len() as u64, out);
            let mut last = 0_u64;
            for (index, count) in slots.counts() {
                put(index.wrapping_sub(last), out);
                put(count, out);
                last = index;
            }
        }
        State::Level(level) => {
            out.push(LEVEL);
            put(level.full_at.as_micros(), out);
            put(level.rest, out);
        }
        State::Holds(holds) => {
            out.push(HOLDS);
            put(holds.iter().len() as u64, out);
            for (id, hold) in holds.iter() {
                put(id.len() as u64, out);
                out.extend_from_slice(id.as_bytes());
                put(hold.ticket.0, out);
                put(hold.weight, out);
                put(hold.since.as_micros(), out);
                put(hold.renewed.as_micros(), out);
            }
        }
        State::Total(total) => {
            out.push(TOTAL);
            put(*total, out);
        }
    }
}

fn put_log(log: impl ExactSizeIterator<Item = (Timestamp, Ticket, u64)>, out: &mut Vec<u8>) {
    put(log.len() as u64, out);
    let mut last = 0;
    for (at, ticket, count) in log {
        // Entries are in order, so differences are small. Wrapping keeps any others correct too.
        put(at.as_micros().wrapping_sub(last), out);
        put(ticket.0, out);
        put(count, out);
        last = at.as_micros();
    }
}

/// The unread bytes.
struct Cursor<'r>(&'r [u8]);

impl<'r> Cursor<'r> {
    fn bytes(&mut self, count: usize) -> Result<&'r [u8], Garbled> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Garbled)?;
        self.0 = rest;
        Ok(bytes)
    }

    #[inline]
    fn number(&mut self) -> Result<u64, Garbled> {
        let mut number = 0_u64;
        for (index, byte) in self.0.iter().take(10).enumerate() {
            let part = u64::from(byte & 0x7f);
            if index == 9 && part > 1 {
                return Err(Garbled);
            }
            number |= part << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok(number);
            }
        }
        Err(Garbled)
    }

    /// A number within the exact range of limits.
    fn exact(&mut self) -> Result<u64, Garbled> {
        self.number().and_then(exact)
    }

    fn moment(&mut self) -> Result<Timestamp, Garbled> {
        self.number().and_then(moment)
    }

    /// The number of following entries, of at least `least_bytes` bytes each.
    fn count(&mut self, least_bytes: usize) -> Result<usize, Garbled> {
        let count = usize::try_from(self.number()?).map_err(|_| Garbled)?;
        if count <= self.0.len() / least_bytes { Ok(count) } else { Err(Garbled) }
    }

    fn state(&mut self, limit: &Limit) -> Result<State, Garbled> {
        let kind = self.bytes(1)?[0];
        let expect = |tag: u8| if kind == tag { Ok(()) } else { Err(Garbled) };
        if kind == FRESH {
            return Ok(State::Fresh);
        }
        Ok(match limit {
            Limit::Window(_) | Limit::Calendar(_) => {
                expect(TALLY)?;
                State::Tally(Tally { edge: self.moment()?, count: self.exact()? })
            }
            Limit::Sliding(_) => {
                expect(LOG)?;
                let entry = |(at, ticket, cost)| Entry { at, ticket, cost };
                State::Log(Box::new(self.log()?.into_iter().map(entry).collect()))
            }
            Limit::Ladder(_) => {
                expect(FAILURES)?;
                let failure = |(at, ticket, count)| Failure { at, ticket, count };
                State::Failures(Box::new(self.log()?.into_iter().map(failure).collect()))
            }
            Limit::InFlight(_) => {
                expect(HOLDS)?;
                State::Holds(Box::new(self.holds()?))
            }
            Limit::Slotted(limit) => {
                expect(SLOTS)?;
                State::Slots(Box::new(self.slots(MAX_MOMENT / limit.slot().as_micros())?))
            }
            Limit::Bucket(_) => {
                expect(LEVEL)?;
                State::Level(Level { full_at: self.moment()?, rest: self.exact()? })
            }
            Limit::Total(_) => {
                expect(TOTAL)?;
                State::Total(self.exact()?)
            }
            Limit::PerAttempt(_) => return Err(Garbled),
        })
    }

    fn log(&mut self) -> Result<Vec<(Timestamp, Ticket, u64)>, Garbled> {
        let count = self.count(3)?;
        let (mut last, mut used) = (0_u64, 0);
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            last = last.wrapping_add(self.number()?);
            let ticket = Ticket(self.number()?);
            let cost = self.exact()?;
            used = exact(used + cost)?;
            entries.push((moment(last)?, ticket, cost));
        }
        Ok(entries)
    }

    fn slots(&mut self, last_index: u64) -> Result<Slots, Garbled> {
        let count = self.count(2)?;
        let (mut last, mut used) = (0_u64, 0);
        let mut counts = Vec::with_capacity(count);
        for _ in 0..count {
            last = last.wrapping_add(self.number()?);
            let count = self.exact()?;
            used = exact(used + count)?;
            if last > last_index {
                return Err(Garbled);
            }
            counts.push((last, count));
        }
        Ok(counts.into_iter().collect())
    }

    fn holds(&mut self) -> Result<Holds, Garbled> {
        let count = self.count(5)?;
        let mut used = 0;
        let mut holds = Vec::with_capacity(count);
        for _ in 0..count {
            let length = self.count(1)?;
            let id = std::str::from_utf8(self.bytes(length)?).map_err(|_| Garbled)?;
            let ticket = Ticket(self.number()?);
            let weight = self.exact()?;
            used = exact(used + weight)?;
            let (since, renewed) = (self.moment()?, self.moment()?);
            holds.push((Box::from(id), Hold { ticket, weight, since, renewed }));
        }
        Ok(holds.into_iter().collect())
    }
}

fn moment(micros: u64) -> Result<Timestamp, Garbled> {
    if micros <= MAX_MOMENT { Ok(Timestamp::from_micros(micros)) } else { Err(Garbled) }
}

fn exact(number: u64) -> Result<u64, Garbled> {
    if number <= MAX_EXACT { Ok(number) } else { Err(Garbled) }
}

#[cfg(test)]
mod tests;
