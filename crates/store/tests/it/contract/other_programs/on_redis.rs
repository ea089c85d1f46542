//! The contract on Redis and Valkey: one server of each kind for all laws, a prefix for each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate_core::{Records, Store, Timestamp};
use tollgate_redis::{Address, RedisStore, Settings, Topology};
use tollgate_store::ManualClock;
use tollgate_testbed::{Cluster, Sentinel, Server};

use crate::contract::bench::{Bench, START};

/// A store on a server, with a clock that the test sets.
pub(crate) struct OnRedis {
    topology: Topology,
    clock: Arc<ManualClock>,
    store: RedisStore,
}

impl OnRedis {
    pub(crate) fn redis() -> Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        Self::on(Topology::Single(local(SERVER.get_or_init(|| Server::redis().start()).port())))
    }

    pub(crate) fn valkey() -> Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        Self::on(Topology::Single(local(SERVER.get_or_init(|| Server::valkey().start()).port())))
    }

    pub(crate) fn cluster() -> Self {
        static CLUSTER: OnceLock<Cluster> = OnceLock::new();
        let cluster = CLUSTER.get_or_init(|| Cluster::start(3));
        let seeds = cluster.nodes().iter().map(|node| local(node.server.port())).collect();
        Self::on(Topology::Cluster { seeds })
    }

    pub(crate) fn sentinel() -> Self {
        static SENTINEL: OnceLock<Sentinel> = OnceLock::new();
        let sentinel = SENTINEL.get_or_init(Sentinel::start);
        let sentinels = sentinel.sentinels().iter().map(|sentinel| local(sentinel.port())).collect();
        Self::on(Topology::Sentinel { sentinels, service: "main".into() })
    }

    fn on(topology: Topology) -> Self {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        static LAWS: AtomicU64 = AtomicU64::new(0);
        let runtime = RUNTIME.get_or_init(|| Runtime::new().unwrap());
        let clock = Arc::new(ManualClock::at(START));
        let settings = Settings {
            prefix: format!("law{}", LAWS.fetch_add(1, Ordering::Relaxed)),
            // A busy machine is not an outage.
            command_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            ..Settings::new(topology.clone())
        };
        let store = runtime.block_on(RedisStore::start(settings)).unwrap().with_clock(clock.clone());
        Self { topology, clock, store }
    }
}

fn local(port: u16) -> Address {
    Address::Tcp { host: "127.0.0.1".into(), port }
}

impl Bench for OnRedis {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn records(&self) -> &dyn Records {
        &self.store
    }

    fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
    }

    fn settles_at_once(&self) -> bool {
        !matches!(self.topology, Topology::Cluster { .. })
    }
}
