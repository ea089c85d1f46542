//! Accepts connections and starts to serve them.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::admit::ConnectionEntry;
use super::{Local, Phase, Worker};
use crate::alarm::Alarm;
use crate::connection::{self, Downstream};
use crate::forward::{Origin, Scheme};
use crate::stream::Stream;

/// A listener of one worker.
pub(crate) struct Listener {
    pub(crate) socket: std::net::TcpListener,
    /// Its index among the listeners.
    pub(crate) place: usize,
    pub(crate) http2: bool,
}

/// How long to wait after a failure to accept. Most likely the process has no file descriptors left, and some
/// may be free soon.
const PAUSE: Duration = Duration::from_millis(50);

/// Counts a connection while it lives.
struct Counted(Rc<Worker>);

impl Counted {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.meter.connections.raise();
        Self(Rc::clone(worker))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.meter.connections.lower();
        self.0.freed.notify_waiters();
    }
}

/// Accepts connections until the shutdown.
pub(super) async fn accept(worker: Rc<Worker>, listener: Listener) {
    let Listener { socket, place, http2 } = listener;
    let socket = match TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(component = "gateway", %error, "a listener cannot be used");
            return;
        }
    };
    let kind = AcceptKind { place, http2 };
    loop {
        let accepted = tokio::select! {
            accepted = accept_one(&worker, &socket) => accepted,
            () = worker.reached(Phase::Closing) => break,
        };
        match accepted {
            Ok((stream, peer)) => kind.start(&worker, stream, peer),
            Err(error) => {
                let shared = &worker.shared;
                if let Some(held_back) = shared.complaints.admit(shared.clock.now()) {
                    tracing::warn!(component = "gateway", %error, held_back, "a connection could not be accepted");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // The kernel has already accepted these connections. Closing the socket would reset them.
    while let Ok(Ok((stream, peer))) = tokio::time::timeout(Duration::ZERO, socket.accept()).await {
        kind.start(&worker, stream, peer);
    }
}

/// The next connection, once there is room for it.
async fn accept_one(worker: &Worker, socket: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
    loop {
        let most = worker.current.borrow().plan.settings.bounds.connections as u64;
        if worker.meter.connections.value() < most {
            return socket.accept().await;
        }
        worker.freed.notified().await;
    }
}

/// The protocols of a listener.
struct AcceptKind {
    place: usize,
    http2: bool,
}

impl AcceptKind {
    fn start(&self, worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr) {
        let counted = Counted::new(worker);
        let local = worker.local();
        let acceptor = local.plan.proofs[self.place].clone().map(TlsAcceptor::from);
        let scheme = if acceptor.is_some() { Scheme::Https } else { Scheme::Http };
        let downstream = Downstream::new(worker, Rc::new(Origin::new(peer.ip(), scheme)));
        // A response is mostly one small packet: send it at once.
        let _ = stream.set_nodelay(true);
        let http2 = self.http2;
        if local.plan.settings.connections.is_none() && acceptor.is_none() {
            tokio::task::spawn_local(async move {
                connection::serve(downstream, Stream::Plain(stream), http2).await;
                drop(counted);
            });
            return;
        }
        tokio::task::spawn_local(async move {
            serve_limited(downstream, stream, acceptor, http2, &local).await;
            drop(counted);
        });
    }
}

/// Serves a connection if its limits allow it, with TLS if the listener has it.
async fn serve_limited(
    downstream: Downstream,
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    http2: bool,
    local: &Local,
) {
    // Boxed, since it is short-lived.
    let lease = match Box::pin(downstream.worker.admit(local, &downstream.origin)).await {
        ConnectionEntry::Open(lease) => lease,
        ConnectionEntry::Refused(answer) => {
            downstream.worker.meter.refused.add(1);
            // Saying why would need a TLS handshake first, so the connection is closed without a response.
            if acceptor.is_none() {
                connection::turn_away(downstream, Stream::Plain(stream), &answer).await;
            }
            return;
        }
    };
    match acceptor {
        None => connection::serve(downstream, Stream::Plain(stream), http2).await,
        Some(acceptor) => {
            let patience = local.plan.settings.bounds.head_timeout;
            if let Some((stream, http2)) = secure(&acceptor, stream, &downstream.alarm, patience).await {
                connection::serve_secure(downstream, stream, http2).await;
            }
        }
    }
    drop(lease);
}

/// Does the TLS handshake. Returns whether HTTP/2 was negotiated.
async fn secure(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    alarm: &Alarm,
    patience: Duration,
) -> Option<(Stream, bool)> {
    // A client that disconnects, is too slow or sends garbage is not worth logging.
    let stream = Box::pin(alarm.within(patience, acceptor.accept(stream))).await.ok()?.ok()?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Some((Stream::Tls(Box::new(TlsStream::Server(stream))), http2))
}
