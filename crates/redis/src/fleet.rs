//! The servers of a store, in any topology.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::cluster::{Cluster, slot_of};
use crate::dial::Dialer;
use crate::offset::Offset;
use crate::pool::{Invocation, Pool, Way};
use crate::resp::{Reply, write_command};
use crate::script::Script;
use crate::sentinel;
use crate::settings::{Settings, Topology};
use crate::wire::Failure;

/// The servers of a store.
pub(crate) enum Fleet {
    /// One server with all keys. Under Sentinel, a task checks that it is still the master.
    One {
        pool: Arc<Pool>,
        /// Held so that the task ends with this value.
        _watch: Option<Watch>,
    },
    /// A cluster.
    Many(Arc<Cluster>),
}

/// Ends a task when it is dropped.
pub(crate) struct Watch(AbortHandle);

/// The interval at which sentinels are asked for the master.
const SENTINEL_INTERVAL: Duration = Duration::from_secs(1);

impl Fleet {
    /// Starts to connect.
    pub(crate) fn start(settings: &Arc<Settings>, tls: Option<Arc<ClientConfig>>, runtime: &Handle) -> Self {
        match &settings.topology {
            Topology::Single(_) => {
                Self::One { pool: Arc::new(Pool::start(settings, tls, None, runtime)), _watch: None }
            }
            Topology::Sentinel { .. } => {
                let pool = Arc::new(Pool::start(settings, tls.clone(), None, runtime));
                let dialer = Dialer::new(settings, tls, None);
                let watch = runtime.spawn(watch_master(dialer, Arc::clone(settings), Arc::clone(&pool)));
                Self::One { pool, _watch: Some(Watch(watch.abort_handle())) }
            }
            Topology::Cluster { seeds } => Self::Many(Cluster::start(settings, tls, seeds, runtime)),
        }
    }

    /// Whether every necessary server can be reached; the error says why not.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        match self {
            Self::One { pool, .. } => pool.ready(),
            Self::Many(cluster) => cluster.ready(),
        }
    }

    /// Waits until the servers can be reached or the deadline passes.
    pub(crate) async fn wait_until_up(&self, deadline: Instant) {
        while self.ready().is_err() && Instant::now() < deadline {
            if let Self::Many(cluster) = self {
                cluster.refresh().await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Groups keys by slot, in an order that is the same for all nodes. Each group is on one server.
    pub(crate) fn groups(&self, keys: &[String]) -> Vec<Vec<usize>> {
        let Self::Many(_) = self else { return vec![(0..keys.len()).collect()] };
        let mut slots: Vec<(u16, Vec<usize>)> = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let slot = slot_of(key);
            match slots.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, group)) => group.push(index),
                None => slots.push((slot, vec![index])),
            }
        }
        slots.sort();
        slots.into_iter().map(|(_, group)| group).collect()
    }

    /// Whether one script may use any keys together.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::One { .. })
    }

    /// The clock offset of the server that owns a key, if that server is known.
    pub(crate) fn offset(&self, key: &str) -> Option<Arc<Offset>> {
        match self {
            Self::One { pool, .. } => Some(Arc::clone(&pool.offset)),
            Self::Many(cluster) => cluster.owner_of(key).map(|pool| Arc::clone(&pool.offset)),
        }
    }

    /// Runs a script on the server of its first key.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: [&[String]; 2],
        words: &[&[u8]],
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let first = keys.iter().copied().flatten().next().map_or("", String::as_str);
        self.do_at(first, Invocation::Script(script, keys, words), deadline).await
    }

    /// Sends a command to the server of a key.
    pub(crate) async fn call(&self, key: &str, words: &[&[u8]], deadline: Instant) -> Result<Reply, Failure> {
        let mut command = Vec::new();
        write_command(&mut command, words);
        self.do_at(key, Invocation::Command(&command), deadline).await
    }

    async fn do_at(
        &self,
        key: &str,
        invocation: Invocation<'_>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        match self {
            Self::One { pool, .. } => pool.run(Way::Direct, invocation, deadline).await,
            Self::Many(cluster) => cluster.run(key, invocation, deadline).await,
        }
    }

    /// Every server that has keys.
    pub(crate) fn servers(&self) -> Vec<Arc<Pool>> {
        match self {
            Self::One { pool, .. } => vec![Arc::clone(pool)],
            Self::Many(cluster) => cluster.masters(),
        }
    }

    /// The number of slots of a Cluster without a server.
    pub(crate) fn unowned(&self) -> usize {
        match self {
            Self::One { .. } => 0,
            Self::Many(cluster) => cluster.unowned(),
        }
    }

    /// A key that this server owns, among the names for the numbers from 0.
    pub(crate) fn key_at(&self, server: &Arc<Pool>, name: impl Fn(usize) -> String) -> Option<String> {
        match self {
            Self::One { .. } => Some(name(0)),
            Self::Many(cluster) => cluster.key_at(server, name),
        }
    }

    /// Searches for servers that may have moved.
    pub(crate) fn look_again(&self) {
        if let Self::Many(cluster) = self {
            cluster.refresh_soon();
        }
    }

    /// Closes the connections, or reads the slots of a Cluster again, because they may lead to the wrong
    /// server.
    pub(crate) fn distrust(&self) {
        match self {
            Self::One { pool, .. } => pool.hang_up(),
            Self::Many(cluster) => cluster.refresh_soon(),
        }
    }
}

/// Closes the connections when the sentinels name another master. The old one may not know that it was
/// replaced.
async fn watch_master(dialer: Dialer, settings: Arc<Settings>, pool: Arc<Pool>) {
    let Topology::Sentinel { sentinels, service } = &settings.topology else { return };
    let mut last = None;
    loop {
        tokio::time::sleep(SENTINEL_INTERVAL).await;
        let asked = sentinel::master(&dialer, sentinels, service);
        if let Ok(Ok(master)) = tokio::time::timeout(settings.connect_timeout, asked).await {
            if last.as_ref().is_some_and(|last| *last != master) {
                pool.hang_up();
            }
            last = Some(master);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
