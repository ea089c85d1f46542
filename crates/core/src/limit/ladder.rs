//! A ladder: failures climb steps, and each step makes the next attempt wait for longer.
//!
//! An attempt is charged as if it had failed, before anybody knows, so that guesses made side by side
//! cannot slip through; one that did not fail is given back. What is remembered are the failures by
//! ticket and time, and all of them until the last one is old enough: each renews the others. An
//! attempt that comes too early counts nothing and prolongs nothing.

use alloc::boxed::Box;

use smallvec::SmallVec;

use super::Draft;
use crate::Ticket;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// Steps to climb by failing, and how long failures are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ladder {
    steps: Box<[Step]>,
    forget: Span,
    /// The failures of the first step that makes anybody wait.
    at_once: u64,
}

/// What holds from so many failures on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// From this many failures on.
    pub from: u64,
    /// How long the next attempt has to wait.
    pub pause: Pause,
    /// Whether the next attempt is to come with a CAPTCHA.
    pub captcha: bool,
    /// Whether whoever is attacked is to be told.
    pub notify: bool,
}

/// How long after the last failure an attempt may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pause {
    /// At once.
    None,
    /// After this long.
    Delay(Span),
    /// After this long, and it is called a lock.
    Lock(Span),
}

/// The failures that are remembered, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    log: SmallVec<[Failure; 2]>,
    count: u64,
}

/// How high a key has climbed: all that the next attempt has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Height {
    /// How many failures are remembered; at least one.
    pub failures: u64,
    /// When the last of them was.
    pub last: Timestamp,
}

/// One attempt that failed, or may yet turn out not to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it was made.
    pub at: Timestamp,
    /// By whom, so that it can be given back; ticket 0, which nobody has, for several old ones.
    pub ticket: Ticket,
    /// As how many it counts.
    pub count: u64,
}

impl Ladder {
    /// The most steps of a ladder.
    pub const MOST_STEPS: usize = 8;
    /// The most failures that the last step may take: that many are remembered one by one.
    pub const MOST: u64 = 1_000;
    /// How long failures are remembered unless something else is said.
    pub const FORGET: Span = Span::from_secs(15 * 60);

    /// The steps rise, no pause is shorter than the one before, the last step pauses, and nothing is
    /// forgotten before the longest pause is over: the grammar sees to it.
    pub(crate) fn new(steps: Box<[Step]>, forget: Span) -> Self {
        let at_once = steps.iter().find(|step| step.pause.span() > Span::ZERO).map(|step| step.from);
        Self { steps, forget, at_once: at_once.expect("the last step pauses") }
    }

    /// The steps, lowest first.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How long after the last failure all of them are forgotten.
    pub fn forget(&self) -> Span {
        self.forget
    }

    /// How many failures may come at one moment before any has to wait.
    pub fn at_once(&self) -> u64 {
        self.at_once
    }

    /// The failures of the last step: no pause gets longer from there on.
    pub fn top(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.from)
    }

    /// How many entries a key's log has, at most: the failures that the last step takes, one by one,
    /// and one for all before them.
    pub fn most_entries(&self) -> usize {
        self.top() as usize + 1
    }

    /// The step that so many failures have reached; none below the first.
    pub fn step_at(&self, failures: u64) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.from <= failures)
    }

    /// How long after the last of so many failures the next attempt may come.
    #[inline]
    fn pause_after(&self, failures: u64) -> Span {
        self.step_at(failures).map_or(Span::ZERO, |step| step.pause.span())
    }

    /// Forgets everything once the last failure is old enough. What lies in the future (the clock went
    /// back) was now.
    #[inline]
    pub(super) fn freshen(&self, failures: &mut Failures, now: Timestamp) {
        let Some(height) = failures.height() else { return };
        if height.last > now {
            failures.log.iter_mut().for_each(|failure| failure.at = failure.at.min(now));
        } else if self.idle_at(height) <= now {
            failures.log.clear();
            failures.count = 0;
        }
    }

    /// An attempt that costs more than one counts as that many at one moment: each but the first comes
    /// right after a failure, so none of them may have to wait.
    #[inline]
    pub(super) fn when(&self, height: Option<Height>, draft: &Draft<'_>) -> When {
        if draft.cost > self.at_once {
            return When::Never;
        }
        let Some(Height { failures, last }) = height else { return When::Now };
        if draft.cost == 0 || failures + draft.cost <= self.at_once {
            return When::Now;
        }
        let wait = if draft.cost == 1 { self.pause_after(failures) } else { self.forget };
        match (last + wait).since(draft.now) {
            Span::ZERO => When::Now,
            left => When::After(left),
        }
    }

    #[inline]
    pub(super) fn take(&self, failures: &mut Failures, draft: &Draft<'_>) {
        failures.push(Failure { at: draft.now, ticket: draft.ticket, count: draft.cost });
        failures.merge(self.most_entries());
    }

    /// As much as the last step takes, or as there are failures if that is more, less the failures.
    #[inline]
    pub(super) fn read(&self, height: Option<Height>, when: When, now: Timestamp) -> Reading {
        let count = height.map_or(0, |height| height.failures);
        let capacity = self.top().max(count);
        let reset = height.map_or(now, |height| self.idle_at(height));
        Reading { capacity, remaining: capacity - count, reset: Some(reset), when }
    }

    /// Freshens, weighs, takes if it conforms, and reads, in one go.
    pub fn settle(&self, failures: &mut Failures, draft: &Draft<'_>) -> Reading {
        self.freshen(failures, draft.now);
        let when = self.when(failures.height(), draft);
        if when == When::Now && draft.cost > 0 {
            self.take(failures, draft);
        }
        self.read(failures.height(), when, draft.now)
    }

    /// What an attempt comes to that is refused by what is known of the height alone; `None` if the
    /// failures themselves have to be looked at.
    #[inline]
    pub fn refuse(&self, height: Height, draft: &Draft<'_>) -> Option<Reading> {
        let current = height.last <= draft.now && draft.now < self.idle_at(height);
        let when = self.when(Some(height), draft);
        (current && when > When::Now).then(|| self.read(Some(height), when, draft.now))
    }

    /// Whether the least attempt would be refused now.
    pub fn blocks(&self, height: Height, now: Timestamp) -> bool {
        now < height.last + self.pause_after(height.failures)
    }

    /// From when on this height says no more than none.
    pub fn idle_at(&self, height: Height) -> Timestamp {
        height.last + self.forget
    }

    /// Takes the ticket's failure out: what was before it holds again. After as long as a failure is
    /// remembered by itself it is too late for that, so that nobody has to remember for longer which
    /// tickets were given back.
    pub(super) fn give(&self, failures: &mut Failures, draft: &Draft<'_>, taken_at: Timestamp) {
        if draft.now < taken_at + self.forget {
            failures.log.retain(|failure| failure.ticket != draft.ticket);
            failures.recount();
        }
    }

    /// Takes the ticket's failure out, and all that came before it. What came after it stays: it is
    /// not known to be by the same hand.
    pub(super) fn clear(&self, failures: &mut Failures, draft: &Draft<'_>, taken_at: Timestamp) {
        if draft.now < taken_at + self.forget {
            let own = failures.log.iter().position(|failure| failure.ticket == draft.ticket);
            let earlier = || failures.log.iter().take_while(|failure| failure.at <= taken_at).count();
            let gone = own.map_or_else(earlier, |own| own + 1);
            failures.log.drain(..gone);
            failures.recount();
        }
    }
}

impl Pause {
    /// How long it is.
    pub fn span(self) -> Span {
        match self {
            Self::None => Span::ZERO,
            Self::Delay(span) | Self::Lock(span) => span,
        }
    }
}

impl Failures {
    /// The failures, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Failure> + '_ {
        self.log.iter().copied()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How high that is; `None` if there are none.
    #[inline]
    pub fn height(&self) -> Option<Height> {
        self.log.last().map(|last| Height { failures: self.count, last: last.at })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    fn push(&mut self, failure: Failure) {
        self.count += failure.count;
        self.log.push(failure);
    }

    /// Makes one entry of the oldest, which nobody can give back any more, until there are no more than
    /// `most`.
    fn merge(&mut self, most: usize) {
        let Some(excess) = self.log.len().checked_sub(most).filter(|excess| *excess > 0) else { return };
        let merged = self.log[..=excess].iter().map(|failure| failure.count).sum();
        let last = self.log[excess];
        self.log.drain(..excess);
        self.log[0] = Failure { at: last.at, ticket: Ticket(0), count: merged };
    }

    fn recount(&mut self) {
        self.count = self.log.iter().map(|failure| failure.count).sum();
    }
}

impl FromIterator<Failure> for Failures {
    fn from_iter<I: IntoIterator<Item = Failure>>(log: I) -> Self {
        let mut failures = Self::default();
        log.into_iter().for_each(|failure| failures.push(failure));
        failures
    }
}
