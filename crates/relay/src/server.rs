//! The SMTP server: listeners, connections, and where they meet the engine and the queue.
//!
//! The server knows the queue only as an [`Intake`]. Whoever runs it also runs `Leases::run`, which renews and
//! releases what connections hold, and `Engine::tend`, which makes refunds that a shared store did not take at once.

mod admission;
mod connection;
mod login;
mod proxy_header;
mod receiving;
mod settings;
mod users;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, watch};
use tollgate_core::Clock;
use tollgate_engine::{Admissions, PacedLog};

pub use settings::{Settings, Timeouts, tls};
pub use users::{BadUsers, PasswordHash, User, Users};
pub use wire::Io;

use crate::message::Intake;
use crate::session::reply::Reply;

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SMTP, with STARTTLS if there is a certificate.
    Smtp,
    /// TLS from the first byte.
    Smtps,
}

/// What a server is made of.
pub struct Parts {
    /// What decides.
    pub admissions: Admissions,
    /// Where messages go.
    pub intake: Arc<dyn Intake>,
    /// The wall clock: for dates and ids.
    pub clock: Arc<dyn Clock>,
}

/// An SMTP server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

/// What all connections share.
struct Shared {
    admissions: Admissions,
    intake: Arc<dyn Intake>,
    clock: Arc<dyn Clock>,
    settings: ArcSwap<Settings>,
    /// Whether the server ends: nothing new begins.
    ending: watch::Sender<bool>,
    open: AtomicUsize,
    closed: Notify,
    /// How many passwords are checked at once.
    hashing: Semaphore,
    complaints: PacedLog,
}

/// Counts a connection for as long as it lives.
struct Open(Arc<Shared>);

/// How long to wait if no connection can be accepted: most likely there are no file descriptors left, and some may be
/// free in a moment.
const PAUSE: Duration = Duration::from_millis(50);
/// How many passwords are checked at once: the processors have other work.
const MOST_HASHING: usize = 2;

impl Server {
    /// A server that listens nowhere yet.
    pub fn new(settings: Settings, parts: Parts) -> Self {
        let Parts { admissions, intake, clock } = parts;
        let shared = Shared {
            admissions,
            intake,
            clock,
            settings: ArcSwap::from_pointee(settings),
            ending: watch::Sender::new(false),
            open: AtomicUsize::new(0),
            closed: Notify::new(),
            hashing: Semaphore::new(MOST_HASHING),
            complaints: PacedLog::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Uses other settings for connections that come from now on.
    pub fn reload(&self, settings: Settings) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Accepts connections until the server ends.
    pub async fn listen(&self, listener: TcpListener, kind: Kind) {
        let mut ending = self.shared.ending.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ending.wait_for(|ending| *ending) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Replies are small, and the client waits for them.
                    let _ = stream.set_nodelay(true);
                    self.start(Box::new(stream), peer, kind);
                }
                Err(error) => {
                    if let Some(held_back) = self.shared.complaints.admit(self.shared.clock.now()) {
                        tracing::warn!(component = "relay", %error, held_back, "a connection could not be accepted");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Serves one connection in a task of its own.
    pub fn start(&self, stream: Box<dyn Io>, peer: SocketAddr, kind: Kind) {
        let shared = Arc::clone(&self.shared);
        let settings = shared.settings.load_full();
        let open = Open::new(&shared);
        tokio::spawn(async move {
            if shared.open.load(Ordering::Relaxed) > settings.max_connections {
                let reply = Reply::new(421, "4.3.2", "Too many connections; try again later");
                connection::turn_away(stream, kind, &reply).await;
            } else {
                connection::serve(&shared, &settings, stream, peer.ip().to_canonical(), kind).await;
            }
            drop(open);
        });
    }

    /// Stops listening, lets messages that come arrive, tells clients to come back later, and answers when all
    /// connections are closed, or after this long.
    pub async fn end(&self, patience: Duration) {
        self.shared.ending.send_replace(true);
        let all_closed = async {
            loop {
                let closed = self.shared.closed.notified();
                if self.open() == 0 {
                    return;
                }
                closed.await;
            }
        };
        let _ = tokio::time::timeout(patience, all_closed).await;
    }
}

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.closed.notify_waiters();
    }
}
