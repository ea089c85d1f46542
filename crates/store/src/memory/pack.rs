//! How states are packed into slots: twelve bytes for each limit, where they suffice.

use tollgate_core::limit::{Level, Limit, State, Tally};
use tollgate_core::{Plan, Timestamp};

use super::shard::StateRow;
use super::table::Slot;

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
            match limit {
                Limit::PerAttempt { .. } => {}
                _ if fits(limit) => inline += 1,
                _ => return Self::Deep,
            }
        }
        match inline {
            0 | 1 => Self::One,
            2 => Self::Two,
            _ => Self::Deep,
        }
    }
}

/// Whether a key of this plan is ever put in: there is nothing to remember of what one attempt shows
/// by itself.
pub(crate) fn keeps_state(plan: &Plan) -> bool {
    plan.limits().iter().any(has_state)
}

/// Whether every state of this limit fits a word and a half.
fn fits(limit: &Limit) -> bool {
    match limit {
        Limit::Window(_) | Limit::Calendar(_) => limit.number() < u64::from(u32::MAX),
        // The remainder is below the reduced rate, which the rate itself bounds.
        Limit::Bucket(bucket) => bucket.rate() <= u64::from(u32::MAX),
        Limit::Total { .. } => true,
        _ => false,
    }
}

/// Writes states into a slot's words. Only for plans that fit.
pub(crate) fn pack(plan: &Plan, states: &[State], words: &mut [u64], halves: &mut [u32]) {
    let stateful = plan.limits().iter().zip(states).filter(|(limit, _)| has_state(limit));
    for ((_, state), (word, half)) in stateful.zip(words.iter_mut().zip(halves)) {
        (*word, *half) = pack_one(state);
    }
}

/// Reads states back from a slot's words.
pub(crate) fn unpack(plan: &Plan, words: &[u64], halves: &[u32], row: &mut StateRow) {
    let mut at = 0;
    for limit in plan.limits() {
        if has_state(limit) {
            row.push(unpack_one(limit, words[at], halves[at]));
            at += 1;
        } else {
            row.push(State::Fresh);
        }
    }
}

#[inline]
pub(crate) fn pack_one(state: &State) -> (u64, u32) {
    match state {
        State::Tally(tally) => (tally.edge.as_micros(), low(tally.count)),
        State::Level(level) => (level.full_at.as_micros(), low(level.rest)),
        State::Total(total) => (*total, 0),
        _ => (0, 0),
    }
}

#[inline]
pub(crate) fn unpack_one(limit: &Limit, word: u64, half: u32) -> State {
    let (edge, count) = (Timestamp::from_micros(word), u64::from(half));
    match limit {
        _ if word == 0 && half == 0 => State::Fresh,
        Limit::Bucket(_) => State::Level(Level { full_at: edge, rest: count }),
        Limit::Total { .. } => State::Total(word),
        _ => State::Tally(Tally { edge, count }),
    }
}

/// The one state of a narrow slot, as a bucket or a window reads it. Zeros are nothing.
impl Slot<1> {
    #[inline]
    pub(crate) fn level(&self) -> Option<Level> {
        let (full_at, rest) = (Timestamp::from_micros(self.words[0]), u64::from(self.halves[0]));
        (self.words[0] != 0 || rest != 0).then_some(Level { full_at, rest })
    }

    #[inline]
    pub(crate) fn set_level(&mut self, level: Option<Level>) {
        let (word, half) = level.map_or((0, 0), |level| (level.full_at.as_micros(), low(level.rest)));
        (self.words[0], self.halves[0]) = (word, half);
    }

    #[inline]
    pub(crate) fn tally(&self) -> Option<Tally> {
        let (edge, count) = (Timestamp::from_micros(self.words[0]), u64::from(self.halves[0]));
        (self.words[0] != 0 || count != 0).then_some(Tally { edge, count })
    }

    #[inline]
    pub(crate) fn set_tally(&mut self, tally: Option<Tally>) {
        let (word, half) = tally.map_or((0, 0), |tally| (tally.edge.as_micros(), low(tally.count)));
        (self.words[0], self.halves[0]) = (word, half);
    }
}

fn has_state(limit: &Limit) -> bool {
    !matches!(limit, Limit::PerAttempt { .. })
}

/// A count beyond what fits is beyond every limit that is packed, so it may stand for all of them.
fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
