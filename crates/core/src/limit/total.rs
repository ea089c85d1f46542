//! A total for the life of the key.

use super::kind::{Kind, LONGEST_MATTER, Nature};
use super::{Draft, Identity, Idle, Limit, Refund, State, window};
use crate::outage::Share;
use crate::reading::{Reading, Stock, When};
use crate::time::{Span, Timestamp};

/// At most `max` for the life of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Total {
    pub(crate) max: u64,
}

impl Total {
    /// The largest allowed total.
    pub fn max(&self) -> u64 {
        self.max
    }
}

impl Kind for Total {
    const NATURE: Nature = Nature { names_takes: true, keeps_tickets: false, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::Total
    }

    fn number(&self) -> u64 {
        self.max
    }

    fn period(&self) -> Option<Span> {
        None
    }

    fn matters_for(&self) -> Span {
        LONGEST_MATTER
    }

    fn freshen(&self, state: &mut State, _: &Draft<'_>) {
        if !matches!(state, State::Total(_)) {
            *state = State::Fresh;
        }
    }

    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        match window::room(self.max, state.total(), draft.cost, Span::ZERO) {
            When::Now => When::Now,
            When::After(_) | When::OnRelease | When::Never => When::Never,
        }
    }

    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        *state = State::Total(state.total() + draft.cost);
    }

    fn read(&self, state: &State, _: &Draft<'_>) -> Stock {
        let remaining = self.max.saturating_sub(state.total());
        Stock { capacity: self.max, remaining, reset: None }
    }

    fn when_greater(&self, reading: Reading, cost: u64, _: Timestamp) -> Option<When> {
        Some(if cost <= reading.remaining.min(reading.capacity) { When::Now } else { When::Never })
    }

    fn refund(&self, state: &mut State, _: &Draft<'_>, refund: Refund) {
        if let State::Total(total) = state {
            *total = total.saturating_sub(refund.amount);
        }
    }

    fn adopt(&self, _: &Limit, state: State, _: Timestamp) -> State {
        state
    }

    /// None: a node does not know the total, which only the shared store has.
    fn share(&self, _: Share) -> Option<Limit> {
        None
    }

    fn idle(&self, state: &State) -> Idle {
        if state.total() > 0 { Idle::Never } else { Idle::At(Timestamp::ZERO) }
    }
}
