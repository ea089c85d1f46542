//! What the tests of this crate stand on: a store as one node has it, short ways to ask it things, and
//! to look at what the server keeps.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate_core::limit::{Page, Period};
use tollgate_core::store::{Answer, Refunded};
use tollgate_core::{Charges, Limit, Outcome, Plan, Store, StoreError, Ticket, Timestamp};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testbed::{Proxy, Server};

/// How long the server is waited for where it is in good health: a busy machine is not an outage.
pub const PATIENT: Duration = Duration::from_secs(10);
/// How long it is waited for where it is not.
pub const HASTY: Duration = Duration::from_millis(200);
/// How soon all must be well again after the cause has ended; the rest is for a busy machine.
pub const RECOVERY: Duration = Duration::from_secs(3 + 4);

/// A store, as one node has it.
pub struct Node {
    pub store: RedisStore,
}

/// One attempt.
#[derive(Clone)]
pub struct Ask<'a> {
    pub charges: Vec<(&'a Arc<Plan>, &'a str)>,
    pub cost: u64,
    pub id: Option<&'a str>,
    pub ticket: Ticket,
}

pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// A server that all tests of a file share; each has a prefix of its own.
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::redis().start())
}

/// The settings of an address, with a prefix and a patience.
pub fn settings(url: &str, prefix: &str, patience: Duration) -> Settings {
    let parsed = Settings::parse(url).unwrap();
    Settings {
        prefix: prefix.into(),
        command_timeout: patience,
        connect_timeout: patience.max(Duration::from_secs(1)),
        ..parsed
    }
}

impl Node {
    pub fn with(settings: Settings) -> Self {
        Self { store: runtime().block_on(RedisStore::start(settings)).unwrap() }
    }

    /// A node that waits for the server however busy it is.
    pub fn patient(url: &str, prefix: &str) -> Self {
        Self::with(settings(url, prefix, PATIENT))
    }

    /// A node that soon gives up.
    pub fn hasty(url: &str, prefix: &str) -> Self {
        Self::with(settings(url, prefix, HASTY))
    }

    /// A node behind a proxy that soon gives up. It has one connection, so that what happens to one
    /// happens to all.
    pub fn behind(proxy: &Proxy, prefix: &str) -> Self {
        Self::with(Settings { connections: 1, ..settings(&proxy.url(), prefix, HASTY) })
    }

    pub fn take(&self, ask: &Ask<'_>) -> Result<Outcome, StoreError> {
        self.ask(ask, Aim::Take)
    }

    /// Looks, and looks again if the server was not to be had: that changes nothing.
    pub fn peek(&self, ask: &Ask<'_>) -> Outcome {
        let start = now();
        loop {
            match self.ask(ask, Aim::Peek) {
                Ok(outcome) => return outcome,
                Err(error) => assert!(is_outage(&error) && start.elapsed() < RECOVERY, "{error}"),
            }
        }
    }

    fn ask(&self, ask: &Ask<'_>, aim: Aim) -> Result<Outcome, StoreError> {
        let mut charges = ask.charges();
        let mut outcome = Outcome::default();
        for _ in 0..3 {
            let answer = match aim {
                Aim::Take => self.store.take(&charges, &mut outcome),
                Aim::Peek => self.store.peek(&charges, &mut outcome),
            };
            match wait(answer) {
                Err(StoreError::Stale { now }) => {
                    charges.calendar = charges.periods().map(|period| page(period, now)).collect();
                }
                answer => return answer.map(|()| outcome),
            }
        }
        panic!("the calendar is stale for ever");
    }

    pub fn refund(&self, ask: &Ask<'_>, taken_at: Timestamp) -> Result<Refunded, StoreError> {
        let mut charges = ask.charges();
        charges.calendar = charges.periods().map(|period| page(period, taken_at)).collect();
        wait(self.store.refund(&charges, taken_at))
    }

    pub fn retract(&self, ask: &Ask<'_>) -> Result<(), StoreError> {
        wait(self.store.retract(&ask.charges()))
    }

    /// How much of the first limit is taken.
    pub fn used(&self, plan: &Arc<Plan>, key: &str) -> u64 {
        let reading = self.peek(&Ask::one(plan, key).cost(0)).readings[0];
        reading.capacity - reading.remaining
    }

    /// Waits until takes pass the store again; says how long that took.
    pub fn recovers(&self) -> Duration {
        let plan = plan("recovery", "1000000/s");
        let start = now();
        while let Err(error) = self.take(&Ask::one(&plan, "any")) {
            assert!(start.elapsed() < RECOVERY, "{error}");
            tollgate_testbed::pause(Duration::from_millis(5));
        }
        start.elapsed()
    }
}

#[derive(Clone, Copy)]
enum Aim {
    Take,
    Peek,
}

impl<'a> Ask<'a> {
    /// One of one plan at one key, with a ticket of its own.
    pub fn one(plan: &'a Arc<Plan>, key: &'a str) -> Self {
        static TICKETS: AtomicU64 = AtomicU64::new(1);
        let ticket = Ticket(TICKETS.fetch_add(1, Ordering::Relaxed));
        Self { charges: vec![(plan, key)], cost: 1, id: None, ticket }
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

    fn charges(&self) -> Charges<'a> {
        let mut charges = Charges::new(self.ticket, self.cost, self.id);
        for (plan, key) in &self.charges {
            charges.push(plan, key, true);
        }
        charges
    }
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

/// Waits for an answer on this thread.
pub fn wait<T: Unpin>(answer: Answer<'_, T>) -> Result<T, StoreError> {
    runtime().block_on(answer)
}

/// Whether an error is one that the outage mode is for.
pub fn is_outage(error: &StoreError) -> bool {
    error.is_passing()
}

#[expect(clippy::disallowed_methods, reason = "a process of its own lives in real time")]
pub fn now() -> Instant {
    Instant::now()
}
