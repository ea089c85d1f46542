//! The SMTP server: accepts connections, and connects them with the engine and the queue.
//!
//! Messages go through [`Acceptances`], like those of other doors. The program that runs it also runs `Leases::run`, which renews and
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
use tollgate_engine::PacedLog;

pub use settings::{Settings, Timeouts};
pub use users::{BadUsers, PasswordHash, User, Users};
pub use wire::Io;

use crate::acceptance::Acceptances;
use crate::session::reply::Reply;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SMTP, with STARTTLS if there is a certificate.
    Smtp,
    /// TLS from the first byte.
    Smtps,
}

/// An SMTP server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

/// The state that all connections share.
struct Shared {
    doors: Arc<Acceptances>,
    settings: ArcSwap<Settings>,
    /// Set when the server ends. Nothing new begins then.
    ending: watch::Sender<bool>,
    count: Arc<Count>,
    /// Bounds the passwords that are checked at the same time.
    hashing: Semaphore,
    /// Bounds the logins in progress: delayed by a guard, or waiting for their password to be checked.
    logins: Semaphore,
    complaints: PacedLog,
}

/// The number of open connections.
#[derive(Default)]
struct Count {
    open: AtomicUsize,
    closed: Notify,
}

/// Counts a connection for as long as it lives.
struct Open(Arc<Count>);

/// The pause after a connection could not be accepted. Most likely the process has no file descriptor left, and
/// one may be free in a moment.
const PAUSE: Duration = Duration::from_millis(50);
/// The most connections beyond the maximum that get a refusal at the same time.
const MOST_TURNED_AWAY: usize = 1_000;
/// The most passwords that are checked at the same time. The processors have other work, too.
const MOST_HASHING: usize = 2;
/// The most logins in progress. Beyond that, clients get a temporary error.
const MOST_LOGINS: usize = 1_000;

impl Server {
    /// Makes a server that does not listen yet.
    pub fn new(settings: Settings, doors: Arc<Acceptances>) -> Self {
        let shared = Shared {
            doors,
            settings: ArcSwap::from_pointee(settings),
            ending: watch::Sender::new(false),
            count: Arc::default(),
            hashing: Semaphore::new(MOST_HASHING),
            logins: Semaphore::new(MOST_LOGINS),
            complaints: PacedLog::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Applies new settings to later connections.
    pub fn reload(&self, settings: Settings) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.shared.count.open.load(Ordering::Acquire)
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
                    // Replies are small, and the client waits for them, so they are sent without delay.
                    let _ = stream.set_nodelay(true);
                    self.start(Box::new(stream), peer, kind);
                }
                Err(error) => {
                    if let Some(held_back) = self.shared.complaints.admit(self.shared.doors.clock.now()) {
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
        let open = Open::new(&shared.count);
        let excess = self.open().saturating_sub(settings.max_connections);
        // Beyond this bound, clients are disconnected without a reply, so that a flood costs little.
        if excess > MOST_TURNED_AWAY {
            return;
        }
        tokio::spawn(async move {
            if excess > 0 {
                let reply = Reply::new(421, "4.3.2", "Too many connections; try again later");
                connection::turn_away(stream, kind, &reply).await;
            } else {
                connection::serve(&shared, &settings, stream, peer.ip().to_canonical(), kind).await;
            }
            // Once a connection counts as closed, it must not hold anything of the server.
            drop((shared, settings));
            drop(open);
        });
    }

    /// Stops listening, lets messages in progress arrive, tells clients to come back later, and returns when
    /// all connections are closed, or after this time.
    pub async fn end(&self, patience: Duration) {
        self.shared.ending.send_replace(true);
        // Waiting logins must end, too.
        self.shared.doors.admissions.end_waits();
        let all_closed = async {
            loop {
                let closed = self.shared.count.closed.notified();
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
    fn new(count: &Arc<Count>) -> Self {
        count.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Release);
        self.0.closed.notify_waiters();
    }
}
