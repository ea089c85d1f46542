//! Removes keys of a shard: idle ones, and others to make room.

use smallvec::SmallVec;
use tollgate_core::limit::{Idle, State};
use tollgate_core::{Limit, Plan, Timestamp};

use super::pack;
use super::{KeyHash, Place, Shard, StateRow};

/// Whether a key may be evicted to make room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evictability {
    /// It is idle: removing it has no effect.
    Idle,
    /// It counts something but refuses no attempt.
    Open,
    /// It refuses attempts now: evicting it would admit them.
    Blocked,
    /// It must not be evicted at all.
    Pinned,
}

/// The best key to evict that a search has found, and how many of each kind it met.
#[derive(Default)]
struct Search {
    best: Option<(Evictability, Idle, KeyHash)>,
    open: usize,
    blocked: usize,
    met: usize,
    /// Whether it skipped a key that must be kept.
    spared: bool,
}

/// How many open keys are compared before one is evicted.
const SAMPLE: usize = 8;
/// The most slots that are searched, while most keys may be evicted.
const REACH: usize = 1_024;
/// How many adjacent slots are searched before the search jumps to another part.
const STRIDE: usize = 32;

impl Shard {
    /// Evicts one key to make room for another: an idle one if a bounded search finds it, else of a few open
    /// ones the one that would be idle first, else a blocked one. Keys in `keep` are skipped. Returns whether
    /// a key was evicted.
    pub(crate) fn make_room(&mut self, now: Timestamp, keep: &[KeyHash]) -> bool {
        if self.all_pinned {
            return false;
        }
        let width = self.width();
        let mut search = Search::default();
        for count in 1..=REACH.min(width) {
            self.look(&mut search, now, keep);
            if search.is_over() {
                break;
            }
            if count % STRIDE == 0 && width > REACH {
                // A jump by the golden ratio, so that a few strides reach every part of both tables alike:
                // blocked keys may fill one of them.
                self.hand = (self.hand + (width as u64 * 618 / 1_000) as usize) % width;
            }
        }
        // If the sample is mostly blocked, most keys are, and one of them must go. A sample of mostly pinned
        // keys says little about the others, so all are searched.
        let settled = search.open > 0 || search.blocked * 2 > search.met;
        if !settled && !search.is_over() {
            for _ in 0..width {
                self.look(&mut search, now, keep);
                if search.is_over() {
                    break;
                }
            }
        }
        let Some((evictability, _, key)) = search.best else {
            // All keys were searched. No other search is needed until one of them may go.
            self.all_pinned = !search.spared;
            return false;
        };
        if evictability > Evictability::Idle {
            self.evicted = self.evicted.max(now);
        }
        self.forget(key);
        true
    }

    /// Whether charges of this plan may have been evicted since `taken_at`, so that their counters started
    /// anew.
    pub(crate) fn may_have_lost(&self, plan: &Plan, taken_at: Timestamp) -> bool {
        taken_at <= self.evicted && !plan.limits().iter().all(Limit::names_takes)
    }

    /// When a key that counted something was last evicted.
    pub(crate) fn evicted(&self) -> Timestamp {
        self.evicted
    }

    /// Restores that time from a file.
    pub(crate) fn restore_evicted(&mut self, evicted: Timestamp) {
        self.evicted = self.evicted.max(evicted);
    }

    /// Records that a key now has these states.
    #[inline]
    pub(super) fn note_standing(&mut self, plan: &Plan, states: &[State]) {
        if self.all_pinned {
            self.all_pinned = plan.idle(states) == Idle::Never;
        }
    }

    /// Inspects the next slot.
    fn look(&mut self, search: &mut Search, now: Timestamp, keep: &[KeyHash]) {
        self.hand = if self.hand + 1 >= self.width() { 0 } else { self.hand + 1 };
        let Some((key, _)) = self.nth(self.hand) else { return };
        if keep.contains(&key) {
            search.spared = true;
            return;
        }
        let (evictability, idle) = self.evictability(self.place_of_nth(self.hand), now);
        search.met += 1;
        search.open += usize::from(evictability == Evictability::Open);
        search.blocked += usize::from(evictability == Evictability::Blocked);
        let better = search.best.is_none_or(|best| (evictability, idle) < (best.0, best.1));
        if evictability != Evictability::Pinned && better {
            search.best = Some((evictability, idle, key));
        }
    }

    fn evictability(&self, place: Place, now: Timestamp) -> (Evictability, Idle) {
        let plan = self.plans.plan(self.tag(place).plan());
        let mut row = StateRow::new();
        match place {
            Place::Wide(index) => {
                let slot = self.wide.at(index).expect("a place is not empty");
                pack::unpack(plan, &slot.words, &slot.halves, &mut row);
            }
            Place::Narrow(index) => {
                let slot = self.narrow.at(index).expect("a place is not empty");
                if slot.tag.is_deep() {
                    return judge(plan, &self.deep[slot.words[0] as usize], now);
                }
                pack::unpack(plan, &slot.words, &slot.halves, &mut row);
            }
        }
        judge(plan, &row, now)
    }

    /// Removes the idle keys among the `most` slots from `from` on. Returns where to continue, or `None` at
    /// the end.
    pub(crate) fn sweep(&mut self, from: usize, most: usize, now: Timestamp) -> Option<usize> {
        let end = (from + most).min(self.width());
        let mut gone = SmallVec::<[KeyHash; 16]>::new();
        for index in from..end {
            if let Some((key, _)) = self.nth(index)
                && self.evictability(self.place_of_nth(index), now).0 == Evictability::Idle
            {
                gone.push(key);
            }
        }
        gone.into_iter().for_each(|key| self.forget(key));
        (end < self.width()).then_some(end)
    }
}

fn judge(plan: &Plan, states: &[State], now: Timestamp) -> (Evictability, Idle) {
    let idle = plan.idle(states);
    (Evictability::of(idle, now, || plan.denies(states, now)), idle)
}

impl Evictability {
    fn of(idle: Idle, now: Timestamp, blocks: impl FnOnce() -> bool) -> Self {
        match idle {
            Idle::Never => Self::Pinned,
            Idle::At(at) if at <= now => Self::Idle,
            Idle::At(_) if blocks() => Self::Blocked,
            Idle::At(_) => Self::Open,
        }
    }
}

impl Search {
    fn is_over(&self) -> bool {
        self.open == SAMPLE || self.best.is_some_and(|(evictability, ..)| evictability == Evictability::Idle)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);

    #[test]
    fn keys_that_are_all_pinned_are_looked_through_once_until_one_may_go() {
        let limit: Limit = "1 in total".parse().unwrap();
        let total = Arc::new(Plan::new("total".into(), vec![limit]).expect("one limit"));
        let mut shard = Shard::new(None);
        let keys = (1..=100).map(|number| KeyHash(number, number << 57));
        for key in keys {
            shard.insert(key, &total, &[State::Total(1)]);
        }
        assert!(!shard.make_room(NOW, &[KeyHash(7, 7 << 57)]), "one is kept, the others are pinned");
        assert!(!shard.all_pinned, "the one that was kept might go another time");
        assert!(!shard.make_room(NOW, &[]));
        assert!(shard.all_pinned, "nothing need be looked at again");
        let place = shard.find(KeyHash(7, 7 << 57)).unwrap();
        shard.put_back(KeyHash(7, 7 << 57), place, &total, &mut [State::Total(1)], true);
        assert!(shard.all_pinned, "a key that stays pinned changes nothing");
        shard.put_back(KeyHash(7, 7 << 57), place, &total, &mut [State::Fresh], true);
        assert!(shard.make_room(NOW, &[]), "what it held was given back");
        assert_eq!(shard.evicted(), Timestamp::ZERO, "it counted nothing");
    }
}
