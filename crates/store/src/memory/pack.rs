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
                Room::Inline(_) => inline += 1,
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
    /// Every state fits a word and a half.
    Inline(Shape),
    /// Beside the table.
    Deep,
}

/// What a word and a half say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Tally,
    Level,
    Total,
}

#[inline]
fn room(limit: &Limit) -> Room {
    let inline = |shape: Shape, fits: bool| if fits { Room::Inline(shape) } else { Room::Deep };
    match limit {
        Limit::Window(limit) => inline(Shape::Tally, limit.max() < u64::from(u32::MAX)),
        Limit::Calendar(limit) => inline(Shape::Tally, limit.max() < u64::from(u32::MAX)),
        // The remainder is below the reduced rate, which the rate itself bounds.
        Limit::Bucket(bucket) => inline(Shape::Level, bucket.rate() <= u64::from(u32::MAX)),
        Limit::Total(_) => Room::Inline(Shape::Total),
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
    plan.limits().iter().any(|limit| room(limit) != Room::None)
}

/// Writes states into a slot's words. Only for plans that fit.
#[inline(always)]
pub(crate) fn pack(plan: &Plan, states: &[State], words: &mut [u64], halves: &mut [u32]) {
    let mut packed = words.iter_mut().zip(halves);
    for (limit, state) in plan.limits().iter().zip(states) {
        if let Room::Inline(shape) = room(limit)
            && let Some((word, half)) = packed.next()
        {
            (*word, *half) = shape.pack(state);
        }
    }
}

/// Reads states from a slot's words.
#[inline(always)]
pub(crate) fn unpack(plan: &Plan, words: &[u64], halves: &[u32], row: &mut StateRow) {
    let mut packed = words.iter().zip(halves);
    for limit in plan.limits() {
        row.push(match room(limit) {
            Room::Inline(shape) => {
                packed.next().map_or(State::Fresh, |(word, half)| shape.unpack(*word, *half))
            }
            Room::None | Room::Deep => State::Fresh,
        });
    }
}

impl Shape {
    /// A state in a word and a half. A state of another kind counts as fresh.
    #[inline(always)]
    fn pack(self, state: &State) -> (u64, u32) {
        match self {
            Self::Tally => state.tally().map_or((0, 0), packed_tally),
            Self::Level => state.level().map_or((0, 0), packed_level),
            Self::Total => (state.total(), 0),
        }
    }

    #[inline(always)]
    fn unpack(self, word: u64, half: u32) -> State {
        match self {
            Self::Tally => tally(word, half).into(),
            Self::Level => level(word, half).into(),
            Self::Total if word == 0 => State::Fresh,
            Self::Total => State::Total(word),
        }
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

/// A count beyond what fits is beyond every limit that is packed, so it may stand for all of them.
fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = u32::MAX as u64;

    fn plan(limits: &[&str]) -> Plan {
        let limits = limits.iter().map(|limit| limit.parse().expect("a limit")).collect();
        Plan::new("rule".into(), limits).expect("limits that differ")
    }

    #[test]
    fn up_to_two_small_states_are_inline_and_all_others_beside_the_table() {
        let (fits, beyond) = (format!("{}/hour", MOST - 1), format!("{MOST}/hour"));
        let (fits_day, beyond_day) = (format!("{fits} calendar"), format!("{beyond} calendar"));
        let (fast, faster) = (format!("{MOST}/s burst 5"), format!("{}/s burst 5", MOST + 1));
        for (limits, fit) in [
            (&["5 recipients per attempt"][..], Fit::One),
            (&["5/hour"], Fit::One),
            (&["5/hour", "9 recipients per attempt"], Fit::One),
            (&["5/hour", "9/day"], Fit::Two),
            (&["5/hour burst 5", "9 in total", "9 recipients per attempt"], Fit::Two),
            (&["5/hour", "9/day", "20/week"], Fit::Deep),
            (&["5/hour sliding"], Fit::Deep),
            (&["5/hour", "5 at once"], Fit::Deep),
            (&[&fits], Fit::One),
            (&[&beyond], Fit::Deep),
            (&[&fits_day], Fit::One),
            (&[&beyond_day], Fit::Deep),
            (&[&fast], Fit::One),
            (&[&faster], Fit::Deep),
        ] {
            assert_eq!(Fit::of(&plan(limits)), fit, "{limits:?}");
            assert_eq!(keeps_state(&plan(limits)), limits[0] != "5 recipients per attempt", "{limits:?}");
            assert_eq!(is_probably_wide(&plan(limits)), limits.len() == 2, "{limits:?}");
        }
    }

    #[test]
    fn packing_and_unpacking_returns_the_same_state() {
        let at = Timestamp::from_micros;
        let plan = plan(&["9 recipients per attempt", "5/hour", "7/s burst 3"]);
        for (tally, level) in [
            (None, None),
            (Some((1, 0)), Some((1, 0))),
            (Some((0, 1)), Some((0, 1))),
            (Some((7 << 40, MOST - 1)), Some((9 << 40, 6))),
        ] {
            let tally: State = tally.map(|(edge, count)| Tally { edge: at(edge), count }).into();
            let level: State = level.map(|(full_at, rest)| Level { full_at: at(full_at), rest }).into();
            let states = [State::Fresh, tally, level];
            let (mut words, mut halves, mut row) = ([9; 2], [9; 2], StateRow::new());
            pack(&plan, &states, &mut words, &mut halves);
            unpack(&plan, &words, &halves, &mut row);
            assert_eq!(*row, states);
        }
        for total in [State::Fresh, State::Total(1), State::Total(MOST + 1)] {
            let (plan, mut words, mut halves) = (self::plan(&["9 in total"]), [9], [9]);
            pack(&plan, std::slice::from_ref(&total), &mut words, &mut halves);
            let mut row = StateRow::new();
            unpack(&plan, &words, &halves, &mut row);
            assert_eq!(*row, [total]);
        }
        assert_eq!((low(MOST), low(MOST + 1)), (u32::MAX, u32::MAX));
    }
}
