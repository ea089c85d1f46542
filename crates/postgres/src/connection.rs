//! One connection to one server.

use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connection. Dropped, it is closed.
pub(crate) struct Connection {
    pub(crate) client: Client,
    task: AbortHandle,
}

impl Connection {
    /// Connects. The connection lives in this runtime, whichever thread uses it.
    pub(crate) async fn open(
        server: &Config,
        tls: Option<&ClientConfig>,
        handle: &Handle,
    ) -> Result<Self, Error> {
        // What goes wrong with a connection is told to its statements.
        match tls {
            None => {
                let (client, connection) = server.connect(NoTls).await?;
                let task = handle.spawn(async { drop(connection.await) }).abort_handle();
                Ok(Self { client, task })
            }
            Some(tls) => {
                let (client, connection) = server.connect(MakeRustlsConnect::new(tls.clone())).await?;
                let task = handle.spawn(async { drop(connection.await) }).abort_handle();
                Ok(Self { client, task })
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without this, a connection would stay for as long as the server leaves a statement unanswered.
        self.task.abort();
    }
}
