//! The scheduler of a pacer. It admits, rejects or queues new attempts, and wakes the driver that decides
//! the queued ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tollgate_core::{Attempt, Decision, Span, Verdict};

use super::PacerOptions;
use super::answer::{Paced, Unpaced};
use super::ask::{Ask, First};
use super::driver::Driving;
use super::ids::{Blocked, ById, Ids, WaitPath};
use super::notifications::{self, Caller};
use super::pacer_time::PacerTime;
use super::queues::{Bounds, Expiry, Newcomer, Place, Queues, Seat, TurnedAway};
use super::timetable::Rest;
use super::waiting::{Queued, Waiting};
use crate::engine::{Engine, Fault, Manner};
use crate::live_config::Snapshot;
use crate::meter::PacerMeters;
use crate::owned_attempt::OwnedAttempt;
use crate::pauses::Stopped;

/// The state that all parts of a pacer share.
pub(super) struct Scheduler {
    pub(super) engine: Arc<Engine>,
    pub(super) time: PacerTime,
    pub(super) ids: Ids,
    pub(super) board: Mutex<Board>,
    /// The number of waiting attempts, readable without the lock.
    pub(super) waiting: AtomicUsize,
    /// Counts the refunds and releases.
    frees: AtomicU64,
    pub(super) wake: Notify,
    pub(super) meters: PacerMeters,
    pub(super) max_in_flight: usize,
    /// The runtime of the driver. If there is none, the driver runs on the runtime of the waiting caller.
    runtime: Option<Handle>,
}

/// The rest between two decisions of an attempt that waits for a hold, if other nodes may release the hold:
/// they do not notify this node.
const REST_SHARED: Span = Span::from_secs(1);
/// The same rest if every release is on this node and notifies the pacer.
const REST_ALONE: Span = Span::from_secs(10);

/// The state behind the lock.
pub(super) struct Board {
    pub(super) queues: Queues,
    /// Whether the pacer has ended.
    ended: bool,
    /// Whether there is a driver.
    pub(super) driving: bool,
    /// The time until which the driver sleeps, if it does.
    pub(super) asleep: Option<Instant>,
    /// The time from which the driver may stay awake until a wait key is due.
    pub(super) calm: Instant,
    /// The number of decisions in flight.
    pub(super) asking: usize,
    /// The versions of the policies and of the pauses that the queues were built with.
    pub(super) policies: u64,
    pub(super) pauses: u64,
}

/// The result of a new attempt: answered at once, or queued.
pub(crate) enum Arrived<T> {
    Answered(Result<Paced<T>, Unpaced<T>>),
    Queued(Waiting<T>),
}

impl Scheduler {
    pub(super) fn new(
        engine: Arc<Engine>,
        options: PacerOptions,
        time: PacerTime,
        runtime: Option<Handle>,
    ) -> Self {
        let max_in_flight = options.max_in_flight.max(1);
        // An in-process store answers before a second decision could begin.
        let most_width = if engine.counters.answer_at_once() { 1 } else { max_in_flight };
        let PacerOptions { max_waiting, max_waiting_per_key, .. } = options;
        let most_rest = if engine.counters.are_shared() { REST_SHARED } else { REST_ALONE };
        let queues = Queues::new(Bounds { max_waiting, max_waiting_per_key, most_width, most_rest });
        let board = Board {
            queues,
            ended: false,
            driving: false,
            asleep: None,
            calm: time.now(),
            asking: 0,
            policies: 0,
            pauses: 0,
        };
        Self {
            engine,
            time,
            ids: Ids::new(),
            board: Mutex::new(board),
            waiting: AtomicUsize::new(0),
            frees: AtomicU64::new(0),
            wake: Notify::new(),
            meters: PacerMeters::default(),
            max_in_flight,
            runtime,
        }
    }

    /// The runtime of the driver.
    pub(super) fn runtime(&self) -> Option<Handle> {
        self.runtime.clone().or_else(|| Handle::try_current().ok())
    }

    /// Admits or rejects an attempt that need not wait, and queues every other. `decision` is blank, and is
    /// outside the future so that the future is small. If the store answers at once, the result is ready at the
    /// first poll.
    pub(super) async fn arrive<'a, T, F>(
        self: &Arc<Self>,
        pinned: &'a Snapshot,
        ask: &Ask<'a>,
        decision: &mut Decision<'a>,
        see: F,
    ) -> Result<Arrived<T>, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Engine>, &Decision<'_>) -> T + Send + 'static,
    {
        let arrived = self.time.now();
        if let Some(path) = self.path_of_undecided(pinned, ask, arrived) {
            return Ok(self.seat(&path, ask, see, None, arrived));
        }
        let frees = self.frees.load(Ordering::SeqCst);
        self.engine.decide_as(Manner::TakeOrWait, pinned, &ask.attempt, decision).await?;
        Ok(match decision.verdict {
            Verdict::Allow => {
                self.meters.of(&decision.policy().name).passed(Span::ZERO);
                let seen = see(&self.engine, decision);
                Arrived::Answered(Ok(Paced { waited: Span::ZERO, seen }))
            }
            Verdict::Wait(_) => {
                let path = self.ids.wait_path(decision.policy(), &decision.charges);
                let blocked = self.ids.blocked(decision);
                let seated = self.seat(&path, ask, see, blocked.as_ref(), arrived);
                // A release between the decision and the queueing has notified nothing.
                if self.frees.load(Ordering::SeqCst) != frees {
                    self.freed_on(&path);
                }
                seated
            }
            Verdict::Defer(_) | Verdict::Deny => {
                self.meters.of(&decision.policy().name).denied.inc();
                Arrived::Answered(Err(notifications::denied(&self.engine, decision, see)))
            }
        })
    }

    /// The path of an attempt that queues without a decision; `None` if it is decided first.
    fn path_of_undecided(&self, pinned: &Snapshot, ask: &Ask<'_>, now: Instant) -> Option<WaitPath> {
        let queues_first =
            ask.first == First::Queue && !self.engine.decides_at_once(pinned, ask.attempt.policy);
        if !pinned.policies.enabled || !(queues_first || self.may_have_to_queue(now)) {
            return None;
        }
        // A decision reports the mistake of an attempt without a path, unless the attempt is blocked.
        let path = self.wait_path(pinned, &ask.attempt).ok()?;
        (queues_first || self.must_queue(&path, now)).then_some(path)
    }

    /// The wait keys that an attempt has to pass.
    pub(super) fn wait_path(&self, pinned: &Snapshot, attempt: &Attempt<'_>) -> Result<WaitPath, Fault> {
        let policy = pinned.policies.find(attempt.policy).map_err(Fault::Mistake)?;
        let charges = policy.charges(attempt, Default::default()).map_err(Fault::Mistake)?;
        Ok(self.ids.wait_path(policy, &charges))
    }

    /// Whether attempts wait, or something is paused.
    pub(super) fn may_have_to_queue(&self, now: Instant) -> bool {
        self.waiting.load(Ordering::Acquire) > 0 || !self.engine.pauses.are_over(now)
    }

    /// Whether a new attempt has to queue without a decision.
    pub(super) fn must_queue(&self, path: &WaitPath, now: Instant) -> bool {
        let mut board = self.board.lock();
        self.follow(&mut board, now);
        board.queues.must_queue(path, now)
    }

    fn seat<T, F>(
        self: &Arc<Self>,
        path: &WaitPath,
        ask: &Ask<'_>,
        see: F,
        blocked: Option<&Blocked>,
        arrived: Instant,
    ) -> Arrived<T>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Engine>, &Decision<'_>) -> T + Send + 'static,
    {
        let meter = self.meters.of(ask.attempt.policy);
        let runtime = self.runtime();
        if runtime.is_none() && matches!(self.time, PacerTime::Runtime) {
            return Arrived::Answered(Err(Unpaced::Ended));
        }
        let (answer, result) = oneshot::channel();
        let newcomer = Newcomer {
            ask: Arc::new(OwnedAttempt::new(&ask.attempt).known_by(ask.correlation)),
            listener: Box::new(Caller { see, answer }),
            priority: ask.priority,
            arrived,
            deadline: ask.max_wait.and_then(|most| arrived.checked_add(most.into())),
        };
        let (seat, place) = match self.place(path, newcomer, blocked, runtime.as_ref()) {
            Ok(placed) => placed,
            Err(TurnedAway::TooLate { wait, bound }) => {
                meter.late.inc();
                let waited = (self.time.now() - arrived).into();
                return Arrived::Answered(Err(Unpaced::TooLate { waited, wait, bound }));
            }
            Err(TurnedAway::Full { waiting }) => {
                meter.full.inc();
                return Arrived::Answered(Err(Unpaced::Full { waiting }));
            }
            Err(TurnedAway::Ended) => return Arrived::Answered(Err(Unpaced::Ended)),
        };
        meter.waiting.inc();
        let queued = Queued { seat, arrived, deadline: place.deadline, result, meter };
        Arrived::Queued(Waiting::new(Arc::clone(self), queued))
    }

    /// Queues an attempt, and starts the driver if there is none, unless the caller gives the turns. No caller's code
    /// runs while the board is locked, not even when an attempt is rejected.
    fn place(
        self: &Arc<Self>,
        path: &WaitPath,
        newcomer: Newcomer,
        blocked: Option<&Blocked>,
        runtime: Option<&Handle>,
    ) -> Result<(Seat, Place), TurnedAway> {
        let mut board = self.board.lock();
        let now = self.time.now();
        self.follow(&mut board, now);
        let found = if board.ended {
            Err(TurnedAway::Ended)
        } else {
            board.queues.find_place(path, &newcomer, blocked, now)
        };
        let place = match found {
            Ok(place) => place,
            Err(turned) => {
                drop(board);
                return Err(turned);
            }
        };
        let seat = board.queues.enter(path, &place, newcomer, blocked, now);
        self.count(&board);
        self.rouse(&board, now);
        let driven = std::mem::replace(&mut board.driving, true);
        drop(board);
        if !driven
            && matches!(self.time, PacerTime::Runtime)
            && let Some(runtime) = runtime
        {
            runtime.spawn(Driving::new(Arc::clone(self)).run());
        }
        Ok((seat, place))
    }

    /// Wakes the driver if it would sleep too long.
    pub(super) fn rouse(&self, board: &Board, now: Instant) {
        let rest = board.queues.rest(now, board.calm);
        if board.asleep.is_some_and(|until| rest.is_some_and(|rest| rest < Rest::Sleep(until))) {
            self.wake.notify_one();
        }
    }

    /// Applies changes of the policies in force and of the pauses to the queues.
    pub(super) fn follow(&self, board: &mut Board, now: Instant) {
        let policies = self.engine.pin().number;
        if board.policies != policies {
            board.policies = policies;
            board.queues.free_all();
        }
        let pauses = &self.engine.pauses;
        if board.pauses != pauses.generation() {
            let mut paused = ById::default();
            board.pauses = pauses.each(|pause| {
                let wait_key = match &pause.scope {
                    Stopped::Policy(policy) => self.ids.policy_wait_key(policy),
                    Stopped::Key { rule, key } => self.ids.wait_key(rule, key),
                };
                let until = paused.entry(wait_key).or_insert(pause.until);
                *until = pause.until.max(*until);
            });
            board.queues.pause(&paused, now);
        }
    }

    /// After a refund or release at these keys, lets the driver decide the first attempts that wait there at
    /// once.
    pub(super) fn freed<'k>(&self, places: impl IntoIterator<Item = (&'k str, &'k str)>) {
        if self.hears_of_frees() {
            let wait_keys = places.into_iter().map(|(rule, key)| self.ids.wait_key(rule, key));
            let mut board = self.board.lock();
            board.queues.free(wait_keys);
            self.rouse(&board, self.time.now());
        }
    }

    /// As [`Scheduler::freed`], after a refund or release at an unknown key.
    pub(super) fn freed_anywhere(&self) {
        if self.hears_of_frees() {
            let mut board = self.board.lock();
            board.queues.free_all();
            self.rouse(&board, self.time.now());
        }
    }

    /// As [`Scheduler::freed`], after a possible refund or release at the keys of a path.
    fn freed_on(&self, path: &WaitPath) {
        let mut board = self.board.lock();
        board.queues.free(path.stops.iter().map(|stop| stop.wait_key));
        self.rouse(&board, self.time.now());
    }

    /// Counts a release. Returns whether attempts wait. A new attempt is counted as waiting before it reads
    /// the count of releases, so either the release sees the attempt, or the attempt sees the release.
    fn hears_of_frees(&self) -> bool {
        self.frees.fetch_add(1, Ordering::SeqCst);
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Publishes the number of waiting attempts.
    pub(super) fn count(&self, board: &Board) {
        self.waiting.store(board.queues.waiting(), Ordering::SeqCst);
    }

    /// Rejects every waiting attempt, and those that come later.
    pub(super) fn end(&self) {
        let mut board = self.board.lock();
        board.ended = true;
        let waiters = board.queues.clear();
        self.count(&board);
        self.wake.notify_one();
        drop(board);
        drop(waiters);
    }

    /// Removes an attempt whose caller gave up. Returns whether it was still there.
    pub(super) fn leave(&self, seat: Seat) -> bool {
        let mut board = self.board.lock();
        let waiter = board.queues.leave(seat);
        self.count(&board);
        self.rouse(&board, self.time.now());
        drop(board);
        waiter.is_some()
    }

    /// Removes an attempt whose deadline is over. Returns how much longer it would have had to wait; `None`
    /// if it is being decided or has its result.
    pub(super) fn expire(&self, seat: Seat) -> Option<Span> {
        let mut board = self.board.lock();
        let now = self.time.now();
        let expiry = board.queues.expire(seat, now);
        self.count(&board);
        self.rouse(&board, now);
        drop(board);
        match expiry {
            Expiry::Left { wait, waiter } => {
                drop(waiter);
                Some(wait)
            }
            Expiry::Asked | Expiry::Gone => None,
        }
    }
}
