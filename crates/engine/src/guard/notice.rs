//! Reports a lock once: to the log, the journal, the metrics, and the notification receiver.
//!
//! No call waits for this. The queue of notices has a fixed length. If it is full, a notice is dropped and
//! counted, but still logged.

use std::sync::Arc;

use tokio::sync::mpsc;
use tollgate_core::{Climb, Line, Origin, Timestamp, Verdict, When};

use super::Guards;
use super::mark::tells;
use crate::journal::Entry;
use crate::live_config::Snapshot;
use crate::meter::GuardMeters;

/// A report that a ladder has reached a step that locks or notifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The guard.
    pub guard: Arc<str>,
    /// The rule whose ladder it is.
    pub rule: Arc<str>,
    /// The key, in clear text. Only for the notification itself: operators see the form of
    /// [`Observer::shown_key`](crate::Observer::shown_key).
    pub key: String,
    /// The fields that form the key, with their values.
    pub fields: Vec<(Arc<str>, String)>,
    /// The number of failures.
    pub failures: u64,
    /// The time of the last failure.
    pub at: Timestamp,
    /// When the lock ends, if the step locks.
    pub locked_until: Option<Timestamp>,
    /// Whether the step asks for a notification.
    pub notify: bool,
}

impl Notice {
    /// The notice for the step that a ladder has reached; `None` if that neither locks nor notifies.
    pub(super) fn of(guard: &Arc<str>, line: &Line<'_>, climb: &Climb<'_>) -> Option<Self> {
        let step = climb.reached().filter(|step| tells(line, step))?;
        Some(Self {
            guard: Arc::clone(guard),
            rule: Arc::clone(&line.rule.name),
            key: line.key.to_owned(),
            fields: line.rule.values_of(line.key)?,
            failures: climb.failures(),
            at: climb.last_at(),
            locked_until: climb.locked_until().filter(|_| !line.rule.observes()),
            notify: step.notify,
        })
    }
}

impl Guards {
    /// Receives all notices from now on, with a queue of this length. A later call replaces the receiver.
    pub fn take_notices(&self, most: usize) -> mpsc::Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(most);
        *self.watch.taker.lock() = Some(sender);
        receiver
    }

    /// The metrics of guards.
    pub fn meters(&self) -> &GuardMeters {
        &self.watch.meters
    }

    /// Writes a notice to the log and the journal, and queues its notification if the step asks for one.
    pub(super) fn tell_notice(&self, notice: &Notice, pinned: &Snapshot) {
        let Notice { guard, rule, failures, .. } = notice;
        let Some(own) = pinned.policies.rule(rule) else { return };
        let key = self.observer.shown_key(own, &notice.key);
        let lasts = notice.locked_until.map(|until| until.since(notice.at));
        match lasts {
            Some(lasts) => {
                tracing::warn!(component = "guard", %guard, %rule, key = &*key, failures, %lasts, "locked");
                self.watch.meters.count(guard, |counts| &counts.lockouts);
            }
            None => tracing::warn!(component = "guard", %guard, %rule, key = &*key, failures, "attacked"),
        }
        let policy = pinned.policies.guard(guard).map_or(guard, |guard| &guard.policy);
        self.observer.journal.write(Entry {
            at: notice.at,
            policy: policy.to_string(),
            verdict: Verdict::Deny,
            origin: Origin::Store,
            rule: Some(rule.to_string()),
            keys: vec![(Arc::clone(rule), key.to_string())],
            key: Some(key.into_owned()),
            correlation: None,
            listing: None,
            cost: 0,
            retry: lasts.map_or(When::Now, When::After),
            code: own.code.clone(),
            observed: Vec::new(),
            token: None,
            banned: None,
            locked: Some(lasts.unwrap_or_default()),
        });
        if notice.notify
            && let Some(taker) = &*self.watch.taker.lock()
            && taker.try_send(notice.clone()).is_err()
        {
            self.watch.meters.missed.inc();
        }
    }
}
