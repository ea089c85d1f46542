//! The SMTP client: connections to the next hop, kept for reuse and limited for each destination.
//!
//! The code is our own, because the queue must know at each step whether the next hop may have accepted the
//! message, and the result for each recipient. Bodies are sent from their files, without loading them.

mod connection;
mod handshake;
mod lines;
mod redaction;
mod reply;
mod stuffing;
mod tls;
mod transaction;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::replies::{Peer, ReplyRules, Verdict};
use crate::seven_bit::EightBit;

pub use connection::{Connection, Extensions};
pub use reply::Reply;
pub use tls::authorities;
pub use transaction::{AccountRefusal, Answer, Delivery, Progress, Reason};

/// A server that mail is delivered to, and the login there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The server's name or address; TLS certificates must be for it.
    pub host: String,
    pub port: u16,
    /// The encryption of the connection.
    pub tls: TlsMode,
    /// The login, if the server wants one.
    pub login: Option<Login>,
}

/// The encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsMode {
    /// No encryption.
    None,
    /// From STARTTLS on; it fails if the server does not offer it.
    StartTls,
    /// From the first byte.
    Implicit,
    /// From STARTTLS on if the server offers it. Certificates are not verified,
    /// so this protects only against passive listeners.
    Opportunistic,
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Login {
    pub user: String,
    /// The password. It is never printed.
    pub password: String,
}

#[derive(Clone)]
pub struct ClientOptions {
    /// The name of this relay in EHLO.
    pub hostname: String,
    /// The configuration that verifies certificates.
    pub tls: Arc<rustls::ClientConfig>,
    /// The time-outs of the stages.
    pub timeouts: Timeouts,
    /// The most connections to one destination.
    pub per_destination: usize,
    /// The most transactions over one connection.
    pub per_connection: u32,
    /// An idle connection is closed after this time.
    pub idle: Duration,
    /// The operator's rules for refusals. They come before the table of replies and the stage.
    pub rules: ReplyRules,
    /// The treatment of 8-bit texts if the next hop does not accept them.
    pub eight_bit: EightBit,
}

/// The time-outs of the stages of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The TCP connection.
    pub connect: Duration,
    /// The greeting, or the TLS handshake.
    pub greeting: Duration,
    /// A command and its reply.
    pub command: Duration,
    /// The reply to DATA.
    pub data_start: Duration,
    /// A piece of the text.
    pub data_piece: Duration,
    /// The reply to the final dot.
    pub data_end: Duration,
    /// A reply to a text that could not be sent completely.
    pub last_words: Duration,
}

/// The stage at which connecting failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All connections that the destination may have are in use: nothing was tried.
    Busy,
    /// The TCP connection.
    Connect,
    /// The greeting.
    Greeting,
    /// EHLO.
    Hello,
    /// STARTTLS or the TLS handshake.
    Tls,
    /// AUTH.
    Login,
}

/// The reason why there is no connection. No message was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// The stage that failed.
    pub stage: Stage,
    /// The error of the server or the system.
    pub reason: String,
    /// The verdict, if the server refused; `None` if it sent no reply.
    pub verdict: Option<Verdict>,
}

/// Connects, and keeps connections for reuse.
pub struct Client {
    options: ClientOptions,
    /// For servers whose certificates are not verified.
    unverified: Arc<rustls::ClientConfig>,
    pools: Mutex<HashMap<Destination, DestinationPool>>,
    freed: Arc<OnceLock<OnFree>>,
}

/// Called with the name of a destination whenever the destination may get another connection.
type OnFree = Box<dyn Fn(&str) + Send + Sync>;

/// A permit for one connection to a destination. Dropping it frees the permit.
pub(crate) struct Permit {
    place: Option<OwnedSemaphorePermit>,
    destination: String,
    freed: Arc<OnceLock<OnFree>>,
}

/// The connections of one destination.
struct DestinationPool {
    permits: Arc<Semaphore>,
    idle: Vec<(Instant, Connection)>,
}

/// If more destinations than this are known, those without connections are forgotten.
const MOST_POOLS: usize = 10_000;

impl Client {
    pub fn new(options: ClientOptions) -> Self {
        let unverified = tls::unverified(&options.tls);
        Self { options, unverified, pools: Mutex::default(), freed: Arc::default() }
    }

    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Sets the function that is called whenever a destination may get another connection. It can be set only
    /// once.
    pub(crate) fn on_free(&self, freed: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.freed.set(Box::new(freed));
    }

    /// Returns an idle connection, if there is one.
    pub fn idle(&self, destination: &Destination) -> Option<Connection> {
        let place = {
            let pools = self.pools.lock();
            Arc::clone(&pools.get(destination)?.permits).try_acquire_owned().ok()?
        };
        self.pop_idle(destination, place).ok()
    }

    /// Takes an idle connection, or returns the permit.
    fn pop_idle(
        &self,
        destination: &Destination,
        place: OwnedSemaphorePermit,
    ) -> Result<Connection, OwnedSemaphorePermit> {
        let mut pools = self.pools.lock();
        let Some(pool) = pools.get_mut(destination) else { return Err(place) };
        say_goodbye(pool.expired(self.options.idle));
        while let Some((_, mut connection)) = pool.idle.pop() {
            // A server that closed the connection, or is about to, accepts no other message on it.
            if connection.interruption().is_none() {
                return Ok(Connection { permit: Some(self.permit(destination, place)), ..connection });
            }
        }
        Err(place)
    }

    /// Opens a new connection. It does not wait for a free one: if the destination has its most connections, it
    /// fails with stage [`Stage::Busy`].
    pub async fn connect(&self, destination: &Destination) -> Result<Connection, ConnectError> {
        let Ok(place) = self.permits(destination).try_acquire_owned() else {
            let reason = format!("all connections to {} are in use", destination.name());
            return Err(ConnectError { stage: Stage::Busy, reason, verdict: None });
        };
        match self.pop_idle(destination, place) {
            Ok(connection) => Ok(connection),
            Err(place) => {
                let permit = self.permit(destination, place);
                let connection = handshake::connect(&self.options, &self.unverified, destination).await?;
                Ok(Connection { permit: Some(permit), ..connection })
            }
        }
    }

    /// Opens a new connection in place of one that the server closed.
    pub async fn reconnect(&self, mut closed: Connection) -> Result<Connection, ConnectError> {
        let (permit, destination) = (closed.permit.take(), closed.destination.clone());
        drop(closed);
        let connection = handshake::connect(&self.options, &self.unverified, &destination).await?;
        Ok(Connection { permit, ..connection })
    }

    fn permit(&self, destination: &Destination, place: OwnedSemaphorePermit) -> Permit {
        Permit { place: Some(place), destination: destination.name(), freed: Arc::clone(&self.freed) }
    }

    /// Makes a connection idle, if it can carry another transaction.
    pub fn give_back(&self, mut connection: Connection) {
        if !connection.reusable || connection.interruption().is_some() {
            return;
        }
        if connection.used >= self.options.per_connection {
            // The connection keeps its permit until it is closed.
            return say_goodbye(vec![connection]);
        }
        // Idle connections need no permit: a new connection is opened only if none is idle.
        let permit = connection.permit.take();
        if let Some(pool) = self.pools.lock().get_mut(&connection.destination) {
            pool.idle.push((Instant::now(), connection));
        }
        drop(permit);
    }

    /// Closes connections that were idle for too long.
    pub fn close_idle(&self) {
        let idle = self.options.idle;
        let expired = self.pools.lock().values_mut().flat_map(|pool| pool.expired(idle)).collect();
        say_goodbye(expired);
    }

    /// Closes all idle connections. Returns when the servers were told.
    pub async fn close(&self) {
        let unused: Vec<Connection> =
            self.pools.lock().values_mut().flat_map(|pool| pool.expired(Duration::ZERO)).collect();
        let mut goodbyes: JoinSet<()> = unused.into_iter().map(Connection::quit).collect();
        while goodbyes.join_next().await.is_some() {}
    }

    fn permits(&self, destination: &Destination) -> Arc<Semaphore> {
        let most = self.options.per_destination;
        let mut pools = self.pools.lock();
        if pools.len() >= MOST_POOLS && !pools.contains_key(destination) {
            pools.retain(|_, pool| !pool.idle.is_empty() || pool.permits.available_permits() < most);
        }
        let fresh = || DestinationPool { permits: Arc::new(Semaphore::new(most)), idle: Vec::new() };
        Arc::clone(&pools.entry(destination.clone()).or_insert_with(fresh).permits)
    }
}

impl DestinationPool {
    /// Takes the connections that were idle for longer than this.
    fn expired(&mut self, idle: Duration) -> Vec<Connection> {
        let expired = self.idle.extract_if(.., |(since, _)| since.elapsed() >= idle);
        expired.map(|(_, connection)| connection).collect()
    }
}

/// Closes connections with QUIT, in a task.
fn say_goodbye(connections: Vec<Connection>) {
    for connection in connections {
        tokio::spawn(connection.quit());
    }
}

impl Destination {
    /// The destination's name in logs and metrics: the server and the user.
    pub fn name(&self) -> String {
        let Self { host, port, login, .. } = self;
        match login {
            Some(Login { user, .. }) => format!("{user} at {host}:{port}"),
            None => format!("{host}:{port}"),
        }
    }

    /// The kind of its server. Only for hosts that DNS names, TLS is not promised.
    pub(crate) fn peer(&self) -> Peer {
        if self.tls == TlsMode::Opportunistic { Peer::Host } else { Peer::Account }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        drop(self.place.take());
        if let Some(freed) = self.freed.get() {
            freed(&self.destination);
        }
    }
}

impl Default for Timeouts {
    /// The values of RFC 5321, except that of the connection.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            greeting: Duration::from_secs(300),
            command: Duration::from_secs(300),
            data_start: Duration::from_secs(120),
            data_piece: Duration::from_secs(180),
            data_end: Duration::from_secs(600),
            last_words: Duration::from_secs(5),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Busy => return f.write_str(&self.reason),
            // TLS says itself what failed.
            Stage::Tls if self.verdict.is_none() => return f.write_str(&self.reason),
            Stage::Connect => "connecting",
            Stage::Greeting => "the greeting",
            Stage::Hello => "EHLO",
            Stage::Tls => "TLS",
            Stage::Login => "the login",
        };
        write!(f, "{stage} failed: {}", self.reason)
    }
}

impl std::error::Error for ConnectError {}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
