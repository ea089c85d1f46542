//! Counts the messages that limits defer: each once for each deferral, however often its lane asks the limits.
//!
//! A deferral begins when the lane of a due item sleeps for a limit, whether the item itself asked or waits behind
//! the one that did. It ends when the limits let the item pass, or when the item leaves the queue. A message of
//! several domains is deferred while any of them is, so it counts once.

use std::sync::Arc;

use super::lane::Cause;
use super::{LaneNumber, Lanes};
use crate::meters::AccountLabel;
use crate::queue::ItemKey;

impl Lanes {
    /// The messages that limits began to defer since the last call, by the account whose limit it is.
    pub fn take_deferrals(&mut self) -> Vec<(AccountLabel, u64)> {
        std::mem::take(&mut self.deferrals).into_iter().collect()
    }

    /// Counts the due items of a lane that sleeps for a limit. Each item is looked at once for each of its waits.
    pub(super) fn count_deferrals(&mut self, number: LaneNumber) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let Some(sleep) = lane.sleep.as_deref().filter(|sleep| sleep.cause == Cause::Limit) else { return };
        let account = sleep.account.clone().unwrap_or_default();
        let alone = lane.ready.first().filter(|_| lane.ready.len() == 1).map(|(_, item)| *item);
        let uncounted = std::mem::take(&mut lane.uncounted).into_iter().map(|(_, item)| item);
        let label = AccountLabel { tenant: Arc::clone(&lane.key.tenant), account };
        let mut begun = 0;
        for item in uncounted.chain(alone) {
            begun += u64::from(!self.is_deferred(item));
            if let Some(place) = self.places.get_mut(&item) {
                place.deferred = true;
            }
        }
        if begun > 0 {
            *self.deferrals.entry(label).or_default() += begun;
        }
    }

    /// Whether a limit defers any item of the message.
    pub(crate) fn is_deferred(&self, item: ItemKey) -> bool {
        let [first, last] = [0, u32::MAX].map(|number| ItemKey { number, ..item });
        self.places.range(first..=last).any(|(_, place)| place.deferred)
    }
}
