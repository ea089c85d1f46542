//! Keys that one ladder alone limits. A wide slot knows how high they have climbed, which is all that a
//! refusal needs; the failures themselves lie beside the table.

use std::sync::Arc;

use tollgate_core::limit::{Draft, Failures, Height, Idle, Ladder, State};
use tollgate_core::{Limit, Plan, Reading, Timestamp};

use super::{KeyHash, Place, Shard, Slot, StateRow, Tag};

/// The failures of many keys, by number.
#[derive(Default)]
pub(super) struct Climbs {
    entries: Vec<Failures>,
    free: Vec<usize>,
}

impl Climbs {
    fn put(&mut self, failures: Failures) -> usize {
        if let Some(index) = self.free.pop() {
            self.entries[index] = failures;
            return index;
        }
        if self.entries.len() == self.entries.capacity() {
            // By a quarter, as the tables do: doubling would leave half of it empty.
            self.entries.reserve_exact((self.entries.len() / 4).max(4));
        }
        self.entries.push(failures);
        self.entries.len() - 1
    }
}

/// The ladder of a plan that has nothing else.
#[inline]
pub(crate) fn only_ladder(plan: &Plan) -> Option<&Ladder> {
    if let [Limit::Ladder(ladder)] = plan.limits() { Some(ladder) } else { None }
}

impl Slot<2> {
    /// How high the key has climbed, if it is one of those.
    #[inline]
    fn height(&self) -> Option<Height> {
        let failures = u64::from(self.halves[0]) | u64::from(self.halves[1]) << 32;
        (failures > 0).then(|| Height { failures, last: Timestamp::from_micros(self.words[0]) })
    }

    #[inline]
    fn set_height(&mut self, height: Option<Height>) {
        let (failures, last) = height.map_or((0, 0), |height| (height.failures, height.last.as_micros()));
        self.words[0] = last;
        self.halves = [failures as u32, (failures >> 32) as u32];
    }

    #[inline]
    fn failures(&self) -> usize {
        self.words[1] as usize
    }
}

impl Shard {
    /// Settles an attempt at a key that only this ladder limits, if it is there under this very plan,
    /// and says where.
    #[inline]
    pub(crate) fn climb(
        &mut self,
        key: KeyHash,
        plan: &Arc<Plan>,
        ladder: &Ladder,
        draft: impl FnOnce() -> Draft<'static>,
    ) -> Option<(Place, Reading, Timestamp)> {
        let (index, slot) = self.wide.find_slot(key)?;
        if !slot.tag.is_deep() || !self.plans.is(slot.tag.plan(), plan) {
            return None;
        }
        let draft = draft();
        let refused = slot.height().and_then(|height| ladder.refuse(height, &draft));
        let reading = refused.unwrap_or_else(|| {
            let failures = &mut self.climbs.entries[slot.failures()];
            let reading = ladder.settle(failures, &draft);
            slot.set_height(failures.height());
            reading
        });
        Some((Place::Wide(index), reading, draft.now))
    }

    pub(super) fn insert_climb(&mut self, key: KeyHash, tag: Tag, states: &[State]) -> Place {
        let failures = match states {
            [State::Failures(failures)] => Failures::clone(failures),
            _ => Failures::default(),
        };
        let height = failures.height();
        let index = self.climbs.put(failures);
        let mut slot = Slot { key, words: [0, index as u64], halves: [0; 2], tag: tag.deep() };
        slot.set_height(height);
        Place::Wide(self.wide.insert(slot))
    }

    /// Moves the failures of a slot out to the row, until they are saved.
    pub(super) fn load_climb(&mut self, index: usize, row: &mut StateRow) {
        let slot = self.wide.at_mut(index);
        row.push(match slot.height() {
            None => State::Fresh,
            Some(_) => {
                let failures = std::mem::take(&mut self.climbs.entries[slot.failures()]);
                State::Failures(Box::new(failures))
            }
        });
    }

    pub(super) fn save_climb(&mut self, index: usize, states: &mut [State]) {
        let slot = self.wide.at_mut(index);
        let failures = match states {
            [State::Failures(failures)] => std::mem::take(&mut **failures),
            _ => Failures::default(),
        };
        slot.set_height(failures.height());
        self.climbs.entries[slot.failures()] = failures;
    }

    /// Frees the place of a slot's failures, once the slot is gone.
    pub(super) fn drop_climb(&mut self, slot: &Slot<2>) {
        self.climbs.entries[slot.failures()] = Failures::default();
        self.climbs.free.push(slot.failures());
    }

    /// When a slot says no more than none, and whether it refuses attempts now.
    pub(super) fn outlook(slot: &Slot<2>, ladder: &Ladder, now: Timestamp) -> (Idle, bool) {
        let none = (Idle::At(Timestamp::ZERO), false);
        slot.height().map_or(none, |height| (Idle::At(ladder.idle_at(height)), ladder.blocks(height, now)))
    }
}
