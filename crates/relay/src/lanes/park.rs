//! Lanes that wait for the same limit.
//!
//! If every one of ten thousand lanes asked again when a single slot is free, all but one would ask in vain. So one
//! lane asks for all of them, and the next one follows when it got something.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use super::LaneNumber;

/// A limit may be raised, or a slot given back, before the moment that was told. One lane looks this often.
const LOOK_EVERY: Span = Span::from_secs(60);

/// All lanes that wait for limits, by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Parks {
    parks: HashMap<Arc<str>, Park>,
    timers: BTreeSet<(Timestamp, Arc<str>)>,
}

#[derive(Debug)]
struct Park {
    members: VecDeque<LaneNumber>,
    /// When the limit allows something.
    until: Timestamp,
    timer: Option<Timestamp>,
    /// The lane that asks for all.
    probe: Option<LaneNumber>,
}

impl Parks {
    /// Adds a lane, which must not be in another park.
    pub(super) fn join(&mut self, bound: &Arc<str>, lane: LaneNumber, until: Timestamp, now: Timestamp) {
        let park = self.parks.entry(Arc::clone(bound)).or_insert_with(|| Park {
            members: VecDeque::new(),
            until,
            timer: None,
            probe: None,
        });
        park.until = until;
        if park.probe == Some(lane) {
            park.probe = None;
            // It keeps its turn: it asks again first.
            park.members.push_front(lane);
        } else {
            park.members.push_back(lane);
        }
        self.set_timer(bound, Some(until.min(now + LOOK_EVERY)));
    }

    /// Notes that a member was refused again.
    pub(super) fn put_off(&mut self, bound: &Arc<str>, until: Timestamp, now: Timestamp) {
        if let Some(park) = self.parks.get_mut(bound) {
            park.until = until;
            self.set_timer(bound, Some(until.min(now + LOOK_EVERY)));
        }
    }

    /// The next lane that is to ask, if the time for one has come.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<(LaneNumber, Arc<str>)> {
        while let Some((at, bound)) = self.timers.first().cloned()
            && at <= now
        {
            if let Some(lane) = self.send_probe(&bound, now) {
                return Some((lane, bound));
            }
        }
        None
    }

    /// Notes that a probe got something, or has nothing to ask for. The next lane follows, if there is one.
    pub(super) fn follow(
        &mut self,
        bound: &Arc<str>,
        lane: LaneNumber,
        now: Timestamp,
    ) -> Option<LaneNumber> {
        let park = self.parks.get_mut(bound)?;
        if park.probe != Some(lane) {
            return None;
        }
        park.probe = None;
        self.send_probe(bound, now)
    }

    fn send_probe(&mut self, bound: &Arc<str>, now: Timestamp) -> Option<LaneNumber> {
        let park = self.parks.get_mut(bound)?;
        let Some(lane) = park.members.pop_front() else {
            self.set_timer(bound, None);
            self.parks.remove(bound);
            return None;
        };
        park.probe = Some(lane);
        // If the probe never ends, the next one follows after this time.
        self.set_timer(bound, Some(now + LOOK_EVERY));
        Some(lane)
    }

    /// Removes a lane.
    pub(super) fn leave(&mut self, bound: &Arc<str>, lane: LaneNumber) {
        if let Some(park) = self.parks.get_mut(bound) {
            park.members.retain(|member| *member != lane);
        }
    }

    /// When the limit allows something.
    pub(super) fn until(&self, bound: &Arc<str>) -> Option<Timestamp> {
        self.parks.get(bound).map(|park| park.until)
    }

    /// When the next lane is to ask.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn set_timer(&mut self, bound: &Arc<str>, timer: Option<Timestamp>) {
        let Some(park) = self.parks.get_mut(bound) else { return };
        if let Some(old) = park.timer {
            self.timers.remove(&(old, Arc::clone(bound)));
        }
        park.timer = timer;
        self.timers.extend(timer.map(|at| (at, Arc::clone(bound))));
    }
}
