//! Records the result of an item: in the queue, in the log, and in the metrics.

use std::time::Duration;

use super::Sender;
use super::attempt::Job;
use super::outcome::named;
use crate::accounts::Account;
use crate::lanes::{Cause, End, Sleep};
use crate::limits::{Refusal, RefusedBy};
use crate::message::MessageId;
use crate::queue::{AttemptResult, Event, EventKind, RecipientState, Waiting};

/// The pause before a result is written again if the disk did not accept it.
const AGAIN: Duration = Duration::from_secs(1);

impl Sender {
    /// Puts the lane to sleep until its limits allow the item. This is not an attempt.
    pub(super) async fn defer(&self, job: &Job, account: &Account, refusal: &Refusal) -> End {
        let Refusal { until, free_at, reason, by } = refusal.clone();
        let now = self.now();
        let cause = if by == RefusedBy::Fault { Cause::Outage } else { Cause::Limit };
        // It is recorded once for each time to which a limit defers it, and once for each outage.
        let recorded = match (job.turn.kept, cause) {
            (Some((Cause::Limit, known)), Cause::Limit) => known == until || free_at < until && known > now,
            (Some((Cause::Outage, _)), Cause::Outage) => true,
            _ => false,
        };
        if !recorded {
            self.parts.meters.rate_limited(&account.tenant, &account.id);
            let event = Event {
                domain: job.item.domain.clone(),
                account: named(&account.id),
                text: reason.clone(),
                until: Some(until),
                recipients: job.turn.recipients,
                ..Event::new(now, EventKind::Deferred)
            };
            log(job, &event);
            // The timeline is only for people: the lane sleeps even if the event cannot be written.
            let _ = self.parts.queue.tell(job.turn.item.message, event).await;
        }
        let sleep = Sleep::new(until, cause, reason.clone());
        if cause == Cause::Outage {
            if let Some(held_back) = self.outages.admit(now) {
                tracing::warn!(
                    component = "relay",
                    reason,
                    held_back,
                    "limits cannot be checked: mail waits"
                );
            }
            return End::Blocked(sleep);
        }
        let shared = Some(refusal.reason.as_str().into());
        End::Blocked(Sleep { free_at, shared, account: Some(account.id.as_str().into()), ..sleep })
    }

    /// Makes a result durable, however long that takes: until then, nothing else may happen to the item.
    pub(super) async fn record(&self, job: &Job, result: AttemptResult) -> End {
        let end = loop {
            match self.parts.queue.finish_attempt(job.turn.item, result.clone()).await {
                Ok(None) => break End::Settled,
                Ok(Some(waiting)) => {
                    break End::Again { due: waiting.due, recipients: waiting.recipients };
                }
                Err(error) => {
                    tracing::error!(component = "relay", %error, "the result of a delivery cannot be saved yet; trying again every second");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        if result.event.kind == EventKind::Failed {
            self.lanes.lock().note_error(&job.turn.lane, &result.event.text);
        }
        log(job, &result.event);
        self.count(job, &result);
        end
    }

    /// Logs and counts a delivery report, once it is durable.
    pub(super) fn note_report(&self, waiting: &Waiting) {
        if let Some(about) = &waiting.reports_on {
            self.parts.meters.reported();
            let (id, report) = (format!("{:032x}", about.0), format!("{:032x}", waiting.key.message.0));
            tracing::info!(
                component = "relay",
                id,
                tenant = waiting.tenant,
                report,
                "delivery report queued"
            );
        }
    }

    fn count(&self, job: &Job, result: &AttemptResult) {
        let (meters, tenant) = (&self.parts.meters, &job.turn.lane.tenant);
        let account = result.event.account.as_deref().unwrap_or_default();
        let settled = |wanted: fn(&RecipientState) -> bool| {
            result.settled.iter().filter(|(_, state)| wanted(state)).count() as u64
        };
        let sent = settled(|state| matches!(state, RecipientState::Sent(_)));
        let bounced = settled(|state| matches!(state, RecipientState::Failed(_)));
        if sent > 0 {
            meters.sent(tenant, account, sent);
            meters.delivered_after(result.event.at.since(job.kept.envelope.accepted));
        }
        if bounced > 0 {
            meters.bounced(tenant, account, bounced);
        }
        if result.counts && result.spent.as_micros() > 0 {
            meters.retried();
        }
    }
}

/// Writes one log line for an event.
fn log(job: &Job, event: &Event) {
    let text = match event.kind {
        EventKind::Accepted => "message accepted",
        EventKind::Deferred => "message deferred by a limit",
        EventKind::Failed => "delivery failed for now",
        EventKind::Unknown => "delivery ended without a known result",
        EventKind::Sent => "message sent",
        EventKind::Bounced => "message bounced",
        EventKind::Reported => "delivery report queued",
        EventKind::Retried => "message retried by an operator",
        EventKind::Cancelled => "message cancelled by an operator",
    };
    tracing::info!(
        component = "relay",
        id = format!("{:032x}", job.turn.item.message.0),
        tenant = &*job.turn.lane.tenant,
        domain = event.domain,
        account = event.account,
        remote = event.remote,
        recipients = event.recipients,
        reason = event.text,
        until = event.until.map(|until| until.as_micros() / 1_000_000),
        "{text}"
    );
}

/// Writes one log line for an operator's action on a message.
pub(super) fn log_operator(message: MessageId, text: &str) {
    tracing::info!(component = "relay", id = format!("{:032x}", message.0), "{text}");
}
