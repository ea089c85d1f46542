//! The server's responses, as far as the command line shows them. Unknown members are ignored, so that a
//! newer server can be asked too.

mod guards;
mod mail;
mod seeing;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

pub use guards::{
    Advice, Begun, Finished, Guard, Guards, Lock, Locks, Standing, Standings, Unlocked, UnlockedKey,
};
pub use mail::{
    Account, AccountPause, Accounts, Cancelled, Deleted, Lane, Lanes, MailPause, MailPauses, ManyChanged,
    Message, MessageDetail, MessageEvent, MessagePart, MessageRecipient, MessageWait, Messages, PauseChanged,
    Retried,
};
pub use seeing::{
    Change, Changes, KeyEverywhere, Outcomes, PolicyStatus, RulePressed, RulesPressed, Status, StoreStatus,
};

/// The decision on an attempt, allowed or not.
#[derive(Clone, Debug, Deserialize)]
pub struct Decision {
    /// Whether the attempt is allowed.
    pub allowed: bool,
    /// `allow`, `wait`, `defer` or `deny`.
    pub verdict: String,
    /// Whether this id was already charged, so that nothing was charged now.
    #[serde(default)]
    pub repeated: bool,
    /// The id of its holds.
    pub id: Option<String>,
    /// How it was reached: `blocked` by the blocklist, or otherwise.
    pub origin: Option<String>,
    /// Why it was decided without the store, if it was; why it is blocked, if that is public.
    pub reason: Option<String>,
    /// The rule that denied.
    pub denied_by: Option<String>,
    /// Its key.
    pub denied_key: Option<String>,
    /// Its code.
    pub code: Option<String>,
    /// Milliseconds until the same attempt would be allowed.
    pub retry_after_ms: Option<u64>,
    /// Until when it is deferred.
    pub defer_until: Option<String>,
    /// One line per rule that applied.
    #[serde(default)]
    pub rules: Vec<RuleLine>,
    /// The receipt for a refund.
    pub receipt: Option<String>,
    /// How long it waited for its turn.
    pub waited_ms: Option<u64>,
}

/// A pause in force.
#[derive(Clone, Debug, Deserialize)]
pub struct Paused {
    /// The policy.
    pub policy: String,
    /// How many keys are paused; none means the whole policy.
    pub keys: usize,
    /// Milliseconds until it ends.
    pub retry_after_ms: u64,
}

/// How many pauses were ended.
#[derive(Clone, Debug, Deserialize)]
pub struct Resumed {
    /// The number.
    pub resumed: usize,
}

/// Waiting calls and pauses.
#[derive(Clone, Debug, Deserialize)]
pub struct Paced {
    /// The policy.
    pub policy: String,
    /// How many calls wait.
    pub waiting: u64,
    /// The pauses.
    pub pauses: Vec<PauseLine>,
}

/// A pause.
#[derive(Clone, Debug, Deserialize)]
pub struct PauseLine {
    /// The rule; absent for the whole policy.
    pub rule: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// Milliseconds until it ends.
    pub retry_after_ms: u64,
}

/// One rule's part in a decision.
#[derive(Clone, Debug, Deserialize)]
pub struct RuleLine {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Its binding limit, as text.
    #[serde(default)]
    pub limit: Option<String>,
    /// Whether a limit was exceeded.
    pub exceeded: bool,
    /// Whether it only counts and reports.
    pub observed: bool,
    /// The readings of its limits.
    pub limits: Vec<LimitLine>,
}

/// The reading of one limit.
#[derive(Clone, Debug, Deserialize)]
pub struct LimitLine {
    /// The limit, as text.
    pub limit: String,
    /// The most that can be charged at once.
    pub capacity: u64,
    /// How much is left.
    pub remaining: u64,
    /// How much is used.
    pub used: Option<u64>,
    /// Milliseconds until it is unused again.
    pub reset_after_ms: Option<u64>,
    /// Milliseconds until the attempt would conform to it.
    pub retry_after_ms: Option<u64>,
}

/// The counters of one key.
#[derive(Clone, Debug, Deserialize)]
pub struct Counters {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Whether the key has limits of its own.
    pub overridden: bool,
    /// When they end, if they do.
    pub override_ends: Option<OverrideEnd>,
    /// The reading of each limit.
    pub limits: Vec<LimitLine>,
}

/// When limits of a key end that were set for a time.
#[derive(Clone, Debug, Deserialize)]
pub struct OverrideEnd {
    /// In how many milliseconds.
    pub after_ms: u64,
}

/// The holds of a key.
#[derive(Clone, Debug, Deserialize)]
pub struct Holds {
    /// The limit that bounds it.
    pub limit: String,
    /// How much may be held.
    pub capacity: u64,
    /// How much is held.
    pub held: u64,
    /// Each hold.
    pub holds: Vec<Hold>,
}

/// A hold.
#[derive(Clone, Debug, Deserialize)]
pub struct Hold {
    /// Its id.
    pub id: String,
    /// How much of the limit it uses.
    pub weight: u64,
    /// When it was taken.
    pub since: String,
    /// When it expires, unless it is renewed.
    pub expires: Option<String>,
}

/// The result of a refund.
#[derive(Clone, Debug, Deserialize)]
pub struct Refunded {
    /// `back`, `already` or `too_old`.
    pub refunded: String,
}

/// Whether there was an override to remove.
#[derive(Clone, Debug, Deserialize)]
pub struct Removed {
    /// It was removed.
    pub removed: bool,
}

/// Whether there was a hold to release.
#[derive(Clone, Debug, Deserialize)]
pub struct Released {
    /// It was released.
    pub released: bool,
}

/// The blocklist and the allowlist.
#[derive(Clone, Debug, Deserialize)]
pub struct Bans {
    /// In the order of their targets.
    pub bans: Vec<Ban>,
    /// The target after which the next page begins.
    pub next: Option<String>,
}

/// One entry of the lists.
#[derive(Clone, Debug, Deserialize)]
pub struct Ban {
    /// The target.
    pub target: String,
    /// `block` or `allow`.
    pub kind: String,
    /// The reason; may be empty.
    pub reason: String,
    /// The author.
    pub author: String,
    /// When it expires.
    pub until: Option<String>,
}

/// Whether there was an entry to remove.
#[derive(Clone, Debug, Deserialize)]
pub struct Unlisted {
    /// It was removed.
    pub removed: bool,
    /// The configuration has an entry for the same target.
    pub configured: bool,
}

/// The keys denied most, and how often each outcome occurred.
#[derive(Clone, Debug, Deserialize)]
pub struct Top {
    /// The keys that were denied most.
    pub offenders: Vec<Offender>,
    /// The busiest keys.
    #[serde(default)]
    pub busiest: Vec<Busy>,
    /// The keys that observed rules would have denied.
    #[serde(default)]
    pub observed: Vec<Observed>,
    /// The keys nearest to their limits.
    #[serde(default)]
    pub nearest: Vec<Near>,
    /// Decisions since the server started.
    pub totals: Vec<Total>,
    /// The nodes, if all were asked for.
    pub nodes: Option<Vec<Node>>,
}

/// A key that an observed rule would have denied.
#[derive(Clone, Debug, Deserialize)]
pub struct Observed {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How often it would have been denied.
    pub would_deny: u64,
    /// When last.
    pub last: String,
}

/// A key near its limit.
#[derive(Clone, Debug, Deserialize)]
pub struct Near {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// The limit.
    pub limit: String,
    /// What is used of it.
    pub used: u64,
    /// The most that can be used.
    pub capacity: u64,
    /// The used share.
    pub share: f64,
    /// Milliseconds until it is unused again.
    pub reset_after_ms: Option<u64>,
}

/// A node of a shared store.
#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    /// Its name.
    pub node: String,
    /// How many milliseconds ago it reported.
    pub age_ms: u64,
    /// Its decisions since it started.
    pub decisions: u64,
    /// Its decisions a second.
    pub per_second: f64,
}

/// A busy key.
#[derive(Clone, Debug, Deserialize)]
pub struct Busy {
    /// The rule that counts it.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How often it was sampled.
    pub seen: u64,
}

/// A denied key.
#[derive(Clone, Debug, Deserialize)]
pub struct Offender {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How often it was denied.
    pub denied: u64,
    /// When it was last denied.
    pub last: String,
}

/// The number of decisions with one outcome.
#[derive(Clone, Debug, Deserialize)]
pub struct Total {
    /// The policy.
    pub policy: String,
    /// `allow`, `deny`, `wait`, `defer`, or `observe` for an exceeded rule that only observes.
    pub outcome: String,
    /// The number.
    pub count: u64,
    /// How many a second, as the nodes have measured it.
    pub per_second: Option<f64>,
}

/// The result of a reload.
#[derive(Clone, Debug, Deserialize)]
pub struct Reloaded {
    /// The changed settings that apply only after a restart.
    #[serde(default)]
    pub needs_restart: Vec<String>,
}

/// The latest decisions.
#[derive(Clone, Debug, Deserialize)]
pub struct Journal {
    /// Newest first.
    pub decisions: Vec<Entry>,
    /// How many decisions the node has, wanted or not.
    #[serde(default)]
    pub kept: usize,
    /// When the oldest of them was made.
    #[serde(default)]
    pub oldest: Option<String>,
}

/// One decision of the journal.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// When it was made.
    pub at: String,
    /// The policy.
    pub policy: String,
    /// The verdict.
    pub verdict: String,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// Every rule that applied, and its key.
    #[serde(default)]
    pub keys: Vec<RuleKey>,
    /// The observed rules that would have denied it.
    #[serde(default)]
    pub observed: Vec<String>,
    /// Its token.
    pub token: Option<String>,
    /// The blocklist entry that blocked it.
    #[serde(default)]
    pub listing: Option<Ban>,
    /// The cost.
    pub cost: u64,
    /// Milliseconds until the same attempt would be allowed.
    pub retry_after_ms: Option<u64>,
}

/// A decision by its token.
#[derive(Clone, Debug, Deserialize)]
pub struct DecisionDetail {
    /// When it was made.
    pub at: String,
    /// The policy.
    pub policy: String,
    /// The verdict.
    pub verdict: String,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The target of the blocklist entry that blocked it.
    pub blocked: Option<String>,
    /// The correlation id.
    pub id: String,
    /// The cost.
    pub cost: u64,
    /// Milliseconds until a retry, as the caller was told.
    pub retry_after_ms: Option<u64>,
    /// Every rule that applied.
    pub rules: Vec<ThenAndNow>,
    /// Whether the token had room for all of them.
    pub complete: bool,
}

/// A rule's part in a decision, and its readings now.
#[derive(Clone, Debug, Deserialize)]
pub struct ThenAndNow {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Whether it only observed.
    pub observed: bool,
    /// Whether a limit was exceeded.
    pub exceeded: bool,
    /// The reading of each limit at the decision.
    pub then: Vec<LimitLine>,
    /// The reading of each limit now, if it is known.
    pub now: Option<Vec<LimitLine>>,
}

/// A rule and a key.
#[derive(Clone, Debug, Deserialize)]
pub struct RuleKey {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
}

/// The server's configuration.
#[derive(Clone, Debug, Deserialize)]
pub struct Configuration {
    /// Whether limits are enforced at all.
    pub enabled: bool,
    /// Its rules, by name.
    pub rules: BTreeMap<String, Rule>,
    /// Its policies: the names of their rules.
    pub policies: BTreeMap<String, Vec<String>>,
}

/// A rule of the server.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    /// The fields that make its key.
    pub by: Vec<String>,
    /// Its limits.
    pub limits: Vec<String>,
    /// Limits of single keys.
    #[serde(default)]
    pub overrides: BTreeMap<String, Vec<String>>,
    /// When limits of single keys end, of those that do.
    #[serde(default)]
    pub override_ends: BTreeMap<String, OverrideEnd>,
    /// What happens when a limit is exceeded.
    pub on_exceed: String,
    /// Whether it is enabled.
    pub enabled: bool,
}

/// Policies created over the API.
#[derive(Clone, Debug, Deserialize)]
pub struct Policies {
    /// By name.
    pub policies: Vec<Policy>,
    /// The name after which the next page begins.
    pub next: Option<String>,
}

/// A policy created over the API.
#[derive(Clone, Debug, Deserialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its limits.
    pub limits: Vec<String>,
    /// The fields that make its key.
    pub by: Vec<String>,
    /// What happens when a limit is exceeded.
    pub on_exceed: String,
    /// What happens without the store, if that was set.
    pub on_outage: Option<String>,
    /// What happens without the store.
    pub effective_on_outage: String,
    /// Whether it is in force.
    pub in_force: bool,
    /// How many routes use it.
    pub routes: u64,
    /// How often it was changed.
    pub version: u64,
    /// When it was created.
    #[serde(rename = "createdAt")]
    pub created_at: String,
    /// When it was changed last.
    #[serde(rename = "updatedAt")]
    pub updated_at: String,
}

/// The routes.
#[derive(Clone, Debug, Deserialize)]
pub struct Routes {
    /// All of them.
    pub routes: Vec<Route>,
}

/// A route and its policy.
#[derive(Clone, Debug, Deserialize)]
pub struct Route {
    /// Its name.
    pub route: String,
    /// The requests that it matches, if it exists.
    pub path: Option<String>,
    /// Its policy.
    pub policy: Option<String>,
    /// The policy that was assigned over the API.
    pub assigned: Option<String>,
    /// The configured policy.
    pub configured: Option<String>,
}

/// Consumers with limits of their own.
#[derive(Clone, Debug, Deserialize)]
pub struct Consumers {
    /// By id.
    pub consumers: Vec<Consumer>,
    /// The id after which the next page begins.
    pub next: Option<String>,
}

/// A consumer with limits of its own.
#[derive(Clone, Debug, Deserialize)]
pub struct Consumer {
    /// Its id.
    pub id: String,
    /// Its limits.
    pub limits: Vec<String>,
    /// Whether they were set at run time.
    pub overridden: bool,
    /// When they end, if they do.
    pub override_ends: Option<OverrideEnd>,
}

/// Why the server refuses: an `application/problem+json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    /// The kind of the problem.
    pub title: String,
    /// The details.
    pub detail: Option<String>,
    /// The id in the server's log.
    #[serde(rename = "correlationId")]
    pub correlation_id: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        self.correlation_id.as_ref().map_or(Ok(()), |id| write!(f, " (correlation id {id})"))
    }
}
