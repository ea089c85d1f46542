//! The desk of a pacer: where those who come are let pass, sent away or seated, and where the driver
//! learns whose turn it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tollgate_core::{Attempt, Decision, Span, Verdict};

use super::PacerOptions;
use super::answer::{Bound, Paced, Unpaced};
use super::ask::{Ask, Kept};
use super::driver::Driving;
use super::ids::{Blocked, ById, Ids, Route};
use super::news::{self, Caller, Heard};
use super::queues::{Bounds, Expiry, Newcomer, Place, Queues, Seat, Turned};
use super::timetable::Rest;
use crate::engine::{Engine, Fault, Snapshot};
use crate::meter::{PacedMeter, PacerMeters};
use crate::pauses::Stopped;

/// What all parts of a pacer share.
pub(super) struct Desk {
    pub(super) engine: Arc<Engine>,
    pub(super) ids: Ids,
    pub(super) board: Mutex<Board>,
    /// How many wait, for those who only want to know whether anybody does.
    pub(super) waiting: AtomicUsize,
    pub(super) wake: Notify,
    pub(super) meters: PacerMeters,
    pub(super) most_asking: usize,
    /// Where it works; with none, wherever somebody waits.
    runtime: Option<Handle>,
}

/// What is changed by one at a time.
pub(super) struct Board {
    pub(super) queues: Queues,
    /// Whether nobody waits any more.
    ended: bool,
    /// Whether there is a driver.
    pub(super) driving: bool,
    /// Until when it sleeps, if it does.
    pub(super) asleep: Option<Instant>,
    /// From when on it has time to stay awake for a turn.
    pub(super) calm: Instant,
    /// How many decisions are in flight.
    pub(super) asking: usize,
    /// The number of the policies that the queues were made under, and of the pauses.
    pub(super) policies: u64,
    pub(super) pauses: u64,
}

/// What becomes of somebody who comes.
pub(super) enum Arrived<T> {
    Answered(Result<Paced<T>, Unpaced<T>>),
    Seated(Seated<T>),
}

/// Somebody's place, and where it hears what becomes of it.
pub(super) struct Seated<T> {
    pub(super) seat: Seat,
    pub(super) arrived: Instant,
    pub(super) deadline: Option<(Instant, Bound)>,
    pub(super) heard: oneshot::Receiver<Heard<T>>,
    pub(super) meter: Arc<PacedMeter>,
}

impl Desk {
    pub(super) fn new(engine: Arc<Engine>, options: PacerOptions, runtime: Option<Handle>) -> Self {
        let most_asking = options.most_asking.max(1);
        // A store of this process answers before anybody else could be asked about.
        let most_width = if engine.answers_at_once() { 1 } else { most_asking };
        let PacerOptions { most_waiting, most_per_key, .. } = options;
        let queues = Queues::new(Bounds { most_waiting, most_per_key, most_width });
        let board = Board {
            queues,
            ended: false,
            driving: false,
            asleep: None,
            calm: Instant::now(),
            asking: 0,
            policies: 0,
            pauses: 0,
        };
        Self {
            engine,
            ids: Ids::new(),
            board: Mutex::new(board),
            waiting: AtomicUsize::new(0),
            wake: Notify::new(),
            meters: PacerMeters::default(),
            most_asking,
            runtime,
        }
    }

    /// Where it works.
    pub(super) fn runtime(&self) -> Option<Handle> {
        self.runtime.clone().or_else(|| Handle::try_current().ok())
    }

    /// Lets somebody pass who need not wait, and seats everybody else.
    pub(super) fn arrive<T, F>(self: &Arc<Self>, ask: &Ask<'_>, see: F) -> Result<Arrived<T>, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Decision<'_>) -> T + Send + 'static,
    {
        let arrived = Instant::now();
        let pinned = self.engine.pin();
        if !self.engine.answers_at_once() {
            // Whoever came first is asked about first, and so nobody asks for itself.
            let route = self.route(&pinned, &ask.attempt)?;
            return Ok(self.seat(&route, ask, see, None, arrived));
        }
        if !self.is_quiet(arrived) && pinned.policies.enabled {
            let route = self.route(&pinned, &ask.attempt)?;
            if self.must_queue(&route, arrived) {
                return Ok(self.seat(&route, ask, see, None, arrived));
            }
        }
        let mut decision = Decision::blank();
        self.engine.decide_at_once(&pinned, &ask.attempt, &mut decision)?;
        Ok(match decision.verdict {
            Verdict::Allow => {
                self.meters.of(&decision.policy().name).passed(Span::ZERO);
                let seen = see(&self.engine, &decision);
                Arrived::Answered(Ok(Paced { waited: Span::ZERO, seen }))
            }
            Verdict::Wait(_) => {
                let route = self.ids.route(decision.policy(), &decision.charges);
                let blocked = self.ids.blocked(&decision);
                self.seat(&route, ask, see, blocked.as_ref(), arrived)
            }
            Verdict::Defer(_) | Verdict::Deny => {
                self.meters.of(&decision.policy().name).denied.inc();
                Arrived::Answered(Err(news::denied(&self.engine, &decision, see)))
            }
        })
    }

    /// What an attempt has to pass.
    pub(super) fn route(&self, pinned: &Snapshot, attempt: &Attempt<'_>) -> Result<Route, Fault> {
        let policy = pinned.policies.find(attempt.policy).map_err(Fault::Mistake)?;
        let charges = policy.charges(attempt, Default::default()).map_err(Fault::Mistake)?;
        Ok(self.ids.route(policy, &charges))
    }

    /// Whether nobody waits and nothing stands still.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.waiting.load(Ordering::Acquire) == 0 && self.engine.pauses.are_over(now)
    }

    /// Whether somebody who comes has to queue without asking.
    pub(super) fn must_queue(&self, route: &Route, now: Instant) -> bool {
        let mut board = self.board.lock();
        self.follow(&mut board, now);
        board.queues.must_queue(route, now)
    }

    fn seat<T, F>(
        self: &Arc<Self>,
        route: &Route,
        ask: &Ask<'_>,
        see: F,
        told: Option<&Blocked>,
        arrived: Instant,
    ) -> Arrived<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Decision<'_>) -> T + Send + 'static,
    {
        let meter = self.meters.of(ask.attempt.policy);
        let Some(runtime) = self.runtime() else { return Arrived::Answered(Err(Unpaced::Ended)) };
        let (answer, heard) = oneshot::channel();
        let newcomer = Newcomer {
            ask: Arc::new(Kept::new(&ask.attempt)),
            listener: Box::new(Caller { see, answer }),
            priority: ask.priority,
            arrived,
            deadline: ask.max_wait.and_then(|most| arrived.checked_add(most.into())),
        };
        let (seat, place) = match self.place(route, newcomer, told, &runtime) {
            Ok(placed) => placed,
            Err(Turned::TooLate { wait, bound }) => {
                meter.late.inc();
                let waited = arrived.elapsed().into();
                return Arrived::Answered(Err(Unpaced::TooLate { waited, wait, bound }));
            }
            Err(Turned::Full { waiting }) => {
                meter.full.inc();
                return Arrived::Answered(Err(Unpaced::Full { waiting }));
            }
            Err(Turned::Ended) => return Arrived::Answered(Err(Unpaced::Ended)),
        };
        meter.waiting.inc();
        Arrived::Seated(Seated { seat, arrived, deadline: place.deadline, heard, meter })
    }

    /// Puts somebody into the queues, and sees to it that there is a driver. Nobody's own code runs while
    /// the board is locked: not even as somebody is sent away.
    fn place(
        self: &Arc<Self>,
        route: &Route,
        newcomer: Newcomer,
        told: Option<&Blocked>,
        runtime: &Handle,
    ) -> Result<(Seat, Place), Turned> {
        let mut board = self.board.lock();
        let now = Instant::now();
        self.follow(&mut board, now);
        let found = if board.ended {
            Err(Turned::Ended)
        } else {
            board.queues.find_place(route, &newcomer, told, now)
        };
        let place = match found {
            Ok(place) => place,
            Err(turned) => {
                drop(board);
                return Err(turned);
            }
        };
        let seat = board.queues.enter(route, &place, newcomer, told, now);
        self.count(&board);
        self.rouse(&board, now);
        let driven = std::mem::replace(&mut board.driving, true);
        drop(board);
        if !driven {
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

    /// Follows what has changed beside the queues: the policies in force, and what stands still.
    pub(super) fn follow(&self, board: &mut Board, now: Instant) {
        let policies = self.engine.pin().number;
        if board.policies != policies {
            board.policies = policies;
            board.queues.free_all();
        }
        let pauses = &self.engine.pauses;
        if board.pauses != pauses.version() {
            let mut paused = ById::default();
            board.pauses = pauses.each(|pause| {
                let spot = match &pause.scope {
                    Stopped::Policy(policy) => self.ids.policy_spot(policy),
                    Stopped::Key { rule, key } => self.ids.key_spot(rule, key),
                };
                let until = paused.entry(spot).or_insert(pause.until);
                *until = pause.until.max(*until);
            });
            board.queues.pause(&paused, now);
        }
    }

    /// Something may have been freed on somebody's way.
    pub(super) fn freed(&self, route: &Route) {
        let mut board = self.board.lock();
        board.queues.free(route.stops.iter().map(|stop| stop.spot));
        self.rouse(&board, Instant::now());
    }

    /// Shows how many wait.
    pub(super) fn count(&self, board: &Board) {
        self.waiting.store(board.queues.waiting(), Ordering::Release);
    }

    /// Sends everybody away, and whoever comes later.
    pub(super) fn end(&self) {
        let mut board = self.board.lock();
        board.ended = true;
        let waiters = board.queues.clear();
        self.count(&board);
        self.wake.notify_one();
        drop(board);
        drop(waiters);
    }

    /// Lets somebody go who has given up. Answers whether it was still there.
    pub(super) fn leave(&self, seat: Seat) -> bool {
        let mut board = self.board.lock();
        let waiter = board.queues.leave(seat);
        self.count(&board);
        self.rouse(&board, Instant::now());
        drop(board);
        waiter.is_some()
    }

    /// Lets somebody go for whom it is too late. Answers how much longer it would have had to wait;
    /// `None` if its answer comes or has come.
    pub(super) fn expire(&self, seat: Seat) -> Option<Span> {
        let mut board = self.board.lock();
        let now = Instant::now();
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
