//! One connection to one server.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::either::Either;

use crate::reply_bound::{Bounded, BoundedTls, ReplyBound};

/// PostgreSQL's own port.
const PORT: u16 = 5432;

/// A connection. Dropping it closes it.
pub(crate) struct Connection {
    pub(crate) client: Client,
    task: AbortHandle,
    exceeded: Arc<AtomicBool>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The server cannot be reached, or is not the one to use.
    Socket(io::Error),
    /// It refuses the connection, or breaks the protocol.
    Server(Error),
}

/// The socket that carries a connection.
type Socket = Either<TcpStream, UnixStream>;
type Opening<'c> = Pin<Box<dyn Future<Output = Result<Connection, OpenError>> + Send + 'c>>;

impl Connection {
    /// Connects to the first host. The connection lives in this runtime, whichever thread uses it. Boxed, since each
    /// crate that awaits an async function compiles all of it, and this one contains most of the client library.
    pub(crate) fn open<'c>(
        server: &'c Config,
        tls: Option<&'c ClientConfig>,
        bound: ReplyBound,
        handle: &'c Handle,
    ) -> Opening<'c> {
        Box::pin(Self::connect(server, tls, bound, handle))
    }

    async fn connect(
        server: &Config,
        tls: Option<&ClientConfig>,
        bound: ReplyBound,
        handle: &Handle,
    ) -> Result<Self, OpenError> {
        let socket = socket(server).await.map_err(OpenError::Socket)?;
        let exceeded = Arc::<AtomicBool>::default();
        let (client, task) = match tls {
            None => {
                let stream = Bounded::new(socket, bound, Arc::clone(&exceeded));
                let (client, connection) = server.connect_raw(stream, NoTls).await?;
                (client, handle.spawn(run(connection, bound)))
            }
            Some(tls) => {
                let tls = MakeTlsConnect::<Socket>::make_tls_connect(
                    &mut MakeRustlsConnect::new(tls.clone()),
                    host_name(server),
                );
                let tls = tls.map_err(|error| OpenError::Socket(io::Error::other(error)))?;
                let tls = BoundedTls { tls, bound, exceeded: Arc::clone(&exceeded) };
                let (client, connection) = server.connect_raw(socket, tls).await?;
                (client, handle.spawn(run(connection, bound)))
            }
        };
        let connection = Self { client, task: task.abort_handle(), exceeded };
        connection.check_writable(server).await?;
        Ok(connection)
    }

    /// Whether this node closed the connection because the server sent more than the bound allows.
    pub(crate) fn has_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Acquire)
    }

    /// Refuses a replica where only a primary will do, or the reverse.
    async fn check_writable(&self, server: &Config) -> Result<(), OpenError> {
        let wanted = server.get_target_session_attrs();
        if wanted == TargetSessionAttrs::Any {
            return Ok(());
        }
        let rows = self.client.query_typed("SHOW transaction_read_only", &[]).await?;
        let read_only = rows.first().map(|row| row.try_get::<_, &str>(0)).transpose()? == Some("on");
        let fault = match (wanted, read_only) {
            (TargetSessionAttrs::ReadWrite, true) => "database does not allow writes",
            (TargetSessionAttrs::ReadOnly, false) => "database is not read only",
            _ => return Ok(()),
        };
        Err(OpenError::Socket(io::Error::new(io::ErrorKind::PermissionDenied, fault)))
    }
}

async fn run(connection: impl Future<Output = Result<(), Error>>, bound: ReplyBound) {
    // The connection's statements fail with it. Their errors do not say that the server sent too much; counts
    // check for that.
    if let Err(error) = connection.await
        && bound == ReplyBound::STORE
        && let Some(cause) = error.source()
        && cause.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData)
    {
        tracing::error!(component = "store", error = %cause, "a connection to PostgreSQL was closed");
    }
}

fn host_name(server: &Config) -> &str {
    match server.get_hosts().first() {
        Some(Host::Tcp(name)) => name,
        Some(Host::Unix(_)) | None => "",
    }
}

async fn socket(server: &Config) -> io::Result<Socket> {
    let port = server.get_ports().first().copied().unwrap_or(PORT);
    if let Some(Host::Unix(directory)) = server.get_hosts().first() {
        let path = directory.join(format!(".s.PGSQL.{port}"));
        return Ok(Either::Right(UnixStream::connect(path).await?));
    }
    let stream = match server.get_hostaddrs().first() {
        Some(address) => TcpStream::connect((*address, port)).await?,
        None => TcpStream::connect((host_name(server).to_owned(), port)).await?,
    };
    stream.set_nodelay(true)?;
    let options = SockRef::from(&stream);
    if let Some(time) = server.get_tcp_user_timeout() {
        options.set_tcp_user_timeout(Some(*time))?;
    }
    if server.get_keepalives() {
        options.set_tcp_keepalive(&TcpKeepalive::new().with_time(server.get_keepalives_idle()))?;
    }
    Ok(Either::Left(stream))
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => write!(f, "error connecting to server: {error}"),
            Self::Server(error) => error.fmt(f),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without this, a connection would stay for as long as the server leaves a statement unanswered.
        self.task.abort();
    }
}
