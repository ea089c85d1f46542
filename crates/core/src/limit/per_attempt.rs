//! A bound on a number in the attempt. It counts nothing, so it has no state.

use alloc::sync::Arc;

use super::kind::{Kind, Nature};
use super::{Draft, Identity, Idle, Limit, Refund, State};
use crate::outage::Share;
use crate::reading::{Reading, Stock, When};
use crate::time::{Span, Timestamp};

/// The number in `field` may be at most `max`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PerAttempt {
    pub(crate) max: u64,
    pub(crate) field: Arc<str>,
}

impl PerAttempt {
    /// The largest allowed number.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The field with the number.
    pub fn field(&self) -> &Arc<str> {
        &self.field
    }

    /// When an attempt with this number conforms. An attempt without a number always conforms.
    pub fn when_amount_is(&self, amount: Option<u64>) -> When {
        if amount.is_some_and(|amount| amount > self.max) { When::Never } else { When::Now }
    }
}

impl Kind for PerAttempt {
    const NATURE: Nature = Nature { names_takes: true, keeps_tickets: false, consumes: false };

    fn identity(&self) -> Identity<'_> {
        Identity::PerAttempt(&self.field)
    }

    fn number(&self) -> u64 {
        self.max
    }

    fn period(&self) -> Option<Span> {
        None
    }

    fn matters_for(&self) -> Span {
        Span::ZERO
    }

    fn freshen(&self, state: &mut State, _: &Draft<'_>) {
        *state = State::Fresh;
    }

    fn when(&self, _: &State, draft: &Draft<'_>) -> When {
        self.when_amount_is(draft.amount(&self.field))
    }

    fn take(&self, _: &mut State, _: &Draft<'_>) {}

    fn read(&self, _: &State, draft: &Draft<'_>) -> Stock {
        let amount = draft.amount(&self.field).unwrap_or(0);
        Stock { capacity: self.max, remaining: self.max.saturating_sub(amount), reset: None }
    }

    /// An attempt uses up nothing.
    fn read_refunded(&self, reading: Reading, _: u64) -> Reading {
        reading
    }

    /// Its cost does not matter.
    fn when_greater(&self, reading: Reading, _: u64, _: Timestamp) -> Option<When> {
        Some(reading.when)
    }

    fn refund(&self, _: &mut State, _: &Draft<'_>, _: Refund) {}

    fn adopt(&self, _: &Limit, state: State, _: Timestamp) -> State {
        state
    }

    /// The whole limit: it bounds each attempt by itself, on every node.
    fn share(&self, _: Share) -> Option<Limit> {
        Some(Limit::PerAttempt(self.clone()))
    }

    fn idle(&self, _: &State) -> Idle {
        Idle::At(Timestamp::ZERO)
    }
}
