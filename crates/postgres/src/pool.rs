//! A few connections to one database, made when they are needed. Each is used by one transaction at a time.
//!
//! The pool is our own, because it chooses among several hosts, and because a decision must fail at once while the
//! database is down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Config;
use tollgate_core::StoreError;

use crate::connection::Connection;
use crate::fault::of_opening;
use crate::redial::Redial;
use crate::reply_bound::ReplyBound;
use crate::schema;
use crate::settings::Settings;

/// An idle connection is closed after this time: firewalls forget connections that are silent for minutes.
const MOST_IDLE: Duration = Duration::from_secs(60);
/// The time-out for creating or migrating the tables.
const MIGRATING: Duration = Duration::from_secs(60);
/// The most queries in flight that no decision waits for.
const MAX_QUERIES: usize = 2;

/// The idle connections and, after a failure, the reason why there are none.
pub(crate) struct Pool {
    settings: Arc<Settings>,
    /// The connection settings of each host.
    hosts: Vec<Config>,
    /// The host that was connected to last.
    preferred: AtomicUsize,
    tls: Option<Arc<ClientConfig>>,
    handle: Handle,
    /// Each with the time of its latest use, oldest first.
    idle: Mutex<Vec<(Instant, Connection)>>,
    redial: Mutex<Redial>,
    /// Permits for queries that no decision waits for.
    pub(crate) queries: Semaphore,
}

/// Whether to open a connection shortly after an attempt failed, or to return that error at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    FailFast,
    Try,
}

impl Pool {
    pub(crate) fn new(settings: Arc<Settings>, tls: Option<Arc<ClientConfig>>, handle: Handle) -> Self {
        Self {
            hosts: settings.hosts(),
            preferred: AtomicUsize::new(0),
            settings,
            tls,
            handle,
            idle: Mutex::default(),
            redial: Mutex::default(),
            queries: Semaphore::new(MAX_QUERIES),
        }
    }

    /// Returns a connection for one transaction. Dropping it closes it; [`Pool::give_back`] keeps it. If the
    /// caller stops waiting for a new connection, the connection becomes idle and the next caller gets it.
    pub(crate) async fn line(self: &Arc<Self>, haste: Haste) -> Result<Connection, StoreError> {
        if let Some(line) = self.idle_line() {
            return Ok(line);
        }
        self.redial.lock().begin(haste, Instant::now())?;
        let (tell, told) = oneshot::channel();
        let pool = Arc::clone(self);
        self.handle.spawn(async move {
            let made = pool.connect().await;
            pool.redial.lock().end(made.as_ref().err(), Instant::now());
            if let Err(Ok(unclaimed)) = tell.send(made) {
                pool.give_back(unclaimed);
            }
        });
        let stopped = || StoreError::Unavailable { reason: "the store was stopped".into() };
        told.await.unwrap_or_else(|_| Err(stopped()))
    }

    fn idle_line(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some((since, line)) = idle.pop() {
            if since.elapsed() < MOST_IDLE && !line.client.is_closed() {
                return Some(line);
            }
        }
        None
    }

    /// Makes a connection idle. No transaction may be open on it.
    pub(crate) fn give_back(&self, line: Connection) {
        let mut idle = self.idle.lock();
        idle.retain(|(since, _)| since.elapsed() < MOST_IDLE);
        if !line.client.is_closed() && idle.len() < self.settings.connections + MAX_QUERIES {
            idle.push((Instant::now(), line));
        }
    }

    /// Closes all idle connections, because the server does not answer or is not the primary any more. An idle
    /// connection would not show that before it is used.
    pub(crate) fn distrust(&self) {
        self.idle.lock().clear();
    }

    /// Opens a connection, and checks that the tables have the right version. It checks every time, because a
    /// failover, a restored backup or a dropped schema may have changed them.
    async fn connect(&self) -> Result<Connection, StoreError> {
        let line = self.dial().await?;
        let version = schema::current(&line.client, &self.settings.schema);
        let version = timeout(self.settings.connect_timeout, version).await;
        if version.unwrap_or(Err(StoreError::TimedOut))? != Some(schema::VERSION) {
            let migrating = schema::migrate(&line.client, &self.settings.schema);
            timeout(MIGRATING, migrating).await.unwrap_or(Err(StoreError::TimedOut))?;
        }
        Ok(line)
    }

    /// Opens a connection without a check of the tables. It tries the hosts one after the other. If one does
    /// not answer soon, it tries the next at the same time, so a silent host does not delay the others.
    pub(crate) async fn dial(&self) -> Result<Connection, StoreError> {
        let count = self.hosts.len();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut order = (0..count).map(|step| (first + step) % count);
        let head_start = self.settings.connect_timeout / (count as u32 + 1);
        let mut trying = JoinSet::new();
        let mut failure = None;
        let dialing = async {
            loop {
                let next = order.next();
                if let Some(host) = next {
                    let (server, tls, handle) =
                        (self.hosts[host].clone(), self.tls.clone(), self.handle.clone());
                    let dialing = async move {
                        let opened =
                            Connection::open(&server, tls.as_deref(), ReplyBound::STORE, &handle).await;
                        (host, opened.map_err(|error| of_opening(&error)))
                    };
                    trying.spawn_on(dialing, &self.handle);
                }
                tokio::select! {
                    tried = trying.join_next() => match tried {
                        Some(Ok((host, Ok(line)))) => {
                            self.preferred.store(host, Ordering::Relaxed);
                            return Ok(line);
                        }
                        Some(Ok((_, Err(error)))) => drop(failure.get_or_insert(error)),
                        Some(Err(_)) => {}
                        None => break,
                    },
                    () = sleep(head_start), if next.is_some() => {}
                }
            }
            let nowhere = StoreError::Unavailable { reason: "there is no host to connect to".into() };
            Err(failure.take().unwrap_or(nowhere))
        };
        let late = || StoreError::Unavailable { reason: "no connection within the time-out".into() };
        timeout(self.settings.connect_timeout, dialing).await.unwrap_or_else(|_| Err(late()))
    }
}
