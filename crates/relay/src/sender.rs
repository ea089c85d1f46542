//! Sending: takes items from the lanes, hands them on, and records what came of it.

mod attempt;
mod outcome;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tollgate_core::{Clock, Timestamp};

use crate::accounts::{Account, Accounts, Pause};
use crate::client::Client;
use crate::direct::Direct;
use crate::lanes::{Cause, End, LaneOptions, LaneView, Lanes, Priority, Retry, Turn};
use crate::limits::Limits;
use crate::message::MessageId;
use crate::queue::{ItemKey, Opened, Queue, QueueError};

/// What a sender is made of.
pub struct SenderParts {
    /// Where messages wait.
    pub queue: Queue,
    /// What speaks SMTP.
    pub client: Client,
    /// The deliver policy.
    pub limits: Limits,
    /// Where mail is handed on.
    pub accounts: Arc<Accounts>,
    /// How mail of tenants without an account is delivered; `None` if it waits for an account.
    pub direct: Option<Direct>,
    /// The relay's time.
    pub clock: Arc<dyn Clock>,
    /// How failures are retried.
    pub retry: Retry,
    /// How items are scheduled.
    pub lanes: LaneOptions,
    /// How many recipients one transaction has at most.
    pub most_recipients: u32,
}

/// Sends what waits in a queue.
pub struct Sender {
    parts: SenderParts,
    lanes: Mutex<Lanes>,
    /// Something has changed that the clock does not tell.
    changed: Notify,
}

/// The longest sleep: the wall clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

impl Sender {
    /// A sender that does not run yet.
    pub fn new(parts: SenderParts) -> Self {
        let lanes = Mutex::new(Lanes::new(parts.lanes.clone()));
        Self { parts, lanes, changed: Notify::new() }
    }

    /// Sends until `stop` is there, then finishes what is in flight.
    pub async fn run(self: Arc<Self>, mut opened: Opened, stop: impl Future<Output = ()> + Send) {
        let now = self.now();
        for waiting in &opened.waiting {
            self.lanes.lock().add(waiting, Priority::Normal, now);
        }
        opened.waiting = Vec::new();
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
                    self.lanes.lock().add(&waiting, Priority::Normal, self.now());
                }
                Some(done) = tasks.join_next_with_id() => self.finish(done, &mut turns, &mut tasks),
            }
        }
        while let Some(done) = tasks.join_next_with_id().await {
            self.finish(done, &mut turns, &mut tasks);
        }
    }

    fn next(&self) -> Option<Turn> {
        self.lanes.lock().next(self.now())
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
        // A message that the relay fails on is retried like any other: it delays no other message, and it expires.
        tracing::error!(component = "relay", %error, "an attempt failed inside the relay");
        let (sender, reason) = (Arc::clone(self), error.to_string());
        match turns.remove(&error.id()) {
            Some(turn) => {
                drop(tasks.spawn(async move { (turn.item, sender.after_fault(turn, &reason).await) }))
            }
            // The record of a fault failed, too. The item waits for the next start.
            None => tracing::error!(component = "relay", "an item waits for a restart"),
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

    /// The deliver policy.
    pub fn limits(&self) -> &Limits {
        &self.parts.limits
    }

    /// Looks at the clock again. For clocks that are moved by hand.
    pub fn nudge(&self) {
        self.changed.notify_one();
    }

    /// Tries the items of a message now. Answers how many there are.
    pub async fn retry(&self, message: MessageId) -> Result<usize, QueueError> {
        let due = self.parts.queue.retry(message).await?;
        let now = self.now();
        for waiting in &due {
            self.lanes.lock().add(waiting, Priority::Normal, now);
        }
        self.nudge();
        Ok(due.len())
    }

    /// Cancels what waits of a message. Answers whether there was something.
    pub async fn cancel(&self, message: MessageId) -> Result<bool, QueueError> {
        let items = self.parts.queue.show(message)?.map(|shown| shown.items).unwrap_or_default();
        let cancelled = self.parts.queue.cancel(message).await?;
        let now = self.now();
        for (key, _) in items {
            self.lanes.lock().remove(key, now);
        }
        Ok(cancelled)
    }

    /// Uses an account again whose login failed.
    pub fn resume(&self, tenant: &str, account: &str) {
        self.parts.accounts.resume(tenant, account);
        self.lanes.lock().wake(tenant, Cause::Paused, self.now());
        self.nudge();
    }

    /// Tries the lanes of a tenant again that wait for an account or a limit, because accounts or limits have changed.
    pub fn reconsider(&self, tenant: &str) {
        let now = self.now();
        for cause in [Cause::Paused, Cause::Limit] {
            self.lanes.lock().wake(tenant, cause, now);
        }
        self.nudge();
    }

    /// Why an account is not used now, if it is not.
    pub fn paused(&self, account: &Account) -> Option<Pause> {
        self.parts.accounts.paused(account, self.now())
    }

    /// All lanes as they are.
    pub fn lanes(&self) -> Vec<LaneView> {
        self.lanes.lock().views().collect()
    }

    /// The lane of an item: whether and why it sleeps is why the item is deferred.
    pub fn lane_of(&self, item: ItemKey) -> Option<LaneView> {
        self.lanes.lock().lane_of(item)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("items", &self.lanes.lock().len()).finish_non_exhaustive()
    }
}
