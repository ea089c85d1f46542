//! Records the result of an item: in the queue, in the log, and in the metrics.

use std::sync::Arc;
use std::time::Duration;

use super::Sender;
use super::attempt::Job;
use super::log::log;
use super::outcome::{self, named};
use super::search::Obstacles;
use crate::accounts::Account;
use crate::client::AccountRefusal;
use crate::lanes::{Cause, End, Sleep};
use crate::limits::{Refusal, RefusedBy};
use crate::queue::{AttemptResult, Event, EventKind, RecipientState, Waiting};

/// The pause before a result is written again if the disk did not accept it.
const AGAIN: Duration = Duration::from_secs(1);

impl Sender {
    /// Puts the lane to sleep until its limits allow the item. This is not an attempt.
    pub(super) async fn defer(&self, job: &Job, account: &Account, refusal: &Refusal) -> End {
        let Refusal { until, free_at, reason, by } = refusal.clone();
        let now = self.now();
        let cause = if by == RefusedBy::Fault { Cause::Outage } else { Cause::Limit };
        if cause == Cause::Limit {
            self.parts.meters.limited_turn(&account.tenant, &account.id);
        }
        // It is recorded once for each time to which a limit defers it, and once for each outage.
        let recorded = match (job.turn.kept, cause) {
            (Some((Cause::Limit, known)), Cause::Limit) => known == until || free_at < until && known > now,
            (Some((Cause::Outage, _)), Cause::Outage) => true,
            _ => false,
        };
        if !recorded {
            let event = Event {
                domain: job.item.domain.clone(),
                account: named(&account.id),
                text: reason.clone(),
                until: Some(until),
                recipients: job.turn.recipients,
                ..Event::new(now, EventKind::Deferred)
            };
            log(job, &event, self.parts.recipient_log);
            // The timeline is for people: the lane sleeps whether or not it can be written.
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
        if let Some(event) = result.events.iter().rev().find(|event| event.kind == EventKind::Failed) {
            self.lanes.lock().note_error(&job.turn.lane, &event.text);
        }
        for event in &result.events {
            log(job, event, self.parts.recipient_log);
        }
        self.count(job, &result);
        end
    }

    /// Notes that an account refused, and lets it rest if its server says so of all mail.
    pub(super) async fn refused(
        &self,
        job: &Job,
        recipients: &[u32],
        account: &Arc<Account>,
        refusal: AccountRefusal,
        obstacles: &mut Obstacles,
    ) {
        let AccountRefusal { rest, reason } = refusal;
        let Some(rest) = rest else {
            // It is told of when another account is tried, or with the moment of the next attempt.
            return obstacles.failures.push((Arc::clone(account), reason));
        };
        let pause = self.parts.accounts.rest(account, rest, &reason.text, self.now());
        obstacles.pause(account, &pause);
        let about = self.through(job, recipients, account);
        self.tell_refusal(job, outcome::refused(&reason.text, Some(pause.until), &about)).await;
    }

    /// Tells of the accounts that did not take this message, because another one is tried now.
    pub(super) async fn tell_of_refusals(&self, job: &Job, obstacles: &mut Obstacles) {
        let refused: Vec<_> = obstacles.failures.extract_if(.., |(_, reason)| reason.remote).collect();
        for (account, reason) in refused {
            let about = self.through(job, &job.waiting, &account);
            self.tell_refusal(job, outcome::refused(&reason.text, None, &about)).await;
        }
    }

    async fn tell_refusal(&self, job: &Job, event: Event) {
        self.lanes.lock().note_error(&job.turn.lane, &event.text);
        log(job, &event, self.parts.recipient_log);
        // The timeline is for people: the account rests whether or not it can be written.
        let _ = self.parts.queue.tell(job.turn.item.message, event).await;
    }

    /// Notes a delivery report that the queue has made, once it is durable.
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
        let account = result.events.iter().find_map(|event| event.account.as_deref()).unwrap_or_default();
        let settled = |wanted: fn(&RecipientState) -> bool| {
            result.settled.iter().filter(|(_, state)| wanted(state)).count() as u64
        };
        let sent = settled(|state| matches!(state, RecipientState::Sent(_)));
        let bounced = settled(|state| matches!(state, RecipientState::Failed(_)));
        if sent > 0 {
            meters.sent(tenant, account, sent);
            meters.delivered_after(result.at.since(job.kept.envelope.accepted));
        }
        if bounced > 0 {
            meters.bounced(tenant, account, bounced);
            if job.kept.envelope.sender.is_none() {
                warn_of_lost_report(job, result);
                meters.report_failed();
            }
        }
        if result.counts && result.spent.as_micros() > 0 {
            meters.retried();
        }
    }
}

/// A report that is given up has no sender to tell: an operator is the last who can learn of it.
fn warn_of_lost_report(job: &Job, result: &AttemptResult) {
    let (id, tenant) = (format!("{:032x}", job.turn.item.message.0), &*job.turn.lane.tenant);
    let reason = result.settled.iter().find_map(|(_, state)| match state {
        RecipientState::Failed(last) => Some(&*last.reply),
        _ => None,
    });
    tracing::warn!(
        component = "relay",
        id,
        tenant,
        reason,
        "a delivery report was given up: its receiver learns nothing"
    );
}
