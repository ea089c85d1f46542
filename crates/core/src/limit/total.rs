//! A total for the life of the key.

use super::kind::{Kind, LONGEST_MATTER};
use super::{Draft, Identity, Idle, Refund, State, window};
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// At most `max`, ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Total {
    pub(crate) max: u64,
}

impl Total {
    /// The most ever.
    pub fn max(&self) -> u64 {
        self.max
    }
}

impl Kind for Total {
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

    fn names_takes(&self) -> bool {
        true
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

    fn read(&self, state: &State, when: When, _: &Draft<'_>) -> Reading {
        let remaining = self.max.saturating_sub(state.total());
        Reading { capacity: self.max, remaining, reset: None, when }
    }

    fn refund(&self, state: &mut State, _: &Draft<'_>, refund: Refund) {
        if let State::Total(total) = state {
            *total = total.saturating_sub(refund.amount);
        }
    }

    fn idle(&self, state: &State) -> Idle {
        if state.total() > 0 { Idle::Never } else { Idle::At(Timestamp::ZERO) }
    }
}
