//! The turns of a pacer whose clock the caller moves.

use std::sync::Arc;

use tollgate_core::Timestamp;

use super::driver::give_turns;
use super::pacer_time::{MovedTime, PacerTime};
use super::scheduler::Scheduler;
use super::timetable::Rest;
use crate::admit::at_first_poll;

/// Gives the turns of a pacer whose clock the caller moves. See [`Pacer::on_clock`](super::Pacer::on_clock).
pub struct Turns {
    scheduler: Arc<Scheduler>,
}

impl Turns {
    pub(super) fn new(scheduler: &Arc<Scheduler>) -> Self {
        Self { scheduler: Arc::clone(scheduler) }
    }

    /// When the next turn comes or the next wait ends; `None` if no attempt waits.
    pub fn due(&self) -> Option<Timestamp> {
        let time = self.time()?;
        let turn = self.scheduler.board.lock().queues.due(time.now());
        let first = turn.into_iter().chain(time.first_alarm()).min()?;
        Some(time.shown_at(first))
    }

    /// Decides every attempt whose turn has come, and ends the waits that are over. The futures of these
    /// attempts are woken.
    pub fn give(&self) {
        while at_first_poll(give_turns(&self.scheduler)).flatten() == Some(Rest::Go) {}
        if let Some(time) = self.time() {
            time.ring();
        }
    }

    fn time(&self) -> Option<&MovedTime> {
        match &self.scheduler.time {
            PacerTime::Moved(time) => Some(time),
            PacerTime::Runtime => None,
        }
    }
}
