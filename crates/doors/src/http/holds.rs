//! Holds on what is in flight: taken, renewed and released by an id.

use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::limit::InFlight;
use tollgate_core::store::{Counter, HoldsOrder, HoldsReport};
use tollgate_core::{Attempt, Limit, Mistake, Rule};

use super::App;
use super::answer::shapes::{Allowed, Refused};
use super::audit::Change;
use super::auth::Role;
use super::body::{self, AtMost, Fields, Text, Whole};
use super::check::{self, AttemptBody, IdShown};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::path::{self, Place};
use super::problem::{PROBLEM_JSON, Problem, ProblemBody};
use super::shown::{Moment, Shown, json};

/// The most ids that can be set at once.
const MOST_IDS: usize = 100_000;

/// The longest body that sets ids: the most ids, of a usual length.
const MOST_IDS_BYTES: usize = 8 << 20;

const ONE: &str = "/api/v1/holds/{rule}/{*key}";

/// An attempt that takes holds at `at once` limits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HoldRequest")]
struct HoldBody<'b> {
    /// The name of the policy.
    #[serde(borrow)]
    policy: Text<'b>,
    #[serde(borrow, default)]
    fields: Fields<'b>,
    /// The id of the hold.
    #[serde(borrow)]
    id: Text<'b>,
    /// How much to charge; 1 by default.
    #[serde(default)]
    cost: Option<Whole>,
}

/// All ids that are held, as far as the caller knows.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HeldIds")]
struct IdsBody<'b> {
    #[serde(borrow)]
    ids: AtMost<MOST_IDS, Text<'b>>,
}

#[derive(Serialize, JsonSchema)]
struct Renewed {
    /// Always true.
    renewed: bool,
}

#[derive(Serialize, JsonSchema)]
struct Released {
    /// Whether the id had a hold.
    released: bool,
}

/// The holds of a key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Holds")]
struct HoldsShown<'h> {
    /// The rule.
    rule: &'h str,
    /// The key; a pseudonym if keys are secret.
    key: &'h str,
    /// The limit, as text.
    #[schemars(with = "String")]
    limit: Shown<&'h Limit>,
    /// The most that may be held at once.
    capacity: u64,
    /// How much is held.
    held: u64,
    /// Every hold.
    holds: Vec<HoldShown<'h>>,
}

/// One hold.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Hold")]
struct HoldShown<'h> {
    /// Its id.
    id: &'h str,
    /// How much of the limit it uses.
    weight: u64,
    /// When it was taken.
    #[schemars(with = "String")]
    since: Moment,
    /// When it ends unless it is renewed; null if never.
    #[schemars(with = "Option<String>")]
    expires: Option<Moment>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let take = Operation::new("/api/v1/holds", "Decide an attempt and take holds under its id")
        .query(&[("ratelimit", "`ietf` adds the RateLimit and RateLimit-Policy headers")])
        .takes::<HoldBody<'_>>()
        .answers::<Allowed<'_, '_>>()
        .also::<Refused<'_, '_>>(403, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(403, PROBLEM_JSON)
        .also::<Refused<'_, '_>>(429, PROBLEM_JSON)
        .also::<Refused<'_, '_>>(503, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(503, PROBLEM_JSON);
    let renew = Operation::new("/api/v1/holds/{rule}/{key}/{id}/renew", "Renew a hold's lease");
    let release = Operation::new("/api/v1/holds/{rule}/{key}/{id}", "End a hold");
    let list = Operation::new("/api/v1/holds/{rule}/{key}", "List the holds of a key");
    let replace = Operation::new("/api/v1/holds/{rule}/{key}", "Make exactly these ids held")
        .takes::<IdsBody<'_>>()
        .answers::<HoldsShown<'_>>();
    let (check, read, admin) = (Some(Role::Check), Some(Role::Read), Some(Role::Admin));
    vec![
        Endpoint::new(Method::POST, "/api/v1/holds", check, take_hold).serves_tenants().does(take),
        Endpoint::new(Method::POST, ONE, check, renew_hold).serves_tenants().does(renew.answers::<Renewed>()),
        Endpoint::new(Method::DELETE, ONE, check, release_hold)
            .serves_tenants()
            .does(release.answers::<Released>()),
        Endpoint::new(Method::GET, ONE, read, list_holds)
            .serves_tenants()
            .does(list.answers::<HoldsShown<'_>>()),
        Endpoint::with_body_of(MOST_IDS_BYTES, Method::PUT, ONE, admin, replace_holds)
            .serves_tenants()
            .does(replace),
    ]
}

async fn take_hold(app: Arc<App>, ask: Ask) -> Answered {
    let HoldBody { policy, fields, id, cost } = body::read(&ask.body)?;
    let attempt = AttemptBody { policy, fields, cost, id: Some(id), dry_run: false };
    check::decide(&app, &ask, &attempt, IdShown::Always).await
}

async fn renew_hold(app: Arc<App>, ask: Ask) -> Answered {
    let (rule, rest) = path::rest(&ask.uri);
    let rest = rest.strip_suffix("/renew").ok_or_else(Problem::no_such_path)?;
    let (key, id) = rest.rsplit_once('/').ok_or_else(Problem::no_such_path)?;
    let report = order(&app, &ask, (rule, key), HoldsOrder::Renew(&path::decode(id)?)).await?;
    if !report.found {
        return Err(Problem::not_found("nothing is held under this id: it was released, or its time is up"));
    }
    Ok(json(&Renewed { renewed: true }))
}

async fn release_hold(app: Arc<App>, ask: Ask) -> Answered {
    let (rule, rest) = path::rest(&ask.uri);
    let (key, id) = rest.rsplit_once('/').ok_or_else(Problem::no_such_path)?;
    let report = order(&app, &ask, (rule, key), HoldsOrder::Release(&path::decode(id)?)).await?;
    Ok(json(&Released { released: report.found }))
}

async fn list_holds(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let (rule, key) = path::rest(&ask.uri);
    let place = Place::find(&app.engine.observer, &pinned.policies, rule, key)?;
    ask.check_place(&place)?;
    let counter = Counter { plan: place.rule.plan_at(&place.key), key: &place.key };
    in_flight(place.rule, &counter)?;
    let report = app.engine.counters.holds(&counter, HoldsOrder::List).await?;
    show(&app, &place, &counter, &report)
}

async fn replace_holds(app: Arc<App>, ask: Ask) -> Answered {
    let IdsBody { ids } = body::read(&ask.body)?;
    let ids: Vec<&str> = ids.0.iter().map(Text::as_str).collect();
    for (index, id) in ids.iter().enumerate() {
        let wrong = |mistake: Mistake| Problem::bad_request(format!("`ids[{index}]`: {mistake}"));
        Attempt::check_id(id).map_err(wrong)?;
    }
    let pinned = app.engine.pin();
    let (rule, key) = path::rest(&ask.uri);
    let place = Place::find(&app.engine.observer, &pinned.policies, rule, key)?;
    ask.check_place(&place)?;
    let counter = Counter { plan: place.rule.plan_at(&place.key), key: &place.key };
    in_flight(place.rule, &counter)?;
    let report = app.engine.counters.replace_holds(&counter, &ids).await?;
    let what = format!("{}/{}", place.rule.name, app.engine.observer.shown_key(place.rule, &place.key));
    let after = Some(format!("{} ids", ids.len()));
    Change { action: "holds.replace", what: &what, after, ..Change::default() }.record(&ask);
    show(&app, &place, &counter, &report)
}

async fn order(
    app: &App,
    ask: &Ask,
    (rule, key): (&str, &str),
    order: HoldsOrder<'_>,
) -> Result<HoldsReport, Problem> {
    let pinned = app.engine.pin();
    let place = Place::find(&app.engine.observer, &pinned.policies, rule, key)?;
    ask.check_place(&place)?;
    let counter = Counter { plan: place.rule.plan_at(&place.key), key: &place.key };
    in_flight(place.rule, &counter)?;
    Ok(app.engine.counters.holds(&counter, order).await?)
}

/// The limit of a rule at a key that counts holds.
fn in_flight<'s>(rule: &Rule, counter: &Counter<'s>) -> Result<(&'s Limit, &'s InFlight), Problem> {
    let none = || Problem::not_found(format!("rule `{}` has no limit `at once` at this key", rule.name));
    let (index, holds) = counter.plan.in_flight().ok_or_else(none)?;
    Ok((&counter.plan.limits()[index], holds))
}

fn show(app: &App, place: &Place<'_>, counter: &Counter<'_>, report: &HoldsReport) -> Answered {
    let (limit, holds) = in_flight(place.rule, counter)?;
    let shown = report.holds.iter().map(|(id, hold)| HoldShown {
        id,
        weight: hold.weight,
        since: Moment(hold.since),
        expires: holds.lease().map(|lease| Moment(hold.renewed + lease)),
    });
    Ok(json(&HoldsShown {
        rule: &place.rule.name,
        key: &app.engine.observer.shown_key(place.rule, &place.key),
        limit: Shown(limit),
        capacity: limit.capacity(),
        held: report.holds.iter().map(|(_, hold)| hold.weight).sum(),
        holds: shown.collect(),
    }))
}
