//! Ordered sets of lanes from which any lane can be removed without a search: an operator may wake a hundred
//! thousand of them at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate_core::{Span, Timestamp};

use super::LaneNumber;

/// Lanes in order of arrival, each once.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    order: BTreeMap<i64, LaneNumber>,
    places: HashMap<LaneNumber, i64>,
}

/// Lanes by the time at which each may ask, each once.
#[derive(Debug, Default)]
pub(super) struct Appointments {
    order: BTreeSet<(Timestamp, LaneNumber)>,
    moments: HashMap<LaneNumber, Timestamp>,
}

impl WaitingLine {
    pub(super) fn push_front(&mut self, lane: LaneNumber) {
        let place = self.order.first_key_value().map_or(0, |(first, _)| first - 1);
        self.put(place, lane);
    }

    pub(super) fn push_back(&mut self, lane: LaneNumber) {
        let place = self.order.last_key_value().map_or(0, |(last, _)| last + 1);
        self.put(place, lane);
    }

    fn put(&mut self, place: i64, lane: LaneNumber) {
        self.remove(lane);
        self.order.insert(place, lane);
        self.places.insert(lane, place);
    }

    pub(super) fn pop_front(&mut self) -> Option<LaneNumber> {
        let (_, lane) = self.order.pop_first()?;
        self.places.remove(&lane);
        Some(lane)
    }

    pub(super) fn pop_back(&mut self) -> Option<LaneNumber> {
        let (_, lane) = self.order.pop_last()?;
        self.places.remove(&lane);
        Some(lane)
    }

    /// Removes a lane. Returns whether it was in the line.
    pub(super) fn remove(&mut self, lane: LaneNumber) -> bool {
        let place = self.places.remove(&lane);
        place.is_some_and(|place| self.order.remove(&place).is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl Appointments {
    pub(super) fn insert(&mut self, at: Timestamp, lane: LaneNumber) {
        self.remove(lane);
        self.order.insert((at, lane));
        self.moments.insert(lane, at);
    }

    /// Moves all moments back.
    pub(super) fn set_back(&mut self, back: Span) {
        let order = std::mem::take(&mut self.order);
        self.order = order.into_iter().map(|(at, lane)| (at - back, lane)).collect();
        self.moments.values_mut().for_each(|at| *at = *at - back);
    }

    /// The first lane, and its time.
    pub(super) fn first(&self) -> Option<(Timestamp, LaneNumber)> {
        self.order.first().copied()
    }

    pub(super) fn remove(&mut self, lane: LaneNumber) {
        if let Some(at) = self.moments.remove(&lane) {
            self.order.remove(&(at, lane));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_order_when_lanes_leave() {
        let mut line = WaitingLine::default();
        (1..=4).for_each(|lane| line.push_back(lane));
        line.push_front(5);
        line.push_back(1);
        line.remove(3);
        let served: Vec<LaneNumber> = std::iter::from_fn(|| line.pop_front()).collect();
        assert_eq!(served, [5, 2, 4, 1]);
        assert!(line.is_empty() && line.places.is_empty());
    }

    #[test]
    fn an_appointment_is_moved_or_given_up() {
        let at = Timestamp::from_micros;
        let mut held = Appointments::default();
        held.insert(at(2), 1);
        held.insert(at(3), 2);
        held.insert(at(4), 1);
        assert_eq!(held.first(), Some((at(3), 2)));
        held.remove(2);
        assert_eq!(held.first(), Some((at(4), 1)));
        held.remove(1);
        assert!(held.first().is_none() && held.moments.is_empty());
    }
}
