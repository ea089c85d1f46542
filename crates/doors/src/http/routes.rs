//! Routes and their policies: `/api/v1/routes`. The program supplies the routes; this door only knows the
//! policies that were assigned to them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::policy::nearest;
use tollgate_engine::Snapshot;

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body::{self, Text};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::overrides::Removed;
use super::path;
use super::problem::Problem;
use super::shown::json;

const ALL: &str = "/api/v1/routes";
const ONE: &str = "/api/v1/routes/{route}/rate-limit";

/// A route of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// Its name.
    pub name: String,
    /// The requests that it matches, as text.
    pub path: String,
    /// Its configured policy.
    pub policy: Option<String>,
}

/// Returns the current routes in their order.
pub type KnownRoutes = Arc<dyn Fn() -> Vec<RouteInfo> + Send + Sync>;

/// The policy to assign to a route.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RouteRequest")]
struct AssignBody<'b> {
    /// The policy's name, whether created over the API or configured.
    #[serde(borrow)]
    policy: Text<'b>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Routes")]
struct RoutesShown<'r> {
    /// The routes in the order of the configuration; after them routes with an assignment that no longer
    /// exist.
    routes: Vec<RouteShown<'r>>,
}

/// A route and its policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Route")]
struct RouteShown<'r> {
    route: &'r str,
    /// The requests that it matches; null if the route no longer exists.
    path: Option<&'r str>,
    /// The policy in force; null if there is none.
    policy: Option<&'r str>,
    /// The policy that was assigned over the API; the route uses it if it exists.
    assigned: Option<&'r str>,
    /// The configured policy.
    configured: Option<&'r str>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let (read, admin) = (Some(Role::Read), Some(Role::Admin));
    let list = Operation::new(ALL, "List the routes and the policies they pass").answers::<RoutesShown<'_>>();
    let look = Operation::new(ONE, "Show the policy that a route passes").answers::<RouteShown<'_>>();
    let assign = Operation::new(ONE, "Make a route pass a policy")
        .takes::<AssignBody<'_>>()
        .answers::<RouteShown<'_>>();
    let remove = Operation::new(ONE, "Restore the configured policy of a route").answers::<Removed>();
    vec![
        Endpoint::new(Method::GET, ALL, read, show_all).does(list),
        Endpoint::new(Method::GET, ONE, read, show_one).does(look),
        Endpoint::new(Method::PUT, ONE, admin, assign_one).does(assign),
        Endpoint::new(Method::DELETE, ONE, admin, unassign_one).does(remove),
    ]
}

async fn show_all(app: Arc<App>, _: Ask) -> Answered {
    let (known, pinned) = ((app.routes)(), app.engine.pin());
    let mut routes: Vec<_> =
        known.iter().map(|info| RouteShown::of(&info.name, Some(info), &pinned)).collect();
    let names: BTreeSet<&str> = known.iter().map(|info| &*info.name).collect();
    let gone = pinned.assignments().keys().filter(|route| !names.contains(&***route));
    routes.extend(gone.map(|route| RouteShown::of(route, None, &pinned)));
    Ok(json(&RoutesShown { routes }))
}

async fn show_one(app: Arc<App>, ask: Ask) -> Answered {
    let name = path::decode(path::rest(&ask.uri).0)?;
    let (known, pinned) = ((app.routes)(), app.engine.pin());
    let info = known.iter().find(|info| info.name == name);
    if info.is_none() && !pinned.assignments().contains_key(&*name) {
        return Err(unknown(&name, &known));
    }
    Ok(json(&RouteShown::of(&name, info, &pinned)))
}

async fn assign_one(app: Arc<App>, ask: Ask) -> Answered {
    let name = path::decode(path::rest(&ask.uri).0)?;
    let AssignBody { policy } = body::read(&ask.body)?;
    let known = (app.routes)();
    let info = known.iter().find(|info| info.name == name).ok_or_else(|| unknown(&name, &known))?;
    let before = app.engine.config.assign(&name, policy.as_str()).await?;
    let (before, after) = (before.map(|policy| policy.to_string()), policy.as_str().to_owned());
    Change { action: "route.assign", what: &name, before, after: Some(after) }.record(&ask);
    Ok(json(&RouteShown::of(&name, Some(info), &app.engine.pin())))
}

async fn unassign_one(app: Arc<App>, ask: Ask) -> Answered {
    let name = path::decode(path::rest(&ask.uri).0)?;
    let known = (app.routes)();
    let there = known.iter().any(|info| info.name == name);
    if !there && !app.engine.pin().assignments().contains_key(&*name) {
        return Err(unknown(&name, &known));
    }
    let before = app.engine.config.unassign(&name).await?.map(|policy| policy.to_string());
    let removed = before.is_some();
    if removed {
        Change { action: "route.unassign", what: &name, before, ..Change::default() }.record(&ask);
    }
    Ok(json(&Removed { removed }))
}

fn unknown(name: &str, known: &[RouteInfo]) -> Problem {
    let near = nearest(name, known.iter().map(|info| &*info.name));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let name: String = name.chars().take(64).collect();
    Problem::not_found(format!("there is no route `{name}`{hint}"))
}

impl<'r> RouteShown<'r> {
    fn of(route: &'r str, info: Option<&'r RouteInfo>, pinned: &'r Snapshot) -> Self {
        let configured = info.and_then(|info| info.policy.as_deref());
        let assigned = pinned.assigned_policy(route).map(|policy| &*policy.name);
        Self {
            route,
            path: info.map(|info| &*info.path),
            policy: assigned.or(configured),
            assigned: pinned.assignments().get(route).map(|policy| &**policy),
            configured,
        }
    }
}

/// The routes of each policy, assigned or configured; each counts once.
pub(crate) struct Users(HashMap<String, BTreeSet<String>>);

impl Users {
    pub(crate) fn of(app: &App, pinned: &Snapshot) -> Self {
        let mut users: HashMap<String, BTreeSet<String>> = HashMap::new();
        let mut note =
            |policy: &str, route: String| users.entry(policy.to_owned()).or_default().insert(route);
        for (route, policy) in pinned.assignments() {
            note(policy, route.to_string());
        }
        for RouteInfo { name, policy, .. } in (app.routes)() {
            if let Some(policy) = policy {
                note(&policy, name);
            }
        }
        Self(users)
    }

    pub(crate) fn count(&self, policy: &str) -> usize {
        self.0.get(policy).map_or(0, BTreeSet::len)
    }
}
