//! Consumers with limits of their own, on all routes together: `/api/v1/consumers`. They are overrides of the
//! rule `consumer`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::{Clash, Plan, Policies};
use tollgate_engine::runtime_config::CONSUMER;

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body::{self, Text, Whole};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::limits::{self, Written};
use super::overrides::{self, EndShown, Removed};
use super::page::{self, Page};
use super::path::{self, Place};
use super::problem::Problem;
use super::shown::{self, json};

const ALL: &str = "/api/v1/consumers";
const ONE: &str = "/api/v1/consumers/{id}/rate-limit";

/// Limits for one consumer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ConsumerRequest")]
struct LimitBody<'b> {
    /// The rate per second; needs `burstSize`, and excludes `limits`.
    #[serde(default, rename = "requestsPerSecond")]
    requests_per_second: Option<Whole>,
    /// The burst.
    #[serde(default, rename = "burstSize")]
    burst_size: Option<Whole>,
    /// Limits in the grammar, as in `["100/hour", "5/s burst 20"]`, or a single one; `unlimited` means no
    /// limit.
    #[serde(borrow, default)]
    limits: Option<Written<'b>>,
    /// How long they last, as in `1d`; until they are removed by default.
    #[serde(borrow, default, rename = "for")]
    lasts: Option<Text<'b>>,
}

/// A consumer with limits of its own.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Consumer")]
struct ConsumerShown {
    /// The consumer; a pseudonym if keys are secret.
    id: String,
    /// The rate per second; only if the limit is a rate per second with a burst.
    #[serde(rename = "requestsPerSecond", skip_serializing_if = "Option::is_none")]
    requests_per_second: Option<u64>,
    /// The burst; only with `requestsPerSecond`.
    #[serde(rename = "burstSize", skip_serializing_if = "Option::is_none")]
    burst_size: Option<u64>,
    /// Its limits, as text.
    limits: Vec<String>,
    /// Whether they were set at run time; otherwise they are configured.
    overridden: bool,
    /// When they end; absent if they last until they are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_ends: Option<EndShown>,
}

#[derive(Serialize, JsonSchema)]
struct ConsumerPage {
    /// Consumers with limits of their own, by id.
    consumers: Vec<ConsumerShown>,
    /// The value of `after` for the next page; null on the last one.
    next: Option<String>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let (read, admin) = (Some(Role::Read), Some(Role::Admin));
    let list = Operation::new(ALL, "List the consumers with limits of their own")
        .query(page::QUERY)
        .answers::<ConsumerPage>();
    let look = Operation::new(ONE, "Show the limits of a consumer").answers::<ConsumerShown>();
    let set =
        Operation::new(ONE, "Set limits for a consumer").takes::<LimitBody<'_>>().answers::<ConsumerShown>();
    let remove = Operation::new(ONE, "Remove the limits of a consumer").answers::<Removed>();
    vec![
        Endpoint::new(Method::GET, ALL, read, show_page).does(list),
        Endpoint::new(Method::GET, ONE, read, show_one).does(look),
        Endpoint::new(Method::PUT, ONE, admin, set_one).does(set),
        Endpoint::new(Method::DELETE, ONE, admin, remove_one).does(remove),
    ]
}

async fn show_page(app: Arc<App>, ask: Ask) -> Answered {
    let page = Page::of(&ask)?;
    let pinned = app.engine.pin();
    let rule = path::rule(&pinned.policies, CONSUMER)?;
    // Keeps only one page and one entry more, since sorting all of them would take long.
    let mut next: BTreeMap<String, (&str, &Plan)> = BTreeMap::new();
    for (key, plan) in &rule.overrides {
        let shown = app.engine.observer.shown_key(rule, key);
        let full = next.len() > page.limit;
        let late = full && next.last_key_value().is_some_and(|(last, _)| **last <= *shown);
        if late || page.after.as_deref().is_some_and(|after| *shown <= *after) {
            continue;
        }
        next.insert(shown.into_owned(), (key, plan));
        if full {
            next.pop_last();
        }
    }
    let shown = next.into_iter().map(|(id, (key, plan))| ConsumerShown::of(&app, id, key, plan)).collect();
    let (consumers, next) = page.cut(shown, |consumer: &ConsumerShown| &consumer.id);
    Ok(json(&ConsumerPage { consumers, next }))
}

async fn show_one(app: Arc<App>, ask: Ask) -> Answered {
    show(&app, &ask)
}

fn show(app: &App, ask: &Ask) -> Answered {
    let pinned = app.engine.pin();
    let place = place(app, &pinned.policies, ask)?;
    let id = app.engine.observer.shown_key(place.rule, &place.key).into_owned();
    let plan = place.rule.overrides.get(&place.key);
    let plan = plan.ok_or_else(|| Problem::not_found("this consumer has no limits of its own"))?;
    Ok(json(&ConsumerShown::of(app, id, &place.key, plan)))
}

async fn set_one(app: Arc<App>, ask: Ask) -> Answered {
    let LimitBody { requests_per_second, burst_size, limits, lasts } = body::read(&ask.body)?;
    let lasts = overrides::span(lasts.as_ref())?;
    let limits = limits::wanted(limits.as_ref(), requests_per_second, burst_size)?;
    let pinned = app.engine.pin();
    let place = place(&app, &pinned.policies, &ask)?;
    if let Some(clash) = Clash::find(CONSUMER, &limits, pinned.policies.iter()) {
        return Err(Problem::bad_request(clash.to_string()));
    }
    let before = app.engine.config.set_override_for(CONSUMER, &place.key, limits, lasts).await?;
    tell(&app, &ask, &place, "consumer.limit", before.as_deref());
    show(&app, &ask)
}

async fn remove_one(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let place = place(&app, &pinned.policies, &ask)?;
    let before = app.engine.config.remove_override(CONSUMER, &place.key).await?;
    if before.is_some() {
        tell(&app, &ask, &place, "consumer.unlimit", before.as_deref());
    }
    Ok(json(&Removed { removed: before.is_some() }))
}

/// Logs that limits were set or removed, with those in force before and now.
fn tell(app: &App, ask: &Ask, place: &Place<'_>, action: &'static str, before: Option<&Plan>) {
    let pinned = app.engine.pin();
    let now = pinned.policies.rule(CONSUMER).and_then(|rule| rule.overrides.get(&place.key));
    let (before, after) = (before.map(ToString::to_string), now.map(ToString::to_string));
    Change { action, what: &app.engine.observer.shown_key(place.rule, &place.key), before, after }
        .record(ask);
}

fn place<'s>(app: &App, policies: &'s Policies, ask: &Ask) -> Result<Place<'s>, Problem> {
    Place::of(&app.engine.observer, path::rule(policies, CONSUMER)?, &path::decode(path::rest(&ask.uri).0)?)
}

impl ConsumerShown {
    fn of(app: &App, id: String, key: &str, plan: &Plan) -> Self {
        let (requests_per_second, burst_size) = limits::rate_and_burst(plan).unzip();
        let (limits, overridden) = (shown::limits(plan), app.engine.config.is_overridden(CONSUMER, key));
        let override_ends = app.engine.config.override_end(CONSUMER, key).map(EndShown::from);
        Self { id, requests_per_second, burst_size, limits, overridden, override_ends }
    }
}
