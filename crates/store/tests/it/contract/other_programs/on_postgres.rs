//! The contract on PostgreSQL, directly and behind pgbouncer: one server for all laws, a schema for each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate_core::{Records, Store, Timestamp};
use tollgate_postgres::{PostgresStore, Settings};
use tollgate_store::ManualClock;
use tollgate_testbed::{Pgbouncer, Postgres};

use crate::contract::bench::{Bench, START};

/// A store on a server, with a clock that the test sets.
pub(crate) struct OnPostgres {
    clock: Arc<ManualClock>,
    store: PostgresStore,
    settings: Settings,
}

fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

impl OnPostgres {
    pub(crate) fn directly() -> Self {
        Self::at(&server().url())
    }

    pub(crate) fn behind_pgbouncer() -> Self {
        static POOLER: OnceLock<Pgbouncer> = OnceLock::new();
        Self::at(&POOLER.get_or_init(|| Pgbouncer::start(server(), 20)).url())
    }

    fn at(url: &str) -> Self {
        static LAWS: AtomicU64 = AtomicU64::new(0);
        let clock = Arc::new(ManualClock::at(START));
        let settings = Settings {
            schema: format!("law{}", LAWS.fetch_add(1, Ordering::Relaxed)),
            // A busy machine is not an outage.
            command_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            // Idle rows are removed only when a law disturbs the store.
            sweep_interval: Duration::from_secs(3_600),
            ..Settings::parse(url).unwrap()
        };
        let store = start(&settings, &clock);
        Self { clock, store, settings }
    }
}

fn start(settings: &Settings, clock: &Arc<ManualClock>) -> PostgresStore {
    let starting = PostgresStore::start(settings.clone());
    runtime().block_on(starting).unwrap().with_clock(clock.clone())
}

impl Bench for OnPostgres {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn records(&self) -> &dyn Records {
        &self.store
    }

    fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
    }

    fn forgets_by_looking(&self) -> bool {
        false
    }

    fn disturb(&mut self) {
        runtime().block_on(self.store.sweep()).unwrap();
        self.store = start(&self.settings, &self.clock);
    }
}
