//! Packs states into slots: twelve bytes for each limit, if they suffice.

use tollgate_core::limit::{Level, Limit, State, Tally};
use tollgate_core::{Plan, Timestamp};

use super::shard::StateRow;

/// How many states of a plan are inline in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// One, in a narrow slot.
    One,
    /// Two, in a wide slot.
    Two,
    /// None: a narrow slot points to them.
    Deep,
}

impl Fit {
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut inline = 0;
        for limit in plan.limits() {
            match room(limit) {
                Room::None => {}
                Room::Inline => inline += 1,
                Room::Deep => return Self::Deep,
            }
        }
        match inline {
            0 | 1 => Self::One,
            2 => Self::Two,
            _ => Self::Deep,
        }
    }
}

/// Where the states of a limit are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It has no state.
    None,
    /// Every state fits into a word and a half.
    Inline,
    /// Beside the table.
    Deep,
}

#[inline]
fn room(limit: &Limit) -> Room {
    let inline = |fits: bool| if fits { Room::Inline } else { Room::Deep };
    match limit {
        Limit::Window(limit) => inline(limit.max() < u64::from(u32::MAX)),
        Limit::Calendar(limit) => inline(limit.max() < u64::from(u32::MAX)),
        // The remainder is below the reduced rate, which the rate itself bounds.
        Limit::Bucket(bucket) => inline(bucket.rate() <= u64::from(u32::MAX)),
        Limit::Total(_) => Room::Inline,
        Limit::PerAttempt(_) => Room::None,
        Limit::Sliding(_) | Limit::Slotted(_) | Limit::InFlight(_) | Limit::Ladder(_) => Room::Deep,
    }
}

/// Whether a key of this plan is in a wide slot, except in rare cases.
#[inline]
pub(crate) fn is_probably_wide(plan: &Plan) -> bool {
    plan.limits().len() == 2
}

/// Whether keys of this plan are stored. A limit on a single attempt has no state.
pub(crate) fn keeps_state(plan: &Plan) -> bool {
    plan.limits().iter().any(has_state)
}

/// Writes states into a slot's words. Only for plans that fit.
#[inline(always)]
pub(crate) fn pack(plan: &Plan, states: &[State], words: &mut [u64], halves: &mut [u32]) {
    let stateful = plan.limits().iter().zip(states).filter(|(limit, _)| has_state(limit));
    for ((_, state), (word, half)) in stateful.zip(words.iter_mut().zip(halves)) {
        (*word, *half) = pack_one(state);
    }
}

/// Reads states from a slot's words.
#[inline(always)]
pub(crate) fn unpack(plan: &Plan, words: &[u64], halves: &[u32], row: &mut StateRow) {
    let mut packed = words.iter().zip(halves);
    for limit in plan.limits() {
        let packed = if has_state(limit) { packed.next() } else { None };
        row.push(packed.map_or(State::Fresh, |(word, half)| unpack_one(limit, *word, *half)));
    }
}

#[inline(always)]
fn pack_one(state: &State) -> (u64, u32) {
    match state {
        State::Tally(tally) => packed_tally(*tally),
        State::Level(level) => packed_level(*level),
        State::Total(total) => (*total, 0),
        State::Fresh => (0, 0),
        State::Log(_) | State::Slots(_) | State::Holds(_) | State::Failures(_) => {
            unreachable!("a plan with such a limit is kept beside the table")
        }
    }
}

#[inline(always)]
fn unpack_one(limit: &Limit, word: u64, half: u32) -> State {
    match limit {
        Limit::Bucket(_) => level(word, half).into(),
        Limit::Window(_) | Limit::Calendar(_) => tally(word, half).into(),
        Limit::Total(_) if word == 0 => State::Fresh,
        Limit::Total(_) => State::Total(word),
        Limit::Sliding(_)
        | Limit::Slotted(_)
        | Limit::InFlight(_)
        | Limit::Ladder(_)
        | Limit::PerAttempt(_) => unreachable!("a state of such a limit is never inline"),
    }
}

/// A bucket's level in a word and a half; zeros mean none.
#[inline]
fn level(word: u64, half: u32) -> Option<Level> {
    let level = Level { full_at: Timestamp::from_micros(word), rest: u64::from(half) };
    (word != 0 || half != 0).then_some(level)
}

#[inline]
fn packed_level(level: Level) -> (u64, u32) {
    (level.full_at.as_micros(), low(level.rest))
}

/// A window's tally in a word and a half; zeros mean none.
#[inline]
fn tally(word: u64, half: u32) -> Option<Tally> {
    let tally = Tally { edge: Timestamp::from_micros(word), count: u64::from(half) };
    (word != 0 || half != 0).then_some(tally)
}

#[inline]
fn packed_tally(tally: Tally) -> (u64, u32) {
    (tally.edge.as_micros(), low(tally.count))
}

#[inline]
fn has_state(limit: &Limit) -> bool {
    room(limit) != Room::None
}

/// A count that does not fit exceeds every packed limit, so the largest value can stand for it.
fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
