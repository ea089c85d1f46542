//! The state of the scheduler, for operators and metrics.

use std::sync::Arc;

use tollgate_core::Timestamp;

use super::Lanes;
use super::lane::{Cause, Lane, LaneKey, Sleep};
use crate::meters::{AccountLabel, Levels};
use crate::queue::ItemKey;

/// The state of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The key of the lane.
    pub key: LaneKey,
    /// The number of waiting items.
    pub waiting: usize,
    /// The number of items in flight.
    pub in_flight: u32,
    /// The due time of the next item, if no item is due now.
    pub next_due: Option<Timestamp>,
    /// The sleep of the lane, if it sleeps.
    pub sleep: Option<Sleep>,
    /// Whether an operator paused it.
    pub held: bool,
    /// The acceptance time of the oldest message, among the items that are sent next.
    pub oldest: Option<Timestamp>,
    /// The error of the last temporary failure since the lane was last empty.
    pub last_error: Option<Arc<str>>,
}

/// The most items that are compared to find the oldest message.
const MOST_COMPARED: usize = 100;
/// The longest error that is stored, in characters.
const MOST_ERROR: usize = 300;

impl Lanes {
    /// The number of items that wait or are in flight.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of items in flight.
    pub fn in_flight(&self) -> u32 {
        self.flights.len()
    }

    /// The levels of the lanes for the metrics. The levels of the queue stay at zero.
    pub(crate) fn levels(&self, now: Timestamp) -> Levels {
        let mut levels = Levels { in_flight: self.in_flight(), lanes: self.lanes.len(), ..Levels::default() };
        if let Some((oldest, _)) = self.places.first_key_value() {
            levels.oldest = now.since(oldest.message.made_at());
        }
        for lane in self.lanes.values() {
            if lane.held {
                *levels.sleeping.entry("held").or_default() += 1;
            }
            let Some(sleep) = lane.shown_sleep() else { continue };
            *levels.sleeping.entry(sleep.cause.name()).or_default() += 1;
            if sleep.cause == Cause::Limit {
                let account = sleep.account.clone().unwrap_or_default();
                let label = AccountLabel { tenant: Arc::clone(&lane.key.tenant), account };
                *levels.deferred.entry(label).or_default() += (lane.ready.len() + lane.later.len()) as u64;
            }
        }
        levels
    }

    /// Stores the error of a temporary failure.
    pub(crate) fn note_error(&mut self, key: &LaneKey, text: &str) {
        let lane = self.numbers.get(key).and_then(|number| self.lanes.get_mut(number));
        if let Some(lane) = lane {
            lane.last_error = Some(Box::new(text.chars().take(MOST_ERROR).collect::<String>().into()));
        }
    }

    /// The state of all lanes.
    pub fn views(&self) -> impl Iterator<Item = LaneView> {
        self.lanes.values().map(|lane| self.view(lane))
    }

    /// The state of an item's lane.
    pub fn lane_of(&self, item: ItemKey) -> Option<LaneView> {
        self.lanes.get(&self.places.get(&item)?.lane).map(|lane| self.view(lane))
    }

    fn view(&self, lane: &Lane) -> LaneView {
        let later = lane.later.first().map(|((due, _), _)| *due);
        let mut sleep = lane.shown_sleep().cloned();
        if let (Some(sleep), Some(bound)) = (&mut sleep, &lane.parked) {
            sleep.until = self.parks.until(bound, sleep);
        }
        LaneView {
            key: (*lane.key).clone(),
            waiting: lane.ready.len() + lane.later.len(),
            in_flight: lane.in_flight,
            next_due: later.filter(|_| lane.ready.is_empty()),
            sleep,
            held: lane.held,
            oldest: oldest(lane),
            last_error: lane.last_error.as_deref().cloned(),
        }
    }
}

/// The acceptance time of the oldest message among the items that are sent next: the first that are due now,
/// and the first that are due later. In a long lane the longest wait is among them, because items come in the
/// order of their time.
fn oldest(lane: &Lane) -> Option<Timestamp> {
    let ready = lane.ready.values().take(MOST_COMPARED);
    let later = lane.later.values().take(MOST_COMPARED).map(|(_, item)| item);
    ready.chain(later).map(|item| item.message.made_at()).min()
}
