//! What operators see of a node: its status, its rules, a key everywhere, and changes.

use serde::Deserialize;

use super::{Counters, MailPause};

/// What happens now.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// The state of the store.
    pub store: StoreStatus,
    /// Why the mail relay does not work.
    pub relay_fault: Option<String>,
    /// What operators paused of the mail.
    #[serde(default)]
    pub pauses: Vec<MailPause>,
    /// The policies with attempts in the last minute.
    pub policies: Vec<PolicyStatus>,
}

/// The state of the store.
#[derive(Clone, Debug, Deserialize)]
pub struct StoreStatus {
    /// Whether other nodes share it.
    pub shared: bool,
    /// `up` or `degraded`.
    pub state: String,
    /// Why it cannot be used.
    pub reason: Option<String>,
    /// The cause in words.
    pub cause: Option<String>,
}

/// What happened at a policy.
#[derive(Clone, Debug, Deserialize)]
pub struct PolicyStatus {
    /// The policy.
    pub policy: String,
    /// How many attempts wait now.
    pub waiting: i64,
    /// In the last minute.
    pub minute: Outcomes,
}

/// How often each outcome occurred.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Outcomes {
    /// Allowed.
    pub allow: u64,
    /// Blocked by the blocklist.
    pub blocked: u64,
    /// Denied.
    pub deny: u64,
    /// Told to wait.
    pub wait: u64,
    /// Deferred.
    pub defer: u64,
    /// Allowed, although a rule that only observes was exceeded.
    pub observe: u64,
}

/// The rules.
#[derive(Clone, Debug, Deserialize)]
pub struct RulesPressed {
    /// Each rule.
    pub rules: Vec<RulePressed>,
}

/// A rule and its recent outcomes.
#[derive(Clone, Debug, Deserialize)]
pub struct RulePressed {
    /// Its name.
    pub rule: String,
    /// Its limits.
    pub limits: Vec<String>,
    /// What happens when it is exceeded.
    pub on_exceed: String,
    /// Whether it is only observed.
    pub observed: bool,
    /// What it did in the last fifteen minutes.
    pub recent: Outcomes,
    /// The share of attempts that it stopped, if it is known.
    pub pressure: Option<f64>,
    /// When it last denied.
    pub last_denied: Option<String>,
    /// When it was last exceeded but only observed.
    pub last_observed: Option<String>,
}

/// A key at every rule that it can be a key of.
#[derive(Clone, Debug, Deserialize)]
pub struct KeyEverywhere {
    /// Its counts at each rule.
    pub rules: Vec<Counters>,
    /// How many further rules were not looked at.
    pub left_out: usize,
    /// Whether it is the pseudonym of a secret key.
    #[serde(default)]
    pub pseudonym: bool,
}

/// The latest changes.
#[derive(Clone, Debug, Deserialize)]
pub struct Changes {
    /// Each change, newest first.
    pub changes: Vec<Change>,
}

/// A change that was made over the API.
#[derive(Clone, Debug, Deserialize)]
pub struct Change {
    /// When.
    pub at: String,
    /// The name of the access key.
    pub actor: String,
    /// The kind of change.
    pub action: String,
    /// The changed object.
    pub what: String,
    /// The value before.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
}
