//! Waiting fairly until attempts may pass.
//!
//! A waiting attempt takes nothing. When its turn comes, everything it asks for is taken together, so that an
//! attempt held up by one limit uses up no other. Attempts that wait for the same keys pass by priority and
//! then in the order of arrival. Attempts that wait for different keys take turns at the limits that they
//! share.

mod answer;
mod ask;
mod driver;
mod ids;
mod lane;
mod notifications;
mod pace;
mod pacer_time;
mod pausing;
mod queues;
mod scheduler;
#[cfg(feature = "testing")]
mod testing;
mod timetable;
mod turns;
mod unclaimed;
mod wait_key;
mod waiting;
mod wakeups;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;
use tollgate_core::{Clock, Decision, Mistake, Span};

pub use answer::{Bound, Paced, Refusal, Unpaced};
pub use ask::{Ask, First};
use pacer_time::PacerTime;
pub use pausing::{PauseFault, Paused, Scope};
use scheduler::{Arrived, Scheduler};
#[cfg(feature = "testing")]
pub use testing::Permit;
pub use turns::Turns;
use waiting::Waiting;
pub(crate) use wakeups::Wakeups;

use crate::admit::{Admission, Admitted, Arrival, NotAdmitted};
use crate::engine::Engine;
use crate::live_config::Snapshot;
use crate::meter::PacerMeters;
use crate::taken::Taken;

/// Lets attempts wait until they may pass, by priority and then in order of arrival.
///
/// Clones share one queue. While attempts wait, the pacer runs a task in the tokio runtime that it was given,
/// or else in that of the first waiting caller. That runtime must have its timer enabled.
#[derive(Clone)]
pub struct Pacer {
    scheduler: Arc<Scheduler>,
}

/// The bounds of a pacer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacerOptions {
    /// The most attempts that may wait in total.
    pub max_waiting: usize,
    /// The most attempts that may wait for the same keys.
    pub max_waiting_per_key: usize,
    /// The most calls to the store in flight. It matters only for a store that does not answer at once.
    pub max_in_flight: usize,
}

impl Default for PacerOptions {
    fn default() -> Self {
        Self { max_waiting: 10_000, max_waiting_per_key: 1_000, max_in_flight: 64 }
    }
}

impl Pacer {
    /// A pacer for the decisions of this engine.
    pub fn new(engine: Arc<Engine>, options: PacerOptions) -> Self {
        Self::over(Scheduler::new(engine, options, PacerTime::Runtime, None))
    }

    /// A pacer for a simulation. The caller advances the clock and gives the turns, so the pacer needs no
    /// runtime and never sleeps. The engine's store must answer immediately.
    pub fn on_clock(engine: Arc<Engine>, options: PacerOptions, clock: Arc<dyn Clock>) -> (Self, Turns) {
        let pacer = Self::over(Scheduler::new(engine, options, PacerTime::moved(clock), None));
        let turns = Turns::new(&pacer.scheduler);
        (pacer, turns)
    }

    /// As [`Pacer::new`], working in this runtime. For callers in several runtimes, one of which may end
    /// before the others.
    pub fn in_runtime(engine: Arc<Engine>, options: PacerOptions, runtime: Handle) -> Self {
        Self::over(Scheduler::new(engine, options, PacerTime::Runtime, Some(runtime)))
    }

    fn over(scheduler: Scheduler) -> Self {
        let scheduler = Arc::new(scheduler);
        scheduler.engine.counters.wakeups.connect(&scheduler);
        Self { scheduler }
    }

    /// Decides an attempt that may wait, or queues it: ready at the first poll if the store answers at once.
    pub(crate) async fn admit<'a, T, F>(
        &self,
        pinned: &'a Snapshot,
        ask: &Ask<'a>,
        decision: &mut Decision<'a>,
        see: F,
    ) -> Arrival<T>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Engine>, &Decision<'_>) -> (T, Taken) + Send + 'static,
    {
        match self.scheduler.arrive(pinned, ask, decision, see).await {
            Ok(Arrived::Answered(answer)) => Arrival::Admitted(admitted(answer)),
            Ok(Arrived::Queued(waiting)) => Arrival::Queued(Turn(waiting)),
            Err(fault) => Arrival::Admitted(Err(NotAdmitted::Fault(fault))),
        }
    }

    /// Counts an attempt that a door rejected before it reached the pacer, because the door had no room for
    /// more waiting attempts.
    pub fn count_rejected(&self, policy: &str) -> Result<(), Mistake> {
        let pinned = self.scheduler.engine.pin();
        let policy = pinned.policies.find(policy)?;
        self.scheduler.meters.of(&policy.name).full.inc();
        Ok(())
    }

    /// Rejects every waiting attempt, and every later one that would have to wait. Nothing is taken for them.
    /// Call it at shutdown, so that waiting callers get an answer before their connections are closed.
    pub fn end(&self) {
        self.scheduler.end();
    }

    /// The number of waiting attempts.
    pub fn waiting(&self) -> usize {
        self.scheduler.waiting.load(Ordering::Acquire)
    }

    /// The metrics of the pacer.
    pub fn meters(&self) -> &PacerMeters {
        &self.scheduler.meters
    }
}

/// A place in a queue. If it is dropped, the attempt leaves the queue.
pub(crate) struct Turn<T>(Waiting<(T, Taken)>);

impl<T> Turn<T> {
    /// Waits for the admission.
    pub(crate) async fn admission(self) -> Admitted<T> {
        admitted(self.0.answer().await)
    }
}

/// The result for a caller that sees the decision.
type Answer<T> = Result<Paced<T>, Unpaced<T>>;

/// Converts the result to the type that every door uses.
fn admitted<T>(answer: Answer<(T, Taken)>) -> Admitted<T> {
    let (waited, (seen, taken)) = match answer {
        Ok(Paced { waited, seen }) => (waited, seen),
        Err(Unpaced::Denied { seen, .. }) => (Span::ZERO, seen),
        Err(Unpaced::TooLate { waited, wait, bound }) => {
            return Err(NotAdmitted::TooLate { waited, wait, bound });
        }
        Err(Unpaced::Full { waiting }) => return Err(NotAdmitted::Full { waiting }),
        Err(Unpaced::Fault(fault)) => return Err(NotAdmitted::Fault(fault)),
        Err(Unpaced::Ended) => return Err(NotAdmitted::Ended),
    };
    Ok(Admission { waited, seen, taken })
}
