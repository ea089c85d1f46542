//! Notifies webhooks of locks, in the background: no login waits for it.
//!
//! Notices wait in the engine's bounded queue, and the number in flight is bounded too. A notice that is not
//! acknowledged is retried a few times with a growing back-off, and then dropped; the log has it anyway. At
//! the shutdown there is a little time for those in flight.

mod delivery;
mod meter;
mod signature;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tollgate_core::Clock;
use tollgate_engine::{Engine, Notice};
use tollgate_store::SystemClock;

use crate::config::{Webhook, Webhooks};
use delivery::WebhookMessage;
pub(crate) use meter::WebhookMeters;

/// How many notices may wait.
const MOST_WAITING: usize = 1_024;
/// How many notices may be in flight.
const MOST_UNDER_WAY: usize = 32;
/// How long notices in flight may take at the shutdown.
const MOST_END: Duration = Duration::from_secs(2);
/// The first back-off; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest back-off.
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// The webhooks in force, which a reload replaces.
pub(crate) struct CurrentWebhooks(RwLock<Arc<Webhooks>>);

/// A task that notifies webhooks until it is ended.
pub(crate) struct Notifying {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl CurrentWebhooks {
    pub(crate) fn new(webhooks: Webhooks) -> Self {
        Self(RwLock::new(Arc::new(webhooks)))
    }

    /// Puts other webhooks in force. Notices in flight keep their old one.
    pub(crate) fn replace(&self, webhooks: Webhooks) {
        *self.0.write() = Arc::new(webhooks);
    }

    fn of(&self, guard: &str) -> Option<Arc<Webhook>> {
        self.0.read().get(guard).cloned()
    }
}

impl Notifying {
    /// Notifies webhooks of an engine's notices.
    pub(crate) fn start(engine: &Engine, webhooks: Arc<CurrentWebhooks>, meters: WebhookMeters) -> Self {
        let (stop, stopped) = watch::channel(false);
        let notices = engine.guards.take_notices(MOST_WAITING);
        let task = tokio::spawn(notify(notices, webhooks, meters, stopped));
        Self { stop, task }
    }

    /// Ends it. Notices that wait or are in flight have a little time; then they are dropped.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(true);
        // A task that panicked has nothing left to do either.
        let _ = self.task.await;
    }
}

async fn notify(
    mut notices: mpsc::Receiver<Notice>,
    webhooks: Arc<CurrentWebhooks>,
    meters: WebhookMeters,
    mut stopped: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(MOST_UNDER_WAY));
    let mut under_way = JoinSet::new();
    let deliver_next = async |notices: &mut mpsc::Receiver<Notice>, under_way: &mut JoinSet<()>| {
        // First the permit: a notice from the queue must not be lost while it waits for one.
        let permit = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
        let Some(notice) = notices.recv().await else { return false };
        let Some(webhook) = webhooks.of(&notice.guard) else { return true };
        while under_way.try_join_next().is_some() {}
        let meters = meters.clone();
        under_way.spawn(async move {
            deliver(&notice, &webhook, &meters).await;
            drop(permit);
        });
        true
    };
    loop {
        tokio::select! {
            more = deliver_next(&mut notices, &mut under_way) => if !more { break },
            _ = stopped.changed() => break,
        }
    }
    notices.close();
    let rest = async {
        while deliver_next(&mut notices, &mut under_way).await {}
        while under_way.join_next().await.is_some() {}
    };
    let ended = tokio::time::timeout(MOST_END, rest).await;
    if ended.is_err() {
        let notices = under_way.len() + notices.len();
        tracing::warn!(component = "guard", notices, "notices were dropped, because the program ends");
    }
}

/// Sends one notice to one webhook, with retries.
async fn deliver(notice: &Notice, webhook: &Webhook, meters: &WebhookMeters) {
    let message = WebhookMessage::of(notice, webhook.body.as_ref());
    let clock = SystemClock::new();
    let (guard, place) = (&*notice.guard, webhook.place());
    let mut pause = FIRST_PAUSE;
    for number in 1..=webhook.tries {
        let error = match delivery::post(webhook, &message, clock.now()).await {
            Ok(()) => {
                meters.count(&notice.guard, |counts| &counts.delivered);
                tracing::info!(component = "guard", guard, webhook = place, tries = number, "notified");
                return;
            }
            Err(error) => error,
        };
        if number == webhook.tries {
            meters.count(&notice.guard, |counts| &counts.failed);
            tracing::error!(
                component = "guard",
                guard,
                webhook = place,
                tries = number,
                error,
                "a notice was dropped after the last try"
            );
            return;
        }
        tracing::warn!(
            component = "guard",
            guard,
            webhook = place,
            tries = number,
            error,
            "a webhook did not acknowledge a notice; trying again"
        );
        tokio::time::sleep(pause + jitter(pause)).await;
        pause = MOST_PAUSE.min(pause * 2);
    }
}

/// Up to a quarter of the back-off, so that notices that failed together are not retried together.
fn jitter(pause: Duration) -> Duration {
    let chance = getrandom::u64().unwrap_or_default() % 1_000;
    pause.mul_f64(chance as f64 / 4_000.0)
}
