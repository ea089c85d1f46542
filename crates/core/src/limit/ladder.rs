//! A ladder: failures climb steps, and each step makes the next attempt wait longer.
//!
//! An attempt is charged as a failure before its result is known, so that parallel guesses gain nothing; a
//! success is refunded. The state has the failures by ticket and time. All of them are kept until the last
//! one is old enough: each failure renews the others. An early attempt is not counted and does not prolong
//! the pause.

use alloc::boxed::Box;

use smallvec::SmallVec;

use super::kind::{Kind, Nature};
use super::{Draft, Identity, Idle, Limit, Refund, State};
use crate::Ticket;
use crate::outage::Share;
use crate::reading::{Reading, Stock, When};
use crate::time::{Span, Timestamp};

/// The steps of failures, and how long failures are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ladder {
    steps: Box<[Step]>,
    forget: Span,
    /// The number of failures at which the first pause begins.
    at_once: u64,
}

/// The consequence of reaching a number of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// From this many failures on.
    pub from: u64,
    /// How long the next attempt must wait.
    pub pause: Pause,
    /// Whether the next attempt must include a CAPTCHA.
    pub captcha: bool,
    /// Whether the guard calls its webhook when this step is reached.
    pub notify: bool,
}

/// How long after the last failure an attempt is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pause {
    /// No wait.
    None,
    /// After this long.
    Delay(Span),
    /// After this long, as a lock.
    Lock(Span),
}

/// The counted failures, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    log: SmallVec<[Failure; 2]>,
    count: u64,
}

/// The height of a key on a ladder: all that the next attempt depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Height {
    /// How many failures are counted; at least one.
    pub failures: u64,
    /// The time of the last one.
    pub last: Timestamp,
}

/// One attempt that failed, or whose result is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it was made.
    pub at: Timestamp,
    /// Its ticket, for a refund; ticket 0, which no attempt has, for several merged old ones.
    pub ticket: Ticket,
    /// The number of failures that it counts as.
    pub count: u64,
}

impl Ladder {
    /// The most steps of a ladder.
    pub const MOST_STEPS: usize = 8;
    /// The most failures of the last step: that many are stored one by one.
    pub const MOST: u64 = 1_000;
    /// The default time for which failures are remembered.
    pub const FORGET: Span = Span::from_secs(15 * 60);

    /// The grammar guarantees that the steps rise, that no pause is shorter than the one before, that the
    /// last step pauses, and that nothing is forgotten before the longest pause is over.
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

    /// How many failures are possible at one time before an attempt must wait.
    pub fn at_once(&self) -> u64 {
        self.at_once
    }

    /// The number of failures at which the last step begins. From there on pauses do not get longer.
    pub fn top(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.from)
    }

    /// The most entries of a key's log: the failures of the last step, one by one, and one for all before
    /// them.
    pub fn most_entries(&self) -> usize {
        self.top() as usize + 1
    }

    /// The step that this many failures have reached; `None` below the first.
    pub fn step_at(&self, failures: u64) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.from <= failures)
    }

    /// How long after the last of this many failures the next attempt is possible.
    #[inline]
    fn pause_after(&self, failures: u64) -> Span {
        self.step_at(failures).map_or(Span::ZERO, |step| step.pause.span())
    }

    /// When all failures are forgotten.
    fn idle_at(&self, height: Height) -> Timestamp {
        height.last + self.forget
    }
}

impl Kind for Ladder {
    const NATURE: Nature = Nature { names_takes: true, keeps_tickets: true, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::Ladder(self.forget)
    }

    /// The number of failures at which the last step begins.
    fn number(&self) -> u64 {
        self.top()
    }

    /// The number of failures at which the first pause begins.
    fn capacity(&self) -> u64 {
        self.at_once
    }

    fn period(&self) -> Option<Span> {
        Some(self.forget)
    }

    fn matters_for(&self) -> Span {
        self.forget
    }

    /// Forgets everything once the last failure is old enough. If the clock went back, failures dated in the
    /// future are moved to now.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        let State::Failures(failures) = state else { return *state = State::Fresh };
        match failures.height() {
            Some(height) if height.last > draft.now => {
                failures.log.iter_mut().for_each(|failure| failure.at = failure.at.min(draft.now));
            }
            Some(height) if draft.now < self.idle_at(height) => {}
            _ => *state = State::Fresh,
        }
    }

    /// An attempt with a cost above one counts as that many at one time. Each but the first follows a failure
    /// directly, so none of them may have to wait.
    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        if draft.cost > self.at_once {
            return When::Never;
        }
        let Some(Height { failures, last }) = state.height() else { return When::Now };
        if draft.cost == 0 || failures + draft.cost <= self.at_once {
            return When::Now;
        }
        let wait = if draft.cost == 1 { self.pause_after(failures) } else { self.forget };
        match (last + wait).since(draft.now) {
            Span::ZERO => When::Now,
            left => When::After(left),
        }
    }

    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        let mut failures = state.take_failures();
        failures.push(Failure { at: draft.now, ticket: draft.ticket, count: draft.cost });
        failures.merge(self.most_entries());
        *state = State::Failures(failures);
    }

    /// The capacity is the failures of the last step, or the counted ones if they are more; `remaining` is
    /// that less the failures.
    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock {
        let height = state.height();
        let count = height.map_or(0, |height| height.failures);
        let capacity = self.top().max(count);
        let reset = height.map_or(draft.now, |height| self.idle_at(height));
        Stock { capacity, remaining: capacity - count, reset: Some(reset) }
    }

    /// The failures stay while the pause passes.
    fn read_after_wait(&self, reading: Reading, _: u64) -> Reading {
        Reading { when: When::Now, ..reading }
    }

    /// A failure that is taken back does not end the pause.
    fn read_refunded(&self, reading: Reading, _: u64) -> Reading {
        reading
    }

    /// Removes the ticket's failure, so that the earlier state applies again. After `forget` it is too late
    /// for that, so that no store must remember refunded tickets for longer.
    fn refund(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        if let State::Failures(failures) = state
            && draft.now < refund.taken_at + self.forget
        {
            let own = failures.log.iter_mut().filter(|failure| failure.ticket == draft.ticket);
            own.for_each(|failure| failure.count = refund.rest_of(failure.count, draft));
            failures.log.retain(|failure| failure.count > 0);
            failures.recount();
        }
    }

    /// Removes the ticket's failure and all earlier ones. Later failures stay, since they may come from
    /// another client.
    fn clear(&self, state: &mut State, draft: &Draft<'_>, Refund { taken_at, .. }: Refund) {
        if let State::Failures(failures) = state
            && draft.now < taken_at + self.forget
        {
            let own = failures.log.iter().position(|failure| failure.ticket == draft.ticket);
            let earlier = || failures.log.iter().take_while(|failure| failure.at <= taken_at).count();
            let gone = own.map_or_else(earlier, |own| own + 1);
            failures.log.drain(..gone);
            failures.recount();
        }
    }

    fn adopt(&self, _: &Limit, state: State, _: Timestamp) -> State {
        state
    }

    /// None: a key that fails elsewhere must not start afresh here.
    fn share(&self, _: Share) -> Option<Limit> {
        None
    }

    fn idle(&self, state: &State) -> Idle {
        Idle::At(state.height().map_or(Timestamp::ZERO, |height| self.idle_at(height)))
    }
}

impl Pause {
    /// Its length.
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

    /// The number of failures.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The height; `None` if there are no failures.
    #[inline]
    pub fn height(&self) -> Option<Height> {
        self.log.last().map(|last| Height { failures: self.count, last: last.at })
    }

    fn push(&mut self, failure: Failure) {
        self.count += failure.count;
        self.log.push(failure);
    }

    /// Merges the oldest entries, which can no longer be refunded, into one, until there are at most `most`.
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
