//! The connections to one database of the application: a few, made when they are needed. One count at a time
//! uses each.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;
use tollgate_core::RowsError;

use super::query::meaning;
use crate::connection::{Connection, OpenError};
use crate::reply_bound::ReplyBound;
use crate::settings::{Settings, Tls};

/// For this long after a connection attempt failed, no other is made.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The connections to one database.
pub(super) struct Lines {
    settings: Settings,
    tls: Option<Arc<ClientConfig>>,
    /// The runtime that drives the connections, whichever thread a count runs on.
    handle: Handle,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    failed: Mutex<Option<(Instant, RowsError)>>,
}

/// A connection in use. Dropping it closes it, unless it was given back.
pub(super) struct RowLine {
    lines: Arc<Lines>,
    open: Connection,
    /// Declared after the connection, so it is freed last: there are never more connections than permits.
    _place: OwnedSemaphorePermit,
}

impl Lines {
    pub(super) fn new(settings: Settings, handle: Handle) -> Result<Self, String> {
        let tls = settings.tls.as_ref().map(Tls::configuration).transpose()?;
        let places = Arc::new(Semaphore::new(settings.connections));
        let (idle, failed) = (Mutex::default(), Mutex::default());
        Ok(Self { settings, tls, handle, places, idle, failed })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns a connection for one count.
    pub(super) async fn line(self: &Arc<Self>) -> Result<RowLine, RowsError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| RowsError::TimedOut)?;
        if let Some(open) = self.idle() {
            return Ok(RowLine { lines: Arc::clone(self), open, _place: place });
        }
        if let Some((at, error)) = &*self.failed.lock()
            && at.elapsed() < BACK_OFF
        {
            return Err(error.clone());
        }
        // Connecting may take longer than the count may. Then the next count gets the connection.
        let (told, connected) = oneshot::channel();
        let lines = Arc::clone(self);
        self.handle.spawn(async move {
            let open = lines.connect().await;
            *lines.failed.lock() = open.as_ref().err().map(|error| (Instant::now(), error.clone()));
            if let Err(Ok((open, place))) = told.send(open.map(|open| (open, place))) {
                RowLine { lines, open, _place: place }.give_back();
            }
        });
        let connected = connected.await.unwrap_or(Err(RowsError::TimedOut));
        connected.map(|(open, place)| RowLine { lines: Arc::clone(self), open, _place: place })
    }

    fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        idle.retain(|open| !open.client.is_closed());
        idle.pop()
    }

    /// Closes the idle connections: a fault of one is probably a fault of all.
    pub(super) fn close_idle(&self) {
        self.idle.lock().clear();
    }

    /// Connects to the first host that accepts. Each host has its own time-out.
    async fn connect(&self) -> Result<Connection, RowsError> {
        let mut failed = RowsError::Unreachable { reason: "the address names no host".into() };
        for server in self.settings.hosts() {
            let opening = Connection::open(&server, self.tls.as_deref(), ReplyBound::COUNT, &self.handle);
            match timeout(self.settings.connect_timeout, opening).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(OpenError::Server(error))) => failed = meaning(&error),
                Ok(Err(error @ OpenError::Socket(_))) => {
                    failed = RowsError::Unreachable { reason: error.to_string() };
                }
                Err(_) => {
                    failed = RowsError::Unreachable { reason: "no connection within the time-out".into() };
                }
            }
        }
        Err(failed)
    }
}

impl RowLine {
    pub(super) fn client(&self) -> &Client {
        &self.open.client
    }

    /// Whether this node closed the connection because the server sent more than a count.
    pub(super) fn has_exceeded(&self) -> bool {
        self.open.has_exceeded()
    }

    /// Makes the connection idle. No transaction may be open on it.
    pub(super) fn give_back(self) {
        let Self { lines, open, _place } = self;
        if !open.client.is_closed() {
            lines.idle.lock().push(open);
        }
    }
}
