//! Groups of lanes that wait for the same limit, or for a connection to the same server.
//!
//! If each of ten thousand lanes asked again as soon as one slot is free, all but one would ask in vain. So one
//! lane asks on behalf of all, and the next lane follows when that one got something.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use super::LaneNumber;
use super::lane::{Cause, Sleep};
use super::line::{Appointments, WaitingLine};

/// A limit may be raised, or a slot returned, before the announced time. So one lane asks at least this often.
const LOOK_EVERY: Span = Span::from_secs(60);
/// If the asking lane gets no answer within this time, because its server hangs, the next lane asks.
const PROBE_PATIENCE: Span = Span::from_secs(2);

/// All groups of lanes, by the limit or server that each waits for.
#[derive(Debug, Default)]
pub(super) struct Parks {
    parks: HashMap<Arc<str>, Park>,
    timers: BTreeSet<(Timestamp, Arc<str>)>,
}

#[derive(Debug)]
struct Park {
    /// The lanes that may ask as soon as asking makes sense, in their order.
    members: WaitingLine,
    /// The lanes that were deferred to a later time than the limit needs. Each asks at its own time, not
    /// earlier.
    held: Appointments,
    /// The time to ask again.
    until: Timestamp,
    /// The time at which the limit allows something.
    free_at: Timestamp,
    /// Whether each release wakes one lane. A lane that got something then wakes no other.
    by_release: bool,
    timer: Option<Timestamp>,
    /// The lane that asks on behalf of all.
    probe: Option<LaneNumber>,
}

impl Parks {
    /// Adds a lane. It must not be in another group.
    pub(super) fn join(&mut self, bound: &Arc<str>, lane: LaneNumber, sleep: &Sleep, now: Timestamp) {
        let park = self.parks.entry(Arc::clone(bound)).or_insert_with(|| Park {
            members: WaitingLine::default(),
            held: Appointments::default(),
            until: sleep.until,
            free_at: sleep.free_at,
            by_release: sleep.cause == Cause::Busy,
            timer: None,
            probe: None,
        });
        let asked = park.probe == Some(lane);
        if asked {
            park.probe = None;
        }
        if sleep.free_at < sleep.until {
            park.held.insert(sleep.until, lane);
        } else if asked {
            // The lane keeps its turn: it asks again first.
            park.members.push_front(lane);
        } else {
            park.members.push_back(lane);
        }
        self.put_off(bound, sleep, now);
    }

    /// Records that a lane was refused, and sets the time to ask again.
    pub(super) fn put_off(&mut self, bound: &Arc<str>, sleep: &Sleep, now: Timestamp) {
        if let Some(park) = self.parks.get_mut(bound) {
            (park.until, park.free_at) = (sleep.until, sleep.free_at);
            let timer = park.next_moment(now);
            self.set_timer(bound, timer);
        }
    }

    /// The next lane that must ask, if its time has come.
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

    /// Records that the limits allowed the asking lane's item. The next lane follows, if there is one.
    pub(super) fn admitted(
        &mut self,
        bound: &Arc<str>,
        lane: LaneNumber,
        now: Timestamp,
    ) -> Option<LaneNumber> {
        match self.parks.get_mut(bound) {
            Some(park) if park.by_release => {
                park.probe = park.probe.filter(|probe| *probe != lane);
                None
            }
            _ => self.follow(bound, lane, now),
        }
    }

    /// Records that the asking lane got something, or has nothing to ask for. The next lane follows, if there
    /// is one.
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

    /// Records that the group's limit or server has something free. One lane asks.
    pub(super) fn released(&mut self, bound: &str, now: Timestamp) -> Option<(LaneNumber, Arc<str>)> {
        let (bound, _) = self.parks.get_key_value(bound)?;
        let bound = Arc::clone(bound);
        self.send_probe(&bound, now).map(|lane| (lane, bound))
    }

    fn send_probe(&mut self, bound: &Arc<str>, now: Timestamp) -> Option<LaneNumber> {
        let park = self.parks.get_mut(bound)?;
        if let Some(lane) = park.next_member(now) {
            park.probe = Some(lane);
            self.set_timer(bound, Some(now + PROBE_PATIENCE));
            return Some(lane);
        }
        let timer = park.held.first().map(|(until, _)| until);
        self.set_timer(bound, timer);
        if timer.is_none() {
            self.parks.remove(bound);
        }
        None
    }

    /// Removes a lane from its group.
    pub(super) fn leave(&mut self, bound: &Arc<str>, lane: LaneNumber) {
        if let Some(park) = self.parks.get_mut(bound) {
            park.members.remove(lane);
            park.held.remove(lane);
        }
    }

    /// The latest time at which a lane with this sleep asks again.
    pub(super) fn until(&self, bound: &Arc<str>, sleep: &Sleep) -> Timestamp {
        match self.parks.get(bound) {
            Some(park) if sleep.free_at == sleep.until => park.until,
            _ => sleep.until,
        }
    }

    /// The time at which the next lane must ask.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Moves all moments back.
    pub(super) fn set_back(&mut self, back: Span) {
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers.into_iter().map(|(at, bound)| (at - back, bound)).collect();
        for park in self.parks.values_mut() {
            (park.until, park.free_at) = (park.until - back, park.free_at - back);
            park.timer = park.timer.map(|at| at - back);
            park.held.set_back(back);
        }
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

impl Park {
    /// The next time to try. The first try is before the limit is free. If it succeeds, the limit was raised or
    /// a slot was refunded, and no rule that aligns or spreads its messages is circumvented.
    fn next_moment(&self, now: Timestamp) -> Option<Timestamp> {
        if now + LOOK_EVERY < self.free_at {
            return Some(now + LOOK_EVERY);
        }
        let held = self.held.first().map(|(until, _)| until);
        let others = (!self.members.is_empty()).then_some(self.until);
        held.into_iter().chain(others).min()
    }

    /// The lane that must ask now.
    fn next_member(&mut self, now: Timestamp) -> Option<LaneNumber> {
        while let Some((until, lane)) = self.held.first()
            && until <= now
        {
            self.held.remove(lane);
            self.members.push_back(lane);
        }
        let early = now < self.free_at;
        self.members.pop_front().or_else(|| {
            let (_, lane) = self.held.first().filter(|_| early)?;
            self.held.remove(lane);
            Some(lane)
        })
    }
}
