//! Pauses: attempts wait for a while because an upstream asked for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Attempt, Mistake, Policy, Rule, Span, StoreError, Ticket};

use super::Pacer;
use crate::pauses::Stopped;

/// The scope of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All attempts of this policy.
    Policy(&'a str),
    /// All attempts that this rule counts at this key.
    Key {
        /// The rule. A rule that does not exist pauses nothing.
        rule: &'a str,
        /// The key; that of a rule without fields is the rule's own name.
        key: &'a str,
    },
}

/// A pause in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The rule and its key, as operators may see it; `None` for the policy as a whole.
    pub place: Option<(String, String)>,
    /// The time until the pause ends.
    pub left: Span,
}

/// Why a pause was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseFault {
    /// The caller's mistake. Nothing was changed.
    Mistake(Mistake),
    /// The maximum number of pauses is in effect already. Nothing was changed.
    TooMany {
        /// The maximum.
        most: usize,
    },
    /// The store could not be written: the pause holds on this node alone.
    Store(StoreError),
}

impl Pacer {
    /// Pauses a scope for a span: on this node from now on, and within a second on every node that shares the
    /// store. A longer pause in effect is not shortened.
    pub async fn pause(&self, scope: Scope<'_>, span: Span) -> Result<(), PauseFault> {
        self.scheduler.engine.pauses.pause(scope.into(), span).await
    }

    /// Ends every pause of a scope, here at once and within a second on every other node. After an error the
    /// pause may still be in effect on other nodes.
    pub async fn resume(&self, scope: Scope<'_>) -> Result<(), StoreError> {
        self.resume_all(&[scope.into()]).await
    }

    /// As [`Pacer::pause`], for the keys of attempts with these fields: under the rules that are keyed by
    /// some of the fields, or the whole policy if there are no fields. Returns how many keys are paused.
    pub async fn pause_like(
        &self,
        policy: &str,
        fields: &[(&str, &str)],
        span: Span,
    ) -> Result<usize, PauseFault> {
        let scopes = self.scopes_of(policy, fields).map_err(PauseFault::Mistake)?;
        let keys = scopes.iter().filter(|scope| matches!(scope, Stopped::Key { .. })).count();
        for scope in scopes {
            self.scheduler.engine.pauses.pause(scope, span).await?;
        }
        Ok(keys)
    }

    /// The pauses of a policy: of the whole policy, and of keys of its rules.
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
                        Some((rule.name.to_string(), engine.observer.shown_key(rule, key).into_owned()))
                    }
                };
                let left: Span = (pause.until - now).into();
                let longest = found.entry(place).or_insert(left);
                *longest = left.max(*longest);
            }
        });
        Ok(found.into_iter().map(|(place, left)| Paused { place, left }).collect())
    }

    /// The time for which attempts with these fields cannot pass, because their policy or one of their keys is
    /// paused.
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

    /// Ends every pause that [`Pacer::paused`] returns.
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
        let resumed = self.scheduler.engine.pauses.resume(scopes).await;
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

/// Whether this pauses attempts of a policy.
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
