//! Limits and counters: the configuration, the counts of a key, overrides for single keys, and resets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::store::{Counter, Forget};
use tollgate_core::{Limit, Outcome, Plan, Reading, Rule};
use tollgate_engine::Snapshot;
use tollgate_engine::runtime_config::CONSUMER;
use tollgate_web::Statuses;

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::mail_shape::{MailCounts, MailSections};
use super::overrides::{self, EndShown, OverrideBody, Removed};
use super::path::{self, Place};
use super::problem::Problem;
use super::shown::{self, Moment, Shown, json};

pub(crate) const ALL: &str = "/api/v1/counters";
const RULE: &str = "/api/v1/counters/{rule}";
const KEY: &str = "/api/v1/counters/{rule}/{*key}";

/// The rules and policies in force, and the same in the terms of a mail server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Rules")]
struct AllShown<'p> {
    /// Whether limits are enforced at all.
    enabled: bool,
    /// The rules by name.
    rules: BTreeMap<&'p str, RuleConfigured<'p>>,
    /// The names of each policy's rules.
    policies: BTreeMap<&'p str, Vec<&'p str>>,
    #[serde(flatten)]
    mail: MailSections,
}

/// A rule as it is configured.
#[derive(Serialize, JsonSchema)]
struct RuleConfigured<'p> {
    /// Its code for applications; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'p str>,
    /// The fields that make its key.
    by: Vec<&'p str>,
    /// Its limits, as text.
    limits: Vec<String>,
    /// The rows that it counts; absent if it counts attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    count_rows: Option<RowsConfigured<'p>>,
    /// The limits of single keys, by the key; by its pseudonym if keys are secret.
    overrides: BTreeMap<String, Vec<String>>,
    /// When limits of single keys end; absent if all last until they are removed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    override_ends: BTreeMap<String, EndShown>,
    /// What happens when it is exceeded.
    on_exceed: String,
    /// What happens while a shared store is down.
    on_outage: String,
    /// When it blocks a key that it keeps denying; absent if it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    ban: Option<String>,
    /// The statuses of the responses that it counts; absent if it counts all.
    #[serde(skip_serializing_if = "Option::is_none")]
    count_when: Option<String>,
    /// The field whose number it counts instead of the attempt's cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<String>,
    /// Whether the rule is enabled.
    enabled: bool,
    /// Whether its keys are secret.
    secret: bool,
}

/// Rows of an application that a rule counts.
#[derive(Serialize, JsonSchema)]
struct RowsConfigured<'p> {
    /// The name of the database.
    #[serde(rename = "in")]
    database: &'p str,
    /// The query that counts them.
    query: &'p str,
    /// How many there may be.
    at_most: u64,
    /// How long an allowed attempt reserves its place.
    reserve: Option<String>,
    /// How long a count may be used again to deny attempts.
    cache: String,
    /// How long counting may take.
    timeout: String,
}

/// The counts of a key, and the same in the terms of a mail server if they fit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeyShown")]
pub(crate) struct KeyShown<'k> {
    /// The rule.
    rule: &'k str,
    /// The key; a pseudonym if keys are secret.
    key: Cow<'k, str>,
    /// Whether its limits were set at run time.
    overridden: bool,
    /// When they end; absent if they last until they are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_ends: Option<EndShown>,
    /// Every limit of the key.
    limits: Vec<CountShown<'k>>,
    #[serde(flatten)]
    mail: Option<MailCounts<'k>>,
}

/// The reading of one limit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CountShown")]
pub(crate) struct CountShown<'k> {
    /// The limit, as text.
    #[schemars(with = "String")]
    limit: Shown<&'k Limit>,
    /// The most that can be charged at once.
    capacity: u64,
    /// What can still be charged now.
    remaining: u64,
    /// The amount that counts now.
    used: u64,
    /// Milliseconds until it is unused again; null if only a release or a reset does that.
    reset_after_ms: Option<u64>,
    /// When it is unused again (RFC 3339).
    #[schemars(with = "Option<String>")]
    reset_at: Option<Moment>,
}

/// What was reset.
#[derive(Serialize, JsonSchema)]
struct ResetShown<'k> {
    /// `key`, `rule` or `all`.
    reset: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'k str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'k str>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let (read, admin) = (Some(Role::Read), Some(Role::Admin));
    let key = "/api/v1/counters/{rule}/{key}";
    let list = Operation::new(ALL, "Show the rules with their limits and overrides, and the policies")
        .answers::<AllShown<'_>>();
    let look = Operation::new(key, "Show the counts of a key").answers::<KeyShown<'_>>();
    let set = Operation::new(key, "Set an override: limits for one key")
        .takes::<OverrideBody<'_>>()
        .answers::<KeyShown<'_>>();
    let set_domain = Operation::new(RULE, "Set an override for a domain: `{rule}` is the domain")
        .takes::<OverrideBody<'_>>()
        .answers::<KeyShown<'_>>();
    let reset_all = Operation::new(ALL, "Reset all counts").answers::<ResetShown<'_>>();
    let reset_rule = Operation::new(RULE, "Reset all counts of a rule").answers::<ResetShown<'_>>();
    let reset = Operation::new(key, "Reset the counts of one key").answers::<ResetShown<'_>>();
    let path = "/api/v1/counters/{rule}/{key}/override";
    let remove = Operation::new(path, "Remove an override").answers::<Removed>();
    vec![
        Endpoint::new(Method::GET, ALL, read, show_all).does(list),
        Endpoint::new(Method::DELETE, ALL, admin, forget_all).does(reset_all),
        Endpoint::new(Method::PUT, RULE, admin, overrides::set_domain).does(set_domain),
        Endpoint::new(Method::DELETE, RULE, admin, forget_rule).does(reset_rule),
        Endpoint::new(Method::GET, KEY, read, show_key).serves_tenants().does(look),
        Endpoint::new(Method::PUT, KEY, admin, overrides::set_key).does(set),
        Endpoint::new(Method::DELETE, KEY, admin, forget_key).does(reset).does(remove),
    ]
}

/// The rules, except the built-in one until it is used.
pub(crate) fn shown_rules(pinned: &Snapshot) -> impl Iterator<Item = &Arc<Rule>> {
    let unused = |rule: &&Arc<Rule>| {
        *rule.name == *CONSUMER
            && pinned.has_built_in_consumer()
            && pinned.dynamic_policies().is_empty()
            && rule.overrides.is_empty()
    };
    pinned.policies.rules().iter().filter(move |rule| !unused(rule))
}

async fn show_all(app: Arc<App>, _: Ask) -> Answered {
    let pinned = app.engine.pin();
    let policies = &pinned.policies;
    let rules = shown_rules(&pinned).map(|rule| (&*rule.name, configured(&app, rule)));
    let names =
        policies.iter().map(|policy| (&*policy.name, policy.rules.iter().map(|rule| &*rule.name).collect()));
    Ok(json(&AllShown {
        enabled: policies.enabled,
        rules: rules.collect(),
        policies: names.collect(),
        mail: MailSections::of(&app.engine, policies),
    }))
}

fn configured<'p>(app: &App, rule: &'p Rule) -> RuleConfigured<'p> {
    let overrides = rule.overrides.iter();
    RuleConfigured {
        code: rule.code.as_deref(),
        by: rule.by.iter().map(|field| &*field.name).collect(),
        limits: shown::limits(&rule.plan),
        count_rows: rows(rule),
        overrides: overrides
            .map(|(key, plan)| (app.engine.observer.shown_key(rule, key).into_owned(), shown::limits(plan)))
            .collect(),
        override_ends: override_ends(app, rule),
        on_exceed: rule.on_exceed.to_string(),
        on_outage: rule.on_outage.to_string(),
        ban: rule.ban.map(|ban| ban.to_string()),
        count_when: rule.count_when.map(|classes| Statuses::from(classes).to_string()),
        count: rule.count.as_ref().map(ToString::to_string),
        enabled: rule.enabled,
        secret: rule.secret,
    }
}

/// The rows that a rule counts.
fn rows(rule: &Rule) -> Option<RowsConfigured<'_>> {
    let (rows, (_, holds)) = (rule.rows.as_ref()?, rule.plan.in_flight()?);
    Some(RowsConfigured {
        database: &rows.database,
        query: &rows.query,
        at_most: holds.max(),
        reserve: holds.lease().map(|reserve| reserve.to_string()),
        cache: rows.cache.to_string(),
        timeout: rows.timeout.to_string(),
    })
}

/// The reading of each limit.
pub(crate) fn counts<'k>(plan: &'k Plan, outcome: &Outcome) -> Vec<CountShown<'k>> {
    let readings = plan.limits().iter().zip(&outcome.readings);
    let count = |(limit, reading): (&'k Limit, &Reading)| CountShown {
        limit: Shown(limit),
        capacity: reading.capacity,
        remaining: reading.remaining,
        used: reading.capacity - reading.remaining,
        reset_after_ms: shown::reset_after_ms(*reading, outcome.now),
        reset_at: reading.reset.map(Moment),
    };
    readings.map(count).collect()
}

/// When limits of the rule's keys end, of those in force.
fn override_ends(app: &App, rule: &Rule) -> BTreeMap<String, EndShown> {
    let ends = app.engine.config.override_ends(&rule.name).into_iter();
    let ends = ends.filter(|(key, _)| rule.overrides.contains_key(&**key));
    ends.map(|(key, end)| (app.engine.observer.shown_key(rule, &key).into_owned(), end.into())).collect()
}

async fn show_key(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let (rule, key) = path::rest(&ask.uri);
    let place = Place::find(&app.engine.observer, &pinned.policies, rule, key)?;
    ask.check_place(&place)?;
    look(&app, &place).await
}

pub(crate) async fn look(app: &App, place: &Place<'_>) -> Answered {
    Ok(json(&key_counts(app, place).await?))
}

/// The counts of a key.
pub(crate) async fn key_counts<'k>(app: &App, place: &'k Place<'_>) -> Result<KeyShown<'k>, Problem> {
    let plan = place.rule.plan_at(&place.key);
    let outcome = app.engine.rows.look(place.rule, &place.key).await?;
    Ok(KeyShown {
        rule: &place.rule.name,
        key: app.engine.observer.shown_key(place.rule, &place.key),
        overridden: app.engine.config.is_overridden(&place.rule.name, &place.key),
        override_ends: app.engine.config.override_end(&place.rule.name, &place.key).map(EndShown::from),
        limits: counts(plan, &outcome),
        mail: MailCounts::of(place.rule, plan, &outcome),
    })
}

async fn forget_all(app: Arc<App>, ask: Ask) -> Answered {
    app.engine.counters.forget(Forget::All).await?;
    app.engine.observer.nearest.forget(None, None);
    Change { action: "counts.reset", what: "everything", ..Change::default() }.record(&ask);
    Ok(json(&ResetShown { reset: "all", rule: None, key: None }))
}

async fn forget_rule(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let rule = path::rule(&pinned.policies, &path::decode(path::rest(&ask.uri).0)?)?;
    app.engine.counters.forget(Forget::Rule(&rule.name)).await?;
    app.engine.observer.nearest.forget(Some(&rule.name), None);
    Change { action: "counts.reset", what: &rule.name, ..Change::default() }.record(&ask);
    Ok(json(&ResetShown { reset: "rule", rule: Some(&rule.name), key: None }))
}

async fn forget_key(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let (rule, rest) = path::rest(&ask.uri);
    if let Some(key) = rest.strip_suffix("/override") {
        return overrides::remove(
            &app,
            &ask,
            &Place::find(&app.engine.observer, &pinned.policies, rule, key)?,
        )
        .await;
    }
    let place = Place::find(&app.engine.observer, &pinned.policies, rule, rest)?;
    let counter = Counter { plan: place.rule.plan_at(&place.key), key: &place.key };
    app.engine.counters.forget(Forget::Key(counter)).await?;
    let key = app.engine.observer.shown_key(place.rule, &place.key);
    app.engine.observer.nearest.forget(Some(&place.rule.name), Some(&key));
    Change { action: "counts.reset", what: &named(&app, &place), ..Change::default() }.record(&ask);
    Ok(json(&ResetShown { reset: "key", rule: Some(&place.rule.name), key: Some(&key) }))
}

/// A rule and key for the log.
pub(crate) fn named(app: &App, place: &Place<'_>) -> String {
    format!("{}/{}", place.rule.name, app.engine.observer.shown_key(place.rule, &place.key))
}
