//! Which lanes have servers that answer, and what their deliveries count as.

use tollgate_core::Timestamp;

use super::Lanes;
use super::flights::{Flight, FlightAnswer};
use super::tenants::Weight;
use crate::queue::ItemKey;

impl Lanes {
    /// Notes the servers that did not answer in time. Further mail of their lanes is a trial.
    pub(super) fn note_silent(&mut self, now: Timestamp) {
        while let Some(item) = self.flights.next_overdue(now) {
            let Some(Flight::Since(since, _)) = self.places.get(&item).map(|place| place.flight) else {
                return;
            };
            self.move_flight(item, Flight::Since(since, FlightAnswer::Overdue), true);
            let lane = self.places.get(&item).and_then(|place| self.lanes.get_mut(&place.lane));
            lane.into_iter().for_each(|lane| lane.answers = Some(false));
        }
    }

    /// Lets deliveries that take long give up their places.
    pub(super) fn note_slow(&mut self, now: Timestamp) {
        while let Some((at, item)) = self.flights.next_slow()
            && at <= now
        {
            let Some(Flight::Since(_, answer)) = self.places.get(&item).map(|place| place.flight) else {
                return;
            };
            self.move_flight(item, Flight::Slow(answer), false);
        }
    }

    /// Notes that the server of an item in flight answered.
    pub(super) fn note_answer(&mut self, item: ItemKey) {
        let Some(place) = self.places.get(&item).map(|place| **place) else { return };
        let answered = match place.flight {
            Flight::No => return,
            Flight::Since(since, _) => Flight::Since(since, FlightAnswer::Given),
            Flight::Slow(_) => Flight::Slow(FlightAnswer::Given),
        };
        self.move_flight(item, answered, false);
        if let Some(lane) = self.lanes.get_mut(&place.lane)
            && lane.answers.replace(true) != Some(true)
        {
            self.tenants.recall(&lane.key.tenant, place.lane);
        }
    }

    /// Lets a delivery count as what it is now.
    pub(super) fn move_flight(&mut self, item: ItemKey, flight: Flight, trial: bool) {
        let Some(place) = self.places.get_mut(&item) else { return };
        let (old, old_weight) = (place.flight, weight(place.flight, place.trial));
        (place.flight, place.trial) = (flight, trial);
        self.flights.remove(item, old);
        self.flights.put(item, flight);
        if let Some(lane) = self.lanes.get(&place.lane) {
            self.tenants.reweigh(&lane.key.tenant, old_weight, weight(flight, trial));
        }
    }
}

fn weight(flight: Flight, trial: bool) -> Weight {
    match flight {
        Flight::No => Weight::default(),
        Flight::Since(_, answer) => Weight { place: true, trial, silent: answer == FlightAnswer::Overdue },
        Flight::Slow(answer) => {
            Weight { place: false, trial: false, silent: answer == FlightAnswer::Overdue }
        }
    }
}
