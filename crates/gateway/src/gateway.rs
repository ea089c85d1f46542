//! Starts, reconfigures and stops a gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_core::{Clock, Span};
use tollgate_engine::{Admissions, PacedLog};

use crate::listen;
use crate::meter::Meters;
use crate::plan::{BadSettings, Plan};
use crate::settings::{ListenerSettings, Settings};
use crate::worker::{Listener, Order, Shared, Worker};

/// A running reverse proxy. Dropping it stops it at once; see [`Gateway::end`].
pub struct Gateway {
    shared: Arc<Shared>,
    orders: watch::Sender<Order>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    addresses: Vec<SocketAddr>,
}

/// The parts that the caller supplies.
#[derive(Clone)]
pub struct Parts {
    /// Decides, paces requests, and keeps the leases of connections and requests. All doors with the same
    /// limits share one.
    pub admissions: Admissions,
    /// The clock for the `Date` of responses.
    pub clock: Arc<dyn Clock>,
}

/// Why a gateway does not start.
#[derive(Debug)]
pub enum StartError {
    /// The settings cannot be used. The operator's fault.
    Settings(BadSettings),
    /// The gateway cannot listen on an address: another process does, or the address is not of this host.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The system could not start a thread.
    Thread(io::Error),
}

/// A setting that has changed and needs a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsRestart {
    /// The listeners.
    Listeners,
    /// The number of workers.
    Workers,
}

impl Gateway {
    /// Starts to serve.
    pub fn start(settings: Settings, parts: Parts) -> Result<Self, StartError> {
        let plan = Plan::new(settings, None).map_err(StartError::Settings)?;
        let (listeners, addresses) = open(&plan.settings)?;
        let Parts { admissions, clock } = parts;
        let shared = Arc::new(Shared {
            admissions,
            clock,
            plan: Arc::new(ArcSwap::from_pointee(plan)),
            meters: Meters::default(),
            complaints: PacedLog::every(Span::from_secs(10)),
        });
        shared.meters.set_routes(&shared.plan.load().settings.routes);
        let (orders, _) = watch::channel(Order::Serve);
        let gateway = Self { shared, orders, threads: Mutex::default(), addresses };
        for (number, own) in listeners.into_iter().enumerate() {
            let thread = gateway.spawn(number, own).map_err(StartError::Thread)?;
            gateway.threads.lock().push(thread);
        }
        Ok(gateway)
    }

    fn spawn(&self, number: usize, listeners: Vec<Listener>) -> io::Result<JoinHandle<()>> {
        let (shared, orders) = (Arc::clone(&self.shared), self.orders.subscribe());
        std::thread::Builder::new().name(format!("gateway-{number}")).spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
            match runtime {
                Ok(runtime) => runtime.block_on(Worker::run(number, shared, listeners, orders)),
                Err(error) => tracing::error!(component = "gateway", %error, "a worker cannot start"),
            }
        })
    }

    /// The addresses that it listens on, in the order of the settings. A port of 0 is replaced by the chosen
    /// one.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its meters, to be exported.
    pub fn meters(&self) -> Meters {
        self.shared.meters.clone()
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.shared.plan.load().settings.clone()
    }

    /// Puts other settings in force, all of them or none. Requests in flight finish under the old ones, and
    /// connections keep their certificate. Returns the changed settings that need a restart.
    pub fn replace(&self, mut settings: Settings) -> Result<Vec<NeedsRestart>, BadSettings> {
        let current = self.shared.plan.load_full();
        let mut waits = Vec::new();
        if !settings.listens_like(&current.settings) {
            settings.listeners.clone_from(&current.settings.listeners);
            waits.push(NeedsRestart::Listeners);
        }
        if settings.workers != current.settings.workers {
            settings.workers = current.settings.workers;
            waits.push(NeedsRestart::Workers);
        }
        let plan = Plan::new(settings, Some(&current))?;
        self.shared.meters.set_routes(&plan.settings.routes);
        self.shared.plan.store(Arc::new(plan));
        Ok(waits)
    }

    /// Stops accepting, lets requests in flight finish, and cuts those that are left after `patience`.
    pub async fn end(&self, patience: Duration) {
        // Requests that wait must end too.
        self.shared.admissions.end_waits();
        self.orders.send_replace(Order::End(patience));
        let threads = std::mem::take(&mut *self.threads.lock());
        let ended = tokio::task::spawn_blocking(move || {
            // A worker that panicked has ended too.
            threads.into_iter().for_each(|thread| drop(thread.join()));
        });
        let _ = ended.await;
    }
}

impl Settings {
    /// Checks for every error that can be found without starting a gateway.
    pub fn check(&self) -> Result<(), BadSettings> {
        Plan::new(self.clone(), None).map(drop)
    }

    /// Whether the listeners have the same addresses and protocols. Certificates may differ.
    pub fn listens_like(&self, other: &Self) -> bool {
        let spoken = |listener: &ListenerSettings| (listener.address, listener.tls.is_some(), listener.http2);
        self.listeners.iter().map(spoken).eq(other.listeners.iter().map(spoken))
    }
}

/// Stops at once and cuts requests in flight.
impl Drop for Gateway {
    fn drop(&mut self) {
        self.orders.send_replace(Order::End(Duration::ZERO));
    }
}

/// Opens all listeners for all workers.
fn open(settings: &Settings) -> Result<(Vec<Vec<Listener>>, Vec<SocketAddr>), StartError> {
    let workers = settings.workers.get();
    let mut by_worker: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for (place, listener) in settings.listeners.iter().enumerate() {
        let (address, http2) = (listener.address, listener.http2);
        let failed = |error| StartError::Listen { address, error };
        let sockets = listen::bind(address, workers).map_err(failed)?;
        addresses.push(sockets[0].local_addr().map_err(failed)?);
        for (own, socket) in by_worker.iter_mut().zip(sockets) {
            own.push(Listener { socket, place, http2 });
        }
    }
    Ok((by_worker, addresses))
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Settings(bad) => bad.fmt(f),
            Self::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")?;
                let taken = error.kind() == io::ErrorKind::AddrInUse;
                f.write_str(if taken { "; another program listens there already" } else { "" })
            }
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
