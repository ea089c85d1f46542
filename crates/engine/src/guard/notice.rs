//! Telling of a lock, once: the log, the journal, the meters, and whoever takes notices.
//!
//! Nobody waits for any of it. Notices wait in a queue of fixed length; one that finds it full is
//! dropped and counted, and the log has it all the same.

use std::sync::Arc;

use tokio::sync::mpsc;
use tollgate_core::{Origin, Span, Timestamp, Verdict, When};

use super::Opened;
use super::mark::Mark;
use crate::engine::{Engine, Snapshot};
use crate::journal::Entry;
use crate::meter::GuardMeters;

/// A ladder that was climbed to a step that locks or notifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The guard.
    pub guard: Arc<str>,
    /// The rule whose ladder it is.
    pub rule: Arc<str>,
    /// The key, in clear. Only for whoever is to be notified: people see it as
    /// [`Engine::shown_key`] shows it.
    pub key: String,
    /// The fields that make the key, with their values.
    pub fields: Vec<(Arc<str>, String)>,
    /// How many failures there were.
    pub failures: u64,
    /// When the last of them was.
    pub at: Timestamp,
    /// When the lock ends, if it is one.
    pub locked_until: Option<Timestamp>,
    /// Whether somebody is to be notified.
    pub notify: bool,
}

impl Notice {
    /// What a failed attempt has to be told of; `None` if its rule is gone.
    pub(super) fn of(pinned: &Snapshot, opened: &Opened, mark: &Mark) -> Option<Self> {
        let (rule, key) = opened.receipt.taken.get(mark.charge)?;
        let rule = pinned.policies.rule(rule)?;
        let guard = pinned.policies.guard(&opened.guard);
        let at = opened.receipt.at;
        Some(Self {
            guard: guard.map_or_else(|| opened.guard.as_str().into(), |guard| Arc::clone(&guard.name)),
            rule: Arc::clone(&rule.name),
            key: key.clone(),
            fields: rule.values_of(key)?,
            failures: mark.failures,
            at,
            locked_until: (mark.lock > Span::ZERO).then(|| at + mark.lock),
            notify: mark.notify,
        })
    }
}

impl Engine {
    /// Takes all notices from now on, up to so many that wait. There is one taker: the last.
    pub fn take_notices(&self, most: usize) -> mpsc::Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(most);
        *self.watch.taker.lock() = Some(sender);
        receiver
    }

    /// What is counted about guards.
    pub fn guard_meters(&self) -> &GuardMeters {
        &self.watch.meters
    }

    /// Tells of a lock, or of what else somebody is to be notified of.
    pub(super) fn tell_notice(&self, notice: &Notice, pinned: &Snapshot) {
        let Notice { guard, rule, failures, .. } = notice;
        let Some(own) = pinned.policies.rule(rule) else { return };
        let key = self.shown_key(own, &notice.key);
        let lasts = notice.locked_until.map(|until| until.since(notice.at));
        match lasts {
            Some(lasts) => {
                tracing::warn!(component = "guard", %guard, %rule, key = &*key, failures, %lasts, "locked");
                self.watch.meters.count(guard, |counts| &counts.lockouts);
            }
            None => tracing::warn!(component = "guard", %guard, %rule, key = &*key, failures, "attacked"),
        }
        let policy = pinned.policies.guard(guard).map_or(guard, |guard| &guard.policy);
        self.journal.write(Entry {
            at: notice.at,
            policy: policy.to_string(),
            verdict: Verdict::Deny,
            origin: Origin::Store,
            rule: Some(rule.to_string()),
            key: Some(key.into_owned()),
            cost: 0,
            retry: lasts.map_or(When::Now, When::After),
            code: own.code.clone(),
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
