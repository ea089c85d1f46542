//! Searches for an account that can be used now: not paused, with capacity, and reachable.

use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use super::Sender;
use super::attempt::Job;
use crate::accounts::{Account, Passage, Pause, Trial};
use crate::client::{ConnectError, Connection, Reason, Stage};
use crate::limits::{Refusal, Taken};
use crate::queue::Text;
use crate::replies::Verdict;

/// After one server could not be reached, a turn tries other servers for at most this long.
const MOST_SEARCHING: Span = Span::from_secs(300);

/// An account that can be used now. The relay is connected, and its limits are taken.
pub(super) struct Ready {
    pub(super) account: Arc<Account>,
    pub(super) connection: Connection,
    pub(super) taken: Taken,
    pub(super) text: Text,
    /// Held while an account is tried whose rest is over.
    pub(super) trial: Option<Trial>,
}

/// The obstacles that keep every account from being used now.
#[derive(Default)]
pub(super) struct Obstacles {
    pub(super) refusals: Vec<(Arc<Account>, Refusal)>,
    /// Accounts that could not be reached, or did not take this message.
    pub(super) failures: Vec<(Arc<Account>, Reason)>,
    /// Something else tries an account whose rest is over; why it rested.
    pub(super) on_trial: Option<String>,
    /// The first account that has no connection left.
    pub(super) busy: Option<Arc<Account>>,
    /// The time at which the first paused account is tried again, and the reason of its pause.
    pub(super) paused: Option<(Timestamp, String)>,
    /// The reason why the text cannot be read, if it cannot.
    pub(super) unreadable: Option<String>,
}

impl Sender {
    /// The first account, by priority, that does not rest, has capacity, and can be reached. What is in the way of the
    /// others is added to the obstacles.
    pub(super) async fn find(
        &self,
        job: &Job,
        accounts: &[Arc<Account>],
        obstacles: &mut Obstacles,
    ) -> Option<Ready> {
        let started = self.now();
        for account in accounts {
            let now = self.now();
            if now.since(started) > MOST_SEARCHING || obstacles.unreadable.is_some() {
                break;
            }
            let trial = match self.parts.accounts.enter(account, now) {
                Passage::Open => None,
                Passage::Trial(trial) => Some(trial),
                Passage::Resting(pause) => {
                    obstacles.pause(account, &pause);
                    continue;
                }
                Passage::OnTrial(reason) => {
                    obstacles.on_trial = Some(format!("{} is tried again: {reason}", called(account)));
                    continue;
                }
            };
            if let Some(ready) = self.prepare(job, account, trial, obstacles).await {
                return Some(ready);
            }
        }
        None
    }

    /// A connection to an account, with its limits taken.
    async fn prepare(
        &self,
        job: &Job,
        account: &Arc<Account>,
        trial: Option<Trial>,
        obstacles: &mut Obstacles,
    ) -> Option<Ready> {
        let idle = self.parts.client.idle(&account.destination);
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect(job, account, obstacles).await?,
        };
        let text = match self.text(job, connection.extensions()).await {
            Ok(text) => text,
            Err(reason) => {
                self.parts.client.give_back(connection);
                obstacles.unreadable = Some(reason);
                return None;
            }
        };
        let most = connection.extensions().most_recipients.unwrap_or(u32::MAX).max(1);
        let load = job.load(account, most);
        // The last thing before the transaction, so that counts and arrivals lie close together.
        let taken = match self.parts.limits.take(load, self.now()).await {
            Ok(taken) => taken,
            Err(refusal) => {
                self.parts.client.give_back(connection);
                obstacles.refusals.push((Arc::clone(account), refusal));
                return None;
            }
        };
        // Its server may have refused another message meanwhile.
        if trial.is_none()
            && let Some(pause) = self.parts.accounts.paused(account, self.now())
        {
            taken.refund().await;
            self.parts.client.give_back(connection);
            obstacles.pause(account, &pause);
            return None;
        }
        self.lanes.lock().admitted(job.turn.item, self.now());
        self.nudge();
        Some(Ready { account: Arc::clone(account), connection, taken, text, trial })
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
        let error = match self.parts.client.connect(&account.destination).await {
            Ok(connection) => return Some(connection),
            Err(error) => error,
        };
        if error.stage == Stage::Busy {
            obstacles.busy.get_or_insert_with(|| Arc::clone(account));
        } else {
            self.not_connected(account, &error, obstacles);
        }
        None
    }

    /// Notes that a server did not let the relay in, and lets it rest if it says so.
    pub(super) fn not_connected(
        &self,
        account: &Arc<Account>,
        error: &ConnectError,
        obstacles: &mut Obstacles,
    ) {
        match error.verdict {
            Some(Verdict::Rest(rest)) => {
                let pause = self.parts.accounts.rest(account, rest, &error.to_string(), self.now());
                obstacles.pause(account, &pause);
            }
            _ => {
                let reason = Reason::own("4.4.1", error.to_string());
                obstacles.failures.push((Arc::clone(account), reason));
            }
        }
    }
}

impl Obstacles {
    /// Notes that an account rests. The first one to be tried again counts.
    pub(super) fn pause(&mut self, account: &Account, pause: &Pause) {
        if self.paused.as_ref().is_none_or(|(known, _)| pause.until < *known) {
            self.paused = Some((pause.until, format!("{} is paused: {}", called(account), pause.reason)));
        }
    }
}

fn called(account: &Account) -> String {
    match account.id.is_empty() {
        true => format!("host {}", account.destination.name()),
        false => format!("account {}", account.id),
    }
}
