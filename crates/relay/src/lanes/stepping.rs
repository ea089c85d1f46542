//! Handles a clock that is set back: every waiting item and lane keeps its remaining time.
//!
//! Moments are those of the wall clock, because they are shown and compared with it. A clock that runs a year ahead for a
//! moment would otherwise let lanes sleep for a year. A clock that is set forward needs no change: the
//! waiting items are due, and the limits are asked.

use tollgate_core::{Span, Timestamp};

use super::Lanes;
use super::flights::Flight;
use super::lane::{Lane, LaterItem, Rank, Sleep};

/// Threads may read the clock in another order than they come here. A clock that is further back than this was set.
const OUT_OF_ORDER: Span = Span::from_secs(1);

impl Lanes {
    /// Records the time. If the clock was set back, moves all moments back with it.
    pub(super) fn follow_clock(&mut self, now: Timestamp) {
        let back = self.latest.since(now);
        if back < OUT_OF_ORDER {
            self.latest = self.latest.max(now);
            return;
        }
        self.latest = now;
        for place in self.places.values_mut() {
            place.order.0 = place.order.0 - back;
            place.due = place.due - back;
            if let Flight::Since(since, _) = &mut place.flight {
                *since = *since - back;
            }
            if let Some((_, moment)) = &mut place.kept {
                *moment = *moment - back;
            }
        }
        self.flights.set_back(back);
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers.into_iter().map(|(at, lane)| (at - back, lane)).collect();
        self.lanes.values_mut().for_each(|lane| lane.set_back(back));
        self.parks.set_back(back);
    }
}

impl Lane {
    fn set_back(&mut self, back: Span) {
        let earlier = |(priority, at, number): Rank| (priority, at - back, number);
        let ready = std::mem::take(&mut self.ready);
        self.ready = ready.into_iter().map(|(rank, item)| (earlier(rank), item)).collect();
        let later = std::mem::take(&mut self.later);
        let moved = |((due, number), ((priority, at), item)): ((Timestamp, u64), LaterItem)| {
            ((due - back, number), ((priority, at - back), item))
        };
        self.later = later.into_iter().map(moved).collect();
        if let Some(asking) = &mut self.asking {
            asking.1 = asking.1 - back;
        }
        for sleep in self.sleep.iter_mut().chain(&mut self.unserved) {
            sleep.set_back(back);
        }
        self.timer = self.timer - back;
    }
}

impl Sleep {
    fn set_back(&mut self, back: Span) {
        (self.until, self.free_at) = (self.until - back, self.free_at - back);
    }
}
