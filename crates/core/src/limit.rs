//! Limits: a number and how it is counted.
//!
//! Each kind has its own file and implements [`kind::Kind`]: how its state ages (`freshen`), when an attempt
//! conforms (`when`), how it is taken (`take`), its reading (`read`), and its refund (`refund`). This file
//! lists the kinds and delegates to them. A new kind of limit needs a file below `limit/`, a variant of
//! [`Limit`] and [`State`], a phrase in the grammar, and an encoding in the stores.

mod bucket;
mod by_id;
mod calendar;
mod in_flight;
mod kind;
mod ladder;
mod per_attempt;
mod sliding;
mod slotted;
mod state;
mod total;
mod window;

use alloc::string::String;

pub use bucket::{Bucket, Level};
pub use calendar::{Calendar, Page, Period, Unit};
pub use in_flight::{Hold, Holding, Holds, InFlight};
pub use ladder::{Failure, Failures, Height, Ladder, Pause, Step};
pub use per_attempt::PerAttempt;
pub use sliding::{Entry, Log, Sliding};
pub use slotted::{Slots, Slotted};
pub use state::State;
pub use total::Total;
pub use window::{Tally, Window};

pub use kind::Refill;
use kind::{Kind, LONGEST_MATTER, Nature};

use crate::Ticket;
use crate::outage::Share;
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
    Total(Total),
    /// `100 recipients per attempt`: bounds a number in the attempt and consumes nothing.
    PerAttempt(PerAttempt),
}

/// What identifies a counter: kind and period, never the number. A new number keeps the count; a new kind or
/// period starts afresh.
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

/// When a state equals a fresh one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// From this time on.
    At(Timestamp),
    /// Never: it must not be forgotten.
    Never,
}

/// The numbers of a limit cannot be counted exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// The largest number that can be.
    pub most: u64,
}

/// One attempt, as a limit sees it.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// How much it takes; 0 takes nothing and only reads.
    pub cost: u64,
    /// The id of its holds.
    pub id: Option<&'a str>,
    /// The ticket of the attempt.
    pub ticket: Ticket,
    /// The store's time.
    pub now: Timestamp,
    /// Numbers in the attempt that limits may bound.
    pub amounts: &'a [(&'a str, u64)],
    /// The calendar around now. The caller has checked that it covers every calendar limit.
    pub calendar: &'a [Page],
}

/// How much of a take is refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// When it was taken.
    pub taken_at: Timestamp,
    /// How much of it is refunded; everything if this is not less than the draft's cost.
    pub amount: u64,
}

impl Refund {
    /// What remains of an entry of the draft's ticket that counts as `cost`.
    fn rest_of(self, cost: u64, draft: &Draft<'_>) -> u64 {
        if self.amount >= draft.cost { 0 } else { cost.saturating_sub(self.amount) }
    }
}

impl Draft<'_> {
    fn end_of(&self, period: &Period) -> Timestamp {
        let page = self.calendar.iter().find(|page| page.period == *period);
        page.and_then(|page| page.end_at(self.now)).expect("settling checks that the calendar covers now")
    }

    fn amount(&self, field: &str) -> Option<u64> {
        amount_in(self.amounts, field)
    }
}

/// The number in a field of an attempt.
pub(crate) fn amount_in(amounts: &[(&str, u64)], field: &str) -> Option<u64> {
    amounts.iter().find(|(name, _)| *name == field).map(|(_, amount)| *amount)
}

/// Evaluates an expression with the kind of a limit.
macro_rules! with_kind {
    ($limit:expr, $kind:ident => $expression:expr) => {
        match $limit {
            Limit::Window($kind) => $expression,
            Limit::Calendar($kind) => $expression,
            Limit::Sliding($kind) => $expression,
            Limit::Slotted($kind) => $expression,
            Limit::Bucket($kind) => $expression,
            Limit::InFlight($kind) => $expression,
            Limit::Ladder($kind) => $expression,
            Limit::Total($kind) => $expression,
            Limit::PerAttempt($kind) => $expression,
        }
    };
}

impl Limit {
    /// The identity of its counter.
    pub fn identity(&self) -> Identity<'_> {
        with_kind!(self, kind => kind.identity())
    }

    /// The number as written: the rate of a bucket, the failures of a ladder's last step, the maximum of all
    /// others.
    pub fn number(&self) -> u64 {
        with_kind!(self, kind => kind.number())
    }

    /// The most that can be taken at once: the burst of a bucket, the failures of a ladder's first pause, the
    /// number of all others.
    pub fn capacity(&self) -> u64 {
        with_kind!(self, kind => kind.capacity())
    }

    /// The period, if it is fixed.
    pub fn period(&self) -> Option<Span> {
        with_kind!(self, kind => Kind::period(kind))
    }

    /// How long a take matters; at most about a month. A renewed hold matters for longer.
    pub fn matters_for(&self) -> Span {
        with_kind!(self, kind => kind.matters_for()).min(LONGEST_MATTER)
    }

    /// How its units come back; `None` if that cannot be known in advance.
    pub fn refill(&self) -> Option<Refill> {
        with_kind!(self, kind => kind.refill())
    }

    /// Whether this limit counts holds.
    pub fn holds(&self) -> bool {
        self.holding() != Holding::Nothing
    }

    /// The kind of hold that an attempt takes.
    pub fn holding(&self) -> Holding {
        with_kind!(self, kind => kind.holding())
    }

    /// Whether a state knows its takes by ticket, or is never evicted while it counts any. A state that only
    /// counts cannot tell takes apart, so a store that evicts such a state must remember when it did.
    pub fn names_takes(&self) -> bool {
        self.nature().names_takes
    }

    /// Whether a state keeps the ticket of each take, so that a take can be undone without its receipt.
    pub fn keeps_tickets(&self) -> bool {
        self.nature().keeps_tickets
    }

    /// Whether an attempt uses something up. A bound on a number of each attempt uses up nothing, so what
    /// is left of it says nothing about the next attempt.
    pub fn consumes(&self) -> bool {
        self.nature().consumes
    }

    fn nature(&self) -> Nature {
        fn of<K: Kind>(_: &K) -> Nature {
            K::NATURE
        }
        with_kind!(self, kind => of(kind))
    }

    /// The calendar period that is needed to count this limit.
    pub fn calendar(&self) -> Option<&Period> {
        with_kind!(self, kind => kind.calendar())
    }

    /// Brings a state to the present: forgets what no longer counts, and clamps times in the future after the
    /// clock went back.
    pub fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        with_kind!(self, kind => kind.freshen(state, draft));
    }

    /// When the draft conforms. The state must be fresh as of the draft's time.
    pub fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        with_kind!(self, kind => kind.when(state, draft))
    }

    /// Freshens the state, and returns when the draft conforms.
    #[inline]
    pub(crate) fn weigh(&self, state: &mut State, draft: &Draft<'_>) -> When {
        with_kind!(self, kind => {
            kind.freshen(state, draft);
            kind.when(state, draft)
        })
    }

    /// Takes the draft's cost. The draft must conform, and the state be fresh as of its time.
    #[inline]
    pub fn take(&self, state: &mut State, draft: &Draft<'_>) {
        if draft.cost > 0 {
            with_kind!(self, kind => kind.take(state, draft));
        }
    }

    /// The reading of the limit, given when the draft conformed.
    #[inline]
    pub fn read(&self, state: &State, when: When, draft: &Draft<'_>) -> Reading {
        let mut reading = Reading::at(when);
        reading.show(with_kind!(self, kind => kind.read(state, draft)));
        reading
    }

    /// Takes the draft's cost if it is `taken`, and shows the units of the limit in its reading, which already has
    /// when the draft conforms.
    #[inline]
    pub(crate) fn conclude(&self, state: &mut State, draft: &Draft<'_>, taken: bool, reading: &mut Reading) {
        with_kind!(self, kind => {
            if taken {
                kind.take(state, draft);
            }
            reading.show(kind.read(state, draft));
        });
    }

    /// The reading after the wait that it shows, if nothing was taken meanwhile.
    pub fn read_after_wait(&self, reading: Reading, cost: u64) -> Reading {
        with_kind!(self, kind => kind.read_after_wait(reading, cost))
    }

    /// The reading after a refund of this cost.
    pub(crate) fn read_refunded(&self, reading: Reading, cost: u64) -> Reading {
        with_kind!(self, kind => kind.read_refunded(reading, cost))
    }

    /// When a cost greater than that of the reading conforms; `None` if the reading does not tell.
    pub fn when_greater(&self, reading: Reading, cost: u64, now: Timestamp) -> Option<When> {
        with_kind!(self, kind => kind.when_greater(reading, cost, now))
    }

    /// Refunds a take of the draft's ticket, or a part of it, as far as it still counts. The draft's cost and
    /// calendar must be those of the take.
    pub fn refund(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        with_kind!(self, kind => kind.refund(state, draft, refund));
    }

    /// As [`Limit::refund`], but a ladder also forgets every earlier failure.
    pub fn clear(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        with_kind!(self, kind => kind.clear(state, draft, refund));
    }

    /// Converts a state from a limit of the same identity with other numbers. A limit of another identity
    /// starts fresh.
    pub fn adopt(&self, old: &Self, state: State, now: Timestamp) -> State {
        if self == old {
            // The same limit, made anew: carrying it over must not age the state.
            return state;
        }
        if self.identity() != old.identity() {
            return State::Fresh;
        }
        with_kind!(self, kind => kind.adopt(old, state, now))
    }

    /// This limit cut to one node's share, for deciding without a shared store; `None` if only the shared
    /// store can count it.
    pub(crate) fn share(&self, share: Share) -> Option<Self> {
        with_kind!(self, kind => kind.share(share))
    }

    /// Whether an attempt with cost 1 would be denied now, judged by the state alone.
    pub fn denies(&self, state: &State, now: Timestamp) -> bool {
        let draft = Draft { cost: 1, id: None, ticket: Ticket(0), now, amounts: &[], calendar: &[] };
        self.idle(state) > Idle::At(now) && with_kind!(self, kind => kind.denies(state, &draft))
    }

    /// From when on the state can be forgotten without effect.
    pub fn idle(&self, state: &State) -> Idle {
        with_kind!(self, kind => kind.idle(state))
    }
}

/// The limit as one kind, if it is of that kind.
macro_rules! as_kind {
    ($($(#[$doc:meta])* $name:ident: $Kind:ident,)*) => {
        impl Limit {
            $($(#[$doc])* pub fn $name(&self) -> Option<&$Kind> {
                if let Self::$Kind(kind) = self { Some(kind) } else { None }
            })*
        }
    };
}

as_kind! {
    /// The window, if that is what it is.
    window: Window,
    /// The exact log, if that is what it is.
    sliding: Sliding,
    /// The log in slots, if that is what it is.
    slotted: Slotted,
    /// The bucket, if that is what it is.
    bucket: Bucket,
    /// The limit on holds, if that is what it is.
    in_flight: InFlight,
    /// The ladder, if that is what it is.
    ladder: Ladder,
    /// The bound on a number of each attempt, if that is what it is.
    per_attempt: PerAttempt,
}

impl TooBig {
    /// The remedy, as text.
    pub fn remedy(self) -> String {
        alloc::format!("the largest burst that is exact with this rate is {}", self.most)
    }
}
