//! How far up its ladders a key is, as a decision tells.

use crate::decision::Line;
use crate::limit::{Ladder, Pause, Step};
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// Where on a ladder an attempt finds a key, and where it leaves it if it fails.
#[derive(Clone, Copy, Debug)]
pub struct Climb<'l> {
    ladder: &'l Ladder,
    reading: Reading,
    /// As how many failures the attempt was charged.
    charged: u64,
}

impl<'l> Climb<'l> {
    /// The failures that are remembered: this attempt among them, if it was charged.
    pub fn failures(&self) -> u64 {
        self.reading.capacity - self.reading.remaining
    }

    /// The step that held for this attempt: what was asked of it, or kept it out.
    pub fn held(&self) -> Option<&'l Step> {
        self.ladder.step_at(self.failures() - self.charged)
    }

    /// The step that is reached if this attempt fails; the one that kept it out if it was refused.
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

    /// When the last failure was.
    pub fn last_at(&self) -> Timestamp {
        self.forgotten_at() - self.ladder.forget()
    }

    /// Whether this attempt, if it fails, is the one that climbs to the step reached.
    pub fn arrives(&self) -> bool {
        self.charged > 0 && self.held() != self.reached()
    }

    /// When the next attempt may come if this one fails, or this one may come again if it was refused:
    /// after the pause of the step reached.
    pub fn next_at(&self) -> Timestamp {
        self.last_at() + self.reached().map_or(Span::ZERO, |step| step.pause.span())
    }

    /// When the lock that was reached ends, if it is one and the attempt is or would be kept out by it.
    pub fn locked_until(&self) -> Option<Timestamp> {
        matches!(self.reached()?.pause, Pause::Lock(_)).then(|| self.next_at())
    }

    /// How long the ladder remembers failures after the last one.
    pub fn forget(&self) -> Span {
        self.ladder.forget()
    }

    /// When all failures are forgotten, if none comes before.
    pub fn forgotten_at(&self) -> Timestamp {
        self.reading.reset.unwrap_or_default()
    }

    /// Whether the attempt was kept out here.
    pub fn refused(&self) -> bool {
        self.reading.when > When::Now
    }
}

impl Line<'_> {
    /// Where on each of its rule's ladders the key is; nothing if no counter was asked.
    pub fn climbs(&self) -> impl Iterator<Item = Climb<'_>> {
        let charged = if self.taken { self.cost } else { 0 };
        self.limits.iter().zip(self.readings).filter_map(move |(limit, reading)| {
            limit.ladder().map(|ladder| Climb { ladder, reading: *reading, charged })
        })
    }
}
