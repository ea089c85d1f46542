//! How the small states of a counter are written: one after the other, in the order of its limits, in as
//! few bytes as their numbers need. Logs and holds are rows of their own, and only marked here.
//!
//! Reading trusts nothing: bytes that are no possible states of the limits are an error.

use tollgate_core::limit::{Failure, Failures, Level, Limit, Slots, State, Tally};
use tollgate_core::{MAX_EXACT, Plan, Ticket, Timestamp};

/// These bytes are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// What is written of one limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Small {
    State(State),
    /// Its rows tell.
    Rows,
}

/// Far beyond every moment at which a bucket could be full, and far from where sums overflow.
const MAX_MOMENT: u64 = 1 << 60;

const FRESH: u8 = 0;
const TALLY: u8 = 1;
const ROWS: u8 = 2;
const SLOTS: u8 = 3;
const LEVEL: u8 = 4;
const TOTAL: u8 = 6;
const FAILURES: u8 = 7;

/// The states of a counter.
pub(crate) fn encode(states: &[State]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    states.iter().for_each(|state| put_state(state, &mut out));
    out
}

/// What is written of each limit of a plan.
pub(crate) fn decode(bytes: &[u8], plan: &Plan) -> Result<Vec<Small>, Garbled> {
    let mut cursor = Cursor(bytes);
    let states = plan.limits().iter().map(|limit| cursor.state(limit)).collect::<Result<_, _>>()?;
    if cursor.0.is_empty() { Ok(states) } else { Err(Garbled) }
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
        State::Log(_) | State::Holds(_) => out.push(ROWS),
        State::Tally(tally) => {
            out.push(TALLY);
            put(tally.edge.as_micros(), out);
            put(tally.count, out);
        }
        State::Failures(failures) => {
            out.push(FAILURES);
            put(failures.iter().len() as u64, out);
            let mut last = 0;
            for failure in failures.iter() {
                // They are in order, so steps are short; wrapping keeps any others right too.
                put(failure.at.as_micros().wrapping_sub(last), out);
                put(failure.ticket.0, out);
                put(failure.count, out);
                last = failure.at.as_micros();
            }
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
        State::Total(total) => {
            out.push(TOTAL);
            put(*total, out);
        }
    }
}

/// What is left to read.
struct Cursor<'r>(&'r [u8]);

impl Cursor<'_> {
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

    /// A number that limits can reckon with.
    fn exact(&mut self) -> Result<u64, Garbled> {
        self.number().and_then(exact)
    }

    fn moment(&mut self) -> Result<Timestamp, Garbled> {
        self.number().and_then(moment)
    }

    /// How many entries follow, of at least so many bytes each.
    fn count(&mut self, least_bytes: usize) -> Result<usize, Garbled> {
        let count = usize::try_from(self.number()?).map_err(|_| Garbled)?;
        if count <= self.0.len() / least_bytes { Ok(count) } else { Err(Garbled) }
    }

    fn state(&mut self, limit: &Limit) -> Result<Small, Garbled> {
        let (kind, rest) = self.0.split_first().ok_or(Garbled)?;
        self.0 = rest;
        let expect = |tag: u8| if *kind == tag { Ok(()) } else { Err(Garbled) };
        if *kind == FRESH {
            return Ok(Small::State(State::Fresh));
        }
        Ok(Small::State(match limit {
            Limit::Sliding(_) | Limit::InFlight(_) => {
                expect(ROWS)?;
                return Ok(Small::Rows);
            }
            Limit::Window(_) | Limit::Calendar(_) => {
                expect(TALLY)?;
                State::Tally(Tally { edge: self.moment()?, count: self.exact()? })
            }
            Limit::Ladder(_) => {
                expect(FAILURES)?;
                State::Failures(Box::new(self.failures()?))
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
        }))
    }

    fn failures(&mut self) -> Result<Failures, Garbled> {
        let count = self.count(3)?;
        let (mut last, mut used) = (0_u64, 0);
        let mut failures = Vec::with_capacity(count);
        for _ in 0..count {
            last = last.wrapping_add(self.number()?);
            let ticket = Ticket(self.number()?);
            let count = self.exact()?;
            used = exact(used + count)?;
            failures.push(Failure { at: moment(last)?, ticket, count });
        }
        Ok(failures.into_iter().collect())
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
}

/// A moment that limits can reckon with.
pub(crate) fn moment(micros: u64) -> Result<Timestamp, Garbled> {
    if micros <= MAX_MOMENT { Ok(Timestamp::from_micros(micros)) } else { Err(Garbled) }
}

/// A number that limits can reckon with.
pub(crate) fn exact(number: u64) -> Result<u64, Garbled> {
    if number <= MAX_EXACT { Ok(number) } else { Err(Garbled) }
}

/// A number from a column, which has a sign.
pub(crate) fn natural(number: i64) -> Result<u64, Garbled> {
    u64::try_from(number).map_err(|_| Garbled).and_then(exact)
}

/// A moment from a column.
pub(crate) fn moment_of(number: i64) -> Result<Timestamp, Garbled> {
    u64::try_from(number).map_err(|_| Garbled).and_then(moment)
}

/// A ticket from a column, which has a sign.
pub(crate) fn ticket_of(number: i64) -> Ticket {
    Ticket(number.cast_unsigned())
}

/// A number for a column. Every number of a state is below 2^60.
pub(crate) fn column(number: u64) -> i64 {
    number.cast_signed()
}
