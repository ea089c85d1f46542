//! Converts states to numbers in columns and back. Reading trusts nothing: numbers that cannot be the state of a
//! limit are an error.

use tollgate_core::limit::{Level, Limit, State, Tally};
use tollgate_core::{MAX_EXACT, Ticket, Timestamp};

/// A row does not contain what this program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// The columns or table that hold the state of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// In two numbers of its counter's row.
    Numbers,
    /// In entries that all sliding limits of the counter share.
    Log,
    /// In one entry for each slot.
    Slots,
    /// In one entry for each failure.
    Failures,
    /// In one row for each hold.
    Holds,
}

/// Far beyond every moment at which a bucket could be full, and far from where sums overflow.
const MAX_MOMENT: u64 = 1 << 60;

impl Kept {
    pub(crate) fn of(limit: &Limit) -> Self {
        match limit {
            Limit::Window(_)
            | Limit::Calendar(_)
            | Limit::Bucket(_)
            | Limit::Total(_)
            | Limit::PerAttempt(_) => Self::Numbers,
            Limit::Sliding(_) => Self::Log,
            Limit::Slotted(_) => Self::Slots,
            Limit::Ladder(_) => Self::Failures,
            Limit::InFlight(_) => Self::Holds,
        }
    }

    /// Whether the state is stored as rows of the entry table.
    pub(crate) fn is_listed(self) -> bool {
        matches!(self, Self::Log | Self::Slots | Self::Failures)
    }
}

/// Converts the two numbers of a column pair to a state. The state is fresh if nothing is used.
pub(crate) fn read_numbers(limit: &Limit, used: Option<i64>, mark: i64) -> Result<State, Garbled> {
    let Some(used) = used else { return Ok(State::Fresh) };
    match limit {
        Limit::Window(_) | Limit::Calendar(_) => {
            Ok(State::Tally(Tally { edge: moment_of(mark)?, count: natural(used)? }))
        }
        Limit::Bucket(_) => Ok(State::Level(Level { full_at: moment_of(mark)?, rest: natural(used)? })),
        Limit::Total(_) => Ok(State::Total(natural(used)?)),
        Limit::PerAttempt(_)
        | Limit::Sliding(_)
        | Limit::Slotted(_)
        | Limit::Ladder(_)
        | Limit::InFlight(_) => Err(Garbled),
    }
}

/// Converts a state to its two numbers.
pub(crate) fn numbers(state: &State) -> (Option<i64>, i64) {
    let pair = |used, mark: Timestamp| (Some(column(used)), column(mark.as_micros()));
    match state {
        State::Tally(tally) => pair(tally.count, tally.edge),
        State::Level(level) => pair(level.rest, level.full_at),
        State::Total(total) => pair(*total, Timestamp::ZERO),
        State::Fresh | State::Log(_) | State::Slots(_) | State::Holds(_) | State::Failures(_) => (None, 0),
    }
}

/// Reads a number from a column. Columns are signed; a negative number is an error.
pub(crate) fn natural(number: i64) -> Result<u64, Garbled> {
    let number = u64::try_from(number).map_err(|_| Garbled)?;
    if number <= MAX_EXACT { Ok(number) } else { Err(Garbled) }
}

pub(crate) fn moment_of(number: i64) -> Result<Timestamp, Garbled> {
    let micros = u64::try_from(number).map_err(|_| Garbled)?;
    if micros <= MAX_MOMENT { Ok(Timestamp::from_micros(micros)) } else { Err(Garbled) }
}

/// Reads a ticket from a column. Tickets are unsigned, columns signed: the bits stay the same.
pub(crate) fn ticket_of(number: i64) -> Ticket {
    Ticket(number.cast_unsigned())
}

/// Converts a number for a column. Every number of a state is below 2^60.
pub(crate) fn column(number: u64) -> i64 {
    number.cast_signed()
}
