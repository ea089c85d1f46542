//! The server: listeners and connections, with bounds on both.

mod connection;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, watch};
use tollgate_core::Clock;
use tollgate_engine::{Admissions, PacedLog};

use crate::address::PolicyAddress;
use crate::meters::PolicyMeters;
use crate::request::{Request, number};
use crate::resent::Resent;
use crate::socket_file::{self, SocketFile};

/// The pause after a connection could not be accepted. Most likely the process has no file descriptor left, and
/// one may be free in a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// The policies of requests, and the bound on connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// The policy of requests that the other settings do not name.
    pub policy: Arc<str>,
    /// Policies by `policy_context`.
    pub contexts: BTreeMap<String, Arc<str>>,
    /// Policies by the port that the client of Postfix connected to.
    pub ports: BTreeMap<u16, Arc<str>>,
    /// The most connections at once.
    pub max_connections: usize,
}

/// The parts that the server is made of.
pub struct PolicyParts {
    /// Admits attempts.
    pub admissions: Admissions,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}

/// Answers policy requests. Clones share one server.
#[derive(Clone)]
pub struct PolicyServer {
    shared: Arc<Shared>,
}

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) admissions: Admissions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) complaints: PacedLog,
    settings: ArcSwap<PolicySettings>,
    resent: Resent,
    meters: PolicyMeters,
    /// Set when the server ends. Connections then begin no further request.
    ending: watch::Sender<bool>,
    closed: Notify,
}

/// An open listener.
enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Dropped with the listener, which removes the file.
        _file: SocketFile,
    },
}

impl PolicySettings {
    /// The policy that decides a request: chosen by its context, or else by its port.
    fn policy_of(&self, request: &Request<'_>) -> &Arc<str> {
        let context = std::str::from_utf8(request.policy_context).ok();
        let port = || number(request.server_port).and_then(|port| u16::try_from(port).ok());
        let by_context = context.and_then(|context| self.contexts.get(context));
        by_context.or_else(|| self.ports.get(&port()?)).unwrap_or(&self.policy)
    }
}

impl PolicyServer {
    /// Makes a server that does not listen yet.
    pub fn new(settings: PolicySettings, parts: PolicyParts) -> Self {
        let shared = Shared {
            admissions: parts.admissions,
            clock: parts.clock,
            complaints: PacedLog::default(),
            settings: ArcSwap::from_pointee(settings),
            resent: Resent::new(),
            meters: PolicyMeters::default(),
            ending: watch::Sender::new(false),
            closed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Applies new settings from the next request on, also on open connections.
    pub fn reload(&self, settings: PolicySettings) {
        self.shared.settings.store(Arc::new(settings));
    }

    pub fn meters(&self) -> &PolicyMeters {
        &self.shared.meters
    }

    /// Listens, and serves connections in the background. Returns the address with the port that the system
    /// chose.
    pub async fn listen(&self, address: &PolicyAddress) -> io::Result<PolicyAddress> {
        let (listener, bound) = match address {
            PolicyAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                let bound = PolicyAddress::Tcp(listener.local_addr()?);
                (Listener::Tcp(listener), bound)
            }
            PolicyAddress::Unix(path) => {
                let (listener, file) = socket_file::listen(path).await?;
                (Listener::Unix { listener, _file: file }, address.clone())
            }
        };
        self.answer_from(listener);
        Ok(bound)
    }

    /// Serves the listener's connections in a task. Kept apart from `listen`, because each crate that awaits an
    /// async function compiles its body.
    fn answer_from(&self, listener: Listener) {
        let server = self.clone();
        tokio::spawn(async move { server.accept(listener).await });
    }

    /// Accepts connections until the server ends.
    async fn accept(&self, listener: Listener) {
        let mut ending = self.shared.ending.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = self.accept_one(&listener) => accepted,
                _ = ending.wait_for(|ending| *ending) => return,
            };
            if let Err(error) = accepted {
                if let Some(held_back) = self.shared.complaints.admit(self.shared.clock.now()) {
                    tracing::warn!(component = "postfix", %error, held_back, "a connection could not be accepted");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn accept_one(&self, listener: &Listener) -> io::Result<()> {
        match listener {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are small, and Postfix waits for them, so they are sent without delay.
                let _ = stream.set_nodelay(true);
                self.start(stream, Some(peer.ip().to_canonical()));
            }
            Listener::Unix { listener, .. } => self.start(listener.accept().await?.0, None),
        }
        Ok(())
    }

    /// Serves one connection in a task of its own. `peer` is its address; `None` for a Unix socket. If too many
    /// connections are open, this one is closed: Postfix tries again after a second.
    pub fn start<S>(&self, stream: S, peer: Option<IpAddr>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let most = self.shared.settings.load().max_connections;
        let open = Open::new(&self.shared);
        if open.number > most {
            self.shared.meters.turned_away();
            if let Some(held_back) = self.shared.complaints.admit(self.shared.clock.now()) {
                tracing::warn!(
                    component = "postfix",
                    most,
                    held_back,
                    "a connection was closed: there are too many; raise `postfix.max_connections`"
                );
            }
            return;
        }
        tokio::spawn(async move {
            connection::serve(&open.shared, stream, peer).await;
            drop(open);
        });
    }

    /// Stops listening, answers the requests that have begun, and returns when all connections are closed, or
    /// after this time.
    pub async fn end(&self, patience: Duration) {
        self.shared.ending.send_replace(true);
        let all_closed = async {
            loop {
                let closed = self.shared.closed.notified();
                if self.shared.meters.open().load(Ordering::Acquire) == 0 {
                    return;
                }
                closed.await;
            }
        };
        let _ = tokio::time::timeout(patience, all_closed).await;
    }
}

/// Counts a connection for as long as it is open.
struct Open {
    shared: Arc<Shared>,
    /// The number of open connections, including this one.
    number: usize,
}

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        let number = shared.meters.open().fetch_add(1, Ordering::Relaxed) + 1;
        Self { shared: Arc::clone(shared), number }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.meters.open().fetch_sub(1, Ordering::Release);
        self.shared.closed.notify_waiters();
    }
}
