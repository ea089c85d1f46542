//! What every kind of limit knows. One implementation beside each kind; [`super::Limit`] only picks it.

use super::{Draft, Holding, Identity, Idle, Limit, Period, Refund, State};
use crate::outage::Share;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// The longest that a take is remembered for the sake of a refund.
pub(super) const LONGEST_MATTER: Span = Span::from_secs(32 * 86_400);

/// What is true of every limit of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nature {
    /// A state knows its takes by ticket, or is never evicted while it counts any. A state that only
    /// counts cannot tell one take from another, so a store that evicts such a state must remember when
    /// it did.
    pub(super) names_takes: bool,
    /// A state keeps the ticket of each take, so a take can be found and undone without its receipt.
    pub(super) keeps_tickets: bool,
    /// An attempt uses something up. A kind that only looks at each attempt consumes nothing.
    pub(super) consumes: bool,
}

/// A kind of limit. A state of another kind counts as [`State::Fresh`].
pub(super) trait Kind {
    /// What is true of every limit of this kind.
    const NATURE: Nature;

    /// Which counter this is.
    fn identity(&self) -> Identity<'_>;

    /// The number, as written.
    fn number(&self) -> u64;

    /// The most that one attempt can take.
    fn capacity(&self) -> u64 {
        self.number()
    }

    /// The length of time it counts over, if that is fixed.
    fn period(&self) -> Option<Span>;

    /// How long a take can matter. A hold matters for longer if it is renewed.
    fn matters_for(&self) -> Span;

    /// What an attempt holds by this limit.
    fn holding(&self) -> Holding {
        Holding::Nothing
    }

    /// The calendar period that must be known to count this limit.
    fn calendar(&self) -> Option<&Period> {
        None
    }

    /// Brings a state to the present: forgets what no longer counts, and clamps what lies in the future
    /// because the clock went back.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>);

    /// When the draft conforms. The state is fresh as of the draft's time.
    fn when(&self, state: &State, draft: &Draft<'_>) -> When;

    /// Takes the draft's cost, which is not 0. The draft conforms, and the state is fresh as of its time.
    fn take(&self, state: &mut State, draft: &Draft<'_>);

    /// What the limit shows, given when the draft conformed.
    fn read(&self, state: &State, when: When, draft: &Draft<'_>) -> Reading;

    /// Gives back a part of what the draft's ticket took, or all of it, as far as it still counts. The
    /// draft's cost and calendar are those of the take.
    fn refund(&self, state: &mut State, draft: &Draft<'_>, refund: Refund);

    /// As [`Kind::refund`], for an attempt that has succeeded: a ladder forgets every earlier failure too.
    fn clear(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        self.refund(state, draft, refund);
    }

    /// Whether the draft would be refused, by a state that is not idle but need not be fresh. An entry
    /// that has aged out shows as a wait of no time.
    fn blocks(&self, state: &State, draft: &Draft<'_>) -> bool {
        self.when(state, draft) > When::After(Span::ZERO)
    }

    /// Carries a state over from a limit of the same identity with other numbers.
    fn adopt(&self, old: &Limit, state: State, now: Timestamp) -> State;

    /// This limit cut to one node's share, if a node can count it alone.
    fn share(&self, share: Share) -> Option<Limit>;

    /// From when on the state says no more than a fresh one.
    fn idle(&self, state: &State) -> Idle;
}
