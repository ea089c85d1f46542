//! One limit that decides alone, settled where its state lies: the shortest way there is.

use tollgate_core::charge::Lone;
use tollgate_core::limit::{Draft, Limit};
use tollgate_core::{Charges, Reading, Timestamp, When};

use super::shard::{Place, only_ladder};
use super::{MemoryStore, shard_of};

impl MemoryStore {
    /// Settles one bucket or window in its slot, if that is where it is: the shortest way there is.
    #[inline]
    pub(super) fn settle_alone(
        &self,
        lone: &Lone<'_>,
        charges: &Charges<'_>,
    ) -> Option<(Reading, Timestamp)> {
        let key = self.hash(lone.plan, lone.key.as_bytes());
        let mut shard = self.shards[shard_of(key)].lock();
        let (index, slot) = shard.find_single(key, lone.plan)?;
        let now = self.clock.now();
        let (cost, ticket) = (charges.cost, charges.ticket);
        let draft = Draft { cost, id: None, ticket, now, amounts: &[], calendar: &[] };
        let reading = match lone.limit {
            Limit::Bucket(limit) => {
                let (level, reading) = limit.settle(slot.level(), &draft);
                slot.set_level(level);
                reading
            }
            Limit::Window(limit) => {
                let (tally, reading) = limit.settle(slot.tally(), &draft);
                slot.set_tally(tally);
                reading
            }
            _ => return None,
        };
        if reading.when == When::Now && cost > 0 {
            shard.touch_at(Place::Narrow(index), key);
        }
        Some((reading, now))
    }

    /// As [`MemoryStore::settle_alone`], for one ladder. Kept apart from it, because a second way to the
    /// same answer costs a bucket a fifth of its time.
    pub(super) fn climb_alone(&self, charges: &Charges<'_>) -> Option<(Reading, Timestamp)> {
        let charge = charges.iter().next().filter(|charge| charges.len() == 1 && charge.enforced)?;
        let ladder = only_ladder(charge.plan)?;
        let key = self.hash(charge.plan, charges.key_bytes(charge));
        let mut shard = self.shards[shard_of(key)].lock();
        let (cost, ticket) = (charges.cost, charges.ticket);
        let draft = || Draft { cost, id: None, ticket, now: self.clock.now(), amounts: &[], calendar: &[] };
        let (place, reading, now) = shard.climb(key, charge.plan, ladder, draft)?;
        if reading.when == When::Now && cost > 0 {
            shard.touch_at(place, key);
        }
        Some((reading, now))
    }
}
