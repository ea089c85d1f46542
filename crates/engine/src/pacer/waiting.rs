//! One caller's wait: until its result comes, until its deadline, or until it gives up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::{Bound, Paced, Unpaced};
use super::notifications::CallerResult;
use super::queues::Seat;
use super::scheduler::Scheduler;
use crate::meter::PacedMeter;

/// A wait. If it is dropped before the result, the attempt leaves the queue.
pub(crate) struct Waiting<T> {
    scheduler: Arc<Scheduler>,
    seated: Queued<T>,
    answered: bool,
}

/// The position of a waiting attempt, and the channel for its result.
pub(super) struct Queued<T> {
    pub(super) seat: Seat,
    pub(super) arrived: Instant,
    pub(super) deadline: Option<(Instant, Bound)>,
    pub(super) result: oneshot::Receiver<CallerResult<T>>,
    pub(super) meter: Arc<PacedMeter>,
}

/// A result that was given in time may arrive this much after the deadline: the timers of the caller and of the
/// driver are both late by up to a tick.
const GRACE: Duration = Duration::from_millis(2);

impl<T> Waiting<T> {
    pub(super) fn new(scheduler: Arc<Scheduler>, seated: Queued<T>) -> Self {
        Self { scheduler, seated, answered: false }
    }

    /// Waits for the result.
    pub(super) async fn answer(mut self) -> Result<Paced<T>, Unpaced<T>> {
        if let Some((deadline, bound)) = self.seated.deadline.clone() {
            match self.scheduler.time.within(deadline + GRACE, &mut self.seated.result).await {
                Some(result) => return self.conclude(result.ok()),
                None => {
                    if let Some(wait) = self.scheduler.expire(self.seated.seat) {
                        let waited = (self.scheduler.time.now() - self.seated.arrived).into();
                        return self.conclude_with(Err(Unpaced::TooLate { waited, wait, bound }));
                    }
                }
            }
        }
        let result = (&mut self.seated.result).await;
        self.conclude(result.ok())
    }

    fn conclude(self, result: Option<CallerResult<T>>) -> Result<Paced<T>, Unpaced<T>> {
        let Some(result) = result else { return self.conclude_with(Err(Unpaced::Ended)) };
        result.unclaimed.claim();
        self.conclude_with(result.answer)
    }

    fn conclude_with(mut self, answer: Result<Paced<T>, Unpaced<T>>) -> Result<Paced<T>, Unpaced<T>> {
        self.answered = true;
        let meter = &self.seated.meter;
        match &answer {
            Ok(paced) => meter.passed(paced.waited),
            Err(Unpaced::Denied { .. }) => drop(meter.denied.inc()),
            Err(Unpaced::TooLate { .. }) => drop(meter.late.inc()),
            Err(Unpaced::Full { .. } | Unpaced::Fault(_) | Unpaced::Ended) => {}
        }
        answer
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        self.seated.meter.waiting.dec();
        if !self.answered {
            // If the attempt has passed already, the dropped result refunds it.
            self.scheduler.leave(self.seated.seat);
            self.seated.meter.cancelled.inc();
        }
    }
}
