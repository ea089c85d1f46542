//! Puts lanes to sleep, and wakes them.

use std::sync::Arc;

use tollgate_core::Timestamp;

use super::lane::{Cause, Lane, LaneKey, Sleep};
use super::retry::rest;
use super::{LaneNumber, LanePlace, Lanes};
use crate::queue::ItemKey;

impl Lanes {
    /// Puts a lane to sleep, together with other lanes that wait for the same limit or server.
    pub(super) fn block(&mut self, number: LaneNumber, sleep: Sleep, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        // First ends a sleep whose time is over.
        lane.advance(now);
        lane.fall_asleep(sleep.clone());
        let waits = |known: &Sleep| matches!(known.cause, Cause::Limit | Cause::Busy);
        let parks = lane.sleep.as_deref().is_some_and(waits);
        let Some(bound) = sleep.shared.clone().filter(|_| parks) else { return };
        if lane.parked.as_deref() == Some(&bound) {
            self.parks.put_off(&bound, &sleep, now);
        } else if lane.parked.is_none() {
            if lane.probes.as_deref() == Some(&bound) {
                lane.probes = None;
            }
            lane.parked = Some(Box::new(Arc::clone(&bound)));
            self.parks.join(&bound, number, &sleep, now);
        }
    }

    /// Records that items of a lane wait for an account.
    pub(super) fn lack_account(&mut self, number: LaneNumber, sleep: Sleep) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.unserved.as_ref().is_none_or(|known| known.until <= sleep.until) {
            lane.unserved = Some(Box::new(sleep));
        }
    }

    /// Makes the items of a lane due that wait for an account.
    fn hurry(&mut self, number: LaneNumber, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.unserved.take().is_none() {
            return;
        }
        for (moment, (rank, item)) in std::mem::take(&mut lane.later) {
            let place = self.places.get_mut(&item);
            match place.filter(|place| matches!(place.kept, Some((Cause::Paused, _)))) {
                Some(place) => {
                    place.due = now;
                    lane.make_ready((rank.0, rank.1, moment.1), item);
                }
                None => lane.later.insert(moment, (rank, item)),
            }
        }
    }

    /// Records that the limits allowed an item in flight. The next item of its lane may ask now, and the next
    /// lane that waits for the same limit.
    pub fn admitted(&mut self, item: ItemKey, now: Timestamp) {
        self.follow_clock(now);
        let Some(place) = self.places.get_mut(&item) else { return };
        place.deferred = false;
        let LanePlace { lane: number, order, .. } = **place;
        self.note_answer(item);
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.asked(order.1);
        let bound = lane.probes.take();
        self.refresh(number, now);
        let Some(bound) = bound else { return };
        if let Some(next) = self.parks.admitted(&bound, number, now) {
            self.send_probe(next, *bound);
            self.refresh(next, now);
        }
    }

    /// Records that a limit or server that lanes sleep for has something free ([`Sleep::shared`]). One of them
    /// asks.
    pub fn released(&mut self, bound: &str, now: Timestamp) {
        if let Some((number, bound)) = self.parks.released(bound, now) {
            self.send_probe(number, bound);
            self.refresh(number, now);
        }
    }

    /// Wakes the lane that asks after this one.
    pub(super) fn follow(&mut self, number: LaneNumber, now: Timestamp) -> Option<LaneNumber> {
        let bound = self.lanes.get_mut(&number)?.probes.take()?;
        let next = self.parks.follow(&bound, number, now)?;
        self.send_probe(next, *bound);
        Some(next)
    }

    pub(super) fn send_probe(&mut self, number: LaneNumber, bound: Arc<str>) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            (lane.parked, lane.probes, lane.sleep) = (None, Some(Box::new(bound)), None);
        }
    }

    /// Puts a lane to rest because its server asked to slow down. Returns the end of the rest.
    pub fn throttle(&mut self, key: &LaneKey, reason: &str, now: Timestamp) -> Option<Timestamp> {
        self.follow_clock(now);
        let number = *self.numbers.get(key)?;
        let lane = self.lanes.get_mut(&number)?;
        let until = now + rest(lane.throttled.into());
        lane.throttled = lane.throttled.saturating_add(1);
        lane.fall_asleep(Sleep::new(until, Cause::Throttled, reason.to_owned()));
        if let Some(bound) = lane.parked.take() {
            // The server's request takes precedence over the limit: it has its own time.
            self.parks.leave(&bound, number);
        }
        self.refresh(number, now);
        Some(until)
    }

    /// Records that a server accepted a message. Its next request to slow down counts as the first one.
    pub fn relax(&mut self, key: &LaneKey) {
        if let Some(lane) = self.numbers.get(key).and_then(|number| self.lanes.get_mut(number)) {
            lane.throttled = 0;
        }
    }

    /// Wakes all lanes of a tenant that sleep for this cause, and their items that wait for it.
    pub fn wake(&mut self, tenant: &str, cause: Cause, now: Timestamp) {
        let sleeping = |lane: &Lane| {
            let mut causes = lane.sleep.iter().chain(&lane.unserved).map(|sleep| sleep.cause);
            *lane.key.tenant == *tenant && causes.any(|known| known == cause)
        };
        let numbers: Vec<LaneNumber> =
            self.lanes.iter().filter(|(_, lane)| sleeping(lane)).map(|(number, _)| *number).collect();
        for number in numbers {
            if cause == Cause::Paused {
                self.hurry(number, now);
            }
            if let Some(lane) = self.lanes.get_mut(&number)
                && lane.sleep.take_if(|sleep| sleep.cause == cause).is_some()
                && let Some(bound) = lane.parked.take()
            {
                self.parks.leave(&bound, number);
            }
            self.refresh(number, now);
        }
    }
}
