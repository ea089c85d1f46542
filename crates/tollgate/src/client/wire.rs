//! What the server's answers say: only what the command line shows. Members it does not know are
//! left alone, so that a newer server can be asked too.

mod guards;
mod mail;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

pub use guards::{
    Advice, Begun, Finished, Guard, Guards, Lock, Locks, Standing, Standings, Unlocked, UnlockedKey,
};
pub use mail::{
    Account, AccountPause, Accounts, Cancelled, Lane, Lanes, Message, MessageDetail, MessageEvent,
    MessagePart, MessageRecipient, Messages, Retried,
};

/// The decision on an attempt, allowed or not.
#[derive(Clone, Debug, Deserialize)]
pub struct Decision {
    /// Whether it may pass.
    pub allowed: bool,
    /// `allow`, `wait`, `defer` or `deny`.
    pub verdict: String,
    /// Whether this id was charged before, so that nothing was charged now.
    #[serde(default)]
    pub repeated: bool,
    /// Under which id something is held.
    pub id: Option<String>,
    /// How it was reached: `barred` by the blocklist, or otherwise.
    pub origin: Option<String>,
    /// Why it was decided without the store, if it was; why it is barred, if that may be told.
    pub reason: Option<String>,
    /// The rule that is named.
    pub denied_by: Option<String>,
    /// Its key.
    pub denied_key: Option<String>,
    /// Its code.
    pub code: Option<String>,
    /// When the same attempt would pass.
    pub retry_after_ms: Option<u64>,
    /// To when it is deferred.
    pub defer_until: Option<String>,
    /// One line per rule that applied.
    #[serde(default)]
    pub rules: Vec<RuleLine>,
    /// What it can be given back with.
    pub receipt: Option<String>,
    /// How long it waited for its turn.
    pub waited_ms: Option<u64>,
}

/// What stands still now.
#[derive(Clone, Debug, Deserialize)]
pub struct Paused {
    /// The policy.
    pub policy: String,
    /// How many keys of it; none if it is the whole of it.
    pub keys: usize,
    /// For how long.
    pub retry_after_ms: u64,
}

/// How many pauses were ended.
#[derive(Clone, Debug, Deserialize)]
pub struct Resumed {
    /// So many.
    pub resumed: usize,
}

/// Who waits, and what stands still.
#[derive(Clone, Debug, Deserialize)]
pub struct Paced {
    /// The policy.
    pub policy: String,
    /// How many wait.
    pub waiting: u64,
    /// What stands still.
    pub pauses: Vec<PauseLine>,
}

/// Something that stands still.
#[derive(Clone, Debug, Deserialize)]
pub struct PauseLine {
    /// The rule; none for the whole policy.
    pub rule: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// For how much longer.
    pub retry_after_ms: u64,
}

/// One rule's part in a decision.
#[derive(Clone, Debug, Deserialize)]
pub struct RuleLine {
    /// The rule.
    pub rule: String,
    /// The key it counted under.
    pub key: String,
    /// The limit that binds here, as it is written.
    #[serde(default)]
    pub limit: Option<String>,
    /// Whether a limit was exceeded.
    pub exceeded: bool,
    /// Whether it only counts and reports.
    pub observed: bool,
    /// What each of its limits shows.
    pub limits: Vec<LimitLine>,
}

/// What one limit shows.
#[derive(Clone, Debug, Deserialize)]
pub struct LimitLine {
    /// As it is written.
    pub limit: String,
    /// The most it lets through.
    pub capacity: u64,
    /// How much is left.
    pub remaining: u64,
    /// How much is used.
    pub used: Option<u64>,
    /// When it is as fresh again.
    pub reset_after_ms: Option<u64>,
    /// When the attempt would pass this limit.
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
    /// What each limit shows.
    pub limits: Vec<LimitLine>,
}

/// What is held at a key.
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

/// Something that is held.
#[derive(Clone, Debug, Deserialize)]
pub struct Hold {
    /// Its id.
    pub id: String,
    /// How much it takes.
    pub weight: u64,
    /// Since when.
    pub since: String,
    /// Until when, unless it is renewed.
    pub expires: Option<String>,
}

/// What became of giving back.
#[derive(Clone, Debug, Deserialize)]
pub struct Refunded {
    /// `back`, `already` or `too_old`.
    pub given: String,
}

/// Whether an override was there to be removed.
#[derive(Clone, Debug, Deserialize)]
pub struct Removed {
    /// It was.
    pub removed: bool,
}

/// Whether a hold was there to be released.
#[derive(Clone, Debug, Deserialize)]
pub struct Released {
    /// It was.
    pub released: bool,
}

/// Who is on the lists.
#[derive(Clone, Debug, Deserialize)]
pub struct Bans {
    /// In the order of their targets.
    pub bans: Vec<Ban>,
    /// Behind whom there are more.
    pub next: Option<String>,
}

/// One entry of the lists.
#[derive(Clone, Debug, Deserialize)]
pub struct Ban {
    /// Whom it is about.
    pub target: String,
    /// `block` or `allow`.
    pub kind: String,
    /// Why; perhaps nothing.
    pub reason: String,
    /// Who set it.
    pub author: String,
    /// When it ends.
    pub until: Option<String>,
}

/// Whether an entry was there to be removed.
#[derive(Clone, Debug, Deserialize)]
pub struct Unlisted {
    /// It was.
    pub removed: bool,
    /// The configuration lists the same.
    pub configured: bool,
}

/// Who is refused most, and how often each outcome came about.
#[derive(Clone, Debug, Deserialize)]
pub struct Top {
    /// The keys that were refused most.
    pub offenders: Vec<Offender>,
    /// The keys that were asked about most.
    #[serde(default)]
    pub busiest: Vec<Busy>,
    /// Decisions since the server started.
    pub totals: Vec<Total>,
}

/// A key that was asked about.
#[derive(Clone, Debug, Deserialize)]
pub struct Busy {
    /// The rule that counts it.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How often it was in the server's sample.
    pub seen: u64,
}

/// A key that was refused.
#[derive(Clone, Debug, Deserialize)]
pub struct Offender {
    /// By which rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How often.
    pub denied: u64,
    /// When last.
    pub last: String,
}

/// How often one outcome came about.
#[derive(Clone, Debug, Deserialize)]
pub struct Total {
    /// In which policy.
    pub policy: String,
    /// `allow`, `deny`, `wait`, `defer`, or `observe` for what was only noted.
    pub outcome: String,
    /// How often.
    pub count: u64,
}

/// The latest decisions.
#[derive(Clone, Debug, Deserialize)]
pub struct Journal {
    /// Newest first.
    pub decisions: Vec<Entry>,
}

/// One decision of the journal.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// When.
    pub at: String,
    /// By which policy.
    pub policy: String,
    /// What was decided.
    pub verdict: String,
    /// The rule that is named.
    pub rule: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// Every rule that applied, and its key.
    #[serde(default)]
    pub keys: Vec<RuleKey>,
    /// The entry of the blocklist that it met.
    #[serde(default)]
    pub listing: Option<Ban>,
    /// How much was asked for.
    pub cost: u64,
    /// When the same attempt would pass.
    pub retry_after_ms: Option<u64>,
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

/// A rule of the server's.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    /// The fields that make its key.
    pub by: Vec<String>,
    /// Its limits.
    pub limits: Vec<String>,
    /// Limits of single keys.
    #[serde(default)]
    pub overrides: BTreeMap<String, Vec<String>>,
    /// What happens when a limit is exceeded.
    pub on_exceed: String,
    /// Whether it is switched on.
    pub enabled: bool,
}

/// Policies made over the API.
#[derive(Clone, Debug, Deserialize)]
pub struct Policies {
    /// By name.
    pub policies: Vec<Policy>,
    /// After which name the next page begins.
    pub next: Option<String>,
}

/// A policy made over the API.
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
    /// What happens without the store, if anything was said about it.
    pub on_outage: Option<String>,
    /// What happens without the store.
    pub effective_on_outage: String,
    /// Whether it holds.
    pub in_force: bool,
    /// How many routes pass it.
    pub routes: u64,
    /// How often it was written.
    pub version: u64,
    /// When it was made.
    #[serde(rename = "createdAt")]
    pub created_at: String,
    /// When it was changed last.
    #[serde(rename = "updatedAt")]
    pub updated_at: String,
}

/// The routes there are.
#[derive(Clone, Debug, Deserialize)]
pub struct Routes {
    /// Each of them.
    pub routes: Vec<Route>,
}

/// A route and the policy that it passes.
#[derive(Clone, Debug, Deserialize)]
pub struct Route {
    /// Its name.
    pub route: String,
    /// What it answers for, if it is there.
    pub path: Option<String>,
    /// The policy that it passes.
    pub policy: Option<String>,
    /// The policy that it was told to pass.
    pub assigned: Option<String>,
    /// The policy that it is configured to pass.
    pub configured: Option<String>,
}

/// Consumers with limits of their own.
#[derive(Clone, Debug, Deserialize)]
pub struct Consumers {
    /// By id.
    pub consumers: Vec<Consumer>,
    /// After which id the next page begins.
    pub next: Option<String>,
}

/// A consumer with limits of its own.
#[derive(Clone, Debug, Deserialize)]
pub struct Consumer {
    /// Who it is.
    pub id: String,
    /// Its limits.
    pub limits: Vec<String>,
    /// Whether they were set at run time.
    pub overridden: bool,
}

/// Why the server refuses, as `application/problem+json` has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    /// What kind of problem.
    pub title: String,
    /// What exactly.
    pub detail: Option<String>,
    /// Under which id the server's log has it.
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
