//! The sender: takes items from the lanes, delivers them, and records the results.

mod attempt;
mod log;
mod outcome;
mod recording;
mod search;
mod unserved;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tollgate_core::{Clock, Span, Timestamp};
use tollgate_engine::PacedLog;

use crate::accounts::{Account, Accounts, Pause};
use crate::client::Client;
use crate::direct::Direct;
use crate::lanes::{Cause, End, LaneOptions, LaneView, Lanes, Retry, Scope, Turn, Wait, WaitCause};
use crate::limits::Limits;
use crate::message::MessageId;
use crate::meters::{AccountLabel, Levels, RelayMeters};
use crate::queue::{ItemKey, Opened, Queue, QueueError};

pub use log::RecipientLog;

/// The parts of a sender.
pub struct SenderParts {
    /// The queue of messages.
    pub queue: Queue,
    /// The SMTP client.
    pub client: Client,
    /// The deliver policy.
    pub limits: Limits,
    /// The accounts that mail is delivered through.
    pub accounts: Arc<Accounts>,
    /// Direct delivery for tenants without an account; `None` if their mail waits for an account.
    pub direct: Option<Direct>,
    /// The relay's time.
    pub clock: Arc<dyn Clock>,
    /// The schedule of retries.
    pub retry: Retry,
    /// The options of the scheduler.
    pub lanes: LaneOptions,
    /// The most recipients of one transaction.
    pub most_recipients: u32,
    /// The metrics.
    pub meters: RelayMeters,
    /// The form of recipients in log lines.
    pub recipient_log: RecipientLog,
}

/// Delivers the messages of a queue.
pub struct Sender {
    parts: SenderParts,
    lanes: Mutex<Lanes>,
    /// Notified of changes that no timer announces.
    changed: Notify,
    /// Log lines about limits that cannot be checked.
    outages: PacedLog,
    /// Log lines about accounts that do not exist.
    lacks: PacedLog,
}

/// The longest sleep, because the wall clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// The least time between two log lines that limits cannot be checked, or that an account does not exist.
const OUTAGE_LOG: Span = Span::from_secs(10);

impl Sender {
    pub fn new(parts: SenderParts) -> Self {
        let lanes = Mutex::new(Lanes::new(parts.lanes.clone()));
        let [outages, lacks] = [PacedLog::every(OUTAGE_LOG), PacedLog::every(OUTAGE_LOG)];
        Self { parts, lanes, changed: Notify::new(), outages, lacks }
    }

    /// Sends until `stop` is ready, then finishes the deliveries in flight.
    pub async fn run(self: Arc<Self>, mut opened: Opened, stop: impl Future<Output = ()> + Send) {
        self.connect_parts();
        let now = self.now();
        for mut waiting in std::mem::take(&mut opened.waiting) {
            waiting.due = self.parts.retry.due(waiting.due, now);
            self.lanes.lock().add(&waiting, now);
        }
        let mut tasks: JoinSet<(ItemKey, End)> = JoinSet::new();
        let mut turns: HashMap<Id, Turn> = HashMap::new();
        tokio::pin!(stop);
        loop {
            while let Some(turn) = self.next() {
                let (sender, own) = (Arc::clone(&self), turn.clone());
                let handle = tasks.spawn(async move { (own.item, sender.attempt(own).await) });
                turns.insert(handle.id(), turn);
            }
            tokio::select! {
                () = &mut stop => break,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(self.until_wake()) => self.parts.client.close_idle(),
                Some(waiting) = opened.arrived.recv() => {
                    self.note_report(&waiting);
                    self.lanes.lock().add(&waiting, self.now());
                }
                Some(done) = tasks.join_next_with_id() => self.finish(done, &mut turns, &mut tasks),
            }
        }
        while let Some(done) = tasks.join_next_with_id().await {
            self.finish(done, &mut turns, &mut tasks);
        }
        self.parts.client.close().await;
    }

    /// Connects the client and the meters to the lanes, without keeping the sender alive.
    fn connect_parts(self: &Arc<Self>) {
        let weak: Weak<Self> = Arc::downgrade(self);
        self.parts.client.on_free(move |destination| {
            if let Some(sender) = weak.upgrade() {
                sender.lanes.lock().released(destination, sender.now());
                sender.nudge();
            }
        });
        let weak: Weak<Self> = Arc::downgrade(self);
        self.parts.meters.watch(move || {
            let levels = |sender: Arc<Self>| {
                let messages = sender.parts.queue.len();
                Levels { messages, ..sender.lanes.lock().levels(sender.now()) }
            };
            weak.upgrade().map(levels).unwrap_or_default()
        });
    }

    fn next(&self) -> Option<Turn> {
        let mut lanes = self.lanes.lock();
        let turn = lanes.next(self.now());
        for (AccountLabel { tenant, account }, messages) in lanes.take_deferrals() {
            self.parts.meters.rate_limited(&tenant, &account, messages);
        }
        turn
    }

    fn finish(
        self: &Arc<Self>,
        done: Result<(Id, (ItemKey, End)), JoinError>,
        turns: &mut HashMap<Id, Turn>,
        tasks: &mut JoinSet<(ItemKey, End)>,
    ) {
        let now = self.now();
        let error = match done {
            Ok((id, (item, end))) => {
                turns.remove(&id);
                return self.lanes.lock().done(item, end, now);
            }
            Err(error) => error,
        };
        // A message on which the relay itself failed is retried like any other: it delays no other message, and
        // it expires. Its charges are kept, because the final dot may have been sent.
        tracing::error!(component = "relay", %error, "a delivery ended by a fault of tollgate; the message is retried");
        let (sender, reason) = (Arc::clone(self), error.to_string());
        match turns.remove(&error.id()) {
            Some(turn) => {
                drop(tasks.spawn(async move { (turn.item, sender.after_fault(turn, &reason).await) }))
            }
            // Recording the fault failed, too. The item waits for the next start.
            None => tracing::error!(component = "relay", "a message waits until the relay starts again"),
        }
    }

    fn until_wake(&self) -> Duration {
        let wake = self.lanes.lock().wake_at();
        let wait = wake.map_or(LONGEST_SLEEP, |at| Duration::from(at.since(self.now())));
        wait.min(LONGEST_SLEEP)
    }

    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Excludes an address at which this relay listens from direct delivery.
    pub fn avoid(&self, listener: SocketAddr) {
        if let Some(direct) = &self.parts.direct {
            direct.avoid(listener);
        }
    }

    /// The deliver policy.
    pub fn limits(&self) -> &Limits {
        &self.parts.limits
    }

    /// Reads the clock again. For clocks that are moved by hand.
    pub fn nudge(&self) {
        self.changed.notify_one();
    }

    /// Makes the items of a message due now. Returns their number.
    pub async fn retry(&self, message: MessageId) -> Result<usize, QueueError> {
        let due = self.parts.queue.retry(message).await?;
        let now = self.now();
        for waiting in &due {
            self.lanes.lock().add(waiting, now);
        }
        self.nudge();
        if !due.is_empty() {
            log::log_operator(message, "message retried by an operator");
        }
        Ok(due.len())
    }

    /// Ends the rests that servers asked for and that keep a message, and tries its items now. Other messages of the same
    /// lanes are tried, too. Returns how many items there are.
    pub async fn end_rests(&self, message: MessageId) -> Result<usize, QueueError> {
        let items = self.parts.queue.show(message)?.map(|shown| shown.items).unwrap_or_default();
        for (item, _) in items {
            self.lanes.lock().end_throttle(item, self.now());
        }
        self.retry(message).await
    }

    /// Removes a message and its history. What waits of it is cancelled first. Returns whether it is gone: a message that
    /// is being sent stays until that ends.
    pub async fn delete(&self, message: MessageId) -> Result<bool, QueueError> {
        let Some(shown) = self.parts.queue.show(message)? else { return Ok(false) };
        let now = self.now();
        let is_sent = |item: &ItemKey| {
            let wait = self.lanes.lock().wait_of(*item, now);
            wait.is_some_and(|wait| wait.cause == WaitCause::Sending)
        };
        if shown.items.iter().any(|(item, _)| is_sent(item)) {
            return Ok(false);
        }
        self.cancel(message).await?;
        let deleted = self.parts.queue.delete(message).await?;
        if deleted {
            log::log_operator(message, "message deleted by an operator");
        }
        Ok(deleted)
    }

    /// The reason why an item waits; `None` if it does not wait.
    pub fn wait_of(&self, item: ItemKey) -> Option<Wait> {
        self.lanes.lock().wait_of(item, self.now())
    }

    /// Cancels the waiting recipients of a message. Returns whether there were any.
    pub async fn cancel(&self, message: MessageId) -> Result<bool, QueueError> {
        let items = self.parts.queue.show(message)?.map(|shown| shown.items).unwrap_or_default();
        let cancelled = self.parts.queue.cancel(message).await?;
        let now = self.now();
        for (key, _) in items {
            self.lanes.lock().remove(key, now);
        }
        if cancelled {
            log::log_operator(message, "message cancelled by an operator");
        }
        Ok(cancelled)
    }

    /// Ends the pause of an account whose login failed. A pause by an operator stays.
    pub fn resume(&self, tenant: &str, account: &str) {
        self.parts.accounts.resume(tenant, account);
        self.lanes.lock().wake(tenant, Cause::Paused, self.now());
        self.nudge();
    }

    /// Pauses a scope until [`Sender::release`]. Deliveries in flight continue. Returns whether it was not
    /// paused before. The pause is only in this process, and ends with it.
    pub fn hold(&self, scope: Scope) -> bool {
        let new = self.lanes.lock().hold(scope.clone(), self.now());
        if new {
            tracing::warn!(component = "relay", ?scope, "sending paused by an operator");
        }
        new
    }

    /// Ends a pause by [`Sender::hold`]. Returns whether the scope was paused.
    pub fn release(&self, scope: &Scope) -> bool {
        let known = self.lanes.lock().release(scope, self.now());
        if known {
            tracing::warn!(component = "relay", ?scope, "sending resumed by an operator");
            self.nudge();
        }
        known
    }

    /// Pauses an account until [`Sender::release_account`]: other accounts of the tenant are used, or the mail
    /// waits. Returns whether it was not paused before.
    pub fn hold_account(&self, tenant: &str, account: &str) -> bool {
        let new = self.parts.accounts.hold(tenant, account);
        if new {
            tracing::warn!(component = "relay", tenant, account, "account paused by an operator");
        }
        new
    }

    /// Ends the pause of an account, by an operator or after a failed login. Returns whether it was paused.
    pub fn release_account(&self, tenant: &str, account: &str) -> bool {
        let held = self.parts.accounts.release(tenant, account);
        let failed = self.parts.accounts.resume(tenant, account);
        if held || failed {
            tracing::warn!(component = "relay", tenant, account, "account resumed by an operator");
            self.resume(tenant, account);
        }
        held || failed
    }

    /// The scopes that operators paused, without accounts.
    pub fn holds(&self) -> Vec<Scope> {
        self.lanes.lock().holds()
    }

    /// Wakes the lanes of a tenant that wait for an account or a limit, because accounts or limits have
    /// changed.
    pub fn reconsider(&self, tenant: &str) {
        let now = self.now();
        for cause in [Cause::Paused, Cause::Limit] {
            self.lanes.lock().wake(tenant, cause, now);
        }
        self.nudge();
    }

    /// The pause of an account, if it is paused now.
    pub fn paused(&self, account: &Account) -> Option<Pause> {
        self.parts.accounts.paused(account, self.now())
    }

    /// The current state of all lanes.
    pub fn lanes(&self) -> Vec<LaneView> {
        self.lanes.lock().views().collect()
    }

    /// The lane of an item. If the lane sleeps, its sleep is the reason why the item is deferred.
    pub fn lane_of(&self, item: ItemKey) -> Option<LaneView> {
        self.lanes.lock().lane_of(item)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("items", &self.lanes.lock().len()).finish_non_exhaustive()
    }
}
