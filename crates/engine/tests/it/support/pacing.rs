//! A pacer in virtual time: the store's clock is the runtime's, which stands still until all tasks wait, and
//! then jumps to the next timer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Span;
use tollgate_core::versioned_map::Namespace;
use tollgate_engine::pacer::{Permit, Unpaced};
use tollgate_engine::{Ask, Fallback, Pacer, PacerOptions};
use tollgate_store::faulty::{Call, Faults, FaultyStore, Meeting, RecordFaults};

use super::*;

/// The runtime's time.
pub(crate) struct RuntimeClock(Instant);

/// A store that takes some time to reply.
pub(crate) struct SlowStore {
    pub(crate) memory: MemoryStore,
    latency: Duration,
    pub(crate) takes: AtomicUsize,
    in_flight: AtomicUsize,
    pub(crate) most_in_flight: AtomicUsize,
}

/// A pacer over a store, and the moment it began.
pub(crate) struct Track {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pacer: Pacer,
    pub(crate) start: Instant,
}

/// Which attempts passed or failed, and when.
pub(crate) type Trace<T> = Arc<parking_lot::Mutex<Vec<T>>>;

impl RuntimeClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        START + Span::from(self.0.elapsed())
    }
}

/// Runs something in virtual time.
pub(crate) fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(work)
}

/// A rule that lets attempts wait for up to a day.
pub(crate) fn waiting(name: &str, by: &[&str], limits: &[&str]) -> Rule {
    rule::with(name, by, limits, OnExceed::Wait(Span::from_secs(86_400)))
}

impl Track {
    pub(crate) async fn new(policies: Policies) -> Self {
        Self::bounded(policies, PacerOptions::default()).await
    }

    pub(crate) async fn bounded(policies: Policies, options: PacerOptions) -> Self {
        let store = Arc::new(MemoryStore::new(RuntimeClock::new(), 100_000));
        let parts = Parts { store: store.clone(), records: store, fallback: None };
        Self::over(policies, parts, options).await
    }

    /// A pacer over a store that nodes may share.
    pub(crate) async fn shared(policies: Policies, store: &Arc<SlowStore>, options: PacerOptions) -> Self {
        let local = Arc::new(MemoryStore::new(RuntimeClock::new(), 1_000));
        let fallback =
            Fallback { store: local, clock: RuntimeClock::new(), probe_every: Span::from_secs(10) };
        let shared = Arc::new(FaultyStore(Arc::clone(store)));
        let parts = Parts { store: shared.clone(), records: shared, fallback: Some(fallback) };
        Self::over(policies, parts, options).await
    }

    async fn over(policies: Policies, parts: Parts, options: PacerOptions) -> Self {
        let engine = Arc::new(Engine::start(policies, parts).await.unwrap());
        let pacer = Pacer::new(Arc::clone(&engine), options);
        Self { engine, pacer, start: Instant::now() }
    }

    /// Waits for one permit.
    pub(crate) async fn acquire(&self, policy: &str, fields: &[(&str, &str)]) -> Result<Permit, Unpaced> {
        self.pacer.acquire(ask(policy, fields)).await
    }

    /// How long ago it began, in milliseconds.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    /// Acquires the permits of one key in a task of its own, and records when they come.
    pub(crate) fn send<T: Send + 'static>(
        &self,
        policy: &'static str,
        fields: Vec<(&'static str, String)>,
        trace: &Trace<(T, u64)>,
        what: T,
    ) -> tokio::task::JoinHandle<()> {
        let (pacer, start, trace) = (self.pacer.clone(), self.start, Arc::clone(trace));
        tokio::spawn(async move {
            let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, &**value)).collect();
            pacer.acquire(ask(policy, &fields)).await.unwrap();
            let at = u64::try_from(start.elapsed().as_millis()).unwrap();
            trace.lock().push((what, at));
        })
    }
}

pub(crate) fn ask<'a>(policy: &'a str, fields: &'a [(&'a str, &'a str)]) -> Ask<'a> {
    Ask::from(Attempt { policy, fields, cost: 1, id: None })
}

/// Polls a future once, so that it joins the queue.
pub(crate) async fn begin<F: Future + Unpin>(future: &mut F) {
    let polled = std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    });
    assert!(polled.await, "it has to wait");
}

impl SlowStore {
    pub(crate) fn new(latency: Duration) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryStore::new(RuntimeClock::new(), 100_000),
            latency,
            takes: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
        })
    }

    /// The records of pauses.
    pub(crate) async fn recorded(&self) -> Vec<(String, Vec<u8>)> {
        let entries = self.memory.changes(Namespace::Pauses, None).await.unwrap().entries;
        entries.into_iter().map(|(name, value)| (name, value.unwrap())).collect()
    }
}

impl Faults for SlowStore {
    fn store(&self) -> &dyn Store {
        &self.memory
    }

    fn meet(&self, call: Call<'_>) -> Meeting<'_> {
        match call {
            Call::Take => {}
            Call::Secret => return Meeting::Pass,
            _ => return Meeting::after(tokio::time::sleep(self.latency)),
        }
        self.takes.fetch_add(1, Ordering::Relaxed);
        let before = async {
            let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_in_flight.fetch_max(in_flight, Ordering::Relaxed);
            tokio::time::sleep(self.latency).await;
        };
        let after = async {
            tokio::time::sleep(self.latency).await;
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        };
        Meeting::Around(Box::pin(before), Box::pin(after))
    }
}

impl RecordFaults for SlowStore {
    fn records(&self) -> &dyn Records {
        &self.memory
    }
}
