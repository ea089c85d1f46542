//! The connections to one server, and the meaning of its errors.
//!
//! It is not a library's pool, because that would send failed calls again by itself. An attempt counts at most
//! once only if the store decides which calls are sent again.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tollgate_core::StoreError;

use crate::dial::Dialer;
use crate::offset::Offset;
use crate::request::{Known, run_command};
use crate::resp::Reply;
use crate::script::Script;
use crate::settings::{Address, Settings};
use crate::standing::Standing;
use crate::wire::{Failure, Wire};

/// The way in which a command is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    /// To a node that does not own the key yet, after an `ASK` redirection.
    Asking,
}

/// Work for a server.
#[derive(Clone, Copy)]
pub(crate) enum Invocation<'e> {
    /// An encoded command.
    Command(&'e [u8]),
    /// A script with its keys and arguments.
    Script(&'e Script, [&'e [String]; 2], &'e [&'e [u8]]),
}

/// The connections to one server.
pub(crate) struct Pool {
    wires: Vec<Arc<Wire>>,
    supervisors: Vec<AbortHandle>,
    next: AtomicUsize,
    runtime: Handle,
    /// The offset of the server's clock.
    pub(crate) offset: Arc<Offset>,
    /// The server's circuit breaker. Only a Cluster uses it.
    pub(crate) standing: Standing,
    /// The server's address, if it is fixed.
    pub(crate) address: Option<Address>,
}

impl Pool {
    /// Starts to connect to the address, or to the server of the settings.
    pub(crate) fn start(
        settings: &Arc<Settings>,
        tls: Option<Arc<ClientConfig>>,
        address: Option<Address>,
        runtime: &Handle,
    ) -> Self {
        let dialer = Arc::new(Dialer::new(settings, tls, address.clone()));
        let wires: Vec<_> = (0..settings.connections.max(1)).map(|_| Wire::new()).collect();
        let supervise =
            |wire: &Arc<Wire>| runtime.spawn(Arc::clone(wire).supervise(Arc::clone(&dialer))).abort_handle();
        let supervisors = wires.iter().map(supervise).collect();
        let offset = Arc::clone(&dialer.offset);
        let (next, standing) = (AtomicUsize::new(0), Standing::default());
        Self { wires, supervisors, next, runtime: runtime.clone(), offset, standing, address }
    }

    /// Whether a connection is up; the error says why none is.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        let mut reason = Err(Failure::NotSent("no connection".into()));
        for wire in &self.wires {
            reason = wire.ready();
            if reason.is_ok() {
                break;
            }
        }
        reason
    }

    /// Waits until a connection is up or the deadline passes.
    pub(crate) async fn wait_until_up(&self, deadline: Instant) {
        while self.ready().is_err() && Instant::now() < deadline {
            let timer = {
                let _context = self.runtime.enter();
                tokio::time::sleep(Duration::from_millis(1))
            };
            timer.await;
        }
    }

    /// Closes all connections, because they lead to the wrong server.
    pub(crate) fn hang_up(&self) {
        self.wires.iter().for_each(|wire| wire.hang_up());
    }

    /// Runs an invocation, and waits for the reply until the deadline.
    pub(crate) async fn run(
        &self,
        way: Way,
        invocation: Invocation<'_>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let (script, keys, words) = match invocation {
            Invocation::Command(command) => return self.call(way, command, deadline).await,
            Invocation::Script(script, keys, words) => (script, keys, words),
        };
        let reply = self.call(way, &run_command(script, Known::Yes, keys, words), deadline).await?;
        match &reply {
            // The server ran nothing, so a retry is safe.
            Reply::Error(error) if error.starts_with("NOSCRIPT") => {
                self.call(way, &run_command(script, Known::No, keys, words), deadline).await
            }
            _ => Ok(reply),
        }
    }

    /// The connection to try first. Calls of one task use the same one, so that the server runs them in their
    /// order.
    fn first_wire(&self) -> usize {
        match tokio::task::try_id() {
            Some(task) => BuildHasherDefault::<DefaultHasher>::default().hash_one(task) as usize,
            None => self.next.fetch_add(1, Ordering::Relaxed),
        }
    }

    async fn call(&self, way: Way, command: &[u8], deadline: Instant) -> Result<Reply, Failure> {
        let start = self.first_wire();
        let mut failure = Failure::NotSent("no connection".into());
        for offset in 0..self.wires.len() {
            // A command that was not sent on one connection may go to another.
            match self.wires[start.wrapping_add(offset) % self.wires.len()].send(way, command) {
                Err(not_sent) => failure = not_sent,
                Ok(receiver) => {
                    let timer = {
                        let _context = self.runtime.enter();
                        tokio::time::timeout_at(deadline, receiver)
                    };
                    return match timer.await {
                        Ok(Ok(answer)) => answer,
                        Ok(Err(_)) => Err(Failure::Lost("the connection is gone".into())),
                        Err(_) => Err(Failure::TimedOut),
                    };
                }
            }
        }
        Err(failure)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.supervisors.iter().for_each(AbortHandle::abort);
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(reason) | Failure::Lost(reason) => {
                Self::Unavailable { reason: reason.to_string() }
            }
            Failure::Refused(reason) => Self::Refused { reason: reason.to_string() },
            Failure::Part(reason) => Self::PartUnavailable { reason: reason.to_string() },
            Failure::TimedOut => Self::TimedOut,
        }
    }
}
