//! The interface of every kind of limit. Each kind implements it in its own file; [`super::Limit`] only
//! delegates.

use super::{Draft, Holding, Identity, Idle, Limit, Period, Refund, State};
use crate::outage::Share;
use crate::reading::{Reading, Stock, When};
use crate::time::{Span, Timestamp};

/// The longest time that a take is remembered for a refund.
pub(super) const LONGEST_MATTER: Span = Span::from_secs(32 * 86_400);

/// Properties shared by all limits of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nature {
    /// True if a state can tell its takes apart (by ticket), or is never evicted while it counts any.
    /// Otherwise a store must remember when it evicted the state.
    pub(super) names_takes: bool,
    /// A state keeps the ticket of each take, so a take can be found and undone without its receipt.
    pub(super) keeps_tickets: bool,
    /// An attempt uses something up. A kind that only looks at each attempt consumes nothing.
    pub(super) consumes: bool,
}

/// How the units of a used-up limit come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// How many come back in a period.
    pub number: u64,
    /// The period.
    pub period: Span,
    /// The most units that can accumulate; `None` where all of them come back at once.
    pub burst: Option<u64>,
}

/// A kind of limit. A state of another kind counts as [`State::Fresh`].
pub(super) trait Kind {
    /// The properties of this kind.
    const NATURE: Nature;

    /// Which counter this is.
    fn identity(&self) -> Identity<'_>;

    /// The number, as written.
    fn number(&self) -> u64;

    /// The most that one attempt can take.
    fn capacity(&self) -> u64 {
        self.number()
    }

    /// The period, if it is fixed.
    fn period(&self) -> Option<Span>;

    /// How long a take counts, and so can be refunded. A renewed hold counts for longer.
    fn matters_for(&self) -> Span;

    /// How its units come back; `None` if that cannot be known in advance.
    fn refill(&self) -> Option<Refill> {
        None
    }

    /// The kind of hold that an attempt takes.
    fn holding(&self) -> Holding {
        Holding::Nothing
    }

    /// The calendar period that is needed to count this limit.
    fn calendar(&self) -> Option<&Period> {
        None
    }

    /// Brings a state to the present: forgets what no longer counts, and clamps what lies in the future
    /// because the clock went back.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>);

    /// When the draft conforms. The state must be fresh as of the draft's time.
    fn when(&self, state: &State, draft: &Draft<'_>) -> When;

    /// Takes the draft's cost, which is not 0. The draft must conform, and the state be fresh as of its time.
    fn take(&self, state: &mut State, draft: &Draft<'_>);

    /// The units of the limit. The state must be fresh as of the draft's time.
    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock;

    /// The reading after the wait that it shows, if nothing was taken meanwhile: at least the cost remains.
    fn read_after_wait(&self, reading: Reading, cost: u64) -> Reading {
        let remaining = reading.remaining.max(cost).min(reading.capacity);
        Reading { when: When::Now, remaining, ..reading }
    }

    /// The reading after a refund of this cost.
    fn read_refunded(&self, reading: Reading, cost: u64) -> Reading {
        Reading { remaining: reading.remaining.saturating_add(cost).min(reading.capacity), ..reading }
    }

    /// When a greater cost than the reading's would conform. `None` if the reading is not enough to know: it is
    /// enough only for limits whose units come back together, or never.
    fn when_greater(&self, _reading: Reading, _cost: u64, _now: Timestamp) -> Option<When> {
        None
    }

    /// Refunds a take of the draft's ticket, or a part of it, as far as it still counts. The draft's cost and
    /// calendar must be those of the take.
    fn refund(&self, state: &mut State, draft: &Draft<'_>, refund: Refund);

    /// As [`Kind::refund`], for an attempt that has succeeded: a ladder also forgets every earlier failure.
    fn clear(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        self.refund(state, draft, refund);
    }

    /// Whether the state, which is not idle but may be outdated, denies the draft. An outdated entry shows as a
    /// wait of zero.
    fn denies(&self, state: &State, draft: &Draft<'_>) -> bool {
        self.when(state, draft) > When::After(Span::ZERO)
    }

    /// Carries a state over from a limit of the same identity with other numbers.
    fn adopt(&self, old: &Limit, state: State, now: Timestamp) -> State;

    /// This limit cut to one node's share, if a node can count it alone.
    fn share(&self, share: Share) -> Option<Limit>;

    /// When the state becomes equivalent to a fresh one.
    fn idle(&self, state: &State) -> Idle;
}
