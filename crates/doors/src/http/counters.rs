//! Limits and counters: the configuration, the counts of a key, overrides for single keys, and resets.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::store::{Counter, Forget};
use tollgate_core::{Clash, Limit, Plan, Policies, Rule};
use tollgate_engine::runtime_config::CONSUMER;
use tollgate_web::Statuses;

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body::{self, OneOrMore, Text, Whole};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::limits;
use super::mail_shape::{self, MailCounts, MailSections};
use super::path::{self, Place};
use super::problem::Problem;
use super::shown::{self, Moment, Shown, json};

const ALL: &str = "/api/v1/counters";
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
    /// The limits of single keys.
    overrides: BTreeMap<String, Vec<String>>,
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
}

/// The counts of a key, and the same in the terms of a mail server if they fit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeyShown")]
struct KeyShown<'k> {
    /// The rule.
    rule: &'k str,
    /// The key; a pseudonym if keys are secret.
    key: &'k str,
    /// Whether its limits were set at run time.
    overridden: bool,
    /// Every limit of the key.
    limits: Vec<CountShown<'k>>,
    #[serde(flatten)]
    mail: Option<MailCounts<'k>>,
}

/// The reading of one limit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CountShown")]
struct CountShown<'k> {
    /// The limit, as text.
    #[schemars(with = "String")]
    limit: Shown<&'k Limit>,
    /// The most that can be charged at once.
    capacity: u64,
    /// What can still be charged now.
    remaining: u64,
    /// What is charged.
    used: u64,
    /// Milliseconds until it is unused again; null if only a release or a reset does that.
    reset_after_ms: Option<u64>,
    /// When it is unused again (RFC 3339).
    #[schemars(with = "Option<String>")]
    reset_at: Option<Moment>,
}

/// Limits for one key: in the grammar of limits, or in the terms of a mail server, where 0 and null mean no
/// limit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OverrideRequest")]
struct OverrideBody<'b> {
    /// The limits, as in `["2000/hour", "20000/day"]`, or a single one, as in `"2000/hour"`; `"unlimited"`
    /// means no limit. No other member is allowed with them.
    #[serde(borrow, default)]
    limits: Option<OneOrMore<{ Plan::MOST_LIMITS }, Text<'b>>>,
    #[serde(default, deserialize_with = "mail_shape::told")]
    #[schemars(with = "Option<Whole>")]
    messages_per_hour: Option<u64>,
    #[serde(default, deserialize_with = "mail_shape::told")]
    #[schemars(with = "Option<Whole>")]
    messages_per_day: Option<u64>,
    #[serde(default, deserialize_with = "mail_shape::told")]
    #[schemars(with = "Option<Whole>")]
    recipients_per_message: Option<u64>,
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

/// Whether there was an override.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Removed {
    pub(crate) removed: bool,
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
        Endpoint::new(Method::PUT, RULE, admin, override_domain).does(set_domain),
        Endpoint::new(Method::DELETE, RULE, admin, forget_rule).does(reset_rule),
        Endpoint::new(Method::GET, KEY, read, show_key).does(look),
        Endpoint::new(Method::PUT, KEY, admin, override_key).does(set),
        Endpoint::new(Method::DELETE, KEY, admin, forget_key).does(reset).does(remove),
    ]
}

async fn show_all(app: Arc<App>, _: Ask) -> Answered {
    let pinned = app.engine.pin();
    let policies = &pinned.policies;
    // The built-in rule is not shown until it is used.
    let unused = |rule: &&Arc<Rule>| {
        *rule.name == *CONSUMER
            && pinned.has_built_in_consumer()
            && pinned.made().is_empty()
            && rule.overrides.is_empty()
    };
    let rules = policies.rules().iter().filter(|rule| !unused(rule));
    let rules = rules.map(|rule| (&*rule.name, configured(&app, rule)));
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
        overrides: overrides
            .map(|(key, plan)| (app.engine.shown_key(rule, key).into_owned(), shown::limits(plan)))
            .collect(),
        on_exceed: rule.on_exceed.to_string(),
        on_outage: rule.on_outage.to_string(),
        ban: rule.ban.map(|ban| ban.to_string()),
        count_when: rule.count_when.map(|classes| Statuses::from(classes).to_string()),
        count: rule.count.as_ref().map(ToString::to_string),
        enabled: rule.enabled,
    }
}

async fn show_key(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let (rule, key) = path::rest(&ask.uri);
    look(&app, &Place::find(&pinned.policies, rule, key)?).await
}

async fn look(app: &App, place: &Place<'_>) -> Answered {
    let plan = place.rule.plan_at(&place.key);
    let outcome = app.engine.look_with_rows(place.rule, &place.key).await?;
    let limits = plan.limits().iter().zip(&outcome.readings).map(|(limit, reading)| CountShown {
        limit: Shown(limit),
        capacity: reading.capacity,
        remaining: reading.remaining,
        used: reading.capacity - reading.remaining,
        reset_after_ms: shown::reset_after_ms(*reading, outcome.now),
        reset_at: reading.reset.map(Moment),
    });
    Ok(json(&KeyShown {
        rule: &place.rule.name,
        key: &app.engine.shown_key(place.rule, &place.key),
        overridden: app.engine.is_overridden(&place.rule.name, &place.key),
        limits: limits.collect(),
        mail: MailCounts::of(place.rule, plan, &outcome),
    }))
}

async fn override_key(app: Arc<App>, ask: Ask) -> Answered {
    let (rule, key) = path::rest(&ask.uri);
    set_override(&app, &ask, |policies| Place::find(policies, rule, key)).await
}

async fn override_domain(app: Arc<App>, ask: Ask) -> Answered {
    let (domain, _) = path::rest(&ask.uri);
    set_override(&app, &ask, |policies| match policies.rule(domain) {
        // A caller that forgot the key must not set limits for a domain with the rule's name.
        Some(rule) => {
            let name = &rule.name;
            Err(Problem::bad_request(format!("`{name}` is a rule: add a key, as in {ALL}/{name}/KEY")))
        }
        None => Place::find(policies, "domain", domain),
    })
    .await
}

/// Sets the limits of a key, and returns its counts under them.
async fn set_override<F>(app: &App, ask: &Ask, find: F) -> Answered
where
    F: for<'p> Fn(&'p Policies) -> Result<Place<'p>, Problem>,
{
    let pinned = app.engine.pin();
    let place = find(&pinned.policies)?;
    let limits = wanted_limits(place.rule, &ask.body)?;
    if let Some(clash) = Clash::find(&place.rule.name, &limits, pinned.policies.iter()) {
        return Err(Problem::bad_request(clash.to_string()));
    }
    if let Some(limit) = place.rule.uncountable(&limits) {
        return Err(Problem::bad_request(format!("`{limit}` cannot be combined with `count_when`")));
    }
    if let Some(limit) = place.rule.unfit_for_rows(&limits) {
        let detail = format!("`{limit}` does not count rows: give a limit as in `20 at once for 30s`");
        return Err(Problem::bad_request(detail));
    }
    let after = Some(listed(&limits));
    let before = app.engine.set_override(&place.rule.name, &place.key, limits).await?;
    let what = &named(app, &place);
    Change { action: "override.set", what, before: before.map(|plan| plan.to_string()), after }.tell(ask);
    let pinned = app.engine.pin();
    look(app, &find(&pinned.policies)?).await
}

/// Reads limits from either form.
fn wanted_limits(rule: &Rule, bytes: &[u8]) -> Result<Vec<Limit>, Problem> {
    let OverrideBody { limits, messages_per_hour, messages_per_day, recipients_per_message } =
        body::read(bytes)?;
    let mail = mail_shape::written(messages_per_hour, messages_per_day, recipients_per_message);
    let limits = match limits {
        Some(_) if !mail.is_empty() => {
            return Err(Problem::bad_request("no other member is allowed with `limits`"));
        }
        Some(limits) if !limits.0.is_empty() => {
            limits::read(&limits.0.iter().map(Text::as_str).collect::<Vec<_>>())?
        }
        Some(_) | None if mail.is_empty() => {
            let detail = "limits are missing: give `{\"limits\":[\"2000/hour\"]}`, or `unlimited`, \
                      or messages_per_hour, messages_per_day, recipients_per_message";
            return Err(Problem::bad_request(detail));
        }
        _ => limits::read_mail(&mail.iter().map(String::as_str).collect::<Vec<_>>())?,
    };
    let plan = Plan::new(Arc::clone(&rule.name), limits);
    plan.map(|plan| plan.limits().to_vec()).map_err(|error| Problem::bad_request(error.to_string()))
}

async fn forget_all(app: Arc<App>, ask: Ask) -> Answered {
    app.engine.forget(Forget::All).await?;
    Change { action: "counts.reset", what: "everything", ..Change::default() }.tell(&ask);
    Ok(json(&ResetShown { reset: "all", rule: None, key: None }))
}

async fn forget_rule(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let rule = path::rule(&pinned.policies, &path::decode(path::rest(&ask.uri).0)?)?;
    app.engine.forget(Forget::Rule(&rule.name)).await?;
    Change { action: "counts.reset", what: &rule.name, ..Change::default() }.tell(&ask);
    Ok(json(&ResetShown { reset: "rule", rule: Some(&rule.name), key: None }))
}

async fn forget_key(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let (rule, rest) = path::rest(&ask.uri);
    if let Some(key) = rest.strip_suffix("/override") {
        let place = Place::find(&pinned.policies, rule, key)?;
        let removed = app.engine.remove_override(&place.rule.name, &place.key).await?;
        let (what, before) = (&named(&app, &place), removed.map(|plan| plan.to_string()));
        let removed = before.is_some();
        if removed {
            Change { action: "override.remove", what, before, ..Change::default() }.tell(&ask);
        }
        return Ok(json(&Removed { removed }));
    }
    let place = Place::find(&pinned.policies, rule, rest)?;
    let counter = Counter { plan: place.rule.plan_at(&place.key), key: &place.key };
    app.engine.forget(Forget::Key(counter)).await?;
    Change { action: "counts.reset", what: &named(&app, &place), ..Change::default() }.tell(&ask);
    let key = app.engine.shown_key(place.rule, &place.key);
    Ok(json(&ResetShown { reset: "key", rule: Some(&place.rule.name), key: Some(&key) }))
}

/// A rule and key for the log.
fn named(app: &App, place: &Place<'_>) -> String {
    format!("{}/{}", place.rule.name, app.engine.shown_key(place.rule, &place.key))
}

fn listed(limits: &[Limit]) -> String {
    if limits.is_empty() {
        return "unlimited".to_owned();
    }
    limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
