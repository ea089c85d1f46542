//! The queues of waiting attempts, and whose turn it is. Pure: nothing here decides, sleeps or reads a clock.
//!
//! Attempts that wait for the same keys are in one lane, and only the first of a lane is ever decided. A lane
//! that has to wait queues at the wait key with the longest wait: the key of one rule. When that key is due,
//! its lanes get their turns one after the other, until one of them has to wait for it again. So it takes one
//! or two decisions to let an attempt pass, however many wait.

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

/// All waiting attempts.
pub(super) struct Queues {
    lanes: ById<LaneId, Lane>,
    wait_keys: ById<WaitKeyId, WaitKey>,
    /// The wait keys at which turns are given.
    open: VecDeque<WaitKeyId>,
    timetable: Timetable,
    numbers: u64,
    waiting: usize,
    bounds: Bounds,
    /// The number of events that freed units.
    frees: u64,
    /// The number of times that the queues were cleared. Decisions that began before that are ignored.
    epoch: u64,
}

/// The bounds of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) max_waiting: usize,
    pub(super) max_waiting_per_key: usize,
    /// The most lanes of one wait key that are decided at once.
    pub(super) most_width: usize,
    /// The longest time between two decisions if other nodes may release holds.
    pub(super) most_rest: Span,
}

/// The position of a waiting attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    lane: LaneId,
    rank: Rank,
}

/// An attempt to be decided.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) seat: Seat,
    pub(super) ask: Arc<OwnedAttempt>,
    /// The wait key that gave the turn, and the lane's position there.
    from: WaitKeyId,
    turn: Rank,
    /// The number of events that had freed units before the decision began.
    frees: u64,
    epoch: u64,
}

/// The result of a decision.
pub(super) enum Finding<'b> {
    /// The attempt passes.
    Passed,
    /// The attempt is denied, or cannot be decided.
    Refused,
    /// The attempt has to wait.
    Blocked(&'b Blocked),
    /// Unknown: the decision was abandoned.
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

    /// The number of waiting attempts.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The driver's next rest; `None` if it depends on others. From `calm` on, the driver has time to stay
    /// awake for the next turn.
    pub(super) fn rest(&self, now: Instant, calm: Instant) -> Option<Rest> {
        if self.open.is_empty() { self.timetable.rest(now, calm) } else { Some(Rest::Go) }
    }

    /// The time of the next turn; `None` if no time brings one.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if self.open.is_empty() { self.timetable.first() } else { Some(now) }
    }

    /// The next attempt to decide, if a turn has come.
    pub(super) fn next(&mut self, now: Instant) -> Option<Job> {
        self.open_due(now);
        while let Some(id) = self.open.pop_front() {
            let Some(job) = self.give_turn(id, now) else { continue };
            // A wait key that gave a turn goes to the back, so that all wait keys give turns.
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

    /// Gives the first lane at a wait key its turn. A lane that must also wait at another key is first sent
    /// to the back there; otherwise it would jump that queue.
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
            let (rank, waiter) = lane.first().expect("every lane has a waiter");
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

    /// Another wait key at which a lane must wait first: a paused one, or, once, a busy one.
    fn detour(&self, lane: LaneId, from: WaitKeyId, now: Instant) -> Option<WaitKeyId> {
        let lane = self.lanes.get(&lane)?;
        let others = || lane.wait_keys.iter().filter(|id| **id != from);
        let wait_key = |id: &&WaitKeyId| self.wait_keys.get(*id);
        let paused = others().find(|id| wait_key(id).is_some_and(|wait_key| wait_key.is_paused(now)));
        let busy = || others().find(|id| wait_key(id).is_some_and(|wait_key| wait_key.is_busy(now)));
        paused.or_else(|| if lane.moved { None } else { busy() }).copied()
    }

    /// Puts a lane at the back of a wait key's ring.
    fn join(&mut self, lane_id: LaneId, id: WaitKeyId) {
        let number = self.number();
        let lane = self.lanes.get_mut(&lane_id).expect("the waiter that joins is in it");
        let (first, _) = lane.first().expect("every lane has a waiter");
        lane.stand = id;
        lane.turn = lane.turn.with_priority_of(first).renumbered(number);
        let turn = lane.turn;
        self.wait_keys.entry(id).or_default().ring.insert(turn, lane_id);
        self.look_at_front(id);
    }

    /// Puts a lane back at its former position.
    fn rejoin(&mut self, lane_id: LaneId, id: WaitKeyId, turn: Rank) {
        let lane = self.lanes.get_mut(&lane_id).expect("the waiter that joins is in it");
        let (first, _) = lane.first().expect("every lane has a waiter");
        lane.stand = id;
        lane.turn = turn.with_priority_of(first);
        let turn = lane.turn;
        self.wait_keys.entry(id).or_default().ring.insert(turn, lane_id);
    }

    /// Opens a wait key at once if its first attempt costs less than the one whose wait set the due time.
    fn look_at_front(&mut self, id: WaitKeyId) {
        let Some(wait_key) = self.wait_keys.get(&id) else { return };
        let front = wait_key.ring.first_key_value().and_then(|(_, lane)| self.lanes.get(lane));
        let cost = front.and_then(Lane::first).map(|(_, waiter)| waiter.ask.cost);
        if cost.is_some_and(|cost| wait_key.may_pass_earlier(cost)) {
            self.open(id);
        }
    }

    /// Starts giving turns at a wait key, unless it is paused.
    fn open(&mut self, id: WaitKeyId) {
        let Some(wait_key) = self.wait_keys.get_mut(&id) else { return };
        if !wait_key.open && wait_key.paused.is_none() {
            wait_key.open = true;
            wait_key.due = None;
            self.open.push_back(id);
        }
    }

    /// Stops giving turns at a wait key until that time.
    fn close(&mut self, id: WaitKeyId, until: Instant) {
        let wait_key = self.wait_keys.entry(id).or_default();
        let at = wait_key.paused.map_or(until, |paused| paused.max(until));
        wait_key.open = false;
        wait_key.due = Some(at);
        self.timetable.add(at, id, wait_key.precision());
        // Attempts that gave up leave due times behind, which are no longer valid.
        if self.timetable.len() > 2 * self.wait_keys.len() + 64 {
            let wait_keys = &self.wait_keys;
            self.timetable
                .retain(|at, id| wait_keys.get(&id).is_some_and(|wait_key| wait_key.due == Some(at)));
        }
    }

    fn open_due(&mut self, now: Instant) {
        while let Some((at, id)) = self.timetable.pop_due(now) {
            // The wait key may have been opened since, or closed until another time.
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

    /// Gives the lanes at these wait keys their turns at once, because units may have been freed there.
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

    /// As [`Queues::free`], for all wait keys.
    pub(super) fn free_all(&mut self) {
        let all: Vec<WaitKeyId> = self.wait_keys.keys().copied().collect();
        self.free(all);
    }

    /// Pauses exactly these wait keys.
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

    /// Forgets a wait key that has no state left.
    fn tidy(&mut self, id: WaitKeyId) {
        if id != WaitKeyId::FRESH && self.wait_keys.get(&id).is_some_and(WaitKey::is_idle) {
            self.wait_keys.remove(&id);
        }
    }

    /// Forgets a lane without attempts.
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

    /// Takes out all waiting attempts, so that their callers can be notified of the end.
    pub(super) fn clear(&mut self) -> Vec<Waiter> {
        let lanes = std::mem::take(&mut self.lanes);
        *self = Self { epoch: self.epoch + 1, ..Self::new(self.bounds) };
        lanes.into_values().flat_map(Lane::into_waiters).collect()
    }
}
