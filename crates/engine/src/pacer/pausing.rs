//! Standing still for a while because somebody upstream asked for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Attempt, Mistake, Policy, Rule, Span, StoreError, Ticket};

use super::Pacer;
use crate::pauses::Stopped;

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

/// Something that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The rule and its key, as people may see it; `None` for the policy as a whole.
    pub place: Option<(String, String)>,
    /// How much longer it does.
    pub left: Span,
}

/// Why nothing stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseFault {
    /// The caller's mistake. Nothing was done.
    Mistake(Mistake),
    /// As many pauses as there may be last already. Nothing was done.
    TooMany {
        /// How many.
        most: usize,
    },
    /// The store could not be told: it stands still on this node alone.
    Store(StoreError),
}

impl Pacer {
    /// Lets nothing of a scope pass for so long: here from now on, and within a second on every node
    /// that shares the store. A pause that lasts longer already is not cut short.
    pub async fn pause(&self, scope: Scope<'_>, span: Span) -> Result<(), PauseFault> {
        self.scheduler.engine.pause(scope.into(), span).await
    }

    /// Ends every pause of a scope, here at once and within a second on every other node. An error means
    /// that it may go on.
    pub async fn resume(&self, scope: Scope<'_>) -> Result<(), StoreError> {
        self.resume_all(&[scope.into()]).await
    }

    /// As [`Pacer::pause`], for what attempts with these fields have in common: their keys under the
    /// rules that go by some of the fields, or the whole policy if there are no fields. Answers how many
    /// keys those are.
    pub async fn pause_like(
        &self,
        policy: &str,
        fields: &[(&str, &str)],
        span: Span,
    ) -> Result<usize, PauseFault> {
        let scopes = self.scopes_of(policy, fields).map_err(PauseFault::Mistake)?;
        let keys = scopes.iter().filter(|scope| matches!(scope, Stopped::Key { .. })).count();
        for scope in scopes {
            self.scheduler.engine.pause(scope, span).await?;
        }
        Ok(keys)
    }

    /// What stands still of a policy: the whole of it, and keys of its rules.
    pub fn paused(&self, policy: &str) -> Result<Vec<Paused>, Mistake> {
        let engine = &self.scheduler.engine;
        let pinned = engine.pin();
        let policy = pinned.policies.find(policy)?;
        let now = Instant::now();
        let mut found: BTreeMap<Option<(String, String)>, Span> = BTreeMap::new();
        engine.pauses.each(|pause| {
            if pause.until > now && concerns(&pause.scope, policy) {
                let place = match &pause.scope {
                    Stopped::Policy(_) => None,
                    Stopped::Key { rule, key } => {
                        let rule = rule_of(policy, rule).expect("the scope concerns the policy");
                        Some((rule.name.to_string(), engine.shown_key(rule, key).into_owned()))
                    }
                };
                let left: Span = (pause.until - now).into();
                let longest = found.entry(place).or_insert(left);
                *longest = left.max(*longest);
            }
        });
        Ok(found.into_iter().map(|(place, left)| Paused { place, left }).collect())
    }

    /// For how long attempts with these fields cannot pass, because their policy or one of their keys stands
    /// still.
    pub fn stands_still_for(&self, policy: &str, fields: &[(&str, &str)]) -> Span {
        let (pauses, now) = (&self.scheduler.engine.pauses, Instant::now());
        if pauses.are_over(now) {
            return Span::ZERO;
        }
        let mut scopes = self.scopes_of(policy, fields).unwrap_or_default();
        scopes.push(Stopped::Policy(policy.to_owned()));
        let mut longest = Duration::ZERO;
        pauses.each(|pause| {
            if scopes.contains(&pause.scope) {
                longest = longest.max(pause.until.saturating_duration_since(now));
            }
        });
        longest.into()
    }

    /// Ends every pause that [`Pacer::paused`] tells of.
    pub async fn resume_policy(&self, policy: &str) -> Result<usize, PauseFault> {
        let mut scopes: Vec<Stopped> = Vec::new();
        {
            let pinned = self.scheduler.engine.pin();
            let policy = pinned.policies.find(policy).map_err(PauseFault::Mistake)?;
            let now = Instant::now();
            self.scheduler.engine.pauses.each(|pause| {
                if pause.until > now && concerns(&pause.scope, policy) && !scopes.contains(&pause.scope) {
                    scopes.push(pause.scope.clone());
                }
            });
        }
        self.resume_all(&scopes).await.map_err(PauseFault::Store)?;
        Ok(scopes.len())
    }

    async fn resume_all(&self, scopes: &[Stopped]) -> Result<(), StoreError> {
        let resumed = self.scheduler.engine.resume(scopes).await;
        let mut board = self.scheduler.board.lock();
        let now = Instant::now();
        self.scheduler.follow(&mut board, now);
        self.scheduler.rouse(&board, now);
        resumed
    }

    fn scopes_of(&self, policy: &str, fields: &[(&str, &str)]) -> Result<Vec<Stopped>, Mistake> {
        let pinned = self.scheduler.engine.pin();
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

/// Whether attempts of a policy stand still with this.
fn concerns(scope: &Stopped, policy: &Policy) -> bool {
    match scope {
        Stopped::Policy(name) => **name == *policy.name,
        Stopped::Key { rule, .. } => rule_of(policy, rule).is_some(),
    }
}

fn rule_of<'p>(policy: &'p Policy, name: &str) -> Option<&'p Arc<Rule>> {
    policy.rules.iter().find(|rule| *rule.name == *name)
}

impl From<Scope<'_>> for Stopped {
    fn from(scope: Scope<'_>) -> Self {
        match scope {
            Scope::Policy(policy) => Self::Policy(policy.to_owned()),
            Scope::Key { rule, key } => Self::Key { rule: rule.to_owned(), key: key.to_owned() },
        }
    }
}

impl fmt::Display for PauseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistake(mistake) => mistake.fmt(f),
            Self::TooMany { most } => write!(f, "{most} pauses last already, and no more can be set"),
            Self::Store(error) => write!(f, "the pause applies on this node only: {error}"),
        }
    }
}

impl std::error::Error for PauseFault {}
