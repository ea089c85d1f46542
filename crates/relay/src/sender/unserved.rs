//! Mail without a usable account. It waits, and the wait uses up its lifetime: unlike a limit, a missing
//! account or a wrong password does not end by itself. So its sender gets a report in the end.

use tollgate_core::{Span, Timestamp};

use super::Sender;
use super::attempt::Job;
use super::outcome;
use crate::lanes::{Cause, End, Sleep};

/// An item waits at most this long for an account before it is tried again. A change of the accounts ends the
/// wait at once.
const NO_ACCOUNT: Span = Span::from_secs(3_600);
/// Waiting time is recorded in steps of this length. A restart forgets less than one step.
const RECORDED_TOGETHER: Span = Span::from_secs(10 * 60);
/// The longest time between two looks for an account, with some patience. If more has passed, the clock was set forward, and
/// that uses up no lifetime.
const MOST_BETWEEN: Span = Span::from_secs(5 * 3_600);
/// When an account is looked for again at the latest, however long it sleeps.
const LOOK_AGAIN: Span = Span::from_secs(4 * 3_600);

impl Sender {
    /// Waits until a paused account is tried again, if there is one, or until an account is added.
    pub(super) async fn wait_for_account(&self, job: &Job, paused: Option<(Timestamp, String)>) -> End {
        let now = self.now();
        let (until, reason) = paused.unwrap_or_else(|| (now + NO_ACCOUNT, self.lack(job)));
        let mut since = match job.turn.kept {
            Some((Cause::Paused, since)) => since.min(now),
            _ => now,
        };
        let waited = now.since(since).min(MOST_BETWEEN);
        let lifetime = self.parts.retry.lifetime;
        let left = left_of(lifetime, [job.item.spent, waited]);
        if waited >= RECORDED_TOGETHER || left == Span::ZERO {
            let about = self.context(job, &job.waiting);
            let end = self.record(job, outcome::of_wait(&reason, waited, until, &about)).await;
            if left == Span::ZERO || end == End::Settled {
                return end;
            }
            since = now;
        }
        // It is given up at the end of its lifetime, and not when an account is looked for next.
        let until = until.min(now + left).min(now + LOOK_AGAIN);
        End::Unserved { sleep: Sleep::new(until, Cause::Paused, reason), since }
    }

    /// Why there is no account, which it counts and logs. The relay accepts no such message, so somebody removed the
    /// account afterwards.
    fn lack(&self, job: &Job) -> String {
        let lane = &job.turn.lane;
        let (tenant, named) = (&*lane.tenant, lane.account.as_deref());
        self.parts.meters.unserved();
        if let Some(held_back) = self.lacks.admit(self.now()) {
            let (account, recipient_domain) = (named.unwrap_or(""), &*lane.domain);
            tracing::warn!(
                component = "relay",
                tenant,
                account,
                recipient_domain,
                held_back,
                "a message waits for an account that does not exist"
            );
        }
        match named {
            Some(named) => format!("the tenant has no account {named}"),
            None => "the tenant has no account for this message".to_owned(),
        }
    }
}

fn left_of(lifetime: Span, spent: [Span; 2]) -> Span {
    let spent = spent.iter().fold(0_u64, |sum, span| sum.saturating_add(span.as_micros()));
    Span::from_micros(lifetime.as_micros().saturating_sub(spent))
}
