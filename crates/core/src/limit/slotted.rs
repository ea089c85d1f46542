//! A sliding window counted in slots: bounded memory for large numbers.
//!
//! A slot counts completely until its last moment has left the window. So there is never more than `max` in
//! any interval, as with the exact log, but room is freed up to one slot late.

use alloc::collections::VecDeque;

use super::kind::{Kind, Nature, Refill};
use super::{Draft, Identity, Idle, Limit, Refund, State};
use crate::outage::Share;
use crate::reading::{Stock, When};
use crate::time::{Span, Timestamp};

/// At most `max` in any interval of length `period`, counted in slots of length `slot`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slotted {
    pub(crate) max: u64,
    pub(crate) period: Span,
    pub(crate) slot: Span,
}

/// The takes in each slot, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    counts: VecDeque<(u64, u64)>,
    used: u64,
}

impl Slotted {
    /// The most slots of a window; the grammar refuses more.
    pub const MOST_SLOTS: u64 = 10_000;

    /// The limit's number: the most that any interval of length `period` admits.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The interval's length.
    pub fn period(&self) -> Span {
        self.period
    }

    /// The length of a slot.
    pub fn slot(&self) -> Span {
        self.slot
    }

    fn index(&self, at: Timestamp) -> u64 {
        at.as_micros() / self.slot.as_micros()
    }

    /// When a slot stops counting.
    fn freed_at(&self, index: u64) -> Timestamp {
        Timestamp::from_micros((index + 1) * self.slot.as_micros()) + self.period
    }
}

impl Kind for Slotted {
    const NATURE: Nature = Nature { names_takes: false, keeps_tickets: false, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::Slotted(self.period, self.slot)
    }

    fn number(&self) -> u64 {
        self.max
    }

    fn period(&self) -> Option<Span> {
        Some(self.period)
    }

    fn refill(&self) -> Option<Refill> {
        Some(Refill { number: self.max, period: self.period, burst: None })
    }

    fn matters_for(&self) -> Span {
        Span::from_micros(self.period.as_micros() + self.slot.as_micros())
    }

    /// Drops the slots that no longer count. If the clock went back, takes in future slots move to the
    /// present slot.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        let State::Slots(slots) = state else { return *state = State::Fresh };
        let present = self.index(draft.now);
        let mut ahead = 0;
        while let Some((_, count)) = slots.counts.pop_back_if(|(index, _)| *index > present) {
            ahead += count;
        }
        if ahead > 0 {
            slots.add(present, ahead);
            slots.used -= ahead;
        }
        while let Some((_, count)) =
            slots.counts.pop_front_if(|(index, _)| self.freed_at(*index) <= draft.now)
        {
            slots.used -= count;
        }
        if slots.counts.is_empty() {
            *state = State::Fresh;
        }
    }

    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        if draft.cost == 0 {
            return When::Now;
        }
        if draft.cost > self.max {
            return When::Never;
        }
        let Some(slots) = state.slots() else { return When::Now };
        let mut excess = (slots.used + draft.cost).saturating_sub(self.max);
        let mut when = When::Now;
        for (index, count) in slots.counts.iter() {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(*count);
            when = When::After(self.freed_at(*index).since(draft.now));
        }
        when
    }

    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        let mut slots = state.take_slots();
        slots.add(self.index(draft.now), draft.cost);
        *state = State::Slots(slots);
    }

    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock {
        let slots = state.slots();
        let newest = slots.and_then(|slots| slots.counts.back());
        Stock {
            capacity: self.max,
            remaining: self.max.saturating_sub(slots.map_or(0, |slots| slots.used)),
            reset: Some(newest.map_or(draft.now, |(index, _)| self.freed_at(*index))),
        }
    }

    /// Only the charged slot is credited.
    fn refund(&self, state: &mut State, _: &Draft<'_>, Refund { taken_at, amount }: Refund) {
        let State::Slots(slots) = state else { return };
        let taken = self.index(taken_at);
        if let Some((_, count)) = slots.counts.iter_mut().find(|(index, _)| *index == taken) {
            let back = amount.min(*count);
            *count -= back;
            slots.used -= back;
        }
        slots.counts.retain(|(_, count)| *count > 0);
    }

    fn adopt(&self, _: &Limit, state: State, _: Timestamp) -> State {
        state
    }

    fn share(&self, share: Share) -> Option<Limit> {
        Some(Limit::Slotted(Self { max: share.of(self.max), ..*self }))
    }

    fn idle(&self, state: &State) -> Idle {
        let newest = state.slots().and_then(|slots| slots.counts.back());
        Idle::At(newest.map_or(Timestamp::ZERO, |(index, _)| self.freed_at(*index)))
    }
}

impl Slots {
    /// The index of each slot since the epoch and its count, oldest first.
    pub fn counts(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.counts.iter().copied()
    }

    fn add(&mut self, index: u64, cost: u64) {
        self.used += cost;
        match self.counts.back_mut() {
            Some((newest, count)) if *newest == index => *count += cost,
            _ => {
                if self.counts.len() == self.counts.capacity() {
                    // Grow by a quarter, as the exact log does.
                    self.counts.reserve_exact((self.counts.len() / 4).max(1));
                }
                self.counts.push_back((index, cost));
            }
        }
    }
}

impl FromIterator<(u64, u64)> for Slots {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(counts: I) -> Self {
        let mut slots = Self::default();
        counts.into_iter().for_each(|(index, count)| slots.add(index, count));
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_slots_grow_by_a_quarter() {
        let mut slots = Slots::default();
        for index in 0..200 {
            let before = slots.counts.capacity();
            slots.add(index, 1);
            let grown = before + (before / 4).max(1);
            assert_eq!(slots.counts.capacity(), if index == before as u64 { grown } else { before });
        }
    }
}
