//! One turn of an item: find an account with capacity, connect, take the limits, hand over, record the result.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Span, Timestamp};

use super::Sender;
use super::outcome::{self, AttemptContext};
use crate::accounts::{Account, OnLimit};
use crate::client::{Connection, Delivery, Destination, Progress, TlsMode};
use crate::direct::{Direct, Host, Route};
use crate::lanes::{Cause, End, Sleep, Turn};
use crate::limits::{Load, Refusal, RefusedBy, Taken};
use crate::message::Recipient;
use crate::queue::{AttemptResult, Event, EventKind, Item, Kept, OpenAttempt, QueueError, Text};

/// How long a lane sleeps when the queue's disk fails, or when there is no account.
const AFTER_DISK: Span = Span::from_secs(5);
const NO_ACCOUNT: Span = Span::from_secs(60);

/// An account that can be used now: connected, and its limits taken.
struct Ready {
    account: Arc<Account>,
    connection: Connection,
    taken: Taken,
}

/// Why no account can be used now.
#[derive(Default)]
struct Obstacles {
    refusals: Vec<(Arc<Account>, Refusal)>,
    /// Connections that failed.
    failures: Vec<(Arc<Account>, String)>,
    throttled: bool,
    /// When the first paused account is tried again, and why it is paused.
    paused: Option<(Timestamp, String)>,
}

/// An item that is to be sent.
struct Job {
    turn: Turn,
    kept: Kept,
    item: Item,
    /// Those of its recipients that wait, as many as one transaction may have.
    waiting: Vec<u32>,
}

impl Sender {
    /// Does what can be done for an item whose turn it is.
    pub(super) async fn attempt(&self, turn: Turn) -> End {
        let job = match self.job(turn).await {
            Ok(Some(job)) => job,
            Ok(None) => return End::Settled,
            Err(error) => return self.disk_failed(&error),
        };
        let mut accounts = self.parts.accounts.of(&job.turn.lane.tenant, job.turn.lane.account.as_deref());
        if accounts.is_empty()
            && job.turn.lane.account.is_none()
            && let Some(direct) = &self.parts.direct
        {
            let about = self.context(&job, &job.waiting);
            match direct.route(&job.item.domain).await {
                Route::Hosts(hosts) => accounts = hosts_as_accounts(direct, &job, &hosts),
                Route::Never { status, reason } => {
                    return self.record(&job, outcome::of_refusal(status, reason, &about)).await;
                }
                Route::Later(reason) => return self.record(&job, outcome::of_failure(&reason, &about)).await,
            }
        }
        match self.find(&job, &accounts).await {
            Ok(ready) => self.deliver(&job, ready).await,
            Err(obstacles) => self.give_way(&job, obstacles).await,
        }
    }

    /// Records that the relay itself failed on an item.
    pub(super) async fn after_fault(&self, turn: Turn, reason: &str) -> End {
        match self.job(turn).await {
            Ok(Some(job)) => {
                let about = self.context(&job, &job.waiting);
                self.record(&job, outcome::of_failure(reason, &about)).await
            }
            Ok(None) => End::Settled,
            Err(error) => self.disk_failed(&error),
        }
    }

    /// Reads an item; `None` if no recipient waits any more.
    async fn job(&self, turn: Turn) -> Result<Option<Job>, QueueError> {
        let (queue, key) = (self.parts.queue.clone(), turn.item);
        let read = tokio::task::spawn_blocking(move || queue.item(key)).await;
        let Some((kept, item)) = read.map_err(|error| QueueError { reason: error.to_string() })?? else {
            return Ok(None);
        };
        let mut waiting = item.waiting();
        waiting.truncate(self.parts.most_recipients.max(1) as usize);
        Ok((!waiting.is_empty()).then_some(Job { turn, kept, item, waiting }))
    }

    /// The first account, by priority, that is not paused, has capacity, and can be reached.
    async fn find(&self, job: &Job, accounts: &[Arc<Account>]) -> Result<Ready, Obstacles> {
        let mut obstacles = Obstacles::default();
        for account in accounts {
            let now = self.now();
            if let Some(pause) = self.parts.accounts.paused(account, now) {
                obstacles.pause(account, pause.until, &pause.reason);
                continue;
            }
            let idle = self.parts.client.idle(&account.destination);
            let connection = match idle {
                Some(connection) => connection,
                None => match self.connect(job, account, &mut obstacles).await {
                    Some(connection) => connection,
                    None => continue,
                },
            };
            let most = connection.extensions().most_recipients.unwrap_or(u32::MAX).max(1);
            let load = job.load(account, most);
            // The last thing before the transaction, so that counts and arrivals lie close together.
            match self.parts.limits.take(load, self.now()).await {
                Ok(taken) => {
                    self.lanes.lock().admitted(&job.turn.lane, self.now());
                    self.nudge();
                    return Ok(Ready { account: Arc::clone(account), connection, taken });
                }
                Err(refusal) => {
                    self.parts.client.give_back(connection);
                    obstacles.refusals.push((Arc::clone(account), refusal));
                }
            }
        }
        Err(obstacles)
    }

    /// Connects to an account that has capacity.
    async fn connect(
        &self,
        job: &Job,
        account: &Arc<Account>,
        obstacles: &mut Obstacles,
    ) -> Option<Connection> {
        // Nothing is taken yet: connecting may take long.
        if let Err(refusal) = self.parts.limits.look(job.load(account, u32::MAX), self.now()).await {
            obstacles.refusals.push((Arc::clone(account), refusal));
            return None;
        }
        match self.parts.client.connect(&account.destination).await {
            Ok(connection) => Some(connection),
            Err(error) if error.login_refused => {
                let pause = self.parts.accounts.pause(account, &error.to_string(), self.now());
                obstacles.pause(account, pause.until, &pause.reason);
                None
            }
            Err(error) => {
                obstacles.throttled |= error.throttled;
                obstacles.failures.push((Arc::clone(account), error.to_string()));
                None
            }
        }
    }

    /// Hands an item over and records what came of it.
    async fn deliver(&self, job: &Job, ready: Ready) -> End {
        let Ready { account, mut connection, taken } = ready;
        let recipients = &job.waiting[..job.waiting.len().min(taken.recipients as usize)];
        let opened =
            OpenAttempt { at: self.now(), account: named(&account.id), recipients: recipients.to_vec() };
        if let Err(error) = self.parts.queue.begin_attempt(job.turn.item, opened).await {
            self.parts.limits.refund(&taken).await;
            self.parts.client.give_back(connection);
            return self.disk_failed(&error);
        }
        let mut delivery = self.transact(job, recipients, &mut connection).await;
        if is_stale(&connection, &delivery) {
            // The server had closed the connection before it could know of the message.
            drop(connection);
            match self.parts.client.connect(&account.destination).await {
                Ok(fresh) => {
                    connection = fresh;
                    delivery = self.transact(job, recipients, &mut connection).await;
                }
                Err(error) => {
                    self.parts.limits.refund(&taken).await;
                    let about = self.through(job, recipients, &account);
                    return self.record(job, outcome::of_failure(&error.to_string(), &about)).await;
                }
            }
        }
        if delivery.progress == Progress::BeforeMail {
            self.parts.limits.refund(&taken).await;
        }
        self.parts.client.give_back(connection);
        let result = outcome::of_delivery(&delivery, &self.through(job, recipients, &account));
        self.note_pace(job, &delivery, &result);
        self.record(job, result).await
    }

    async fn transact(&self, job: &Job, recipients: &[u32], connection: &mut Connection) -> Delivery {
        let envelope = &job.kept.envelope;
        let addresses: Vec<&Recipient> =
            recipients.iter().filter_map(|index| envelope.recipients.get(*index as usize)).collect();
        let (queue, kept) = (self.parts.queue.clone(), job.kept.clone());
        let text = tokio::task::spawn_blocking(move || queue.text(&kept)).await;
        let text = match text {
            Ok(Ok(text)) => text,
            // A text that cannot be read is found damaged before the final dot.
            _ => Text { bytes: Box::new(std::io::empty()), size: job.kept.size, checksum: job.kept.checksum },
        };
        let times = &self.parts.client.options().timeouts;
        connection.transact(envelope, &addresses, text, times).await
    }

    /// Slows the lane if the server asks to, and only the lane.
    fn note_pace(&self, job: &Job, delivery: &Delivery, result: &AttemptResult) {
        let mut lanes = self.lanes.lock();
        if delivery.throttled {
            lanes.throttle(&job.turn.lane, &result.event.text, self.now());
        } else if delivery.progress == Progress::Answered {
            lanes.relax(&job.turn.lane);
        }
    }

    /// Does what is left to do when no account can be used now.
    async fn give_way(&self, job: &Job, obstacles: Obstacles) -> End {
        let now = self.now();
        if let Some((account, reason)) = obstacles.failures.first() {
            if obstacles.throttled {
                self.lanes.lock().throttle(&job.turn.lane, reason, now);
            }
            let about = self.through(job, &job.waiting, account);
            return self.record(job, outcome::of_failure(reason, &about)).await;
        }
        // Another moment may bring another account, so the earliest one counts.
        let Some((account, refusal)) = obstacles.refusals.iter().min_by_key(|(_, refusal)| refusal.until)
        else {
            let (until, reason) = obstacles
                .paused
                .unwrap_or_else(|| (now + NO_ACCOUNT, "the tenant has no such account".to_owned()));
            return End::Blocked(Sleep { until, cause: Cause::Paused, reason, shared: None });
        };
        let rejects = |(account, refusal): &(Arc<Account>, Refusal)| {
            account.on_limit == OnLimit::Reject && refusal.by == RefusedBy::Account
        };
        // Reports are never rejected: a report has no sender to tell.
        let is_report = job.kept.envelope.sender.is_none();
        if obstacles.paused.is_none() && !is_report && obstacles.refusals.iter().all(rejects) {
            let about = self.through(job, &job.waiting, account);
            return self.record(job, outcome::of_rejection(&refusal.reason, &about)).await;
        }
        let resumed = obstacles.paused.map_or(refusal.until, |(until, _)| until);
        let until = refusal.until.min(resumed);
        self.defer(job, account, &Refusal { until, ..refusal.clone() }).await
    }

    /// Lets the lane sleep until its limits allow the item. This is no attempt.
    async fn defer(&self, job: &Job, account: &Account, refusal: &Refusal) -> End {
        let Refusal { until, reason, by } = refusal.clone();
        if by == RefusedBy::Fault {
            tracing::warn!(component = "relay", reason, "limits cannot be asked: mail waits");
            return End::Blocked(Sleep { until, cause: Cause::Outage, reason, shared: None });
        }
        let event = Event {
            domain: job.item.domain.clone(),
            account: named(&account.id),
            text: reason.clone(),
            until: Some(until),
            recipients: job.turn.recipients,
            ..Event::new(self.now(), EventKind::Deferred)
        };
        // Told once for each moment. The timeline is for people: the lane sleeps whether or not it can be written.
        if job.turn.deferred != Some(until) {
            let _ = self.parts.queue.tell(job.turn.item.message, event).await;
        }
        let shared = Some(reason.as_str().into());
        End::Blocked(Sleep { until, cause: Cause::Limit, reason, shared })
    }

    /// Makes a result durable, however long that takes: nothing else may happen to the item before.
    async fn record(&self, job: &Job, result: AttemptResult) -> End {
        let event = &result.event;
        tracing::info!(
            component = "relay",
            message = format!("{:032x}", job.turn.item.message.0),
            tenant = &*job.turn.lane.tenant,
            domain = event.domain,
            account = event.account,
            event = ?event.kind,
            reply = event.text,
            recipients = event.recipients,
            "attempt ended"
        );
        loop {
            match self.parts.queue.finish_attempt(job.turn.item, result.clone()).await {
                Ok(None) => return End::Settled,
                Ok(Some(waiting)) => {
                    return End::Again { due: waiting.due, recipients: waiting.recipients };
                }
                Err(error) => {
                    tracing::error!(component = "relay", %error, "a result cannot be recorded yet");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn disk_failed(&self, error: &QueueError) -> End {
        let until = self.now() + AFTER_DISK;
        End::Blocked(Sleep { until, cause: Cause::Outage, reason: error.to_string(), shared: None })
    }

    /// What a result is made of, through an account.
    fn through<'a>(
        &'a self,
        job: &'a Job,
        recipients: &'a [u32],
        account: &'a Account,
    ) -> AttemptContext<'a> {
        let (account, remote) = (&*account.id, &*account.destination.host);
        AttemptContext { account, remote, ..self.context(job, recipients) }
    }

    fn context<'a>(&'a self, job: &'a Job, recipients: &'a [u32]) -> AttemptContext<'a> {
        AttemptContext {
            item: &job.item,
            recipients,
            account: "",
            remote: "",
            retry: &self.parts.retry,
            now: self.now(),
            luck: fastrand::u64(..),
        }
    }
}

/// An account's name, if it has one.
pub(super) fn named(account: &str) -> Option<String> {
    (!account.is_empty()).then(|| account.to_owned())
}

/// Hosts of a domain, tried like accounts one after another. No rule about accounts applies to them.
fn hosts_as_accounts(direct: &Direct, job: &Job, hosts: &[Host]) -> Vec<Arc<Account>> {
    let account = |host: &Host| {
        Arc::new(Account {
            tenant: job.turn.lane.tenant.to_string(),
            id: String::new(),
            destination: Destination {
                host: host.address.to_string(),
                port: direct.port,
                tls: TlsMode::Opportunistic,
                login: None,
            },
            on_limit: OnLimit::Defer,
            priority: 0,
        })
    };
    hosts.iter().map(account).collect()
}

/// Whether a kept connection was dead before the transaction began.
fn is_stale(connection: &Connection, delivery: &Delivery) -> bool {
    connection.is_reused() && connection.is_broken() && delivery.progress == Progress::BeforeMail
}

impl Job {
    fn load<'a>(&'a self, account: &'a Account, most: u32) -> Load<'a> {
        let recipients = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX).min(most);
        Load { tenant: &account.tenant, account: &account.id, domain: &self.item.domain, recipients }
    }
}

impl Obstacles {
    fn pause(&mut self, account: &Account, until: Timestamp, reason: &str) {
        if self.paused.as_ref().is_none_or(|(known, _)| until < *known) {
            self.paused = Some((until, format!("account {} is paused: {reason}", account.id)));
        }
    }
}
