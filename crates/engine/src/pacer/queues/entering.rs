//! Entering a queue: finds the wait key at which a new attempt has to wait, and whether waiting makes sense.

use std::sync::Arc;

use tokio::time::Instant;
use tollgate_core::Span;

use super::{Queues, Seat};
use crate::owned_attempt::OwnedAttempt;
use crate::pacer::answer::Bound;
use crate::pacer::ids::{Blocked, LaneId, WaitKeyId, WaitPath};
use crate::pacer::lane::{Lane, Rank, Waiter};
use crate::pacer::notifications::Listener;
use crate::pacer::timetable::TICK;

/// A new attempt.
pub(in crate::pacer) struct Newcomer {
    pub(in crate::pacer) ask: Arc<OwnedAttempt>,
    pub(in crate::pacer) listener: Box<dyn Listener>,
    pub(in crate::pacer) priority: i8,
    pub(in crate::pacer) arrived: Instant,
    /// The deadline of its caller.
    pub(in crate::pacer) deadline: Option<Instant>,
}

/// A free position.
pub(in crate::pacer) struct Place {
    stand: WaitKeyId,
    rank: Rank,
    /// The deadline of an attempt in this position, and the bound that sets it.
    pub(in crate::pacer) deadline: Option<(Instant, Bound)>,
}

/// Why an attempt may not wait.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pacer) enum TurnedAway {
    /// Its turn would come too late.
    TooLate { wait: Span, bound: Bound },
    /// Too many attempts are waiting already.
    Full { waiting: usize },
    /// The pacer has ended.
    Ended,
}

impl Queues {
    /// Whether a new attempt has to queue without a decision.
    pub(in crate::pacer) fn must_queue(&self, path: &WaitPath, now: Instant) -> bool {
        self.lanes.contains_key(&path.lane) || self.busy_stop(path, now).is_some()
    }

    /// The busy wait key of the path that is due last.
    fn busy_stop(&self, path: &WaitPath, now: Instant) -> Option<WaitKeyId> {
        let busy = path.stops.iter().filter_map(|stop| {
            let wait_key = self.wait_keys.get(&stop.wait_key).filter(|wait_key| wait_key.is_busy(now))?;
            Some((wait_key.ready_at(now), stop.wait_key))
        });
        busy.max_by_key(|(ready, _)| *ready).map(|(_, id)| id)
    }

    /// Finds a position for an attempt. `blocked` is the obstacle that a decision has found.
    pub(in crate::pacer) fn find_place(
        &mut self,
        path: &WaitPath,
        newcomer: &Newcomer,
        blocked: Option<&Blocked>,
        now: Instant,
    ) -> Result<Place, TurnedAway> {
        let lane = self.lanes.get(&path.lane);
        let before = lane.map_or(0, Lane::len);
        if self.waiting >= self.bounds.max_waiting {
            return Err(TurnedAway::Full { waiting: self.waiting });
        }
        if before >= self.bounds.max_waiting_per_key {
            return Err(TurnedAway::Full { waiting: before });
        }
        let stand = lane.map(|lane| lane.stand);
        let stand = stand.or(blocked.map(|blocked| blocked.wait_key)).or_else(|| self.busy_stop(path, now));
        let stand = stand.unwrap_or(WaitKeyId::FRESH);
        let rank = Rank::new(newcomer.priority, self.number());
        let blocked_until = blocked.map_or(now, |blocked| now + blocked.surely.into());
        let earliest = self.earliest(path.lane, stand, rank, newcomer.ask.cost, now).max(blocked_until);
        let deadline = deadline(path, newcomer, stand);
        if let Some((_, bound)) = deadline.clone().filter(|(at, _)| *at + TICK < earliest) {
            return Err(TurnedAway::TooLate { wait: (earliest - now).into(), bound });
        }
        Ok(Place { stand, rank, deadline })
    }

    /// Puts an attempt into the position found for it.
    pub(in crate::pacer) fn enter(
        &mut self,
        path: &WaitPath,
        place: &Place,
        newcomer: Newcomer,
        blocked: Option<&Blocked>,
        now: Instant,
    ) -> Seat {
        let Newcomer { ask, listener, arrived, .. } = newcomer;
        let (noted, deadline) = (blocked.is_some(), place.deadline.clone());
        let Place { stand, rank, .. } = *place;
        self.seat(path, stand, rank, Waiter { ask, listener, arrived, deadline, noted });
        if let Some(blocked) = blocked.filter(|blocked| blocked.wait_key == stand) {
            self.expect(blocked, now);
        } else if stand == WaitKeyId::FRESH {
            self.open(stand);
        }
        Seat { lane: path.lane, rank }
    }

    /// Puts an attempt into its lane. The lane is created if there is none.
    fn seat(&mut self, path: &WaitPath, stand: WaitKeyId, rank: Rank, waiter: Waiter) {
        self.waiting += 1;
        if let Some(lane) = self.lanes.get_mut(&path.lane) {
            lane.push(rank, waiter);
            self.reposition(path.lane);
            return;
        }
        let wait_keys = path.stops.iter().map(|stop| stop.wait_key).collect();
        for stop in &path.stops {
            self.wait_keys.entry(stop.wait_key).or_default().lanes += 1;
        }
        let mut lane = Lane::new(wait_keys, stand, rank);
        lane.push(rank, waiter);
        self.lanes.insert(path.lane, lane);
        self.join(path.lane, stand);
    }

    /// Records the wait of an attempt that now waits there.
    pub(super) fn expect(&mut self, blocked: &Blocked, now: Instant) {
        let at = now + blocked.rest(self.bounds.most_rest).into();
        let wait_key = self.wait_keys.entry(blocked.wait_key).or_default();
        if !wait_key.open && wait_key.due.is_none_or(|due| at < due) {
            wait_key.tell(blocked, now);
            self.close(blocked.wait_key, at);
        }
    }

    /// The earliest time at which an attempt in this position passes, computed from those before it.
    pub(super) fn earliest(
        &self,
        id: LaneId,
        stand: WaitKeyId,
        rank: Rank,
        cost: u64,
        now: Instant,
    ) -> Instant {
        let Some(wait_key) = self.wait_keys.get(&stand) else { return now };
        let lane = self.lanes.get(&id);
        let own = lane.map_or(0, |lane| lane.cost_before(rank));
        let same = usize::from(lane.is_some_and(|lane| lane.asked.is_none()));
        // Every other lane gets a turn before the second attempt of this one, unless its priority is lower.
        let after_all = wait_key.ring.last_key_value().is_some_and(|(last, _)| last.is_no_lower_than(rank));
        let others = if after_all { wait_key.ring.len().saturating_sub(same) } else { 0 };
        let front = wait_key.ring.first_key_value().and_then(|(_, lane)| self.lanes.get(lane));
        let first = front.and_then(Lane::first).map_or(0, |(_, waiter)| waiter.ask.cost);
        wait_key.earliest(first, own.saturating_add(others as u64), cost, now)
    }

    /// Moves a lane among the others after its first attempt has changed.
    pub(super) fn reposition(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some((first, _)) = lane.first().filter(|_| lane.asked.is_none()) else { return };
        let stand = lane.stand;
        let turn = lane.turn.with_priority_of(first);
        let before = std::mem::replace(&mut lane.turn, turn);
        if let Some(wait_key) = self.wait_keys.get_mut(&stand).filter(|_| turn != before) {
            wait_key.ring.remove(&before);
            wait_key.ring.insert(turn, id);
        }
        self.look_at_front(stand);
    }
}

/// The deadline of an attempt at this wait key: set by its caller's bound, or by the rule there. While the rule
/// is unknown, the most patient rule of the path bounds the wait.
fn deadline(path: &WaitPath, newcomer: &Newcomer, stand: WaitKeyId) -> Option<(Instant, Bound)> {
    let stop = match stand {
        WaitKeyId::FRESH => path.stops.first().filter(|whole| whole.most > Span::ZERO),
        _ => path.stops.iter().find(|stop| stop.wait_key == stand),
    };
    let by_rule = stop.and_then(|stop| {
        let at = newcomer.arrived.checked_add(stop.most.into())?;
        Some((at, Bound::Rule(Arc::clone(&stop.rule))))
    });
    let by_caller = newcomer.deadline.map(|at| (at, Bound::Caller));
    by_caller.into_iter().chain(by_rule).min_by_key(|(at, _)| *at)
}
