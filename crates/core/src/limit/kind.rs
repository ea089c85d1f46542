//! The interface of every kind of limit. Each kind implements it in its own file; [`super::Limit`] only
//! delegates.

use super::{Draft, Holding, Identity, Idle, Period, Refund, State};
use crate::reading::{Reading, When};
use crate::time::Span;

/// The longest time that a take is remembered for a refund.
pub(super) const LONGEST_MATTER: Span = Span::from_secs(32 * 86_400);

/// A kind of limit. A state of another kind counts as [`State::Fresh`].
pub(super) trait Kind {
    /// The identity of its counter.
    fn identity(&self) -> Identity<'_>;

    /// The number, as written.
    fn number(&self) -> u64;

    /// The most that one attempt can take.
    fn capacity(&self) -> u64 {
        self.number()
    }

    /// The period, if it is fixed.
    fn period(&self) -> Option<Span>;

    /// How long a take matters. A renewed hold matters for longer.
    fn matters_for(&self) -> Span;

    /// The kind of hold that an attempt takes.
    fn holding(&self) -> Holding {
        Holding::Nothing
    }

    /// The calendar period that is needed to count this limit.
    fn calendar(&self) -> Option<&Period> {
        None
    }

    /// Whether a state knows its takes by ticket, or is never evicted while it counts any. A state that only
    /// counts cannot tell takes apart, so a store that evicts such a state must remember when it did.
    fn names_takes(&self) -> bool;

    /// Brings a state to the present: forgets what no longer counts, and clamps times in the future after the
    /// clock went back.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>);

    /// When the draft conforms. The state must be fresh as of the draft's time.
    fn when(&self, state: &State, draft: &Draft<'_>) -> When;

    /// Takes the draft's cost, which is not 0. The draft must conform, and the state be fresh as of its time.
    fn take(&self, state: &mut State, draft: &Draft<'_>);

    /// The reading of the limit, given when the draft conformed.
    fn read(&self, state: &State, when: When, draft: &Draft<'_>) -> Reading;

    /// Refunds a take of the draft's ticket, or a part of it, as far as it still counts. The draft's cost and
    /// calendar must be those of the take.
    fn refund(&self, state: &mut State, draft: &Draft<'_>, refund: Refund);

    /// As [`Kind::refund`], for an attempt that has succeeded: a ladder also forgets every earlier failure.
    fn clear(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        self.refund(state, draft, refund);
    }

    /// Whether the draft would be refused by a state that is not idle but need not be fresh. An entry that
    /// has aged out shows as a wait of zero.
    fn blocks(&self, state: &State, draft: &Draft<'_>) -> bool {
        self.when(state, draft) > When::After(Span::ZERO)
    }

    /// From when on the state equals a fresh one.
    fn idle(&self, state: &State) -> Idle;
}
