//! The assembled relay: queue, SMTP server, sender and accounts, started, reloaded and ended as one.
//!
//! Absent on purpose: configuration files (the program turns them into [`RelaySettings`]), and the tasks of the engine:
//! the program that runs a relay also runs `Leases::run` and `Engine::tend`.

mod settings;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::net::NetError;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate_core::Clock;
use tollgate_engine::Admissions;

pub use settings::{DirectSettings, RelaySettings};

use crate::acceptance::{AcceptTerms, Acceptances};
use crate::accounts::{AccountRegistry, Accounts};
use crate::client::{Client, ClientOptions, authorities};
use crate::direct::Direct;
use crate::limits::Limits;
use crate::meters::RelayMeters;
use crate::queue::disk::{Directory, Disk};
use crate::queue::{OpenError, Opened, Queue};
use crate::sender::{Sender, SenderParts};
use crate::server::{Kind, Server};

/// The parts of the program that a relay uses.
#[derive(Clone)]
pub struct RelayParts {
    /// The engine and the leases.
    pub admissions: Admissions,
    /// The wall clock of queue, server and sender.
    pub clock: Arc<dyn Clock>,
}

/// A running relay.
pub struct Relay {
    queue: Queue,
    acceptances: Arc<Acceptances>,
    server: Server,
    sender: Arc<Sender>,
    accounts: Arc<Accounts>,
    registry: Arc<AccountRegistry>,
    meters: RelayMeters,
    /// The settings in force. Settings that need a restart keep their values of the start.
    settings: Mutex<RelaySettings>,
    sending: Mutex<Option<Sending>>,
}

/// The task of the sender.
struct Sending {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// The reason why a relay does not start.
#[derive(Debug)]
pub enum StartError {
    /// The directory of the queue cannot be used: another process has it, or the system refuses.
    Directory {
        directory: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The queue cannot be opened. Nothing in it was changed.
    Queue {
        directory: PathBuf,
        /// The error of the queue.
        error: OpenError,
    },
    /// The certificate authorities for accounts cannot be used.
    Authorities(String),
    /// The name servers of the system cannot be found.
    Resolver(NetError),
    /// Opening the queue was cancelled, because the program ends.
    CutOff,
}

/// The most damaged entries that are logged one by one.
const MOST_TOLD: usize = 20;
/// The time-out of closing the queue. Acknowledged messages are on disk already.
const MOST_CLOSING: Duration = Duration::from_secs(5);
/// The interval of the search for delayed messages.
const LOOK_FOR_DELAYS: Duration = Duration::from_secs(10);

impl Relay {
    /// Opens the queue and starts sending. The relay does not listen yet.
    pub async fn start(settings: RelaySettings, parts: RelayParts) -> Result<Self, StartError> {
        let RelayParts { admissions, clock } = parts;
        let client = Client::new(client_options(&settings)?);
        let direct = settings.direct.as_ref().map(|direct| resolver(&settings, direct)).transpose()?;
        let (queue, opened) = open(&settings, Arc::clone(&clock)).await?;
        tell(&settings.directory, &opened);
        let accounts = Arc::new(Accounts::default());
        let intake = Arc::new(queue.clone());
        let meters = RelayMeters::new();
        let sender = Arc::new(Sender::new(SenderParts {
            queue: queue.clone(),
            client,
            limits: Limits::new(admissions.clone(), &settings.deliver),
            accounts: Arc::clone(&accounts),
            direct,
            clock: Arc::clone(&clock),
            retry: settings.retry.clone(),
            lanes: settings.lanes.clone(),
            most_recipients: settings.most_recipients,
            meters: meters.clone(),
            recipient_log: settings.recipient_log,
        }));
        let engine = Arc::clone(&admissions.engine);
        let registry = AccountRegistry::new(
            engine,
            Arc::clone(&sender),
            Arc::clone(&accounts),
            settings.secret_key.as_ref(),
        );
        let registry = Arc::new(registry);
        registry.configure(settings.accounts.iter().cloned());
        let acceptances = Acceptances::new(settings.accept.clone(), admissions, intake, clock);
        let acceptances = acceptances.metered(meters.clone());
        let acceptances =
            Arc::new(acceptances.sending_through(Arc::clone(&registry), settings.direct.is_some()));
        let server = Server::new(settings.server.clone(), Arc::clone(&acceptances));
        let sending = Mutex::new(Some(Sending::start(&sender, &registry, &queue, opened)));
        let settings = Mutex::new(settings);
        Ok(Self { queue, acceptances, server, sender, accounts, registry, meters, settings, sending })
    }

    /// Accepts connections until the relay ends.
    pub fn listen(&self, listener: TcpListener, kind: Kind) {
        let server = self.server.clone();
        if let Ok(address) = listener.local_addr() {
            self.sender.avoid(address);
        }
        tokio::spawn(async move { server.listen(listener, kind).await });
    }

    /// The queue of messages.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The sender, which delivers messages.
    pub fn sender(&self) -> &Arc<Sender> {
        &self.sender
    }

    /// The accounts that mail is delivered through.
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// The metrics.
    pub fn meters(&self) -> &RelayMeters {
        &self.meters
    }

    /// The acceptance shared by SMTP and HTTP.
    pub fn acceptances(&self) -> &Arc<Acceptances> {
        &self.acceptances
    }

    /// The SMTP server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The registry of accounts: those of the settings and those that were made at run time.
    pub fn account_registry(&self) -> &Arc<AccountRegistry> {
        &self.registry
    }

    /// The reason why mail is not accepted or sent, if a restart may repair it.
    pub fn fault(&self) -> Option<String> {
        if let Err(error) = self.queue.list(None, 0) {
            return Some(error.to_string());
        }
        if let Err(error) = self.queue.check_disk() {
            return Some(error.to_string());
        }
        let stopped = self.sending.lock().as_ref().is_none_or(|sending| sending.task.is_finished());
        stopped.then(|| "the sender has stopped".to_owned())
    }

    /// Applies new settings. Later connections use the new settings of the server, and changed accounts are
    /// used at once. Accounts that were added at run time stay. Returns the changed settings that need a
    /// restart.
    pub fn reload(&self, new: RelaySettings) -> Vec<&'static str> {
        let mut current = self.settings.lock();
        let waits = current.needing_a_restart(&new);
        // Like everywhere else, the name changes only at the next start.
        let hostname = current.accept.hostname.clone();
        self.acceptances.reload(AcceptTerms { hostname, ..new.accept.clone() });
        self.server.reload(new.server.clone());
        self.registry.configure(new.accounts.iter().cloned());
        self.sender.limits().reload(&new.deliver);
        current.deliver = new.deliver;
        current.accept = AcceptTerms { hostname: current.accept.hostname.clone(), ..new.accept };
        current.server = new.server;
        current.accounts = new.accounts;
        waits
    }

    /// Stops listening and sending, lets messages in progress finish, and cancels the rest after `patience`. A
    /// cancelled delivery keeps its slots, and is retried and marked after the next start.
    pub async fn end(&self, patience: Duration) {
        let sending = self.sending.lock().take();
        let sender_ends = async {
            if let Some(sending) = sending {
                sending.end(patience).await;
            }
        };
        // The server stops first, so that no mail arrives while the rest ends.
        tokio::join!(self.server.end(patience), sender_ends);
    }

    /// Closes the queue, if no other part of the program still uses the relay. Call it after [`Relay::end`].
    pub async fn close(relay: Arc<Self>) {
        let closing = tokio::task::spawn_blocking(move || drop(relay));
        let _ = tokio::time::timeout(MOST_CLOSING, closing).await;
    }
}

impl Sending {
    fn start(sender: &Arc<Sender>, registry: &Arc<AccountRegistry>, queue: &Queue, opened: Opened) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, registry, queue) = (Arc::clone(sender), Arc::clone(registry), queue.clone());
        let run = async move {
            // A relay that is dropped stops, too.
            let sending = sender.run(opened, async move { drop(stopped.await) });
            tokio::select! {
                () = sending => {}
                () = registry.run(std::future::pending()) => {}
                () = report_delays(queue) => {}
            }
        };
        Self { stop, task: tokio::spawn(run) }
    }

    async fn end(self, patience: Duration) {
        let Self { stop, mut task } = self;
        let _ = stop.send(());
        match tokio::time::timeout(patience, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(component = "relay", %error, "the sender failed");
            }
            Err(_) => {
                tracing::warn!(
                    component = "relay",
                    "deliveries in flight are cut; they are retried after the next start, and may arrive twice"
                );
                task.abort();
                let _ = task.await;
            }
        }
    }
}

/// Reports on delayed messages at every interval, and never returns.
async fn report_delays(queue: Queue) {
    loop {
        tokio::time::sleep(LOOK_FOR_DELAYS).await;
        // If the disk fails, the queue reports that itself.
        let _ = queue.report_delays().await;
    }
}

fn client_options(settings: &RelaySettings) -> Result<ClientOptions, StartError> {
    Ok(ClientOptions {
        hostname: settings.accept.hostname.clone(),
        tls: authorities(settings.authorities.as_deref()).map_err(StartError::Authorities)?,
        timeouts: settings.timeouts.clone(),
        per_destination: settings.per_destination,
        per_connection: settings.per_connection,
        idle: settings.idle,
        rules: settings.replies.clone(),
        eight_bit: settings.eight_bit,
    })
}

fn resolver(settings: &RelaySettings, direct: &DirectSettings) -> Result<Direct, StartError> {
    Direct::new(&settings.accept.hostname, direct).map_err(StartError::Resolver)
}

/// Opens the queue. That takes long for a large queue.
async fn open(settings: &RelaySettings, clock: Arc<dyn Clock>) -> Result<(Queue, Opened), StartError> {
    let (directory, options) = (settings.directory.clone(), settings.queue.clone());
    let opening = tokio::task::spawn_blocking(move || {
        let disk = match Directory::open(&directory) {
            Ok(disk) => Arc::new(disk) as Arc<dyn Disk>,
            Err(error) => return Err(StartError::Directory { directory, error }),
        };
        Queue::open(disk, clock, options).map_err(|error| StartError::Queue { directory, error })
    });
    opening.await.map_err(|_| StartError::CutOff)?
}

/// Logs the state of the opened queue.
fn tell(directory: &Path, opened: &Opened) {
    let queue = directory.display();
    if let Some(aside) = &opened.set_aside {
        let (to, reason, lost) = (aside.to.display(), &aside.reason, aside.lost);
        let messages = opened.messages;
        tracing::error!(component = "relay", %queue, %to, reason, messages, lost, "the queue's database is damaged: it was set aside, and the queue was made anew from what could be read");
    }
    for damage in opened.damaged.iter().take(MOST_TOLD) {
        let (table, item, id) = (damage.table, damage.item, format!("{:032x}", damage.message.0));
        tracing::error!(component = "relay", %queue, table, id, item, "a damaged entry of the queue was put in quarantine");
    }
    let untold = opened.damaged.len().saturating_sub(MOST_TOLD);
    if untold > 0 {
        tracing::error!(component = "relay", %queue, entries = untold, "more damaged entries of the queue were put in quarantine");
    }
    let uncertain = opened.possible_duplicates.len();
    if uncertain > 0 {
        tracing::warn!(component = "relay", %queue, deliveries = uncertain, "deliveries were in flight when the last process ended; they are retried, and may arrive twice");
    }
    tracing::info!(component = "relay", %queue, messages = opened.messages, "the queue is open");
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { directory, error } => {
                write!(f, "the queue's directory {} cannot be used: {error}", directory.display())
            }
            Self::Queue { directory, error } => {
                write!(f, "the queue in {} cannot be opened: {error}", directory.display())
            }
            Self::Authorities(reason) => f.write_str(reason),
            Self::Resolver(error) => {
                write!(f, "direct delivery needs a name server, and the system's cannot be found: {error}")
            }
            Self::CutOff => f.write_str("opening the queue was cut off"),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("queue", &self.queue)
            .field("sender", &self.sender)
            .finish_non_exhaustive()
    }
}
