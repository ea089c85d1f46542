//! Who waits for what, and whose turn it is. Nothing here decides, sleeps or knows the time.
//!
//! Those who wait for the same keys stand in one lane, and only the first of a lane is ever asked
//! about. A lane that is told to wait stands at the wait_key that keeps it longest: the key of one rule.
//! When that is due, its lanes get their turns one after the other, until one of them is told to wait
//! by it again. So it takes a decision or two to let somebody pass, however many wait.

mod entering;
mod leaving;
#[cfg(test)]
mod tests;

use crate::owned_attempt::OwnedAttempt;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;
use tollgate_core::Span;

use super::ids::{Blocked, ById, LaneId, WaitKeyId};
use super::lane::{Lane, Rank, Waiter};
use super::timetable::{Rest, Timetable};
use super::wait_key::WaitKey;

pub(super) use entering::{Newcomer, Place, TurnedAway};
pub(super) use leaving::{Expiry, Settled};

/// All who wait.
pub(super) struct Queues {
    lanes: ById<LaneId, Lane>,
    wait_keys: ById<WaitKeyId, WaitKey>,
    /// The wait_keys at which turns are given.
    open: VecDeque<WaitKeyId>,
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
    /// How many of one wait_key's lanes may be asked about at once.
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
    pub(super) ask: Arc<OwnedAttempt>,
    /// Where it was its turn, and the lane's place there.
    from: WaitKeyId,
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
        let mut wait_keys = ById::default();
        wait_keys.insert(WaitKeyId::FRESH, WaitKey { width: bounds.most_width, ..WaitKey::default() });
        Self {
            lanes: ById::default(),
            wait_keys,
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
            // Whoever has a turn goes to the back: all wait_keys get theirs.
            match self.wait_keys.get_mut(&id) {
                Some(wait_key) if wait_key.asked < wait_key.width && !wait_key.ring.is_empty() => {
                    self.open.push_back(id)
                }
                Some(wait_key) => wait_key.open = false,
                None => {}
            }
            return Some(job);
        }
        None
    }

    /// Gives the first lane at a wait_key its turn. A lane that has to wait elsewhere too is sent there
    /// first, to the back: or else it would push in before those who wait there.
    fn give_turn(&mut self, id: WaitKeyId, now: Instant) -> Option<Job> {
        loop {
            let wait_key = self.wait_keys.get_mut(&id)?;
            if wait_key.asked >= wait_key.width || wait_key.is_paused(now) {
                wait_key.open = false;
                return None;
            }
            let Some((turn, lane_id)) = wait_key.ring.pop_first() else {
                wait_key.open = false;
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
            self.wait_keys.get_mut(&id).expect("it was just there").asked += 1;
            return Some(job);
        }
    }

    /// Where else a lane has to wait before it is asked about: where it stands still, or, once, where
    /// others wait.
    fn detour(&self, lane: LaneId, from: WaitKeyId, now: Instant) -> Option<WaitKeyId> {
        let lane = self.lanes.get(&lane)?;
        let others = || lane.wait_keys.iter().filter(|id| **id != from);
        let wait_key = |id: &&WaitKeyId| self.wait_keys.get(*id);
        let paused = others().find(|id| wait_key(id).is_some_and(|wait_key| wait_key.is_paused(now)));
        let busy = || others().find(|id| wait_key(id).is_some_and(|wait_key| wait_key.is_busy(now)));
        paused.or_else(|| if lane.moved { None } else { busy() }).copied()
    }

    /// Puts a lane at the back of those who wait at a wait_key.
    fn join(&mut self, lane_id: LaneId, id: WaitKeyId) {
        let number = self.number();
        let lane = self.lanes.get_mut(&lane_id).expect("whoever joins is there");
        let (first, _) = lane.first().expect("somebody waits in every lane");
        lane.stand = id;
        lane.turn = lane.turn.with_priority_of(first).renumbered(number);
        let turn = lane.turn;
        self.wait_keys.entry(id).or_default().ring.insert(turn, lane_id);
        self.look_at_front(id);
    }

    /// Puts a lane back where it was.
    fn rejoin(&mut self, lane_id: LaneId, id: WaitKeyId, turn: Rank) {
        let lane = self.lanes.get_mut(&lane_id).expect("whoever joins is there");
        let (first, _) = lane.first().expect("somebody waits in every lane");
        lane.stand = id;
        lane.turn = turn.with_priority_of(first);
        let turn = lane.turn;
        self.wait_keys.entry(id).or_default().ring.insert(turn, lane_id);
    }

    /// Gives turns at once if the first at a wait_key takes less than what its time was told for.
    fn look_at_front(&mut self, id: WaitKeyId) {
        let Some(wait_key) = self.wait_keys.get(&id) else { return };
        let front = wait_key.ring.first_key_value().and_then(|(_, lane)| self.lanes.get(lane));
        let cost = front.and_then(Lane::first).map(|(_, waiter)| waiter.ask.cost);
        if cost.is_some_and(|cost| wait_key.may_pass_earlier(cost)) {
            self.open(id);
        }
    }

    /// Gives turns at a wait_key from now on, as far as it does not stand still.
    fn open(&mut self, id: WaitKeyId) {
        let Some(wait_key) = self.wait_keys.get_mut(&id) else { return };
        if !wait_key.open && wait_key.paused.is_none() {
            wait_key.open = true;
            wait_key.due = None;
            self.open.push_back(id);
        }
    }

    /// Gives no turns at a wait_key until then.
    fn close(&mut self, id: WaitKeyId, until: Instant) {
        let wait_key = self.wait_keys.entry(id).or_default();
        let at = wait_key.paused.map_or(until, |paused| paused.max(until));
        wait_key.open = false;
        wait_key.due = Some(at);
        self.timetable.add(at, id, wait_key.precision());
        // Whoever gives up leaves a time behind at which nothing happens.
        if self.timetable.len() > 2 * self.wait_keys.len() + 64 {
            let wait_keys = &self.wait_keys;
            self.timetable
                .retain(|at, id| wait_keys.get(&id).is_some_and(|wait_key| wait_key.due == Some(at)));
        }
    }

    fn open_due(&mut self, now: Instant) {
        while let Some((at, id)) = self.timetable.pop_due(now) {
            // It may have been opened since, or closed for another time.
            let Some(wait_key) = self.wait_keys.get_mut(&id).filter(|wait_key| wait_key.due == Some(at))
            else {
                continue;
            };
            wait_key.due = None;
            wait_key.paused = wait_key.paused.filter(|until| *until > now);
            match wait_key.paused {
                Some(until) => self.close(id, until),
                None => self.open(id),
            }
        }
    }

    /// Something may have been freed at these wait_keys: whoever waits there is asked about at once.
    pub(super) fn free(&mut self, wait_keys: impl IntoIterator<Item = WaitKeyId>) {
        self.frees += 1;
        for id in wait_keys {
            let Some(wait_key) = self.wait_keys.get_mut(&id) else { continue };
            wait_key.freed = self.frees;
            if !wait_key.ring.is_empty() {
                self.open(id);
            }
        }
    }

    /// As [`Queues::free`], everywhere.
    pub(super) fn free_all(&mut self) {
        let all: Vec<WaitKeyId> = self.wait_keys.keys().copied().collect();
        self.free(all);
    }

    /// Lets exactly these wait_keys stand still.
    pub(super) fn pause(&mut self, pauses: &ById<WaitKeyId, Instant>, now: Instant) {
        let paused = |(_, wait_key): &(&WaitKeyId, &WaitKey)| wait_key.paused.is_some();
        let before: Vec<WaitKeyId> = self.wait_keys.iter().filter(paused).map(|(id, _)| *id).collect();
        for id in before.into_iter().filter(|id| !pauses.contains_key(id)) {
            self.wait_keys.get_mut(&id).expect("it was just there").paused = None;
            self.open(id);
        }
        for (id, until) in pauses.iter().filter(|(_, until)| **until > now) {
            let wait_key = self.wait_keys.entry(*id).or_default();
            if wait_key.paused != Some(*until) {
                wait_key.paused = Some(*until);
                let due = wait_key.due.unwrap_or(now);
                self.close(*id, due);
            }
        }
    }

    /// Forgets a wait_key of which nothing has to be known.
    fn tidy(&mut self, id: WaitKeyId) {
        if id != WaitKeyId::FRESH && self.wait_keys.get(&id).is_some_and(WaitKey::is_idle) {
            self.wait_keys.remove(&id);
        }
    }

    /// Forgets a lane in which nobody waits any more.
    fn drop_lane(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        for id in &lane.wait_keys {
            if let Some(wait_key) = self.wait_keys.get_mut(id) {
                wait_key.lanes -= 1;
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
