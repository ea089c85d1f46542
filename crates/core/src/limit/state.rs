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

    #[inline]
    pub(super) fn tally(&self) -> Option<Tally> {
        if let Self::Tally(tally) = self { Some(*tally) } else { None }
    }

    #[inline]
    pub(super) fn level(&self) -> Option<Level> {
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

    pub(super) fn total(&self) -> u64 {
        if let Self::Total(total) = self { *total } else { 0 }
    }

    pub(super) fn log_mut(&mut self) -> &mut Log {
        if !matches!(self, Self::Log(_)) {
            *self = Self::Log(Box::default());
        }
        if let Self::Log(log) = self { log } else { unreachable!("just made one") }
    }

    pub(super) fn slots_mut(&mut self) -> &mut Slots {
        if !matches!(self, Self::Slots(_)) {
            *self = Self::Slots(Box::default());
        }
        if let Self::Slots(slots) = self { slots } else { unreachable!("just made one") }
    }

    pub(super) fn failures_mut(&mut self) -> &mut Failures {
        if !matches!(self, Self::Failures(_)) {
            *self = Self::Failures(Box::default());
        }
        if let Self::Failures(failures) = self { failures } else { unreachable!("just made one") }
    }

    /// The holds; a fresh state becomes an empty set of them.
    pub fn holds_mut(&mut self) -> &mut Holds {
        if !matches!(self, Self::Holds(_)) {
            *self = Self::Holds(Box::default());
        }
        if let Self::Holds(holds) = self { holds } else { unreachable!("just made one") }
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
