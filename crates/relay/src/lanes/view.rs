//! What is seen of the scheduler.

use std::sync::Arc;

use tollgate_core::Timestamp;

use super::Lanes;
use super::lane::{Cause, Lane, LaneKey, Sleep};
use crate::meters::{AccountLabel, Levels};
use crate::queue::ItemKey;

/// What is seen of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Which lane.
    pub key: LaneKey,
    /// How many items wait.
    pub waiting: usize,
    /// How many are in flight.
    pub in_flight: u32,
    /// When the first of those that are due later is due, if none is due now.
    pub next_due: Option<Timestamp>,
    /// Why and until when it sleeps.
    pub sleep: Option<Sleep>,
    /// Whether an operator paused it.
    pub held: bool,
    /// When the oldest message was accepted, among those that come next.
    pub oldest: Option<Timestamp>,
    /// Why an attempt last failed for now, since the lane last was empty.
    pub last_error: Option<Arc<str>>,
}

/// How many messages of a lane are looked at to find the oldest.
const MOST_COMPARED: usize = 100;
/// The longest error that a lane remembers, in characters.
const MOST_ERROR: usize = 300;

impl Lanes {
    /// How many items wait or are in flight.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many items are in flight.
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.flights.len()).unwrap_or(u32::MAX) + self.slow
    }

    /// What the metrics show of the lanes. What they show of the queue is left out.
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

    /// Remembers why an attempt failed for now.
    pub(crate) fn note_error(&mut self, key: &LaneKey, text: &str) {
        let lane = self.numbers.get(key).and_then(|number| self.lanes.get_mut(number));
        if let Some(lane) = lane {
            lane.last_error = Some(text.chars().take(MOST_ERROR).collect::<String>().into());
        }
    }

    /// All lanes as they are.
    pub fn views(&self) -> impl Iterator<Item = LaneView> {
        self.lanes.values().map(|lane| self.view(lane))
    }

    /// The lane of an item.
    pub fn lane_of(&self, item: ItemKey) -> Option<LaneView> {
        self.lanes.get(&self.places.get(&item)?.lane).map(|lane| self.view(lane))
    }

    fn view(&self, lane: &Lane) -> LaneView {
        let later = lane.later.first_key_value().map(|((due, _), _)| *due);
        let mut sleep = lane.shown_sleep().cloned();
        if let (Some(sleep), Some(bound)) = (&mut sleep, &lane.parked) {
            sleep.until = self.parks.until(bound, sleep);
        }
        LaneView {
            key: lane.key.clone(),
            waiting: lane.ready.len() + lane.later.len(),
            in_flight: lane.in_flight,
            next_due: later.filter(|_| lane.ready.is_empty()),
            sleep,
            held: lane.held,
            oldest: oldest(lane),
            last_error: lane.last_error.clone(),
        }
    }
}

/// When the oldest of the messages was accepted that come next: those that are due, and those that are due first. The
/// longest wait of a long lane is among them, since what is due comes in the order of its time.
fn oldest(lane: &Lane) -> Option<Timestamp> {
    let ready = lane.ready.values().take(MOST_COMPARED);
    let later = lane.later.values().take(MOST_COMPARED).map(|(_, entry)| entry);
    ready.chain(later).map(|entry| entry.item.message.made_at()).min()
}
