//! Searches for an account that can be used now: not paused, with capacity, and reachable.

use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use super::Sender;
use super::attempt::Job;
use crate::accounts::Account;
use crate::client::{Connection, Stage};
use crate::limits::{Refusal, Taken};
use crate::queue::Text;

/// After one server could not be reached, a turn tries other servers for at most this long.
const MOST_SEARCHING: Span = Span::from_secs(300);

/// An account that can be used now. The relay is connected, and its limits are taken.
pub(super) struct Ready {
    pub(super) account: Arc<Account>,
    pub(super) connection: Connection,
    pub(super) taken: Taken,
    pub(super) text: Text,
}

/// The obstacles that keep every account from being used now.
#[derive(Default)]
pub(super) struct Obstacles {
    pub(super) refusals: Vec<(Arc<Account>, Refusal)>,
    /// The connections that failed.
    pub(super) failures: Vec<(Arc<Account>, String)>,
    pub(super) throttled: bool,
    /// The first account without a free connection.
    pub(super) busy: Option<Arc<Account>>,
    /// The time at which the first paused account is tried again, and the reason of its pause.
    pub(super) paused: Option<(Timestamp, String)>,
    /// The reason why the text cannot be read, if it cannot.
    pub(super) unreadable: Option<String>,
}

impl Sender {
    /// Finds the first account, by priority, that is not paused, has capacity, and can be reached.
    pub(super) async fn find(&self, job: &Job, accounts: &[Arc<Account>]) -> Result<Ready, Obstacles> {
        let mut obstacles = Obstacles::default();
        let started = self.now();
        for account in accounts {
            let now = self.now();
            if now.since(started) > MOST_SEARCHING {
                break;
            }
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
            let text = match self.text(job).await {
                Ok(text) => text,
                Err(reason) => {
                    self.parts.client.give_back(connection);
                    obstacles.unreadable = Some(reason);
                    return Err(obstacles);
                }
            };
            let most = connection.extensions().most_recipients.unwrap_or(u32::MAX).max(1);
            let load = job.load(account, most);
            // Taking the limits is the last step before the transaction, so that counting and delivery are
            // close together.
            match self.parts.limits.take(load, self.now()).await {
                Ok(taken) => {
                    self.lanes.lock().admitted(job.turn.item, self.now());
                    self.nudge();
                    return Ok(Ready { account: Arc::clone(account), connection, taken, text });
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
        // Nothing is taken yet, because connecting may take long.
        if let Err(refusal) = self.parts.limits.look(job.load(account, u32::MAX), self.now()).await {
            obstacles.refusals.push((Arc::clone(account), refusal));
            return None;
        }
        match self.parts.client.connect(&account.destination).await {
            Ok(connection) => Some(connection),
            Err(error) if error.stage == Stage::Busy => {
                obstacles.busy.get_or_insert_with(|| Arc::clone(account));
                None
            }
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
}

impl Obstacles {
    fn pause(&mut self, account: &Account, until: Timestamp, reason: &str) {
        if self.paused.as_ref().is_none_or(|(known, _)| until < *known) {
            self.paused = Some((until, format!("account {} is paused: {reason}", account.id)));
        }
    }
}
