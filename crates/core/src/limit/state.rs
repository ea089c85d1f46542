//! The states of limits.

use alloc::boxed::Box;

use super::{Failures, Height, Holds, Level, Log, Slots, Tally};

/// The state of a limit at a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing counted: the same as a new key.
    #[default]
    Fresh,
    /// The state of a window or a calendar period.
    Tally(Tally),
    /// The state of a sliding window.
    Log(Box<Log>),
    /// The state of a sliding window in slots.
    Slots(Box<Slots>),
    /// The state of a bucket.
    Level(Level),
    /// The state of things in flight.
    Holds(Box<Holds>),
    /// The state of a ladder.
    Failures(Box<Failures>),
    /// The state of a total.
    Total(u64),
}

impl State {
    /// Forgets everything.
    #[inline]
    pub(super) fn wipe(&mut self) {
        if !matches!(self, Self::Fresh) {
            *self = Self::Fresh;
        }
    }

    /// The tally, if this is the state of a window or a calendar period.
    #[inline]
    pub fn tally(&self) -> Option<Tally> {
        if let Self::Tally(tally) = self { Some(*tally) } else { None }
    }

    /// The level, if this is the state of a bucket.
    #[inline]
    pub fn level(&self) -> Option<Level> {
        if let Self::Level(level) = self { Some(*level) } else { None }
    }

    pub(super) fn log(&self) -> Option<&Log> {
        if let Self::Log(log) = self { Some(log) } else { None }
    }

    pub(super) fn slots(&self) -> Option<&Slots> {
        if let Self::Slots(slots) = self { Some(slots) } else { None }
    }

    /// The holds, if this is the state of things in flight.
    pub fn holds(&self) -> Option<&Holds> {
        if let Self::Holds(holds) = self { Some(holds) } else { None }
    }

    pub(super) fn height(&self) -> Option<Height> {
        if let Self::Failures(failures) = self { failures.height() } else { None }
    }

    /// What was taken, if this is the state of a total; 0 of any other.
    #[inline]
    pub fn total(&self) -> u64 {
        if let Self::Total(total) = self { *total } else { 0 }
    }

    /// Takes the log out, to change it and put it back; an empty one if there is none.
    pub(super) fn take_log(&mut self) -> Box<Log> {
        if let Self::Log(log) = core::mem::take(self) { log } else { Box::default() }
    }

    /// Takes the slots out, to change them and put them back; none if there are none.
    pub(super) fn take_slots(&mut self) -> Box<Slots> {
        if let Self::Slots(slots) = core::mem::take(self) { slots } else { Box::default() }
    }

    /// Takes the failures out, to change them and put them back; none if there are none.
    pub(super) fn take_failures(&mut self) -> Box<Failures> {
        if let Self::Failures(failures) = core::mem::take(self) { failures } else { Box::default() }
    }

    /// Changes the holds, begun if this is not a state of holds.
    pub fn change_holds<R>(&mut self, change: impl FnOnce(&mut Holds) -> R) -> R {
        let mut holds = if let Self::Holds(holds) = core::mem::take(self) { holds } else { Box::default() };
        let changed = change(&mut holds);
        *self = Self::Holds(holds);
        changed
    }
}

impl From<Option<Tally>> for State {
    fn from(tally: Option<Tally>) -> Self {
        tally.map_or(Self::Fresh, Self::Tally)
    }
}

impl From<Option<Level>> for State {
    fn from(level: Option<Level>) -> Self {
        level.map_or(Self::Fresh, Self::Level)
    }
}
