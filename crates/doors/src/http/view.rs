//! Observability: the latest decisions.

use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::Policies;
use tollgate_engine::journal::{Entry, JournalExtent};

use super::App;
use super::auth::Role;
use super::bans::BanShown;
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::page::limit;
use super::path;
use super::problem::Problem;
use super::shown::{self, Moment, json};
use super::tenancy;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Journal")]
struct JournalShown {
    /// The latest decisions, newest first.
    decisions: Vec<EntryShown>,
    /// How many decisions the journal of this node has, whether they are wanted here or not.
    kept: usize,
    /// When the oldest of them was made (RFC 3339); null if there is none.
    #[schemars(with = "Option<String>")]
    oldest: Option<Moment>,
}

/// One decision.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JournalEntry")]
struct EntryShown {
    /// When it was made (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
    /// The policy that decided.
    policy: String,
    /// `allow`, `wait`, `defer` or `deny`.
    verdict: &'static str,
    /// How it was decided: `store`, `local`, `outage`, `fixed`, or `blocked` for the blocklist.
    origin: &'static str,
    /// Why the decision was made without the store; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The rule that decided; null if the attempt was allowed or blocked.
    rule: Option<String>,
    /// Its code, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The key of that rule, or of the first rule that applied; the target if it was blocked.
    key: Option<String>,
    /// Every rule that applied, or would have if the attempt was not blocked, with its key. A key of the API with a
    /// tenant sees only the keys that have that tenant.
    keys: Vec<ChargedKey>,
    /// The rules with `on_exceed: observe` that would have denied it; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    observed: Vec<String>,
    /// The correlation id: the caller's `X-Correlation-ID`, or the one in the refusal; null if it was allowed
    /// without one.
    id: Option<String>,
    /// Its token for `GET /api/v1/decisions/{token}`; absent if it is a ban or a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The blocklist entry that blocked it, or that a rule made; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    listing: Option<BanShown>,
    /// The cost.
    cost: u64,
    /// Milliseconds until a retry, as the caller was told; null if it was allowed, or if waiting does not
    /// help.
    retry_after_ms: Option<u64>,
    /// Milliseconds for which the rule blocked the key; only if this entry is a ban and not a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    banned_for_ms: Option<u64>,
    /// Milliseconds for which a ladder of the rule locked the key, 0 if it only notified; only if this entry
    /// is a lock and not a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_for_ms: Option<u64>,
}

/// A rule and a key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RuleKey")]
struct ChargedKey {
    /// The rule.
    rule: String,
    /// The key; a pseudonym if keys are secret.
    key: String,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let journal = Operation::new("/api/v1/decisions", "Show the latest decisions")
        .query(&[
            ("limit", "how many; 100 by default, at most 1000"),
            ("policy", "only decisions of this policy"),
            ("rule", "only denials by this rule"),
            ("key", "only decisions about this key of any rule, as it is shown"),
            ("id", "only the decision with this correlation id"),
            ("verdict", "only `allow`, `wait`, `defer` or `deny`"),
            ("observed", "only decisions that this rule, which observes, would have denied"),
        ])
        .answers::<JournalShown>();
    vec![
        Endpoint::new(Method::GET, "/api/v1/decisions", Some(Role::Read), decisions)
            .serves_tenants()
            .does(journal),
    ]
}

/// Which decisions to show.
#[derive(Default)]
struct Wanted {
    policy: Option<String>,
    rule: Option<String>,
    key: Option<String>,
    id: Option<String>,
    verdict: Option<String>,
    observed: Option<String>,
}

impl Wanted {
    fn of(ask: &Ask) -> Result<Self, Problem> {
        let said = |name| ask.query(name).map(path::decode).transpose();
        let verdict = said("verdict")?;
        if verdict.as_ref().is_some_and(|verdict| !VERDICTS.contains(&verdict.as_str())) {
            return Err(Problem::bad_request("`verdict` is `allow`, `wait`, `defer` or `deny`"));
        }
        let (policy, rule, key) = (said("policy")?, said("rule")?, said("key")?);
        Ok(Self { policy, rule, key, id: said("id")?, verdict, observed: said("observed")? })
    }

    /// Whether to show an entry that the caller sees as one about these keys.
    fn has(&self, entry: &Entry, is_about: impl Fn(&str) -> bool) -> bool {
        let same = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        same(&self.policy, Some(&entry.policy))
            && same(&self.rule, entry.rule.as_deref())
            && self.key.as_deref().is_none_or(is_about)
            && same(&self.id, entry.correlation.as_deref())
            && same(&self.verdict, Some(shown::verdict(entry.verdict)))
            && self.observed.as_deref().is_none_or(|rule| entry.observed.iter().any(|own| **own == *rule))
    }
}

/// Whether a rule's key, as it is shown, has this tenant. A pseudonym has none.
fn carries(policies: &Policies, rule: &str, key: &str, tenant: &str) -> bool {
    let rule = policies.rule(rule).filter(|rule| !rule.secret);
    rule.is_some_and(|rule| tenancy::carries(rule, key, tenant))
}

/// Removes the keys of a decision that do not have this tenant, and the target that blocked it.
fn cut_to(entry: &mut Entry, policies: &Policies, tenant: &str) {
    entry.keys.retain(|(rule, key)| carries(policies, rule, key, tenant));
    let key = entry.key.take();
    entry.key = key.filter(|key| entry.keys.iter().any(|(_, own)| own == key));
    entry.listing = None;
}

/// The names of verdicts.
const VERDICTS: [&str; 4] = ["allow", "wait", "defer", "deny"];

async fn decisions(app: Arc<App>, ask: Ask) -> Answered {
    let (wanted, most) = (Wanted::of(&ask)?, limit(&ask, 100)?);
    let (pinned, own) = (app.engine.pin(), ask.tenant());
    let shows = |entry: &Entry| {
        let Some(own) = own else { return wanted.has(entry, |key| entry.is_about(key)) };
        let is_own = |rule: &str, key: &str| carries(&pinned.policies, rule, key, own);
        // An attempt has one tenant, so one key with it is enough. Nobody finds out the other keys by asking for them.
        entry.keys.iter().any(|(rule, key)| is_own(rule, key))
            && wanted
                .has(entry, |asked| entry.keys.iter().any(|(rule, key)| key == asked && is_own(rule, key)))
    };
    let mut entries = app.engine.observer.journal.latest_of(most, shows);
    if let Some(own) = own {
        entries.iter_mut().for_each(|entry| cut_to(entry, &pinned.policies, own));
    }
    let entries = entries.into_iter().map(|entry| EntryShown {
        at: Moment(entry.at),
        policy: entry.policy,
        verdict: shown::verdict(entry.verdict),
        origin: shown::origin(entry.origin),
        reason: shown::reason(entry.origin),
        rule: entry.rule,
        code: entry.code.map(|code| code.to_string()),
        key: entry.key,
        keys: entry.keys.into_iter().map(|(rule, key)| ChargedKey { rule: rule.to_string(), key }).collect(),
        observed: entry.observed.iter().map(ToString::to_string).collect(),
        id: entry.correlation,
        token: entry.token,
        listing: entry.listing.as_deref().map(BanShown::of),
        cost: entry.cost,
        retry_after_ms: shown::retry_after_ms(entry.retry),
        banned_for_ms: entry.banned.map(|lasts| lasts.as_millis_ceil()),
        locked_for_ms: entry.locked.map(|lasts| lasts.as_millis_ceil()),
    });
    let JournalExtent { decisions: kept, oldest } = app.engine.observer.journal.extent();
    Ok(json(&JournalShown { decisions: entries.collect(), kept, oldest: oldest.map(Moment) }))
}
