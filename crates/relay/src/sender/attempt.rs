//! One turn of an item: finds an account with capacity, connects, takes the limits, delivers, records the
//! result.

use std::io;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use super::Sender;
use super::outcome::{self, AttemptContext};
use super::search::{Obstacles, Ready};
use crate::accounts::{Account, OnLimit};
use crate::client::{
    AccountRefusal, Answer, ConnectError, Connection, Delivery, Extensions, Progress, Reason,
};
use crate::direct::Route;
use crate::lanes::{Cause, End, Sleep, Turn};
use crate::limits::{Begun, Load, Refusal, RefusedBy, Taken};
use crate::message::Recipient;
use crate::queue::{Item, Kept, OpenAttempt, QueueError, Text};
use crate::seven_bit::{self, EightBit};

/// A lane sleeps for this long after the queue's disk failed, and if all connections are in use.
const AFTER_DISK: Span = Span::from_secs(5);
const BUSY: Span = Span::from_secs(1);
/// The pause before an account that cannot be reached is tried again while another one is at its limit.
const UNREACHABLE: Span = Span::from_secs(120);
/// A text may begin at most this long after its limits were taken. If the server asks for it later, the limits are taken
/// again. So the next hop sees its limits kept, except for this time and the time that the text is under way.
const MARGIN: Span = Span::from_secs(1);
/// The longest wait of mail for the trial of an account whose rest is over.
const ON_TRIAL: Span = Span::from_secs(30);
/// For how long a transaction may go on with what was taken for it on a connection that turned out to be closed.
const FRESH: Span = Span::from_secs(5);

/// An item to be sent.
pub(super) struct Job {
    pub(super) turn: Turn,
    pub(super) kept: Kept,
    pub(super) item: Item,
    /// The recipients that wait, at most as many as one transaction may have.
    pub(super) waiting: Vec<u32>,
}

/// The result of a second try on a new connection.
struct Again<'r> {
    connection: Connection,
    begun: Begun,
    recipients: &'r [u32],
    delivery: Delivery,
}

/// The reason why there was no second try. Nothing is taken, and the server knows nothing of the message.
enum NotAgain {
    /// The server cannot be reached, or does not let the relay in.
    NotConnected(ConnectError),
    /// The text cannot be read.
    Unreadable(String),
    /// A limit does not allow it any more.
    Refused(Refusal),
    /// The counts cannot be saved.
    Unsaved(String),
}

impl Sender {
    /// Tries to deliver the item whose turn it is.
    pub(super) async fn attempt(&self, turn: Turn) -> End {
        let job = match self.job(turn).await {
            Ok(Some(job)) => job,
            Ok(None) => return End::Settled,
            Err(error) => return self.disk_failed(error.to_string()),
        };
        let mut accounts = self.parts.accounts.of(&job.turn.lane.tenant, job.turn.lane.account.as_deref());
        if accounts.is_empty()
            && job.turn.lane.account.is_none()
            && let Some(direct) = &self.parts.direct
        {
            let about = self.context(&job, &job.waiting);
            match direct.route(&job.item.domain).await {
                Route::Hosts(hosts) => accounts = direct.as_accounts(&job.turn.lane.tenant, &hosts),
                Route::Never { status, reason } => {
                    return self.record(&job, outcome::of_refusal(status, reason, &about)).await;
                }
                Route::Later(reason) => {
                    return self.record(&job, outcome::of_failure(&own(&reason), &about)).await;
                }
            }
        }
        if job.kept.envelope.sender.is_none() {
            self.parts.accounts.order_for_report(&mut accounts, self.now());
        }
        let mut obstacles = Obstacles::default();
        while let Some(ready) = self.find(&job, &accounts, &mut obstacles).await {
            self.tell_of_refusals(&job, &mut obstacles).await;
            // Each account is tried once at most.
            let tried = accounts.iter().position(|account| Arc::ptr_eq(account, &ready.account));
            accounts.drain(..=tried.unwrap_or_default());
            if let Some(end) = self.deliver(&job, ready, &mut obstacles).await {
                return end;
            }
        }
        self.give_way(&job, obstacles).await
    }

    /// Records that the relay itself failed on an item. The server may have got the message.
    pub(super) async fn after_fault(&self, turn: Turn, reason: &str) -> End {
        match self.job(turn).await {
            Ok(Some(job)) => {
                let about = self.context(&job, &job.waiting);
                self.record(&job, outcome::of_fault(reason, &about)).await
            }
            Ok(None) => End::Settled,
            Err(error) => self.disk_failed(error.to_string()),
        }
    }

    /// Reads an item; `None` if no recipient waits any longer.
    async fn job(&self, turn: Turn) -> Result<Option<Job>, QueueError> {
        let (queue, key) = (self.parts.queue.clone(), turn.item);
        let read = tokio::task::spawn_blocking(move || queue.item(key)).await;
        let Some((kept, item)) = read.map_err(|error| QueueError { reason: error.to_string() })?? else {
            let id = format!("{:032x}", key.message.0);
            tracing::error!(
                component = "relay",
                id,
                item = key.number,
                "a message in the queue cannot be read; the relay checks it at its next start"
            );
            return Ok(None);
        };
        let mut waiting = item.waiting();
        waiting.truncate(self.parts.most_recipients.max(1) as usize);
        Ok((!waiting.is_empty()).then_some(Job { turn, kept, item, waiting }))
    }

    /// Hands an item over and records what came of it. `None` if the server refuses the account, whoever the recipients
    /// are: nothing is settled, and another account may take the item.
    async fn deliver(&self, job: &Job, ready: Ready, obstacles: &mut Obstacles) -> Option<End> {
        let Ready { account, mut connection, taken, text, trial } = ready;
        let mut recipients = &job.waiting[..job.waiting.len().min(taken.recipients as usize)];
        if let Err(reason) = self.open_attempt(job, &account, recipients, &taken).await {
            taken.refund().await;
            self.parts.client.give_back(connection);
            self.close_attempt(job).await;
            return Some(self.disk_failed(reason));
        }
        // From here on the charges are kept, even if this task is cancelled, unless the server never knew of
        // the transaction.
        let mut begun = taken.begin();
        let mut delivery =
            match self.transact(job, &account, recipients, text, &mut connection, &mut begun).await {
                Ok(delivery) => delivery,
                Err(why) => return self.not_again(job, &account, why, obstacles).await,
            };
        if is_stale(&connection, &delivery) {
            match self.try_again(job, &account, recipients, connection, begun).await {
                Ok(again) => Again { connection, begun, recipients, delivery } = again,
                Err(why) => return self.not_again(job, &account, why, obstacles).await,
            }
        }
        let refusal = delivery.refusal_of_all().cloned();
        // A server that refuses before the text has taken nothing.
        let untouched = refusal.is_some() && delivery.progress < Progress::BeforeDot;
        if delivery.progress == Progress::BeforeMail || untouched {
            begun.refund().await;
        } else {
            drop(begun);
        }
        self.parts.client.give_back(connection);
        if let Some(refusal) = refusal {
            self.refused(job, recipients, &account, refusal, obstacles).await;
            self.close_attempt(job).await;
            return None;
        }
        let result = outcome::of_delivery(&delivery, &self.through(job, recipients, &account));
        self.note_pace(job, &account, &delivery);
        drop(trial);
        Some(self.record(job, result).await)
    }

    /// Does what is left to do when a kept connection was closed and there was no second try.
    async fn not_again(
        &self,
        job: &Job,
        account: &Arc<Account>,
        why: NotAgain,
        obstacles: &mut Obstacles,
    ) -> Option<End> {
        self.close_attempt(job).await;
        match why {
            NotAgain::NotConnected(error) => self.not_connected(account, &error, obstacles),
            NotAgain::Unreadable(reason) => obstacles.unreadable = Some(reason),
            NotAgain::Refused(refusal) => return Some(self.defer(job, account, &refusal).await),
            NotAgain::Unsaved(reason) => return Some(self.disk_failed(reason)),
        }
        None
    }

    /// Makes durable that an attempt begins, and its charges, before the server knows of it. So after a crash
    /// the item is marked, and no limit has forgotten the charges.
    async fn open_attempt(
        &self,
        job: &Job,
        account: &Account,
        recipients: &[u32],
        taken: &Taken,
    ) -> Result<(), String> {
        let account = outcome::named(&account.id);
        let opened = OpenAttempt { at: self.now(), account, recipients: recipients.to_vec() };
        let begun = self.parts.queue.begin_attempt(job.turn.item, opened);
        let (begun, kept) = tokio::join!(begun, taken.durable());
        kept.map_err(|error| format!("the counts cannot be saved: {error}"))?;
        begun.map_err(|error| error.to_string())
    }

    /// Removes the record of an attempt that never began, so that the item is not marked after a crash. If the
    /// disk fails, the record stays, and the next attempt replaces it.
    async fn close_attempt(&self, job: &Job) {
        let _ = self.parts.queue.cancel_attempt(job.turn.item).await;
    }

    /// Tries again on a new connection, because the server had closed the idle one before it could know of the
    /// message. If connecting takes long, the limits are taken again, so that counting and delivery are close
    /// together.
    async fn try_again<'r>(
        &self,
        job: &Job,
        account: &Account,
        mut recipients: &'r [u32],
        closed: Connection,
        mut begun: Begun,
    ) -> Result<Again<'r>, NotAgain> {
        let started = self.now();
        let mut connection = match self.parts.client.reconnect(closed).await {
            Ok(connection) => connection,
            Err(error) => {
                begun.refund().await;
                return Err(NotAgain::NotConnected(error));
            }
        };
        if self.now().since(started) > FRESH {
            begun.refund().await;
            let load = job.load(account, u32::try_from(recipients.len()).unwrap_or(u32::MAX));
            let taken = match self.parts.limits.take(load, self.now()).await {
                Ok(taken) => taken,
                Err(refusal) => {
                    self.parts.client.give_back(connection);
                    return Err(NotAgain::Refused(refusal));
                }
            };
            if let Err(error) = taken.durable().await {
                taken.refund().await;
                return Err(NotAgain::Unsaved(format!("the counts cannot be saved: {error}")));
            }
            recipients = &recipients[..recipients.len().min(taken.recipients as usize)];
            begun = taken.begin();
        }
        let text = match self.text(job, connection.extensions()).await {
            Ok(text) => text,
            Err(reason) => {
                begun.refund().await;
                return Err(NotAgain::Unreadable(reason));
            }
        };
        let delivery = self.transact(job, account, recipients, text, &mut connection, &mut begun).await?;
        Ok(Again { connection, begun, recipients, delivery })
    }

    /// Hands the message over. If the server is slow to ask for the text, the limits are taken anew before it.
    async fn transact(
        &self,
        job: &Job,
        account: &Account,
        recipients: &[u32],
        text: Text,
        connection: &mut Connection,
        begun: &mut Begun,
    ) -> Result<Delivery, NotAgain> {
        let envelope = &job.kept.envelope;
        let addresses: Vec<&Recipient> =
            recipients.iter().filter_map(|index| envelope.recipients.get(*index as usize)).collect();
        let times = &self.parts.client.options().timeouts;
        let announced = match connection.announce_all(envelope, &addresses, text.size, times).await {
            Ok(announced) => announced,
            Err(delivery) => return Ok(delivery),
        };
        if self.now().since(begun.at) > MARGIN
            && let Err(refused) = self.take_anew(job, account, recipients, begun).await
        {
            // The server waits for a text: only a closed connection tells it that none comes.
            connection.abandon();
            return Err(refused);
        }
        Ok(connection.complete(announced, text, times).await)
    }

    /// Gives back what was taken a while ago, and takes it again now. After an error nothing is taken.
    async fn take_anew(
        &self,
        job: &Job,
        account: &Account,
        recipients: &[u32],
        begun: &mut Begun,
    ) -> Result<(), NotAgain> {
        begun.give_back().await;
        let count = u32::try_from(recipients.len()).unwrap_or(u32::MAX);
        let taken = self.parts.limits.take(job.load(account, count), self.now()).await;
        let taken = taken.map_err(NotAgain::Refused)?;
        if taken.recipients < count {
            // The server knows all of them. The rest of the limit is for the next attempt.
            taken.refund().await;
            let until = self.now() + BUSY;
            let reason = "the limits allow fewer recipients by now".to_owned();
            return Err(NotAgain::Refused(Refusal { until, free_at: until, reason, by: RefusedBy::Other }));
        }
        if let Err(error) = taken.durable().await {
            taken.refund().await;
            return Err(NotAgain::Unsaved(format!("the counts cannot be saved: {error}")));
        }
        *begun = taken.begin();
        Ok(())
    }

    /// A message's text as a server takes it that offers this, or why it cannot be read.
    pub(super) async fn text(&self, job: &Job, offers: &Extensions) -> Result<Text, String> {
        let (queue, kept) = (self.parts.queue.clone(), job.kept.clone());
        let takes_it = !kept.envelope.needs.eight_bit || offers.eight_bit;
        let converts = !takes_it && self.parts.client.options().eight_bit == EightBit::Convert;
        let read = tokio::task::spawn_blocking(move || {
            if converts {
                seven_bit::convert(|| queue.text(&kept).map_err(io::Error::other))
            } else {
                queue.text(&kept).map_err(io::Error::other)
            }
        });
        let read = read.await.map_err(|error| error.to_string())?;
        read.map_err(|error| format!("the text cannot be read: {error}"))
    }

    /// Slows the lane or the account if the server asks to, and ends a rest if it took the message.
    fn note_pace(&self, job: &Job, account: &Account, delivery: &Delivery) {
        let (now, accounts) = (self.now(), &self.parts.accounts);
        if let Some(AccountRefusal { rest: Some(rest), reason }) = &delivery.refused {
            accounts.rest(account, *rest, &reason.text, now);
        }
        let answered = delivery.progress == Progress::Answered;
        if answered && delivery.answers.iter().any(|answer| matches!(answer, Answer::Permanent(_))) {
            accounts.note_bounce(account, now);
        }
        let mut lanes = self.lanes.lock();
        if let Some(said) = &delivery.slows_domain {
            lanes.throttle(&job.turn.lane, said, now);
        } else if answered && delivery.refused.is_none() {
            lanes.relax(&job.turn.lane);
            if accounts.works(account, now) {
                lanes.wake(&job.turn.lane.tenant, Cause::Paused, now);
                self.nudge();
            }
        }
    }

    /// Ends a turn in which no account can be used.
    async fn give_way(&self, job: &Job, obstacles: Obstacles) -> End {
        let now = self.now();
        if let Some(reason) = &obstacles.unreadable {
            let (reason, about) = (own(reason), self.context(job, &job.waiting));
            return self.record(job, outcome::of_failure(&reason, &about)).await;
        }
        if let Some((account, reason)) = obstacles.failures.first()
            && obstacles.refusals.is_empty()
            && obstacles.busy.is_none()
        {
            let about = self.through(job, &job.waiting, account);
            return self.record(job, outcome::of_failure(reason, &about)).await;
        }
        if let Some(account) = &obstacles.busy {
            let name = account.destination.name();
            let reason = format!("all connections to {name} are in use");
            let sleep = Sleep::new(now + BUSY, Cause::Busy, reason);
            return End::Blocked(Sleep { shared: Some(name.into()), ..sleep });
        }
        // The refusal that ends first counts, because another account may be usable then.
        let Some((account, refusal)) = obstacles.refusals.iter().min_by_key(|(_, refusal)| refusal.until)
        else {
            return match obstacles.on_trial {
                Some(reason) => End::Blocked(Sleep::new(now + ON_TRIAL, Cause::Paused, reason)),
                None => self.wait_for_account(job, obstacles.paused).await,
            };
        };
        let rejects = obstacles.refusals.iter().all(|(account, refusal)| {
            account.on_limit == OnLimit::Reject && refusal.by == RefusedBy::Account
        });
        // A report is never rejected, because it has no sender to inform.
        let is_report = job.kept.envelope.sender.is_none();
        let others =
            obstacles.paused.is_some() || obstacles.on_trial.is_some() || !obstacles.failures.is_empty();
        if rejects && !others && !is_report {
            self.parts.meters.limited_turn(&account.tenant, &account.id);
            if !self.lanes.lock().is_deferred(job.turn.item) {
                self.parts.meters.rate_limited(&account.tenant, &account.id, 1);
            }
            let about = self.through(job, &job.waiting, account);
            return self.record(job, outcome::of_rejection(&refusal.reason, &about)).await;
        }
        self.defer(job, account, &obstacles.earliest(refusal, now)).await
    }

    fn disk_failed(&self, reason: String) -> End {
        End::Blocked(Sleep::new(self.now() + AFTER_DISK, Cause::Outage, reason))
    }

    /// The context of a result, for a delivery through an account.
    pub(super) fn through<'a>(
        &'a self,
        job: &'a Job,
        recipients: &'a [u32],
        account: &'a Account,
    ) -> AttemptContext<'a> {
        let (account, remote) = (&*account.id, &*account.destination.host);
        AttemptContext { account, remote, ..self.context(job, recipients) }
    }

    pub(super) fn context<'a>(&'a self, job: &'a Job, recipients: &'a [u32]) -> AttemptContext<'a> {
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

/// A failure in the relay's own words.
fn own(reason: &str) -> Reason {
    Reason::own("4.4.1", reason.to_owned())
}

/// Whether a kept connection was dead before the transaction began.
fn is_stale(connection: &Connection, delivery: &Delivery) -> bool {
    connection.is_reused() && connection.is_broken() && delivery.progress == Progress::BeforeMail
}

impl Job {
    pub(super) fn load<'a>(&'a self, account: &'a Account, most: u32) -> Load<'a> {
        let recipients = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX).min(most);
        Load { tenant: &account.tenant, account: &account.id, domain: &self.item.domain, recipients }
    }
}

impl Obstacles {
    /// A refusal until the first time at which any account may be usable. If another account is only at its
    /// limit, an account that cannot be reached does not count as a failure: both are tried again together.
    fn earliest(&self, refusal: &Refusal, now: Timestamp) -> Refusal {
        let mut earliest = refusal.clone();
        if let Some((until, _)) = &self.paused {
            earliest.until = earliest.until.min(*until);
        }
        if let Some((account, reason)) = self.failures.first() {
            earliest.until = earliest.until.min(now + UNREACHABLE);
            earliest.reason = format!("{}; account {}: {}", refusal.reason, account.id, reason.text);
        }
        if self.on_trial.is_some() {
            earliest.until = earliest.until.min(now + ON_TRIAL);
        }
        earliest.free_at = earliest.free_at.min(earliest.until);
        earliest
    }
}
