//! Which keys a shard forgets by itself: those that are as good as new, and others to make room.

use smallvec::SmallVec;
use tollgate_core::limit::{Idle, State};
use tollgate_core::{Limit, Plan, Timestamp};

use super::pack;
use super::{KeyHash, Place, Shard, StateRow};

/// What may be done with a key to make room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It is as good as new: nobody can tell that it was forgotten.
    Idle,
    /// It counts something but refuses nobody.
    Open,
    /// It refuses attempts now: forgetting it would let them in.
    Blocked,
    /// It must not be forgotten at all.
    Pinned,
}

/// The best key to forget that a search has met so far, and what else it has met.
#[derive(Default)]
struct Search {
    best: Option<(Standing, Idle, KeyHash)>,
    open: usize,
    blocked: usize,
    met: usize,
    /// Whether it has passed over a key that is to be kept.
    spared: bool,
}

/// How many open keys are weighed against each other before one is forgotten.
const SAMPLE: usize = 8;
/// How many slots are looked at, at most, while most keys met may be forgotten.
const REACH: usize = 1_024;
/// How many neighbouring slots are looked at before the search moves on to another part.
const STRIDE: usize = 32;

impl Shard {
    /// Forgets one key to make room for another: one that is idle if a bounded search meets it,
    /// else of a few open ones the one that would be idle first, else a blocked one. The keys to be
    /// kept are left alone. Answers whether there was any.
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
                // By the golden ratio, so that a few strides reach every part of both tables
                // alike: blocked keys may well fill one of them.
                self.hand = (self.hand + (width as u64 * 618 / 1_000) as usize) % width;
            }
        }
        // A sample of mostly blocked keys means that most keys are, and one of them has to go. One
        // of mostly pinned keys says little about the few others, so all are looked at.
        let settled = search.open > 0 || search.blocked * 2 > search.met;
        if !settled && !search.is_over() {
            for _ in 0..width {
                self.look(&mut search, now, keep);
                if search.is_over() {
                    break;
                }
            }
        }
        let Some((standing, _, key)) = search.best else {
            // All were looked at, and need not be again until one of them may go.
            self.all_pinned = !search.spared;
            return false;
        };
        if standing > Standing::Idle {
            self.evicted = self.evicted.max(now);
        }
        self.forget(key);
        true
    }

    /// Whether what a plan's limits took at a moment may have been forgotten here since, and begun
    /// anew.
    pub(crate) fn may_have_lost(&self, plan: &Plan, taken_at: Timestamp) -> bool {
        taken_at <= self.evicted && !plan.limits().iter().all(Limit::names_takes)
    }

    /// When a key that counted something was last forgotten for another.
    pub(crate) fn evicted(&self) -> Timestamp {
        self.evicted
    }

    /// As far as is known from a file.
    pub(crate) fn restore_evicted(&mut self, evicted: Timestamp) {
        self.evicted = self.evicted.max(evicted);
    }

    /// Notes that a key has these states now.
    #[inline]
    pub(super) fn note_standing(&mut self, plan: &Plan, states: &[State]) {
        if self.all_pinned {
            self.all_pinned = plan.idle(states) == Idle::Never;
        }
    }

    /// Looks at the next slot.
    fn look(&mut self, search: &mut Search, now: Timestamp, keep: &[KeyHash]) {
        self.hand = if self.hand + 1 >= self.width() { 0 } else { self.hand + 1 };
        let Some((key, _)) = self.nth(self.hand) else { return };
        if keep.contains(&key) {
            search.spared = true;
            return;
        }
        let (standing, idle) = self.standing(self.place_of_nth(self.hand), now);
        search.met += 1;
        search.open += usize::from(standing == Standing::Open);
        search.blocked += usize::from(standing == Standing::Blocked);
        let better = search.best.is_none_or(|best| (standing, idle) < (best.0, best.1));
        if standing != Standing::Pinned && better {
            search.best = Some((standing, idle, key));
        }
    }

    fn standing(&self, place: Place, now: Timestamp) -> (Standing, Idle) {
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

    /// Forgets the idle keys among the `most` slots from `from` on. Answers where to go on, or
    /// nothing if the end was reached.
    pub(crate) fn sweep(&mut self, from: usize, most: usize, now: Timestamp) -> Option<usize> {
        let end = (from + most).min(self.width());
        let mut gone = SmallVec::<[KeyHash; 16]>::new();
        for index in from..end {
            if let Some((key, _)) = self.nth(index)
                && self.standing(self.place_of_nth(index), now).0 == Standing::Idle
            {
                gone.push(key);
            }
        }
        gone.into_iter().for_each(|key| self.forget(key));
        (end < self.width()).then_some(end)
    }
}

fn judge(plan: &Plan, states: &[State], now: Timestamp) -> (Standing, Idle) {
    let idle = plan.idle(states);
    (Standing::of(idle, now, || plan.blocks(states, now)), idle)
}

impl Standing {
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
        self.open == SAMPLE || self.best.is_some_and(|(standing, ..)| standing == Standing::Idle)
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
        let keys = (1..=100).map(|number| [number, number << 57]);
        for key in keys {
            shard.insert(key, &total, &[State::Total(1)]);
        }
        assert!(!shard.make_room(NOW, &[[7, 7 << 57]]), "one is kept, the others are pinned");
        assert!(!shard.all_pinned, "the one that was kept might go another time");
        assert!(!shard.make_room(NOW, &[]));
        assert!(shard.all_pinned, "nothing need be looked at again");
        let place = shard.find([7, 7 << 57]).unwrap();
        shard.put_back([7, 7 << 57], place, &total, &mut [State::Total(1)], true);
        assert!(shard.all_pinned, "a key that stays pinned changes nothing");
        shard.put_back([7, 7 << 57], place, &total, &mut [State::Fresh], true);
        assert!(shard.make_room(NOW, &[]), "what it held was given back");
        assert_eq!(shard.evicted(), Timestamp::ZERO, "it counted nothing");
    }
}
