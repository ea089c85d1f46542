//! Waiting fairly until attempts may pass.
//!
//! Whoever waits takes nothing. When its turn comes, everything it asks for is taken together, so that
//! somebody whom one limit holds up uses up no other. Those who wait for the same keys pass in the order
//! in which they came, by priority first; those who wait for different keys take turns at the limits
//! that they share.

mod answer;
mod ask;
mod desk;
mod driver;
mod ids;
mod lane;
mod news;
mod pace;
mod queues;
mod spot;
mod timetable;
mod unclaimed;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tollgate_core::{Attempt, Decision, Mistake, Span, Ticket};

pub use answer::{Bound, Paced, Permit, Refusal, Unpaced};
pub use ask::Ask;
use desk::{Arrived, Desk};
use waiting::Waiting;

use crate::engine::{Engine, Fault, Snapshot};
use crate::meter::PacerMeters;
use crate::pauses::Stopped;

/// Lets attempts wait until they may pass: first come, first served.
///
/// All clones are one pacer. It works in the tokio runtime of whoever waits first, whose timer must be
/// enabled, for as long as anybody waits.
#[derive(Clone)]
pub struct Pacer {
    desk: Arc<Desk>,
}

/// The bounds of a pacer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacerOptions {
    /// How many may wait in all.
    pub most_waiting: usize,
    /// How many may wait for the same keys.
    pub most_per_key: usize,
    /// How many decisions may be in flight at once, where the store takes its time.
    pub most_asking: usize,
}

/// What is to stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything that passes this policy.
    Policy(&'a str),
    /// Everything that is counted by this rule at this key.
    Key {
        /// The rule. One that there is not has nobody to stop.
        rule: &'a str,
        /// The key; that of a rule without fields is the rule's own name.
        key: &'a str,
    },
}

impl Default for PacerOptions {
    fn default() -> Self {
        Self { most_waiting: 10_000, most_per_key: 1_000, most_asking: 64 }
    }
}

impl Pacer {
    /// A pacer for what this engine decides.
    pub fn new(engine: Arc<Engine>, options: PacerOptions) -> Self {
        Self { desk: Arc::new(Desk::new(engine, options)) }
    }

    /// Waits until an attempt may pass, and takes everything it asks for then. Dropped, it gives its
    /// place back, and what was taken for it too.
    pub async fn acquire(&self, ask: Ask<'_>) -> Result<Permit, Unpaced> {
        let paced = self.acquire_with(ask, |engine, decision| engine.receipt(decision)).await;
        let permit = |paced: Paced<_>| Permit { waited: paced.waited, receipt: paced.seen };
        paced.map(permit).map_err(|unpaced| unpaced.map(drop))
    }

    /// As [`Pacer::acquire`], for callers who need to see the decision that lets the attempt pass, or
    /// that denies it: what they make of it, at the moment it is made, is a part of the answer. It is
    /// seen here if nobody waits, and else in another task.
    pub async fn acquire_with<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        see: impl FnOnce(&Engine, &Decision<'_>) -> T + Send + 'static,
    ) -> Result<Paced<T>, Unpaced<T>> {
        let engine = &self.desk.engine;
        if !engine.pin().policies.enabled {
            // Boxed, so that the futures of those who wait stay small.
            return Box::pin(self.pass_unlimited(&ask, see)).await;
        }
        match self.desk.arrive(&ask, see).map_err(Unpaced::Fault)? {
            Arrived::Answered(answer) => answer,
            Arrived::Seated(seated) => Waiting::new(&self.desk, seated).answer().await,
        }
    }

    /// Lets somebody pass while limits are switched off.
    async fn pass_unlimited<T>(
        &self,
        ask: &Ask<'_>,
        see: impl FnOnce(&Engine, &Decision<'_>) -> T,
    ) -> Result<Paced<T>, Unpaced<T>> {
        let engine = &self.desk.engine;
        let pinned = engine.pin();
        let decision = engine.decide(&pinned, &ask.attempt).await.map_err(Unpaced::Fault)?;
        Ok(Paced { waited: Span::ZERO, seen: see(engine, &decision) })
    }

    /// Whether an attempt would have to queue: somebody waits for the same keys or for one of them, or
    /// one of them stands still. Whoever decides without the pacer asks this first, so as not to push in.
    pub fn is_waiting(&self, pinned: &Snapshot, attempt: &Attempt<'_>) -> bool {
        let now = Instant::now();
        if self.desk.is_quiet(now) {
            return false;
        }
        self.desk.route(pinned, attempt).is_ok_and(|route| self.desk.must_queue(&route, now))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.desk.waiting.load(Ordering::Acquire)
    }

    /// What is counted about those who wait.
    pub fn meters(&self) -> &PacerMeters {
        &self.desk.meters
    }

    /// Lets nothing of a scope pass for so long: here from now on, and within a second on every node
    /// that shares the store. A pause that lasts longer already is not cut short. An error means that
    /// the other nodes were not told.
    pub async fn pause(&self, scope: Scope<'_>, span: Span) -> Result<(), Fault> {
        let paused = self.desk.engine.pause(scope.into(), span);
        paused.await.map_err(Fault::Store)
    }

    /// Ends every pause of a scope, here at once and within a second on every other node. An error means
    /// that it may go on.
    pub async fn resume(&self, scope: Scope<'_>) -> Result<(), Fault> {
        let resumed = self.desk.engine.resume(&scope.into()).await;
        let mut board = self.desk.board.lock();
        let now = Instant::now();
        self.desk.follow(&mut board, now);
        self.desk.rouse(&board, now);
        resumed.map_err(Fault::Store)
    }

    /// As [`Pacer::pause`], for what attempts with these fields have in common: their keys under the
    /// rules that go by some of the fields, or the whole policy if there are no fields. Answers how many
    /// keys those are.
    pub async fn pause_like(
        &self,
        policy: &str,
        fields: &[(&str, &str)],
        span: Span,
    ) -> Result<usize, Fault> {
        let scopes = self.scopes_of(policy, fields).map_err(Fault::Mistake)?;
        let keys = scopes.iter().filter(|scope| matches!(scope, Stopped::Key { .. })).count();
        for scope in scopes {
            self.desk.engine.pause(scope, span).await.map_err(Fault::Store)?;
        }
        Ok(keys)
    }

    fn scopes_of(&self, policy: &str, fields: &[(&str, &str)]) -> Result<Vec<Stopped>, Mistake> {
        let pinned = self.desk.engine.pin();
        let policy = pinned.policies.find(policy)?;
        if fields.is_empty() {
            return Ok(vec![Stopped::Policy(policy.name.to_string())]);
        }
        let attempt = Attempt { policy: &policy.name, fields, cost: 0, id: None };
        let charges = policy.charges(&attempt, Ticket::default())?;
        let keyed = charges
            .iter()
            .filter(|charge| policy.rule(charge.plan.rule()).is_some_and(|rule| !rule.by.is_empty()));
        let scopes: Vec<Stopped> = keyed
            .map(|charge| Stopped::Key {
                rule: charge.plan.rule().to_string(),
                key: charges.key(charge).to_owned(),
            })
            .collect();
        if scopes.is_empty() {
            let fields = policy.fields().map(ToOwned::to_owned).collect();
            return Err(Mistake::NoRuleApplies { policy: policy.name.to_string(), fields });
        }
        Ok(scopes)
    }
}

impl From<Scope<'_>> for Stopped {
    fn from(scope: Scope<'_>) -> Self {
        match scope {
            Scope::Policy(policy) => Self::Policy(policy.to_owned()),
            Scope::Key { rule, key } => Self::Key { rule: rule.to_owned(), key: key.to_owned() },
        }
    }
}
