//! One serving thread with its own listeners, its own connections on both sides and its own clock.

mod accept;
mod admit;

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;
use tollgate_core::Clock;
use tollgate_engine::{Admissions, PacedLog};

use crate::alarm::{Alarms, TICK};
use crate::date::Date;
use crate::meter::{Meters, RouteMeter, UNMATCHED, UpstreamMeter, WorkerMeter};
use crate::plan::Plan;
use crate::upstream::Pool;

pub(crate) use accept::Listener;

/// What all workers of a gateway share.
pub(crate) struct Shared {
    pub(crate) admissions: Admissions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) plan: Arc<ArcSwap<Plan>>,
    pub(crate) meters: Meters,
    /// Logs that connections cannot be accepted, which may last for a while.
    pub(crate) complaints: PacedLog,
}

/// Whether a gateway serves or shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Serve,
    /// Accept nothing new. Requests in flight may take this long.
    End(Duration),
}

/// The progress of a worker's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// It still accepts connections and requests, and sends `Connection: close` with each response. Otherwise
    /// a client that keeps connections open would send a request into one that is being closed.
    Draining,
    /// It accepts nothing more and closes idle connections.
    Closing,
}

/// How long clients have to learn that their connections close; at most a quarter of the whole time.
const GRACE: Duration = Duration::from_secs(1);

/// One worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    number: usize,
    pub(crate) alarms: Rc<Alarms>,
    pub(crate) meter: Arc<WorkerMeter>,
    pub(crate) stopwatch: quanta::Clock,
    /// Caches the plan in force, so that reading it is cheap.
    plan: RefCell<Cache<Arc<ArcSwap<Plan>>, Arc<Plan>>>,
    current: RefCell<Rc<Local>>,
    phase: Cell<Phase>,
    /// Publishes every change of the phase.
    phases: watch::Sender<Phase>,
    /// Notified when a connection ends.
    freed: Notify,
    date: RefCell<Date>,
    pub(crate) luck: RefCell<fastrand::Rng>,
    /// How many bytes of bodies are kept for all connections, until they are passed on.
    pub(crate) kept: Cell<usize>,
}

/// A plan, and the worker's own state for it.
pub(crate) struct Local {
    pub(crate) plan: Arc<Plan>,
    pub(crate) pools: Vec<Rc<Pool>>,
    /// One for each route.
    pub(crate) routes: Vec<Arc<RouteMeter>>,
    pub(crate) upstreams: Vec<Arc<UpstreamMeter>>,
    pub(crate) unmatched: Arc<RouteMeter>,
}

impl Worker {
    /// Serves until it is told to shut down.
    pub(crate) async fn run(
        number: usize,
        shared: Arc<Shared>,
        listeners: Vec<Listener>,
        mut orders: watch::Receiver<Order>,
    ) {
        let alarms = Alarms::new();
        let plan = shared.plan.load_full();
        let local = Local::new(plan, number, &shared.meters, &alarms, &[]);
        let worker = Rc::new(Self {
            meter: shared.meters.worker(),
            plan: RefCell::new(Cache::new(Arc::clone(&shared.plan))),
            shared,
            number,
            alarms,
            stopwatch: quanta::Clock::new(),
            current: RefCell::new(Rc::new(local)),
            phase: Cell::new(Phase::Serving),
            phases: watch::Sender::new(Phase::Serving),
            freed: Notify::new(),
            date: RefCell::default(),
            luck: RefCell::new(fastrand::Rng::new()),
            kept: Cell::new(0),
        });
        worker.read_clock();
        let ticking = tokio::task::spawn_local(Rc::clone(&worker).tick());
        let accepting: Vec<_> = listeners
            .into_iter()
            .map(|listener| tokio::task::spawn_local(accept::accept(Rc::clone(&worker), listener)))
            .collect();
        let patience = loop {
            match *orders.borrow_and_update() {
                Order::End(patience) => break patience,
                Order::Serve => {}
            }
            if orders.changed().await.is_err() {
                break Duration::ZERO;
            }
        };
        worker.enter(Phase::Draining);
        let grace = GRACE.min(patience / 4);
        let _ = tokio::time::timeout(grace, worker.drained()).await;
        // The listeners end first: a client whose connection is closed must not reconnect to this process.
        worker.phases.send_replace(Phase::Closing);
        for task in accepting {
            // A task that failed accepts nothing either.
            let _ = task.await;
        }
        worker.enter(Phase::Closing);
        let _ = tokio::time::timeout(patience - grace, worker.drained()).await;
        ticking.abort();
        let cut = worker.meter.connections.value();
        if cut > 0 {
            tracing::warn!(component = "gateway", cut, "some connections were still in use and are cut");
        }
    }

    async fn drained(&self) {
        while self.meter.connections.value() > 0 {
            self.freed.notified().await;
        }
    }

    /// Whether it shuts down: each response is the last of its connection, and no request waits.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase.get() != Phase::Serving
    }

    /// Records that the process shuts down. The pacer may learn of it before this worker does.
    pub(crate) fn note_ending(&self) {
        if !self.is_ending() {
            self.enter(Phase::Draining);
        }
    }

    /// Whether idle connections are closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.phase.get() == Phase::Closing
    }

    async fn reached(&self, phase: Phase) {
        // The sender is this worker's own, so it cannot be gone.
        let _ = self.phases.subscribe().wait_for(|now| *now >= phase).await;
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.phases.send_replace(phase);
        self.alarms.rouse();
    }

    /// The plan in force.
    pub(crate) fn local(&self) -> Rc<Local> {
        let mut cached = self.plan.borrow_mut();
        let plan = cached.load();
        let mut current = self.current.borrow_mut();
        if !Arc::ptr_eq(plan, &current.plan) {
            let renewed =
                Local::new(Arc::clone(plan), self.number, &self.shared.meters, &self.alarms, &current.pools);
            *current = Rc::new(renewed);
        }
        Rc::clone(&current)
    }

    /// The current date.
    pub(crate) fn date(&self) -> Ref<'_, Date> {
        self.date.borrow()
    }

    fn read_clock(&self) {
        *self.date.borrow_mut() = Date::at(self.shared.clock.now());
    }

    /// Runs the clock.
    async fn tick(self: Rc<Self>) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            interval.tick().await;
            self.alarms.tick();
            if self.alarms.now().is_multiple_of(10) {
                self.read_clock();
                self.local().pools.iter().for_each(|pool| pool.sweep());
            }
        }
    }
}

impl Local {
    fn new(
        plan: Arc<Plan>,
        worker: usize,
        meters: &Meters,
        alarms: &Rc<Alarms>,
        earlier: &[Rc<Pool>],
    ) -> Self {
        let pools = plan.upstreams.iter().map(|upstream| {
            let known = earlier.iter().find(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            known.map_or_else(|| Rc::new(Pool::new(Arc::clone(upstream), Rc::clone(alarms))), Rc::clone)
        });
        Self {
            pools: pools.collect(),
            routes: plan.routes.iter().map(|route| meters.route(worker, &route.name)).collect(),
            upstreams: plan.upstreams.iter().map(|one| meters.upstream(worker, &one.settings.name)).collect(),
            unmatched: meters.route(worker, &UNMATCHED.into()),
            plan,
        }
    }
}
