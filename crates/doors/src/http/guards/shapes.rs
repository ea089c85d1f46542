//! The bodies of the guard endpoints.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::answer::shapes::Refused;
use crate::http::body::{Fields, Text};
use crate::http::shown::Moment;

/// The fields of the user.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GuardRequest")]
pub(super) struct GuardBody<'b> {
    #[serde(borrow, default)]
    pub(super) fields: Fields<'b>,
}

/// How an attempt ended.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GuardFinish")]
pub(super) struct FinishBody<'b> {
    /// The ticket of the attempt.
    #[serde(borrow)]
    pub(super) ticket: Text<'b>,
    /// How it ended.
    pub(super) outcome: OutcomeWord,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum OutcomeWord {
    Success,
    Failure,
    Abandoned,
}

/// What an attempt must do.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GuardAdvice")]
pub(super) struct AdviceShown {
    /// Milliseconds to wait; 0 if it may be made now, or if the time is unknown.
    pub(super) delay_ms: u64,
    /// When it may be made (RFC 3339); null if at once.
    #[schemars(with = "Option<String>")]
    pub(super) not_before: Option<Moment>,
    /// Whether it must include a CAPTCHA.
    pub(super) captcha: bool,
    /// When the lock ends (RFC 3339), if one blocks it; otherwise null.
    #[schemars(with = "Option<String>")]
    pub(super) locked_until: Option<Moment>,
}

/// An attempt that may be made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GuardBegun")]
pub(super) struct BegunShown<'g> {
    /// Always true.
    pub(super) allowed: bool,
    /// Always `allow`.
    pub(super) verdict: &'static str,
    /// The guard.
    pub(super) guard: &'g str,
    /// The policy that decided.
    pub(super) policy: &'g str,
    /// How the decision was reached: `store`, `local`, `outage` or `fixed`.
    pub(super) origin: &'static str,
    /// Why the decision was made without the store; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    #[serde(flatten)]
    pub(super) advice: AdviceShown,
    /// The ticket to finish the attempt with; null if nothing was counted and there is nothing to finish.
    pub(super) ticket: Option<&'g str>,
    /// What the next attempt must do if this one fails.
    pub(super) if_failed: AdviceShown,
}

/// An attempt that is denied now: a problem document, with the delay, the CAPTCHA and the lock.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GuardRefused")]
pub(super) struct RefusedShown<'d, 'a> {
    #[serde(flatten)]
    pub(super) refused: Refused<'d, 'a>,
    /// The guard.
    pub(super) guard: &'d str,
    #[serde(flatten)]
    pub(super) advice: AdviceShown,
    /// Always null.
    pub(super) ticket: Option<&'d str>,
}

/// The result of finishing an attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GuardFinished")]
pub(super) struct FinishedShown {
    /// The guard of the attempt.
    pub(super) guard: String,
    /// `now`; `already` if it was finished before, when the first outcome stands; `too_old` if its ticket is
    /// no longer known.
    pub(super) finished: &'static str,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Guards")]
pub(super) struct GuardsShown<'g> {
    /// All guards, in the order of the configuration.
    pub(super) guards: Vec<GuardShown<'g>>,
}

/// One guard.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Guard")]
pub(super) struct GuardShown<'g> {
    /// Its name.
    pub(super) name: &'g str,
    /// The policy of the attempts.
    pub(super) policy: &'g str,
    /// The fields that an attempt must have.
    pub(super) fields: Vec<&'g str>,
    /// Where a success clears failures: `narrowest`, `all`, `nothing`, or rules.
    pub(super) clears: Vec<&'g str>,
    /// Attempts that this node admitted since it started.
    pub(super) begun: u64,
    /// Attempts that this node refused.
    pub(super) refused: u64,
    /// Attempts that were reported to this node as failed.
    pub(super) failures: u64,
    /// Locks that this node made.
    pub(super) lockouts: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Locks")]
pub(super) struct LocksShown {
    /// The locks, in the order of rules.
    pub(super) locks: Vec<LockShown>,
    /// The value of `after` for the next page; null on the last one. A page may have fewer entries than
    /// requested, because some locks ended while it was made.
    pub(super) next: Option<String>,
}

/// A lock.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lock")]
pub(super) struct LockShown {
    /// The rule that locks.
    pub(super) rule: String,
    /// The key; a pseudonym if keys are secret.
    pub(super) key: String,
    /// The fields that make the key; null if keys are secret.
    pub(super) fields: Option<BTreeMap<String, String>>,
    /// How many failures are counted.
    pub(super) failures: u64,
    /// When the failure that locked it happened (RFC 3339).
    #[schemars(with = "String")]
    pub(super) since: Moment,
    /// When the lock ends (RFC 3339).
    #[schemars(with = "String")]
    pub(super) locked_until: Moment,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Standings")]
pub(super) struct StandingsShown {
    /// One for each ladder of the guard's rules for which all fields are given.
    pub(super) ladders: Vec<StandingShown>,
}

/// The state of a user on one ladder.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Standing")]
pub(super) struct StandingShown {
    /// The rule.
    pub(super) rule: String,
    /// The key; a pseudonym if keys are secret.
    pub(super) key: String,
    /// Whether the rule only counts and reports.
    pub(super) observed: bool,
    /// How many failures are counted.
    pub(super) failures: u64,
    /// What the next attempt must do.
    #[serde(flatten)]
    pub(super) advice: AdviceShown,
    /// When all failures are forgotten (RFC 3339); null if there are none.
    #[schemars(with = "Option<String>")]
    pub(super) forgotten_at: Option<Moment>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Unlocked")]
pub(super) struct UnlockedShown {
    /// The rules and keys whose failures were cleared.
    pub(super) unlocked: Vec<UnlockedKey>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct UnlockedKey {
    /// The rule.
    pub(super) rule: String,
    /// The key; a pseudonym if keys are secret.
    pub(super) key: String,
}
