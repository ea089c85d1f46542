//! Deliveries in flight: which of them hold a place, and which take so long that they gave it up.
//!
//! A delivery whose server has not answered is silent after a short time. Silent deliveries never get all of the room
//! for slow ones: a part of it is kept for deliveries that servers accept slowly.

use std::collections::BTreeSet;

use tollgate_core::{Span, Timestamp};

use super::LaneOptions;
use crate::queue::ItemKey;

/// How far an item has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// It waits.
    No,
    /// It holds a place since this moment.
    Since(Timestamp, FlightAnswer),
    /// It takes long and gave its place up.
    Slow(FlightAnswer),
}

/// Whether the server of a delivery has let it come as far as its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightAnswer {
    Given,
    Awaited,
    /// The server has not answered in time.
    Overdue,
}

/// When a delivery began, and its item.
type Departure = (Timestamp, ItemKey);

#[derive(Debug)]
pub(super) struct Flights {
    answered: BTreeSet<Departure>,
    awaited: BTreeSet<Departure>,
    overdue: BTreeSet<Departure>,
    slow: u32,
    slow_overdue: u32,
    slow_after: Span,
    unanswered_after: Span,
    in_total: usize,
    most_slow: u32,
    most_slow_overdue: u32,
}

/// What of a number is left for servers that may not answer. A quarter is kept for those that do.
pub(super) fn share(all: u32) -> u32 {
    all - (all / 4).max(u32::from(all > 1))
}

impl Flights {
    pub(super) fn new(options: &LaneOptions) -> Self {
        Self {
            answered: BTreeSet::new(),
            awaited: BTreeSet::new(),
            overdue: BTreeSet::new(),
            slow: 0,
            slow_overdue: 0,
            slow_after: options.slow_after,
            unanswered_after: options.unanswered_after.min(options.slow_after),
            in_total: options.in_total as usize,
            most_slow: options.most_slow,
            most_slow_overdue: share(options.most_slow),
        }
    }

    /// How many deliveries are in flight.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.places()).unwrap_or(u32::MAX) + self.slow
    }

    /// Whether all places are taken.
    pub(super) fn is_full(&self) -> bool {
        self.places() >= self.in_total
    }

    fn places(&self) -> usize {
        self.answered.len() + self.awaited.len() + self.overdue.len()
    }

    pub(super) fn put(&mut self, item: ItemKey, flight: Flight) {
        match flight {
            Flight::No => {}
            Flight::Since(since, answer) => drop(self.places_by(answer).insert((since, item))),
            Flight::Slow(answer) => {
                self.slow += 1;
                self.slow_overdue += u32::from(answer != FlightAnswer::Given);
            }
        }
    }

    pub(super) fn remove(&mut self, item: ItemKey, flight: Flight) {
        match flight {
            Flight::No => {}
            Flight::Since(since, answer) => drop(self.places_by(answer).remove(&(since, item))),
            Flight::Slow(answer) => {
                self.slow -= 1;
                self.slow_overdue -= u32::from(answer != FlightAnswer::Given);
            }
        }
    }

    fn places_by(&mut self, answer: FlightAnswer) -> &mut BTreeSet<Departure> {
        match answer {
            FlightAnswer::Given => &mut self.answered,
            FlightAnswer::Awaited => &mut self.awaited,
            FlightAnswer::Overdue => &mut self.overdue,
        }
    }

    /// A delivery whose answer is overdue now.
    pub(super) fn next_overdue(&self, now: Timestamp) -> Option<ItemKey> {
        self.awaited.first().filter(|(since, _)| *since + self.unanswered_after <= now).map(|(_, item)| *item)
    }

    /// The delivery that gives up its place next, and when, if there is room for it among the slow ones.
    pub(super) fn next_slow(&self) -> Option<(Timestamp, ItemKey)> {
        let after = |begun: &BTreeSet<Departure>, patience: Span| {
            begun.first().map(|(since, item)| (*since + patience, *item))
        };
        let room = self.slow < self.most_slow;
        let room_overdue = room && self.slow_overdue < self.most_slow_overdue;
        let answered = after(&self.answered, self.slow_after).filter(|_| room);
        let silent = [&self.overdue, &self.awaited]
            .into_iter()
            .filter_map(|begun| after(begun, self.unanswered_after))
            .filter(|_| room_overdue);
        answered.into_iter().chain(silent).min()
    }

    /// Moves all moments back.
    pub(super) fn set_back(&mut self, back: Span) {
        for begun in [&mut self.answered, &mut self.awaited, &mut self.overdue] {
            *begun = std::mem::take(begun).into_iter().map(|(since, item)| (since - back, item)).collect();
        }
    }
}
