//! Limits: a number and how it is counted.
//!
//! Each kind lives in a file of its own and knows four things: how its state ages (`freshen`), when
//! an attempt conforms (`when`), what taking leaves behind (`take`), and how to give it back
//! (`give`). This file only names the kinds and passes on to them. A new kind of limit is a file
//! below `limit/`, a variant of [`Limit`] and [`State`], a phrase in the grammar, and an encoding in
//! the stores.

mod bucket;
mod by_id;
mod calendar;
mod in_flight;
mod ladder;
mod sliding;
mod slotted;
mod state;
mod window;

use alloc::string::String;
use alloc::sync::Arc;

pub use bucket::{Bucket, Level};
pub use calendar::{Calendar, Page, Period, Unit};
pub use in_flight::{Hold, Holding, Holds, InFlight};
pub use ladder::{Failure, Failures, Height, Ladder, Pause, Step};
pub use sliding::{Entry, Log, Sliding};
pub use slotted::{Slots, Slotted};
pub use state::State;
pub use window::{Tally, Window};

use crate::Ticket;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// A limit: a number and how it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// `1000/hour`: a fixed window from the first accepted attempt.
    Window(Window),
    /// `1000/day calendar in Europe/Berlin`: a fixed window on clock boundaries.
    Calendar(Calendar),
    /// `100/hour sliding`: an exact log.
    Sliding(Sliding),
    /// `1000000/day sliding by 5m`: a log in slots.
    Slotted(Slotted),
    /// `10/s burst 50`: a token bucket.
    Bucket(Bucket),
    /// `10 at once`, `50 at once for 30s`: holds.
    InFlight(InFlight),
    /// `ladder 4 +2s then 11 lock 15m`: failures, each of which makes the next attempt wait longer.
    Ladder(Ladder),
    /// `10 in total`: for the life of the key.
    Total {
        /// The most ever.
        max: u64,
    },
    /// `100 recipients per attempt`: bounds a number in the attempt and consumes nothing.
    PerAttempt {
        /// The most that number may be.
        max: u64,
        /// The field that holds it.
        field: Arc<str>,
    },
}

/// What makes two limits the same counter: kind and period, never the number. Raising a number
/// keeps the count; changing kind or period starts afresh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants mirror those of `Limit`")]
pub enum Identity<'l> {
    Window(Span),
    Calendar(&'l Period),
    Sliding(Span),
    Slotted(Span, Span),
    Bucket(Span),
    InFlight,
    Ladder(Span),
    Total,
    PerAttempt(&'l str),
}

/// When a state says no more than a fresh one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// From this moment on.
    At(Timestamp),
    /// Never by itself: it must not be forgotten.
    Never,
}

/// The numbers of a limit cannot be counted exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// The most that could.
    pub most: u64,
}

/// One attempt, as a limit sees it.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// How much it takes; 0 only looks.
    pub cost: u64,
    /// Under which id it holds.
    pub id: Option<&'a str>,
    /// Who takes it.
    pub ticket: Ticket,
    /// The store's time.
    pub now: Timestamp,
    /// Numbers in the attempt that limits may bound.
    pub amounts: &'a [(&'a str, u64)],
    /// The calendar around now. Whoever settles has checked that it covers every calendar limit.
    pub calendar: &'a [Page],
}

impl Draft<'_> {
    fn end_of(&self, period: &Period) -> Timestamp {
        let page = self.calendar.iter().find(|page| page.period == *period);
        page.and_then(|page| page.end_at(self.now)).expect("settling checks that the calendar covers now")
    }

    fn amount(&self, field: &str) -> Option<u64> {
        self.amounts.iter().find(|(name, _)| *name == field).map(|(_, amount)| *amount)
    }
}

impl Limit {
    /// Which counter this is.
    pub fn identity(&self) -> Identity<'_> {
        match self {
            Self::Window(limit) => Identity::Window(limit.period()),
            Self::Calendar(limit) => Identity::Calendar(limit.period()),
            Self::Sliding(limit) => Identity::Sliding(limit.period()),
            Self::Slotted(limit) => Identity::Slotted(limit.period(), limit.slot()),
            Self::Bucket(limit) => Identity::Bucket(limit.period()),
            Self::InFlight(_) => Identity::InFlight,
            Self::Ladder(limit) => Identity::Ladder(limit.forget()),
            Self::Total { .. } => Identity::Total,
            Self::PerAttempt { field, .. } => Identity::PerAttempt(field),
        }
    }

    /// The number, as written: the rate of a bucket, the failures of a ladder's last step, the maximum
    /// of everything else.
    pub fn number(&self) -> u64 {
        match self {
            Self::Window(limit) => limit.max(),
            Self::Calendar(limit) => limit.max(),
            Self::Sliding(limit) => limit.max(),
            Self::Slotted(limit) => limit.max(),
            Self::Bucket(limit) => limit.rate(),
            Self::InFlight(limit) => limit.max(),
            Self::Ladder(limit) => limit.top(),
            Self::Total { max } | Self::PerAttempt { max, .. } => *max,
        }
    }

    /// The most that can be taken at once: the burst of a bucket, the failures of a ladder's first pause,
    /// the number of everything else.
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Bucket(limit) => limit.burst(),
            Self::Ladder(limit) => limit.at_once(),
            _ => self.number(),
        }
    }

    /// The length of time it counts over, if that is fixed.
    pub fn period(&self) -> Option<Span> {
        match self {
            Self::Window(limit) => Some(limit.period()),
            Self::Sliding(limit) => Some(limit.period()),
            Self::Slotted(limit) => Some(limit.period()),
            Self::Bucket(limit) => Some(limit.period()),
            Self::Calendar(limit) => limit.period().unit.length(),
            Self::Ladder(limit) => Some(limit.forget()),
            Self::InFlight(_) | Self::Total { .. } | Self::PerAttempt { .. } => None,
        }
    }

    /// Whether this limit counts holds.
    pub fn holds(&self) -> bool {
        matches!(self, Self::InFlight(_))
    }

    /// What an attempt holds by this limit.
    pub fn holding(&self) -> Holding {
        match self {
            Self::InFlight(limit) if limit.lease().is_some() => Holding::ForATime,
            Self::InFlight(_) => Holding::UntilReleased,
            _ => Holding::Nothing,
        }
    }

    /// Whether a state knows its takes by name, or is never forgotten while it counts any. One that
    /// only counts cannot tell a take from others, so whoever forgets such states has to remember
    /// since when it knows them.
    pub fn names_takes(&self) -> bool {
        match self {
            Self::Sliding(_)
            | Self::InFlight(_)
            | Self::Ladder(_)
            | Self::Total { .. }
            | Self::PerAttempt { .. } => true,
            Self::Window(_) | Self::Calendar(_) | Self::Slotted(_) | Self::Bucket(_) => false,
        }
    }

    /// The calendar period that must be known to count this limit.
    pub fn calendar(&self) -> Option<&Period> {
        match self {
            Self::Calendar(limit) => Some(limit.period()),
            _ => None,
        }
    }

    /// Brings a state to the present: forgets what no longer counts, and clamps what lies in the
    /// future because the clock went back.
    pub fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        match (self, &mut *state) {
            (Self::Window(limit), State::Tally(tally)) => *state = limit.freshen(*tally, draft.now).into(),
            (Self::Calendar(limit), State::Tally(tally)) => *state = limit.freshen(*tally, draft).into(),
            (Self::Bucket(limit), State::Level(level)) => *state = limit.freshen(*level, draft.now).into(),
            (Self::Sliding(limit), State::Log(log)) => {
                limit.freshen(log, draft.now);
                if log.is_empty() {
                    *state = State::Fresh;
                }
            }
            (Self::Slotted(limit), State::Slots(slots)) => {
                limit.freshen(slots, draft.now);
                if slots.is_empty() {
                    *state = State::Fresh;
                }
            }
            (Self::InFlight(limit), State::Holds(holds)) => {
                limit.freshen(holds, draft.now);
                if holds.is_empty() {
                    *state = State::Fresh;
                }
            }
            (Self::Ladder(limit), State::Failures(failures)) => {
                limit.freshen(failures, draft.now);
                if failures.is_empty() {
                    *state = State::Fresh;
                }
            }
            (Self::Total { .. }, State::Total(_)) => {}
            _ => *state = State::Fresh,
        }
    }

    /// When the draft conforms. The state is fresh as of the draft's time.
    pub fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        match self {
            Self::Window(limit) => limit.when(state.tally(), draft),
            Self::Calendar(limit) => limit.when(state.tally(), draft),
            Self::Bucket(limit) => limit.when(state.level(), draft),
            Self::Sliding(limit) => limit.when(state.log(), draft),
            Self::Slotted(limit) => limit.when(state.slots(), draft),
            Self::InFlight(limit) => limit.when(state.holds(), draft),
            Self::Ladder(limit) => limit.when(state.height(), draft),
            Self::Total { max } => match window::room(*max, state.total(), draft.cost, Span::ZERO) {
                When::Now => When::Now,
                _ => When::Never,
            },
            Self::PerAttempt { max, field } => match draft.amount(field) {
                Some(amount) if amount > *max => When::Never,
                _ => When::Now,
            },
        }
    }

    /// Takes the draft's cost. The draft conforms, and the state is fresh as of its time.
    pub fn take(&self, state: &mut State, draft: &Draft<'_>) {
        if draft.cost == 0 {
            return;
        }
        match self {
            Self::Window(limit) => *state = State::Tally(limit.take(state.tally(), draft)),
            Self::Calendar(limit) => *state = State::Tally(limit.take(state.tally(), draft)),
            Self::Bucket(limit) => *state = State::Level(limit.take(state.level(), draft)),
            Self::Sliding(_) => state.log_mut().take(draft),
            Self::Slotted(limit) => limit.take(state.slots_mut(), draft),
            Self::InFlight(_) => state.holds_mut().take(draft),
            Self::Ladder(limit) => limit.take(state.failures_mut(), draft),
            Self::Total { .. } => *state = State::Total(state.total() + draft.cost),
            Self::PerAttempt { .. } => {}
        }
    }

    /// What the limit shows, given when the draft conformed.
    pub fn read(&self, state: &State, when: When, draft: &Draft<'_>) -> Reading {
        match self {
            Self::Window(limit) => limit.read(state.tally(), when, draft.now),
            Self::Calendar(limit) => limit.read(state.tally(), when, draft),
            Self::Bucket(limit) => limit.read(state.level(), when, draft.now),
            Self::Sliding(limit) => limit.read(state.log(), when, draft.now),
            Self::Slotted(limit) => limit.read(state.slots(), when, draft.now),
            Self::InFlight(limit) => limit.read(state.holds(), when, draft.now),
            Self::Ladder(limit) => limit.read(state.height(), when, draft.now),
            Self::Total { max } => {
                Reading { capacity: *max, remaining: max.saturating_sub(state.total()), reset: None, when }
            }
            Self::PerAttempt { max, field } => {
                let amount = draft.amount(field).unwrap_or(0);
                Reading { capacity: *max, remaining: max.saturating_sub(amount), reset: None, when }
            }
        }
    }

    /// Freshens, and says when the draft conforms.
    #[inline]
    pub(crate) fn weigh(&self, state: &mut State, draft: &Draft<'_>) -> When {
        // The commonest kind in company is spelled out: one look at what it is instead of two.
        if let (Self::Window(limit), State::Tally(tally)) = (self, &mut *state)
            && let Some(fresh) = limit.freshen(*tally, draft.now)
        {
            *tally = fresh;
            return limit.when(Some(fresh), draft);
        }
        self.freshen(state, draft);
        self.when(state, draft)
    }

    /// Takes the draft's cost, which conforms, and reads. The reading is written where it belongs: moving
    /// it there takes longer than making it.
    #[inline]
    pub(crate) fn take_and_read(&self, state: &mut State, draft: &Draft<'_>, reading: &mut Reading) {
        if let (Self::Window(limit), State::Tally(tally)) = (self, &mut *state)
            && draft.cost > 0
        {
            *tally = limit.take(Some(*tally), draft);
            *reading = limit.read(Some(*tally), When::Now, draft.now);
            return;
        }
        self.take(state, draft);
        *reading = self.read(state, When::Now, draft);
    }

    /// Freshens, weighs, takes if it conforms, and reads, in one go: for a limit that decides alone.
    pub fn settle_alone(&self, state: &mut State, draft: &Draft<'_>) -> Reading {
        let (counter, reading) = match self {
            Self::Bucket(limit) => {
                let (level, reading) = limit.settle(state.level(), draft);
                (level.into(), reading)
            }
            Self::Window(limit) => {
                let (tally, reading) = limit.settle(state.tally(), draft);
                (tally.into(), reading)
            }
            _ => {
                self.freshen(state, draft);
                let when = self.when(state, draft);
                if when == When::Now {
                    self.take(state, draft);
                }
                return self.read(state, when, draft);
            }
        };
        *state = counter;
        reading
    }

    /// Gives back what `ticket` took at `taken_at`, as far as it still counts. The draft's calendar
    /// is that of the take.
    pub fn give(&self, state: &mut State, draft: &Draft<'_>, taken_at: Timestamp) {
        match (self, &mut *state) {
            (Self::Window(limit), State::Tally(tally)) => *tally = limit.give(*tally, draft.cost, taken_at),
            (Self::Calendar(limit), State::Tally(tally)) => {
                let page = draft.calendar.iter().find(|page| page.period == *limit.period());
                if let Some(end) = page.and_then(|page| page.end_at(taken_at)) {
                    *tally = limit.give(*tally, draft.cost, end);
                }
            }
            (Self::Bucket(limit), State::Level(level)) => {
                *level = limit.give(*level, draft.cost, taken_at, draft.now);
            }
            (Self::Sliding(_), State::Log(log)) => log.give(draft.ticket),
            (Self::Slotted(limit), State::Slots(slots)) => limit.give(slots, draft.cost, taken_at),
            (Self::InFlight(_), State::Holds(holds)) => holds.give(draft.ticket),
            (Self::Ladder(limit), State::Failures(failures)) => limit.give(failures, draft, taken_at),
            (Self::Total { .. }, State::Total(total)) => *total = total.saturating_sub(draft.cost),
            _ => {}
        }
    }

    /// As [`Limit::give`]; a ladder forgets every failure before it as well.
    pub fn clear(&self, state: &mut State, draft: &Draft<'_>, taken_at: Timestamp) {
        match (self, &mut *state) {
            (Self::Ladder(limit), State::Failures(failures)) => limit.clear(failures, draft, taken_at),
            _ => self.give(state, draft, taken_at),
        }
    }

    /// Carries a state over from a limit of the same identity whose numbers were others.
    pub fn adopt(&self, old: &Self, state: State, now: Timestamp) -> State {
        match (self, old, state) {
            // The same limit, made anew: whoever knows it by its text cannot even tell.
            (new, old, state) if new == old => state,
            (Self::Bucket(new), Self::Bucket(old), State::Level(level)) => {
                State::Level(new.adopt(old, level, now))
            }
            // A lease that ran out must not be revived by a longer one, or by none.
            (Self::InFlight(_), Self::InFlight(old), State::Holds(mut holds)) => {
                old.freshen(&mut holds, now);
                if holds.is_empty() { State::Fresh } else { State::Holds(holds) }
            }
            (new, old, state) if new.identity() == old.identity() => state,
            _ => State::Fresh,
        }
    }

    /// Whether the least attempt would be refused now, as far as the state tells by itself.
    pub fn blocks(&self, state: &State, now: Timestamp) -> bool {
        let draft = Draft { cost: 1, id: None, ticket: Ticket(0), now, amounts: &[], calendar: &[] };
        match (self, state) {
            _ if self.idle(state) <= Idle::At(now) => false,
            (Self::Calendar(limit), State::Tally(tally)) => tally.count >= limit.max(),
            (Self::Bucket(limit), State::Level(level)) => {
                limit.when(limit.freshen(*level, now), &draft) > When::Now
            }
            // What has aged out but was not swept yet shows as a wait of no time.
            _ => self.when(state, &draft) > When::After(Span::ZERO),
        }
    }

    /// From when on the state can be forgotten without a trace.
    pub fn idle(&self, state: &State) -> Idle {
        match (self, state) {
            (Self::Window(limit), State::Tally(tally)) => Idle::At(tally.edge + limit.period()),
            (Self::Calendar(_), State::Tally(tally)) => Idle::At(tally.edge),
            (Self::Bucket(_), State::Level(level)) => Idle::At(level.idle_at()),
            (Self::Sliding(limit), State::Log(log)) => Idle::At(log.newest() + limit.period()),
            (Self::Slotted(limit), State::Slots(slots)) => Idle::At(limit.idle_at(slots)),
            (Self::InFlight(limit), State::Holds(holds)) => {
                limit.idle_at(holds).map_or(Idle::Never, Idle::At)
            }
            (Self::Ladder(limit), State::Failures(failures)) => {
                Idle::At(failures.height().map_or(Timestamp::ZERO, |height| limit.idle_at(height)))
            }
            (Self::Total { .. }, State::Total(1..)) => Idle::Never,
            _ => Idle::At(Timestamp::ZERO),
        }
    }
}

impl TooBig {
    /// What to do about it, in words.
    pub fn remedy(self) -> String {
        alloc::format!("the largest burst that is exact with this rate is {}", self.most)
    }
}
