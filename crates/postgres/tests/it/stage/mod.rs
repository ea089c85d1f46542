//! What the tests of this crate stand on: a store as one node has it, and short ways to ask it things.
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
use tokio_postgres::Client;
use tollgate_core::store::{Forget, Impairment, Refunded};
use tollgate_core::{Charges, Limit, Outcome, Plan, Store, StoreError, Ticket, Timestamp};
use tollgate_postgres::{PostgresStore, Settings};
use tollgate_testbed::{Postgres, pause};

/// How long the server is waited for where it is in good health: a busy machine is not an outage.
pub const PATIENT: Duration = Duration::from_secs(10);
/// How soon decisions are made again once the server can be used.
pub const RECOVERY: Duration = Duration::from_secs(3);
/// How long it is waited for where it is not.
pub const HASTY: Duration = Duration::from_millis(250);

/// A store, as one node has it.
pub struct Node {
    pub store: PostgresStore,
}

pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// A server that all tests of a file share; each has a schema of its own.
pub fn shared() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

pub fn settings(url: &str, schema: &str, patience: Duration) -> Settings {
    Settings {
        schema: schema.into(),
        command_timeout: patience,
        connect_timeout: patience.max(Duration::from_secs(1)),
        ..Settings::parse(url).unwrap()
    }
}

/// A ticket that no other attempt of this process has.
pub fn ticket() -> Ticket {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Ticket(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn plan(rule: &str, limits: &str) -> Arc<Plan> {
    let limits: Vec<Limit> = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new(rule.into(), limits).unwrap())
}

pub fn charges<'a>(ticket: Ticket, parts: &'a [(Arc<Plan>, String)]) -> Charges<'a> {
    let mut charges = Charges::new(ticket, 1, None);
    for (plan, key) in parts {
        charges.push(plan, key, true);
    }
    charges
}

impl Node {
    pub fn new(url: &str, schema: &str, patience: Duration) -> Self {
        Self::with(settings(url, schema, patience))
    }

    pub fn with(settings: Settings) -> Self {
        Self { store: runtime().block_on(PostgresStore::start(settings)).unwrap() }
    }

    pub async fn take_all(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        let mut outcome = Outcome::default();
        self.store.take(charges, &mut outcome).await?;
        Ok(outcome)
    }

    /// Takes one of a plan at a key.
    pub fn take(&self, plan: &Arc<Plan>, key: &str) -> Result<Outcome, StoreError> {
        self.take_by(plan, key, ticket())
    }

    pub fn take_by(&self, plan: &Arc<Plan>, key: &str, ticket: Ticket) -> Result<Outcome, StoreError> {
        let parts = [(Arc::clone(plan), key.to_owned())];
        runtime().block_on(self.take_all(&charges(ticket, &parts)))
    }

    pub fn retract(&self, plan: &Arc<Plan>, key: &str, ticket: Ticket) -> Result<(), StoreError> {
        let parts = [(Arc::clone(plan), key.to_owned())];
        runtime().block_on(async { self.store.retract(&charges(ticket, &parts)).await })
    }

    pub fn refund(
        &self,
        plan: &Arc<Plan>,
        key: &str,
        ticket: Ticket,
        at: Timestamp,
    ) -> Result<Refunded, StoreError> {
        let parts = [(Arc::clone(plan), key.to_owned())];
        runtime().block_on(async { self.store.refund(&charges(ticket, &parts), at).await })
    }

    /// How much of the first limit is used.
    pub fn used(&self, plan: &Arc<Plan>, key: &str) -> u64 {
        let parts = [(Arc::clone(plan), key.to_owned())];
        let mut outcome = Outcome::default();
        runtime()
            .block_on(async { self.store.peek(&charges(Ticket(0), &parts), &mut outcome).await })
            .unwrap();
        outcome.readings[0].capacity - outcome.readings[0].remaining
    }

    /// Waits until decisions are made again, which must not take longer than is promised.
    pub fn recovers(&self) {
        let plan = plan("recovery", "1000000/hour");
        let start = now();
        while let Err(error) = self.take(&plan, "k") {
            assert!(start.elapsed() < RECOVERY, "the store has not recovered: {error:?}");
            pause(Duration::from_millis(10));
        }
        assert!(start.elapsed() < RECOVERY, "the store has recovered after {:?}", start.elapsed());
    }

    pub fn probe(&self) -> Result<Vec<Impairment>, StoreError> {
        runtime().block_on(async { self.store.probe().await })
    }

    pub fn forget(&self, what: Forget<'_>) -> Result<(), StoreError> {
        runtime().block_on(async { self.store.forget(what).await })
    }
}

#[expect(clippy::disallowed_methods, reason = "how long something takes is what is tested")]
pub fn now() -> Instant {
    Instant::now()
}

/// A connection of an application, which stays open until it is dropped.
pub fn client(url: &str) -> Client {
    runtime().block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        runtime().spawn(connection);
        client
    })
}

/// SQL for the number of the lock of a key's counter.
pub fn lock_of(schema: &str, key: &str) -> String {
    let number = |bytes: &str| format!("('x' || encode(substring({bytes} FOR 8), 'hex'))::bit(64)::bigint");
    let (id, salt) = (number("id"), number(&format!("sha256('{schema}'::bytea)")));
    format!("(SELECT {id} # {salt} FROM {schema}.counter WHERE key = '{key}' AND rule <> 'recovery')")
}
