//! The driver: one task that decides the attempt whose turn it is, while attempts wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{Decision, Verdict};

use super::notifications::Notification;
use super::queues::{Finding, Job, Settled};
use super::scheduler::Scheduler;
use super::timetable::{Rest, TICK};
use super::unclaimed::Unclaimed;
use crate::engine::{Fault, Manner};
use crate::live_config::Snapshot;

/// The driver decides this many attempts before it lets other tasks run.
const BATCH: usize = 64;
/// The interval at which the driver checks for changes that do not notify it: policies, and pauses set on other
/// nodes.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The driver stays awake for the next turn only if there was no turn for this long. If turns follow one
/// another quickly, one tick more or less does not matter.
const CALM: Duration = Duration::from_millis(10);

/// A running driver. If it is dropped before it has finished, or even begun, it ends every wait with
/// [`Unpaced::Ended`](super::Unpaced::Ended).
pub(super) struct Driving {
    scheduler: Arc<Scheduler>,
    finished: bool,
}

/// The next step of the driver.
enum Step {
    /// Decides an attempt.
    Ask(Job),
    /// Has nothing to do for a while.
    Rest(Rest),
    /// Has nothing to do.
    End,
}

/// A decision in flight. If it is dropped, its attempt stays undecided.
struct Asking {
    scheduler: Arc<Scheduler>,
    job: Option<Job>,
}

impl Driving {
    pub(super) fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler, finished: false }
    }

    /// Gives turns until no attempt waits.
    pub(super) async fn run(mut self) {
        let mut before = None;
        while let Some(rest) = give_turns(&self.scheduler).await {
            match rest {
                Rest::Go => tokio::task::yield_now().await,
                Rest::Linger => {
                    let now = self.scheduler.time.now();
                    // A paused tokio clock advances only while every task sleeps.
                    match before.replace(now) {
                        Some(before) if before == now => sleep(TICK).await,
                        _ => tokio::task::yield_now().await,
                    }
                }
                Rest::Sleep(until) => drop(timeout_at(until, self.scheduler.wake.notified()).await),
            }
        }
        self.finished = true;
    }
}

/// Decides the attempts whose turn it is. Returns what to do then; `None` if no attempt waits.
pub(super) async fn give_turns(scheduler: &Arc<Scheduler>) -> Option<Rest> {
    for _ in 0..BATCH {
        match scheduler.step() {
            Step::Ask(job) if is_answered_at_once(scheduler, &job) => ask_about(scheduler, &job).await,
            Step::Ask(job) => {
                let asking = Asking { scheduler: Arc::clone(scheduler), job: Some(job) };
                tokio::spawn(asking.run());
            }
            Step::Rest(rest) => return Some(rest),
            Step::End => return None,
        }
    }
    Some(Rest::Go)
}

fn is_answered_at_once(scheduler: &Scheduler, job: &Job) -> bool {
    let pinned = scheduler.engine.pin();
    scheduler.engine.decides_at_once(&pinned, job.ask.policy())
}

async fn ask_about(scheduler: &Arc<Scheduler>, job: &Job) {
    let fields = job.ask.fields();
    let attempt = job.ask.attempt(&fields);
    let pinned = scheduler.engine.pin();
    let mut decision = Decision::for_caller(job.ask.correlation.as_deref());
    let decided = scheduler.engine.decide_as(Manner::TakeInTurn, &pinned, &attempt, &mut decision).await;
    scheduler.settle(job, &pinned, decided.map(|()| &decision));
}

impl Scheduler {
    fn step(&self) -> Step {
        let mut board = self.board.lock();
        let now = self.time.now();
        board.asleep = None;
        self.follow(&mut board, now);
        if board.asking < self.max_in_flight
            && let Some(job) = board.queues.next(now)
        {
            board.asking += 1;
            board.calm = now + CALM;
            return Step::Ask(job);
        }
        if board.queues.waiting() == 0 && board.asking == 0 {
            board.driving = false;
            return Step::End;
        }
        let look = Rest::Sleep(now + LOOK_EVERY);
        // With the most decisions in flight, the next one that ends wakes the driver.
        let calm = board.calm;
        let rest = if board.asking < self.max_in_flight { board.queues.rest(now, calm) } else { None };
        let rest = rest.map_or(look, |rest| rest.min(look));
        if let Rest::Sleep(until) = rest {
            board.asleep = Some(until);
        }
        Step::Rest(rest)
    }

    /// Reports the decision to the queues, and to the caller if its attempt leaves them.
    fn settle(self: &Arc<Self>, job: &Job, pinned: &Snapshot, decided: Result<&Decision<'_>, Fault>) {
        let blocked = match &decided {
            Ok(decision) if matches!(decision.verdict, Verdict::Wait(_)) => self.ids.blocked(decision),
            _ => None,
        };
        let finding = match (&decided, &blocked) {
            (_, Some(blocked)) => Finding::Blocked(blocked),
            (Ok(decision), None) if decision.allowed() => Finding::Passed,
            _ => Finding::Refused,
        };
        let (settled, now) = self.settle_queues(job, &finding);
        if let Ok(decision) = decided
            && !matches!(settled, Settled::WaitsOn | Settled::TooLate { .. })
        {
            self.engine.note(pinned, decision);
        }
        match (settled, decided) {
            (Settled::Leaves(waiter), Err(fault)) => waiter.listener.hear(Notification::Fault(fault)),
            (Settled::Leaves(waiter), Ok(decision)) => {
                let engine = &self.engine;
                let waited = (now - waiter.arrived).into();
                let unclaimed = Unclaimed::new(self, decision);
                waiter.listener.hear(if decision.allowed() {
                    Notification::Passed { engine, decision, waited, unclaimed }
                } else {
                    Notification::Denied { engine, decision }
                });
            }
            (Settled::TooLate { waiter, wait, bound }, _) => {
                let waited = (now - waiter.arrived).into();
                waiter.listener.hear(Notification::TooLate { waited, wait, bound });
            }
            // The caller gave up during the decision. Dropping `Unclaimed` refunds the attempt.
            (Settled::Gone, Ok(decision)) => drop(Unclaimed::new(self, decision)),
            (Settled::Gone, Err(_)) | (Settled::Waits | Settled::WaitsOn, _) => {}
        }
    }

    fn settle_queues(&self, job: &Job, finding: &Finding<'_>) -> (Settled, Instant) {
        let mut board = self.board.lock();
        let now = self.time.now();
        let settled = board.queues.settle(job, finding, now);
        board.asking -= 1;
        self.count(&board);
        if board.asleep.is_some() {
            self.wake.notify_one();
        }
        (settled, now)
    }
}

impl Asking {
    async fn run(mut self) {
        if let Some(job) = &self.job {
            ask_about(&self.scheduler, job).await;
        }
        self.job = None;
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.scheduler.settle_queues(&job, &Finding::Unknown);
        }
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut board = self.scheduler.board.lock();
        board.driving = false;
        let waiters = board.queues.clear();
        self.scheduler.count(&board);
        drop(board);
        drop(waiters);
    }
}
