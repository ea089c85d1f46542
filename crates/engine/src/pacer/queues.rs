//! Who waits for what, and whose turn it is. Nothing here decides, sleeps or knows the time.
//!
//! Those who wait for the same keys stand in one lane, and only the first of a lane is ever asked
//! about. A lane that is told to wait stands at the spot that keeps it longest: the key of one rule.
//! When that is due, its lanes get their turns one after the other, until one of them is told to wait
//! by it again. So it takes a decision or two to let somebody pass, however many wait.

mod entering;
mod leaving;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;
use tollgate_core::Span;

use super::ask::Kept;
use super::ids::{Blocked, ById, LaneId, SpotId};
use super::lane::{Lane, Rank, Waiter};
use super::spot::Spot;
use super::timetable::{Rest, Timetable};

pub(super) use entering::{Newcomer, Place, Turned};
pub(super) use leaving::{Expiry, Settled};

/// All who wait.
pub(super) struct Queues {
    lanes: ById<LaneId, Lane>,
    spots: ById<SpotId, Spot>,
    /// The spots at which turns are given.
    open: VecDeque<SpotId>,
    timetable: Timetable,
    numbers: u64,
    waiting: usize,
    bounds: Bounds,
    /// How often something was freed.
    frees: u64,
    /// How often everybody was sent away: what was asked about before that says nothing about now.
    epoch: u64,
}

/// The bounds of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) most_waiting: usize,
    pub(super) most_per_key: usize,
    /// How many of one spot's lanes may be asked about at once.
    pub(super) most_width: usize,
    /// The longest that nobody asks where holds may be released by others.
    pub(super) most_rest: Span,
}

/// Somebody's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    lane: LaneId,
    rank: Rank,
}

/// Somebody to be asked about.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) seat: Seat,
    pub(super) ask: Arc<Kept>,
    /// Where it was its turn, and the lane's place there.
    from: SpotId,
    turn: Rank,
    /// How often something had been freed before it was asked about.
    frees: u64,
    epoch: u64,
}

/// What came of asking.
pub(super) enum Finding<'b> {
    /// It passes.
    Passed,
    /// It is denied, or cannot be decided.
    Refused,
    /// It has to wait.
    Blocked(&'b Blocked),
    /// Nobody knows: asking was given up.
    Unknown,
}

impl Queues {
    pub(super) fn new(bounds: Bounds) -> Self {
        let mut spots = ById::default();
        spots.insert(SpotId::FRESH, Spot { width: bounds.most_width, ..Spot::default() });
        Self {
            lanes: ById::default(),
            spots,
            open: VecDeque::new(),
            timetable: Timetable::default(),
            numbers: 0,
            waiting: 0,
            bounds,
            frees: 0,
            epoch: 0,
        }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// What to do until somebody's turn comes; `None` if that depends on others. From `calm` on there is
    /// time to stay awake for it.
    pub(super) fn rest(&self, now: Instant, calm: Instant) -> Option<Rest> {
        if self.open.is_empty() { self.timetable.rest(now, calm) } else { Some(Rest::Go) }
    }

    /// Whose turn it is, if it is anybody's.
    pub(super) fn next(&mut self, now: Instant) -> Option<Job> {
        self.open_due(now);
        while let Some(id) = self.open.pop_front() {
            let Some(job) = self.give_turn(id, now) else { continue };
            // Whoever has a turn goes to the back: all spots get theirs.
            match self.spots.get_mut(&id) {
                Some(spot) if spot.asked < spot.width && !spot.ring.is_empty() => self.open.push_back(id),
                Some(spot) => spot.open = false,
                None => {}
            }
            return Some(job);
        }
        None
    }

    /// Gives the first lane at a spot its turn. A lane that has to wait elsewhere too is sent there
    /// first, to the back: or else it would push in before those who wait there.
    fn give_turn(&mut self, id: SpotId, now: Instant) -> Option<Job> {
        loop {
            let spot = self.spots.get_mut(&id)?;
            if spot.asked >= spot.width || spot.is_paused(now) {
                spot.open = false;
                return None;
            }
            let Some((turn, lane_id)) = spot.ring.pop_first() else {
                spot.open = false;
                self.tidy(id);
                return None;
            };
            if let Some(elsewhere) = self.detour(lane_id, id, now) {
                let lane = self.lanes.get_mut(&lane_id).expect("a lane in a ring is there");
                lane.moved = true;
                self.join(lane_id, elsewhere);
                continue;
            }
            let lane = self.lanes.get_mut(&lane_id).expect("a lane in a ring is there");
            let (rank, waiter) = lane.first().expect("somebody waits in every lane");
            let job = Job {
                seat: Seat { lane: lane_id, rank },
                ask: Arc::clone(&waiter.ask),
                from: id,
                turn,
                frees: self.frees,
                epoch: self.epoch,
            };
            lane.asked = Some(rank);
            self.spots.get_mut(&id).expect("it was just there").asked += 1;
            return Some(job);
        }
    }

    /// Where else a lane has to wait before it is asked about: where it stands still, or, once, where
    /// others wait.
    fn detour(&self, lane: LaneId, from: SpotId, now: Instant) -> Option<SpotId> {
        let lane = self.lanes.get(&lane)?;
        let others = || lane.spots.iter().filter(|id| **id != from);
        let spot = |id: &&SpotId| self.spots.get(*id);
        let paused = others().find(|id| spot(id).is_some_and(|spot| spot.is_paused(now)));
        let busy = || others().find(|id| spot(id).is_some_and(|spot| spot.is_busy(now)));
        paused.or_else(|| if lane.moved { None } else { busy() }).copied()
    }

    /// Puts a lane at the back of those who wait at a spot.
    fn join(&mut self, lane_id: LaneId, id: SpotId) {
        let number = self.number();
        let lane = self.lanes.get_mut(&lane_id).expect("whoever joins is there");
        let (first, _) = lane.first().expect("somebody waits in every lane");
        lane.stand = id;
        lane.turn = lane.turn.with_priority_of(first).renumbered(number);
        let turn = lane.turn;
        self.spots.entry(id).or_default().ring.insert(turn, lane_id);
        self.look_at_front(id);
    }

    /// Puts a lane back where it was.
    fn rejoin(&mut self, lane_id: LaneId, id: SpotId, turn: Rank) {
        let lane = self.lanes.get_mut(&lane_id).expect("whoever joins is there");
        let (first, _) = lane.first().expect("somebody waits in every lane");
        lane.stand = id;
        lane.turn = turn.with_priority_of(first);
        let turn = lane.turn;
        self.spots.entry(id).or_default().ring.insert(turn, lane_id);
    }

    /// Gives turns at once if the first at a spot takes less than what its time was told for.
    fn look_at_front(&mut self, id: SpotId) {
        let Some(spot) = self.spots.get(&id) else { return };
        let front = spot.ring.first_key_value().and_then(|(_, lane)| self.lanes.get(lane));
        let cost = front.and_then(Lane::first).map(|(_, waiter)| waiter.ask.cost);
        if cost.is_some_and(|cost| spot.may_pass_earlier(cost)) {
            self.open(id);
        }
    }

    /// Gives turns at a spot from now on, as far as it does not stand still.
    fn open(&mut self, id: SpotId) {
        let Some(spot) = self.spots.get_mut(&id) else { return };
        if !spot.open && spot.paused.is_none() {
            spot.open = true;
            spot.due = None;
            self.open.push_back(id);
        }
    }

    /// Gives no turns at a spot until then.
    fn close(&mut self, id: SpotId, until: Instant) {
        let spot = self.spots.entry(id).or_default();
        let at = spot.paused.map_or(until, |paused| paused.max(until));
        spot.open = false;
        spot.due = Some(at);
        self.timetable.add(at, id, spot.precision());
        // Whoever gives up leaves a time behind at which nothing happens.
        if self.timetable.len() > 2 * self.spots.len() + 64 {
            let spots = &self.spots;
            self.timetable.retain(|at, id| spots.get(&id).is_some_and(|spot| spot.due == Some(at)));
        }
    }

    fn open_due(&mut self, now: Instant) {
        while let Some((at, id)) = self.timetable.pop_due(now) {
            // It may have been opened since, or closed for another time.
            let Some(spot) = self.spots.get_mut(&id).filter(|spot| spot.due == Some(at)) else { continue };
            spot.due = None;
            spot.paused = spot.paused.filter(|until| *until > now);
            match spot.paused {
                Some(until) => self.close(id, until),
                None => self.open(id),
            }
        }
    }

    /// Something may have been freed at these spots: whoever waits there is asked about at once.
    pub(super) fn free(&mut self, spots: impl IntoIterator<Item = SpotId>) {
        self.frees += 1;
        for id in spots {
            let Some(spot) = self.spots.get_mut(&id) else { continue };
            spot.freed = self.frees;
            if !spot.ring.is_empty() {
                self.open(id);
            }
        }
    }

    /// As [`Queues::free`], everywhere.
    pub(super) fn free_all(&mut self) {
        let all: Vec<SpotId> = self.spots.keys().copied().collect();
        self.free(all);
    }

    /// Lets exactly these spots stand still.
    pub(super) fn pause(&mut self, pauses: &ById<SpotId, Instant>, now: Instant) {
        let paused = |(_, spot): &(&SpotId, &Spot)| spot.paused.is_some();
        let before: Vec<SpotId> = self.spots.iter().filter(paused).map(|(id, _)| *id).collect();
        for id in before.into_iter().filter(|id| !pauses.contains_key(id)) {
            self.spots.get_mut(&id).expect("it was just there").paused = None;
            self.open(id);
        }
        for (id, until) in pauses.iter().filter(|(_, until)| **until > now) {
            let spot = self.spots.entry(*id).or_default();
            if spot.paused != Some(*until) {
                spot.paused = Some(*until);
                let due = spot.due.unwrap_or(now);
                self.close(*id, due);
            }
        }
    }

    /// Forgets a spot of which nothing has to be known.
    fn tidy(&mut self, id: SpotId) {
        if id != SpotId::FRESH && self.spots.get(&id).is_some_and(Spot::is_idle) {
            self.spots.remove(&id);
        }
    }

    /// Forgets a lane in which nobody waits any more.
    fn drop_lane(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        for id in &lane.spots {
            if let Some(spot) = self.spots.get_mut(id) {
                spot.lanes -= 1;
            }
            self.tidy(*id);
        }
        self.tidy(lane.stand);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Everybody, so that they can be told that it is over.
    pub(super) fn clear(&mut self) -> Vec<Waiter> {
        let lanes = std::mem::take(&mut self.lanes);
        *self = Self { epoch: self.epoch + 1, ..Self::new(self.bounds) };
        lanes.into_values().flat_map(Lane::into_waiters).collect()
    }
}
