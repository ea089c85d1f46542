//! What the laws need of a store, and helpers to call it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tempfile::TempDir;
use tollgate_core::limit::{Page, Period};
use tollgate_core::store::{Answer, Counter, HoldsOrder, HoldsReport, Refunded};
use tollgate_core::{
    Charges, Fate, Limit, Outcome, Plan, Records, Span, Store, StoreError, Ticket, Timestamp,
};
use tollgate_store::file::{FileOptions, Syncing};
use tollgate_store::{FileStore, ManualClock, MemoryStore};

/// A store whose clock the test sets.
pub(crate) trait Bench: Sync {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// Its records.
    fn records(&self) -> &dyn Records;

    /// Moves the store's clock, forwards or back.
    fn set_time(&self, now: Timestamp);

    /// Whether an attempt is settled in one step. If not, and a calendar is stale in one place, counters in
    /// other places may already have aged. That shows only if the clock then goes back.
    fn settles_at_once(&self) -> bool {
        true
    }

    /// Whether what has aged out is forgotten for good by a look at it. A store whose denials write nothing
    /// keeps it. That shows only if the clock then goes back.
    fn forgets_by_looking(&self) -> bool {
        true
    }

    /// Does something that must have no visible effect: save, restart, sweep.
    fn disturb(&mut self) {}
}

/// The store in memory.
pub(crate) struct InMemory {
    clock: Arc<ManualClock>,
    store: MemoryStore,
}

/// The store with a file. It is saved when it is disturbed, never on its own.
pub(crate) struct WithFile {
    clock: Arc<ManualClock>,
    sync: Syncing,
    directory: TempDir,
    store: Option<FileStore>,
}

/// One attempt.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) charges: Vec<(&'a Arc<Plan>, &'a str)>,
    pub(crate) cost: u64,
    pub(crate) id: Option<&'a str>,
    pub(crate) ticket: u64,
    pub(crate) now: Timestamp,
}

/// Every kind of limit that counts something, each with a capacity of ten.
pub(crate) const KINDS: [&str; 12] = [
    "10/min",
    "10/min calendar",
    "10/min sliding",
    "10/min sliding by 10s",
    "10/min burst 10",
    "10 at once",
    "10 at once for 1m",
    "10 in total",
    "ladder 10 lock 1m forget 1m",
    "10/min, 6_000_000_000/hour",
    "10/min, 12/hour",
    "10/min, 12/hour, 14/day calendar",
];

impl InMemory {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self { store: MemoryStore::new(clock.clone(), 1_000_000), clock }
    }
}

impl Bench for InMemory {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn records(&self) -> &dyn Records {
        &self.store
    }

    fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
    }

    fn disturb(&mut self) {
        self.store.sweep();
    }
}

impl WithFile {
    pub(crate) fn new(sync: Syncing) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let mut bench = Self { clock, sync, directory: tempfile::tempdir().unwrap(), store: None };
        bench.restart();
        bench
    }

    fn restart(&mut self) {
        drop(self.store.take());
        let options = FileOptions {
            flush_interval: Span::from_secs(3_600),
            sync: self.sync,
            max_keys: 1_000_000,
            on_event: Box::new(|event| panic!("{event:?}")),
        };
        let path = self.directory.path().join("state.redb");
        let (store, report) = FileStore::open(path, self.clock.clone(), options).unwrap();
        assert_eq!(report.set_aside, None);
        self.store = Some(store);
    }
}

impl Bench for WithFile {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().unwrap()
    }

    fn records(&self) -> &dyn Records {
        self.store.as_ref().unwrap()
    }

    fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
    }

    fn disturb(&mut self) {
        self.store.as_ref().unwrap().flush().unwrap();
        self.restart();
    }
}

/// A time on no boundary: five seconds into a minute.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);

pub(crate) fn at(secs: u64) -> Timestamp {
    START + Span::from_secs(secs)
}

/// A plan, with its limits separated by commas.
pub(crate) fn plan(rule: &str, limits: &str) -> Arc<Plan> {
    let limits: Vec<Limit> = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new(rule.into(), limits).unwrap())
}

/// The calendar page around a time, in UTC. Months are not supported here.
pub(crate) fn page(period: &Period, now: Timestamp) -> Page {
    let length = period.unit.length().unwrap().as_micros();
    let start = now.as_micros() / length * length;
    let edge = |count| Timestamp::from_micros(start + count * length);
    Page { period: period.clone(), edges: [edge(0), edge(1), edge(2)] }
}

impl<'a> Ask<'a> {
    /// An attempt with one plan at one key.
    pub(crate) fn one(plan: &'a Arc<Plan>, key: &'a str, ticket: u64) -> Self {
        Self { charges: vec![(plan, key)], cost: 1, id: None, ticket, now: START }
    }

    pub(crate) fn and(mut self, plan: &'a Arc<Plan>, key: &'a str) -> Self {
        self.charges.push((plan, key));
        self
    }

    pub(crate) fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    pub(crate) fn id(self, id: &'a str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// With the calendar around this time.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }

    pub(crate) fn charges(&self) -> Charges<'a> {
        let mut charges = Charges::new(Ticket(self.ticket), self.cost, self.id);
        for (plan, key) in &self.charges {
            charges.push(plan, key, true);
        }
        charges.calendar = charges.periods().map(|period| page(period, self.now)).collect();
        charges
    }

    pub(crate) fn take(&self, bench: &dyn Bench) -> Outcome {
        self.try_take(bench).unwrap()
    }

    pub(crate) fn try_take(&self, bench: &dyn Bench) -> Result<Outcome, StoreError> {
        let mut outcome = Outcome::default();
        wait(bench.store().take(&self.charges(), &mut outcome))?;
        Ok(outcome)
    }

    pub(crate) fn peek(&self, bench: &dyn Bench) -> Outcome {
        let mut outcome = Outcome::default();
        wait(bench.store().peek(&self.charges(), &mut outcome)).unwrap();
        outcome
    }

    /// Finishes the attempt, with a fate for each charge.
    pub(crate) fn finish(&self, bench: &dyn Bench, taken_at: Timestamp, fates: &[Fate]) -> Refunded {
        let mut charges = Charges::new(Ticket(self.ticket), self.cost, self.id);
        for ((plan, key), fate) in self.charges.iter().zip(fates) {
            charges.push_taken(plan, key, self.cost, *fate);
        }
        charges.calendar = charges.periods().map(|period| page(period, taken_at)).collect();
        wait(bench.store().refund(&charges, taken_at)).unwrap()
    }

    pub(crate) fn refund(&self, bench: &dyn Bench, taken_at: Timestamp) -> Refunded {
        wait(bench.store().refund(&self.charges(), taken_at)).unwrap()
    }

    pub(crate) fn retract(&self, bench: &dyn Bench) {
        wait(bench.store().retract(&self.charges())).unwrap();
    }
}

/// How much of the first limit is left.
pub(crate) fn remaining(bench: &dyn Bench, plan: &Arc<Plan>, key: &str, now: Timestamp) -> u64 {
    Ask::one(plan, key, 0).at(now).peek(bench).readings[0].remaining
}

pub(crate) fn order(bench: &dyn Bench, plan: &Arc<Plan>, key: &str, order: HoldsOrder<'_>) -> HoldsReport {
    wait(bench.store().holds(&Counter { plan, key }, order)).unwrap()
}

pub(crate) fn ids(report: &HoldsReport) -> Vec<&str> {
    report.holds.iter().map(|(id, _)| id.as_str()).collect()
}

/// Awaits an answer on this thread.
pub(crate) fn wait<T: Unpin>(answer: Answer<'_, T>) -> Result<T, StoreError> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut answer = pin!(answer);
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}
