//! The position of a key on its ladders, according to a decision.

use crate::decision::Line;
use crate::limit::{Ladder, Pause, Step};
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// The position of a key on a ladder at an attempt, and after it if the attempt fails.
#[derive(Clone, Copy, Debug)]
pub struct Climb<'l> {
    ladder: &'l Ladder,
    reading: Reading,
    /// The number of failures that the attempt was charged as.
    charged: u64,
}

impl<'l> Climb<'l> {
    /// The counted failures, including this attempt if it was charged.
    pub fn failures(&self) -> u64 {
        self.reading.capacity - self.reading.remaining
    }

    /// The step that applied to this attempt.
    pub fn held(&self) -> Option<&'l Step> {
        self.ladder.step_at(self.failures() - self.charged)
    }

    /// The step that is reached if this attempt fails; the one that refused it if it was refused.
    pub fn reached(&self) -> Option<&'l Step> {
        self.ladder.step_at(self.failures())
    }

    /// All steps of the ladder, lowest first.
    pub fn steps(&self) -> &'l [Step] {
        self.ladder.steps()
    }

    /// The steps up to the one that is reached if this attempt fails, lowest first.
    pub fn steps_reached(&self) -> impl Iterator<Item = &'l Step> + use<'l> {
        let failures = self.failures();
        self.ladder.steps().iter().take_while(move |step| step.from <= failures)
    }

    /// The time of the last failure.
    pub fn last_at(&self) -> Timestamp {
        self.forgotten_at() - self.ladder.forget()
    }

    /// Whether this attempt reaches a new step if it fails.
    pub fn arrives(&self) -> bool {
        self.charged > 0 && self.held() != self.reached()
    }

    /// When the next attempt is possible if this one fails, or when this one is possible again if it was
    /// refused: after the pause of the reached step.
    pub fn next_at(&self) -> Timestamp {
        self.last_at() + self.reached().map_or(Span::ZERO, |step| step.pause.span())
    }

    /// When the reached lock ends, if the step is a lock.
    pub fn locked_until(&self) -> Option<Timestamp> {
        matches!(self.reached()?.pause, Pause::Lock(_)).then(|| self.next_at())
    }

    /// How long the ladder remembers failures after the last one.
    pub fn forget(&self) -> Span {
        self.ladder.forget()
    }

    /// When all failures are forgotten, if no further one occurs.
    pub fn forgotten_at(&self) -> Timestamp {
        self.reading.reset.unwrap_or_default()
    }

    /// Whether this ladder refused the attempt.
    pub fn refused(&self) -> bool {
        self.reading.when > When::Now
    }
}

impl Line<'_> {
    /// The position of the key on each ladder of its rule; none if no counter was read.
    pub fn climbs(&self) -> impl Iterator<Item = Climb<'_>> {
        let charged = if self.taken { self.cost } else { 0 };
        self.limits.iter().zip(self.readings).filter_map(move |(limit, reading)| {
            limit.ladder().map(|ladder| Climb { ladder, reading: *reading, charged })
        })
    }
}
