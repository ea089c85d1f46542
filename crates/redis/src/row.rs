//! The numbers of a counter: how they are stored, read, and converted to other limits.
//!
//! A counter is stored as the text of its limits, a line break, and the numbers of each limit in turn.

use smallvec::SmallVec;
use tollgate_core::limit::{Draft, Entry, Failure, Hold, Level, Tally};
use tollgate_core::{Limit, MAX_EXACT, Plan, Reading, State, Ticket, Timestamp, When};

/// The numbers of one counter.
pub(crate) type Row = SmallVec<[u64; 8]>;

/// A counter that was stored under other limits, converted to the current ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Adoption {
    /// The new value to store.
    pub(crate) kept: Vec<u8>,
    /// The former lease of its holds, in microseconds; 0 if none.
    pub(crate) lease: u64,
    /// The former limits.
    pub(crate) old: Plan,
}

/// The number of numbers that a limit stores.
pub(crate) fn width(limit: &Limit) -> usize {
    match limit {
        Limit::Window(_) | Limit::Calendar(_) | Limit::Bucket(_) | Limit::Ladder(_) => 2,
        Limit::Total { .. } => 1,
        Limit::PerAttempt { .. } => 0,
        Limit::Sliding(_) | Limit::InFlight(_) => 3,
        Limit::Slotted(_) => 4,
    }
}

/// Whether a script also returns the wait of a limit, because its numbers do not tell it.
pub(crate) fn has_reported_wait(limit: &Limit) -> bool {
    match limit {
        Limit::Sliding(_) | Limit::Slotted(_) | Limit::InFlight(_) => true,
        Limit::Window(_)
        | Limit::Calendar(_)
        | Limit::Bucket(_)
        | Limit::Ladder(_)
        | Limit::Total(_)
        | Limit::PerAttempt(_) => false,
    }
}

/// The text before the numbers.
pub(crate) fn heading(plan: &Plan) -> String {
    let mut heading = String::with_capacity(48);
    for (index, (_, text)) in plan.written().enumerate() {
        if index > 0 {
            heading.push_str(", ");
        }
        heading.push_str(text);
    }
    heading.push('\n');
    heading
}

/// The numbers in a script's reply, for a counter with these limits; all 0 if there is none. `None` if they
/// are damaged.
pub(crate) fn read(plan: &Plan, numbers: &[u8]) -> Option<Row> {
    let wanted: usize = plan.limits().iter().map(width).sum();
    if numbers.is_empty() {
        return Some(smallvec::smallvec![0; wanted]);
    }
    let numbers: Option<Row> = numbers
        .chunks(8)
        .map(|chunk| {
            let number = u64::from_le_bytes(chunk.try_into().ok()?);
            (number <= MAX_EXACT).then_some(number)
        })
        .collect();
    numbers.filter(|numbers| numbers.len() == wanted && plausible(plan, numbers))
}

/// Whether the times of slots are valid numbers.
fn plausible(plan: &Plan, numbers: &[u64]) -> bool {
    let mut start = 0;
    plan.limits().iter().all(|limit| {
        let own = &numbers[start..start + width(limit)];
        start += own.len();
        match limit {
            Limit::Slotted(limit) => {
                own[1..3].iter().all(|slot| *slot <= MAX_EXACT / limit.slot().as_micros())
            }
            Limit::Window(_)
            | Limit::Calendar(_)
            | Limit::Sliding(_)
            | Limit::Bucket(_)
            | Limit::InFlight(_)
            | Limit::Ladder(_)
            | Limit::Total(_)
            | Limit::PerAttempt(_) => true,
        }
    })
}

/// Converts a counter that was stored under other limits of the same rule, as the core does.
pub(crate) fn adopt(plan: &Plan, kept: &[u8], now: Timestamp) -> Option<Adoption> {
    let end = kept.iter().position(|byte| *byte == b'\n')?;
    let limits = std::str::from_utf8(&kept[..end]).ok()?;
    let limits: Result<Vec<Limit>, _> = limits.split(", ").map(str::parse).collect();
    let old = Plan::new(plan.rule().clone(), limits.ok()?).ok()?;
    let numbers = &kept[end + 1..];
    let row = read(&old, numbers).filter(|row| row.is_empty() == numbers.is_empty())?;
    let mut lease = 0;
    let mut out = heading(plan).into_bytes();
    for limit in plan.limits() {
        let mut numbers = vec![0; width(limit)];
        let mut start = 0;
        for other in old.limits() {
            let range = start..start + width(other);
            start = range.end;
            if other.identity() != limit.identity() {
                continue;
            }
            numbers.copy_from_slice(&row[range]);
            match limit.adopt(other, state(other, &numbers), now) {
                State::Tally(tally) => numbers = vec![tally.edge.as_micros(), tally.count],
                State::Level(level) => numbers = vec![level.full_at.as_micros(), level.rest],
                State::Total(total) => numbers = vec![total],
                // Nothing is counted, or the numbers are the sum of other keys' entries, which the script
                // converts.
                State::Fresh | State::Log(_) | State::Slots(_) | State::Holds(_) | State::Failures(_) => {}
            }
            // A limit that is equal keeps its state.
            if let Some(leased) = other.in_flight()
                && other != limit
            {
                lease = leased.lease().map_or(0, |lease| lease.as_micros());
            }
        }
        numbers.into_iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }
    Some(Adoption { kept: out, lease, old })
}

/// The reading of a limit from its numbers. For logs and holds the script also returns the wait.
pub(crate) fn reading(
    limit: &Limit,
    numbers: &[u64],
    reported: Option<When>,
    taken: bool,
    draft: &Draft<'_>,
) -> Reading {
    let mut state = state(limit, numbers);
    if reported.is_none() {
        limit.freshen(&mut state, draft);
    }
    let when = if taken { When::Now } else { reported.unwrap_or_else(|| limit.when(&state, draft)) };
    limit.read(&state, when, draft)
}

/// A state with the same reading as the numbers: a log, slots, holds or failures are summed up in one entry.
fn state(limit: &Limit, numbers: &[u64]) -> State {
    let moment = |index: usize| Timestamp::from_micros(numbers[index]);
    if numbers.first().is_none_or(|first| *first == 0) {
        return State::Fresh;
    }
    match limit {
        Limit::PerAttempt(_) => State::Fresh,
        Limit::Window(_) | Limit::Calendar(_) => State::Tally(Tally { edge: moment(0), count: numbers[1] }),
        Limit::Bucket(_) => level(numbers[0], numbers[1]),
        Limit::Total { .. } => State::Total(numbers[0]),
        Limit::Sliding(_) => {
            let entry = Entry { at: moment(2), ticket: Ticket(0), cost: numbers[0] };
            State::Log(Box::new([entry].into_iter().collect()))
        }
        Limit::Ladder(_) => {
            let failure = Failure { at: moment(1), ticket: Ticket(0), count: numbers[0] };
            State::Failures(Box::new([failure].into_iter().collect()))
        }
        Limit::Slotted(_) => State::Slots(Box::new([(numbers[2], numbers[0])].into_iter().collect())),
        Limit::InFlight(_) => {
            let hold = Hold { ticket: Ticket(0), weight: numbers[0], since: moment(2), renewed: moment(2) };
            State::Holds(Box::new([("".into(), hold)].into_iter().collect()))
        }
    }
}

fn level(full_at: u64, rest: u64) -> State {
    State::Level(Level { full_at: Timestamp::from_micros(full_at), rest })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests;
