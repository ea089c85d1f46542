//! A few connections to one database, made when they are needed. Each is used by one transaction at a time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate_core::StoreError;

use crate::fault::{Stage, meaning};
use crate::schema;
use crate::settings::Settings;

/// How long a failed connection keeps others from being tried.
const BACK_OFF: Duration = Duration::from_millis(100);

/// A connection.
pub(crate) struct Line {
    pub(crate) client: Client,
    task: AbortHandle,
}

/// The connections that nobody uses, and why there are none.
pub(crate) struct Pool {
    settings: Arc<Settings>,
    tls: Option<Arc<ClientConfig>>,
    handle: Handle,
    idle: Mutex<Vec<Line>>,
    failed: Mutex<Option<(Instant, StoreError)>>,
    /// Whether the tables are known to have the right version.
    migrated: tokio::sync::OnceCell<()>,
}

/// Whether a connection is tried although one has just failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    FailFast,
    Try,
}

impl Pool {
    pub(crate) fn new(settings: Arc<Settings>, tls: Option<Arc<ClientConfig>>, handle: Handle) -> Self {
        let migrated = tokio::sync::OnceCell::new();
        Self { settings, tls, handle, idle: Mutex::default(), failed: Mutex::default(), migrated }
    }

    /// A connection for one transaction. Dropping it closes it; [`Pool::give_back`] keeps it.
    pub(crate) async fn line(&self, haste: Haste) -> Result<Line, StoreError> {
        loop {
            let line = self.idle.lock().pop();
            match line {
                Some(line) if line.client.is_closed() => {}
                Some(line) => return Ok(line),
                None => break,
            }
        }
        if haste == Haste::FailFast
            && let Some((at, error)) = &*self.failed.lock()
            && at.elapsed() < BACK_OFF
        {
            return Err(error.clone());
        }
        match self.connect().await {
            Ok(line) => {
                *self.failed.lock() = None;
                Ok(line)
            }
            Err(error) => {
                *self.failed.lock() = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Keeps a connection on which no transaction is open.
    pub(crate) fn give_back(&self, line: Line) {
        let mut idle = self.idle.lock();
        if !line.client.is_closed() && idle.len() < self.settings.connections {
            idle.push(line);
        }
    }

    async fn connect(&self) -> Result<Line, StoreError> {
        let line = self.dial().await?;
        let migrating = || schema::migrate(&line.client, &self.settings.schema);
        self.migrated.get_or_try_init(migrating).await?;
        Ok(line)
    }

    /// A connection, whatever tables there are.
    pub(crate) async fn dial(&self) -> Result<Line, StoreError> {
        let server = self.settings.connecting();
        let connecting = async {
            let line = match &self.tls {
                None => {
                    let (client, connection) = server.connect(NoTls).await?;
                    // What went wrong with a connection is told to its transactions.
                    let task = self.handle.spawn(async { drop(connection.await) }).abort_handle();
                    Line { client, task }
                }
                Some(tls) => {
                    let tls = MakeRustlsConnect::new(ClientConfig::clone(tls));
                    let (client, connection) = server.connect(tls).await?;
                    let task = self.handle.spawn(async { drop(connection.await) }).abort_handle();
                    Line { client, task }
                }
            };
            Ok::<_, tokio_postgres::Error>(line)
        };
        match timeout(self.settings.connect_timeout, connecting).await {
            Ok(line) => line.map_err(|error| meaning(&error, Stage::Open)),
            Err(_) => Err(StoreError::Unavailable { reason: "no connection within the time-out".into() }),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Without this, a connection would stay for as long as the server leaves a statement unanswered.
        self.task.abort();
    }
}
