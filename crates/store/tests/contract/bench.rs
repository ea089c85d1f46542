//! What the laws need of a store, and short ways to ask it things.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tollgate_core::limit::{Page, Period};
use tollgate_core::store::{Answer, Given, HoldsOrder, HoldsReport, Spot};
use tollgate_core::{Charges, Limit, Outcome, Plan, Records, Span, Store, StoreError, Ticket, Timestamp};
use tollgate_store::{ManualClock, MemoryStore};

/// A store whose time the test sets.
pub trait Bench: Sync {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// Its records.
    fn records(&self) -> &dyn Records;

    /// Moves the store's clock, forwards or back.
    fn set_time(&self, now: Timestamp);

    /// Does something that nobody may notice, if there is anything: save, restart, sweep.
    fn disturb(&mut self) {}
}

/// The store in memory.
pub struct InMemory {
    clock: Arc<ManualClock>,
    store: MemoryStore,
}

/// One attempt, in the words of a test.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    pub charges: Vec<(&'a Arc<Plan>, &'a str)>,
    pub cost: u64,
    pub id: Option<&'a str>,
    pub ticket: u64,
    pub now: Timestamp,
}

/// Every kind of limit, each with room for ten.
pub const KINDS: [&str; 11] = [
    "10/min",
    "10/min calendar",
    "10/min sliding",
    "10/min sliding by 10s",
    "10/min burst 10",
    "10 at once",
    "10 at once for 1m",
    "10 in total",
    "10/min, 6_000_000_000/hour",
    "10/min, 12/hour",
    "10/min, 12/hour, 14/day calendar",
];

impl InMemory {
    pub fn new() -> Self {
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

/// A moment on no boundary of any kind: five seconds into a minute.
pub const START: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);

pub fn at(secs: u64) -> Timestamp {
    START + Span::from_secs(secs)
}

/// A plan, with its limits separated by commas.
pub fn plan(rule: &str, limits: &str) -> Arc<Plan> {
    let limits: Vec<Limit> = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new(rule.into(), limits).unwrap())
}

/// The calendar page around a moment, in UTC. Months do not matter here.
pub fn page(period: &Period, now: Timestamp) -> Page {
    let length = period.unit.length().unwrap().as_micros();
    let start = now.as_micros() / length * length;
    let edge = |count| Timestamp::from_micros(start + count * length);
    Page { period: period.clone(), edges: [edge(0), edge(1), edge(2)] }
}

impl<'a> Ask<'a> {
    /// One of one plan at one key.
    pub fn one(plan: &'a Arc<Plan>, key: &'a str, ticket: u64) -> Self {
        Self { charges: vec![(plan, key)], cost: 1, id: None, ticket, now: START }
    }

    pub fn and(mut self, plan: &'a Arc<Plan>, key: &'a str) -> Self {
        self.charges.push((plan, key));
        self
    }

    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    pub fn id(self, id: &'a str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// With the calendar around this moment.
    pub fn at(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }

    pub fn charges(&self) -> Charges<'a> {
        let mut charges = Charges::new(Ticket(self.ticket), self.cost, self.id);
        for (plan, key) in &self.charges {
            charges.push(plan, key, true);
        }
        charges.calendar = charges.periods().map(|period| page(period, self.now)).collect();
        charges
    }

    pub fn take(&self, bench: &dyn Bench) -> Outcome {
        self.try_take(bench).unwrap()
    }

    pub fn try_take(&self, bench: &dyn Bench) -> Result<Outcome, StoreError> {
        let mut outcome = Outcome::default();
        wait(bench.store().take(&self.charges(), &mut outcome))?;
        Ok(outcome)
    }

    pub fn peek(&self, bench: &dyn Bench) -> Outcome {
        let mut outcome = Outcome::default();
        wait(bench.store().peek(&self.charges(), &mut outcome)).unwrap();
        outcome
    }

    pub fn give(&self, bench: &dyn Bench, taken_at: Timestamp) -> Given {
        wait(bench.store().give(&self.charges(), taken_at)).unwrap()
    }
}

/// How much of the first limit is left, as a look at it tells.
pub fn remaining(bench: &dyn Bench, plan: &Arc<Plan>, key: &str, now: Timestamp) -> u64 {
    Ask::one(plan, key, 0).at(now).peek(bench).readings[0].remaining
}

pub fn order(bench: &dyn Bench, plan: &Arc<Plan>, key: &str, order: HoldsOrder<'_>) -> HoldsReport {
    wait(bench.store().holds(&Spot { plan, key }, order)).unwrap()
}

pub fn ids(report: &HoldsReport) -> Vec<&str> {
    report.holds.iter().map(|(id, _)| id.as_str()).collect()
}

/// Waits for an answer on this thread.
pub fn wait<T: Unpin>(answer: Answer<'_, T>) -> Result<T, StoreError> {
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
