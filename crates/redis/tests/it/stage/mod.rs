//! Shared by the tests of this crate: a store as one node has it, helpers to call it, and to read what the
//! server stores.
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

/// The time-out for a healthy server, long enough for a busy machine.
pub const PATIENT: Duration = Duration::from_secs(10);
/// The time-out for an unhealthy server.
pub const HASTY: Duration = Duration::from_millis(200);
/// How soon the store must recover after the cause has ended; part of it is for a busy machine.
pub const RECOVERY: Duration = Duration::from_secs(3 + 4);

/// The store of one node.
pub struct Node {
    pub store: RedisStore,
}

/// One attempt.
#[derive(Clone)]
pub struct Ask<'a> {
    pub charges: Vec<(&'a Arc<Plan>, &'a str)>,
    /// Charges that are observed and not enforced.
    pub observed: Vec<(&'a Arc<Plan>, &'a str)>,
    pub cost: u64,
    pub id: Option<&'a str>,
    pub ticket: Ticket,
}

pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// A server that all tests of a file share, each with its own prefix.
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::redis().start())
}

/// The settings of a URL, with a prefix and a time-out.
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

    /// A node with a long time-out.
    pub fn patient(url: &str, prefix: &str) -> Self {
        Self::with(settings(url, prefix, PATIENT))
    }

    /// A node with a short time-out.
    pub fn hasty(url: &str, prefix: &str) -> Self {
        Self::with(settings(url, prefix, HASTY))
    }

    /// A node behind a proxy, with a short time-out. It has one connection, so that a fault affects every
    /// call.
    pub fn behind(proxy: &Proxy, prefix: &str) -> Self {
        Self::with(Settings { connections: 1, ..settings(&proxy.url(), prefix, HASTY) })
    }

    pub fn take(&self, ask: &Ask<'_>) -> Result<Outcome, StoreError> {
        self.ask(ask, Aim::Take)
    }

    /// Peeks, and repeats that if the server was unavailable, since it changes nothing.
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

    /// Waits until takes succeed again; returns how long that took.
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
    /// An attempt with one plan at one key, and a ticket of its own.
    pub fn one(plan: &'a Arc<Plan>, key: &'a str) -> Self {
        static TICKETS: AtomicU64 = AtomicU64::new(1);
        let ticket = Ticket(TICKETS.fetch_add(1, Ordering::Relaxed));
        Self { charges: vec![(plan, key)], observed: Vec::new(), cost: 1, id: None, ticket }
    }

    pub fn and(mut self, plan: &'a Arc<Plan>, key: &'a str) -> Self {
        self.charges.push((plan, key));
        self
    }

    pub fn observing(mut self, plan: &'a Arc<Plan>, key: &'a str) -> Self {
        self.observed.push((plan, key));
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
        for (plan, key) in &self.observed {
            charges.push(plan, key, false);
        }
        charges
    }
}

/// A plan, with its limits separated by commas.
pub fn plan(rule: &str, limits: &str) -> Arc<Plan> {
    let limits: Vec<Limit> = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new(rule.into(), limits).unwrap())
}

/// The calendar page around a time, in UTC. Months are not supported here.
pub fn page(period: &Period, now: Timestamp) -> Page {
    let length = period.unit.length().unwrap().as_micros();
    let start = now.as_micros() / length * length;
    let edge = |count| Timestamp::from_micros(start + count * length);
    Page { period: period.clone(), edges: [edge(0), edge(1), edge(2)] }
}

/// Awaits an answer on this thread.
pub fn wait<T: Unpin>(answer: Answer<'_, T>) -> Result<T, StoreError> {
    runtime().block_on(answer)
}

/// Whether an error counts as an outage.
pub fn is_outage(error: &StoreError) -> bool {
    error.is_passing()
}

#[expect(clippy::disallowed_methods, reason = "a process of its own lives in real time")]
pub fn now() -> Instant {
    Instant::now()
}
