//! Leaving a queue: after a decision, or by giving up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Span;

use super::{Finding, Job, Queues, Seat};
use crate::pacer::answer::Bound;
use crate::pacer::ids::{Blocked, WaitKeyId};
use crate::pacer::lane::{Lane, Waiter};
use crate::pacer::timetable::TICK;

/// The result of a decision for the position of its attempt.
pub(in crate::pacer) enum Settled {
    /// It leaves: it passes, or is refused.
    Leaves(Waiter),
    /// It leaves, because its turn would come too late.
    TooLate { waiter: Waiter, wait: Span, bound: Bound },
    /// It keeps waiting. Its wait was not recorded yet.
    Waits,
    /// It keeps waiting.
    WaitsOn,
    /// Its caller gave up meanwhile.
    Gone,
}

/// The result of a passed deadline for the position of its attempt.
pub(in crate::pacer) enum Expiry {
    /// It has left. It would have had to wait this much longer.
    Left { waiter: Waiter, wait: Span },
    /// It is being decided: the result is about to come.
    Asked,
    /// It was no longer there: the result has come.
    Gone,
}

impl Queues {
    /// Records the result of a decision.
    pub(in crate::pacer) fn settle(&mut self, job: &Job, finding: &Finding<'_>, now: Instant) -> Settled {
        if job.epoch != self.epoch {
            return Settled::Gone;
        }
        if let Some(wait_key) = self.wait_keys.get_mut(&job.from) {
            wait_key.asked -= 1;
        }
        if let Some(lane) = self.lanes.get_mut(&job.seat.lane) {
            (lane.asked, lane.moved) = (None, false);
        }
        let settled = match finding {
            Finding::Passed | Finding::Refused => {
                self.take_out(job.seat).map_or(Settled::Gone, Settled::Leaves)
            }
            Finding::Blocked(blocked) => self.hold_up(job.seat, blocked, now),
            Finding::Unknown => Settled::WaitsOn,
        };
        self.next_turn(job, finding, &settled, now);
        settled
    }

    /// Applies the wait that a decision demands of an attempt.
    fn hold_up(&mut self, seat: Seat, blocked: &Blocked, now: Instant) -> Settled {
        let lane = self.lanes.get_mut(&seat.lane);
        let Some(waiter) = lane.and_then(|lane| lane.waiter_mut(seat.rank)) else { return Settled::Gone };
        let (patience, rule) = &blocked.patience;
        let waited = now - waiter.arrived;
        let impatient = waited > Duration::from(*patience) + TICK;
        let bound = if impatient {
            Some(Bound::Rule(Arc::clone(rule)))
        } else {
            let at = now + blocked.surely.into();
            waiter
                .deadline
                .as_ref()
                .filter(|(deadline, _)| *deadline + TICK < at)
                .map(|(_, bound)| bound.clone())
        };
        let noted_before = std::mem::replace(&mut waiter.noted, true);
        match bound {
            None if noted_before => Settled::WaitsOn,
            None => Settled::Waits,
            Some(bound) => match self.take_out(seat) {
                Some(waiter) => Settled::TooLate { waiter, wait: blocked.wait(), bound },
                None => Settled::Gone,
            },
        }
    }

    /// Sets when and where the lane has its next turn, and lets the current wait key go on giving turns.
    fn next_turn(&mut self, job: &Job, finding: &Finding<'_>, settled: &Settled, now: Instant) {
        let (lane, from) = (job.seat.lane, job.from);
        if self.lanes.get(&lane).is_some_and(Lane::is_empty) {
            self.drop_lane(lane);
        }
        let waits = matches!(settled, Settled::Waits | Settled::WaitsOn);
        match finding {
            Finding::Passed => {
                self.widen(from);
                if self.lanes.contains_key(&lane) {
                    self.join(lane, from);
                }
            }
            Finding::Blocked(blocked) if waits && blocked.wait_key == from => {
                self.rejoin(lane, from, job.turn);
                self.shut(blocked, now);
                self.reopen_if_freed(job, blocked.wait_key);
            }
            Finding::Blocked(blocked) if waits => {
                self.join(lane, blocked.wait_key);
                self.expect(blocked, now);
                self.reopen_if_freed(job, blocked.wait_key);
            }
            // An attempt that leaves without passing leaves its turn to the next in its lane.
            Finding::Blocked(_) | Finding::Refused | Finding::Unknown => {
                if self.lanes.contains_key(&lane) {
                    self.rejoin(lane, from, job.turn);
                }
            }
        }
        if self
            .wait_keys
            .get(&from)
            .is_some_and(|wait_key| wait_key.due.is_none() && !wait_key.ring.is_empty())
        {
            self.open(from);
        }
        self.tidy(from);
    }

    /// Opens a wait key again if units were freed there during the decision: the decision is outdated.
    fn reopen_if_freed(&mut self, job: &Job, id: WaitKeyId) {
        if self.wait_keys.get(&id).is_some_and(|wait_key| wait_key.freed > job.frees) {
            self.open(id);
        }
    }

    /// Widens a wait key: as many attempts are decided at once as have passed since the last one that had to
    /// wait. So at most half of the decisions are in vain.
    fn widen(&mut self, id: WaitKeyId) {
        if let Some(wait_key) = self.wait_keys.get_mut(&id).filter(|_| id != WaitKeyId::FRESH) {
            wait_key.passed += 1;
            wait_key.width = wait_key.passed.min(self.bounds.most_width);
        }
    }

    /// Stops giving turns at the wait key of a waiting attempt, until its time.
    fn shut(&mut self, blocked: &Blocked, now: Instant) {
        let at = now + blocked.rest(self.bounds.most_rest).into();
        let wait_key = self.wait_keys.entry(blocked.wait_key).or_default();
        wait_key.tell(blocked, now);
        (wait_key.passed, wait_key.width) = (0, 1);
        self.close(blocked.wait_key, at);
    }

    /// Removes an attempt whose caller gave up. `None` if it was no longer there.
    pub(in crate::pacer) fn leave(&mut self, seat: Seat) -> Option<Waiter> {
        let waiter = self.take_out(seat)?;
        let lane = self.lanes.get(&seat.lane).expect("a waiter was in it");
        let stand = lane.stand;
        if lane.is_empty() && lane.asked.is_none() {
            if let Some(wait_key) = self.wait_keys.get_mut(&stand) {
                wait_key.ring.remove(&lane.turn);
            }
            self.drop_lane(seat.lane);
            self.look_at_front(stand);
        } else {
            self.reposition(seat.lane);
        }
        Some(waiter)
    }

    /// Removes an attempt whose deadline is over, unless its result is about to come.
    pub(in crate::pacer) fn expire(&mut self, seat: Seat, now: Instant) -> Expiry {
        let Some(lane) = self.lanes.get(&seat.lane) else { return Expiry::Gone };
        if lane.asked == Some(seat.rank) {
            return Expiry::Asked;
        }
        let stand = lane.stand;
        let cost = lane.waiter(seat.rank).map_or(0, |waiter| waiter.ask.cost);
        let earliest = self.earliest(seat.lane, stand, seat.rank, cost, now);
        let by_itself = self.wait_keys.get(&stand).and_then(|wait_key| wait_key.ends_by_itself());
        let earliest = by_itself.map_or(earliest, |at| at.max(earliest));
        match self.leave(seat) {
            Some(waiter) => Expiry::Left { waiter, wait: (earliest - now).into() },
            None => Expiry::Gone,
        }
    }

    fn take_out(&mut self, seat: Seat) -> Option<Waiter> {
        let waiter = self.lanes.get_mut(&seat.lane)?.remove(seat.rank)?;
        self.waiting -= 1;
        Some(waiter)
    }
}
