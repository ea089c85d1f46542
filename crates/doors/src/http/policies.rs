//! Policies created over the API: `/api/v1/policies`.

use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::header::{ETAG, IF_MATCH, LOCATION};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::Rule;
use tollgate_core::grammar::GrammarError;
use tollgate_core::policy::nearest;
use tollgate_engine::runtime_config::{DynamicPolicies, DynamicPolicy, PolicyDraft, PolicySpec};
use tollgate_engine::{ChangeFault, Snapshot};
use tollgate_web::facts::DEFAULT_BY;

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body::{self, OneOrMore, Text, Whole};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::limits::{self, Written};
use super::page::{self, Page};
use super::path;
use super::problem::Problem;
use super::routes::Users;
use super::shown::{self, Moment, json};

const ALL: &str = "/api/v1/policies";
const ONE: &str = "/api/v1/policies/{name}";

/// The two request bodies of a policy. They differ in whether the name is required.
macro_rules! policy_body {
    ($(#[$about:meta])* struct $body:ident { $(#[$naming:meta])* name: $name:ty }) => {
        #[derive(Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$about])*
        struct $body<'b> {
            $(#[$naming])*
            name: $name,
            /// What it is for, in at most 1024 bytes.
            #[serde(borrow, default)]
            description: Option<Text<'b>>,
            /// The rate per second; needs `burstSize`, and excludes `limits`.
            #[serde(default, rename = "requestsPerSecond")]
            requests_per_second: Option<Whole>,
            /// The burst.
            #[serde(default, rename = "burstSize")]
            burst_size: Option<Whole>,
            /// Limits in the grammar, as in `["100/hour", "5/s burst 20"]`, or a single one.
            #[serde(borrow, default)]
            limits: Option<Written<'b>>,
            /// The fields that make the key; `["route", "ip"]` by default.
            #[serde(borrow, default)]
            by: Option<OneOrMore<{ Rule::MOST_FIELDS }, Text<'b>>>,
            /// What happens when a limit is exceeded, as in `wait 2s`; `reject` by default.
            #[serde(borrow, default)]
            on_exceed: Option<Text<'b>>,
            /// What happens while a shared store is down, as in `local 50%`, `allow` or `deny`.
            #[serde(borrow, default)]
            on_outage: Option<Text<'b>>,
        }

        impl $body<'_> {
            /// The policy of this name that the body describes.
            fn spec(&self, name: &str) -> Result<PolicySpec, Problem> {
                let owned = |text: &Text<'_>| text.as_str().to_owned();
                let draft = PolicyDraft {
                    name: name.to_owned(),
                    description: self.description.as_ref().map(owned).unwrap_or_default(),
                    by: match &self.by {
                        Some(by) => by.0.iter().map(owned).collect(),
                        None => DEFAULT_BY.map(str::to_owned).into(),
                    },
                    limits: limits::wanted(self.limits.as_ref(), self.requests_per_second, self.burst_size)?,
                    on_exceed: read("on_exceed", self.on_exceed.as_ref())?,
                    on_outage: read("on_outage", self.on_outage.as_ref())?,
                };
                PolicySpec::new(draft).map_err(|error| Problem::bad_request(error.to_string()))
            }
        }
    };
}

policy_body! {
    /// A policy to create. It limits each client on each route, unless `by` names other fields, and each
    /// consumer.
    #[schemars(rename = "PolicyRequest")]
    struct NewBody {
        /// Its name: 1 to 64 of `a-z 0-9 _ . -`.
        #[serde(borrow)]
        #[schemars(regex(pattern = "^[a-z0-9_.-]{1,64}$"))]
        name: Text<'b>
    }
}

policy_body! {
    /// All settings of a policy. A member that is absent gets its default.
    #[schemars(rename = "PolicyChange")]
    struct ChangeBody {
        /// Its name, which may be absent and cannot be changed.
        #[serde(borrow, default)]
        name: Option<Text<'b>>
    }
}

/// A policy that was created over the API.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Policy")]
struct PolicyShown<'p> {
    /// Its id: its name.
    id: &'p str,
    name: &'p str,
    description: &'p str,
    /// The rate per second; only if the limit is a rate per second with a burst.
    #[serde(rename = "requestsPerSecond", skip_serializing_if = "Option::is_none")]
    requests_per_second: Option<u64>,
    /// The burst; only with `requestsPerSecond`.
    #[serde(rename = "burstSize", skip_serializing_if = "Option::is_none")]
    burst_size: Option<u64>,
    /// Its limits, as text.
    limits: Vec<String>,
    /// The fields that make its key.
    by: Vec<&'p str>,
    /// What happens when a limit is exceeded.
    on_exceed: String,
    /// The `on_outage` that was set; null if none was set.
    on_outage: Option<String>,
    /// What happens while a shared store is down: `on_outage`, or else the default of the configuration,
    /// or `deny` if some limit has no share.
    effective_on_outage: String,
    /// Whether it is in force. It is not if the configuration has a rule or policy of its name, or if its
    /// limits clash with it.
    in_force: bool,
    /// How many routes use it, by assignment or by configuration.
    routes: usize,
    /// How often it was changed.
    version: u64,
    /// When it was created (RFC 3339).
    #[serde(rename = "createdAt")]
    #[schemars(with = "String")]
    created_at: Moment,
    /// When it was changed last (RFC 3339).
    #[serde(rename = "updatedAt")]
    #[schemars(with = "String")]
    updated_at: Moment,
}

#[derive(Serialize, JsonSchema)]
struct PolicyPage<'p> {
    /// Policies that were created over the API, by name.
    policies: Vec<PolicyShown<'p>>,
    /// The value of `after` for the next page; null on the last one.
    next: Option<String>,
}

/// What was deleted.
#[derive(Serialize, JsonSchema)]
struct Deleted<'p> {
    /// Its name.
    deleted: &'p str,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let (read, admin) = (Some(Role::Read), Some(Role::Admin));
    let media = "application/json";
    let create =
        Operation::new(ALL, "Create a policy").takes::<NewBody<'_>>().also::<PolicyShown<'_>>(201, media);
    let list = Operation::new(ALL, "List the policies that were created over the API")
        .query(page::QUERY)
        .answers::<PolicyPage<'_>>();
    let look =
        Operation::new(ONE, "Show a policy that was created over the API").answers::<PolicyShown<'_>>();
    let change = Operation::new(ONE, "Replace all settings of a policy except its name")
        .takes::<ChangeBody<'_>>()
        .answers::<PolicyShown<'_>>();
    let delete = Operation::new(ONE, "Delete a policy that no route uses").answers::<Deleted<'_>>();
    vec![
        Endpoint::new(Method::POST, ALL, admin, create_one).does(create),
        Endpoint::new(Method::GET, ALL, read, show_page).does(list),
        Endpoint::new(Method::GET, ONE, read, show_one).does(look),
        Endpoint::new(Method::PUT, ONE, admin, change_one).does(change),
        Endpoint::new(Method::DELETE, ONE, admin, delete_one).does(delete),
    ]
}

async fn create_one(app: Arc<App>, ask: Ask) -> Answered {
    let body: NewBody<'_> = body::read(&ask.body)?;
    let policy = app.engine.config.create_policy(body.spec(body.name.as_str())?).await?;
    let after = Some(in_words(&app, &policy));
    let name = &*policy.spec.name;
    Change { action: "policy.create", what: name, after, ..Change::default() }.record(&ask);
    let mut response = show(&app, &policy);
    *response.status_mut() = StatusCode::CREATED;
    let location = HeaderValue::try_from(format!("{ALL}/{name}")).expect("names fit into a header");
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

async fn change_one(app: Arc<App>, ask: Ask) -> Answered {
    let own = path::decode(path::rest(&ask.uri).0)?;
    let body: ChangeBody<'_> = body::read(&ask.body)?;
    if body.name.as_ref().is_some_and(|name| name.as_str() != own) {
        let detail = "a policy keeps its name, because its counters are stored under it: create another one and delete this one";
        return Err(Problem::bad_request(detail));
    }
    let changed = app.engine.config.change_policy(body.spec(&own)?, expected(&ask).as_deref()).await;
    let change = changed.map_err(|fault| refused(&app, fault))?;
    let (before, after) = (in_words(&app, &change.before), in_words(&app, &change.after));
    Change { action: "policy.change", what: &own, before: Some(before), after: Some(after) }.record(&ask);
    Ok(show(&app, &change.after))
}

async fn delete_one(app: Arc<App>, ask: Ask) -> Answered {
    let name = path::decode(path::rest(&ask.uri).0)?;
    let routes = (app.routes)();
    let configured = routes.into_iter().filter(|route| route.policy.as_deref() == Some(&name));
    let configured: Vec<String> = configured.map(|route| route.name).collect();
    let deleted = app.engine.config.delete_policy(&name, expected(&ask).as_deref(), &configured).await;
    let policy = deleted.map_err(|fault| refused(&app, fault))?;
    let before = Some(in_words(&app, &policy));
    Change { action: "policy.delete", what: &name, before, ..Change::default() }.record(&ask);
    Ok(json(&Deleted { deleted: &name }))
}

async fn show_one(app: Arc<App>, ask: Ask) -> Answered {
    let name = path::decode(path::rest(&ask.uri).0)?;
    let policy = Arc::clone(find(app.engine.pin().dynamic_policies(), &name)?);
    Ok(show(&app, &policy))
}

async fn show_page(app: Arc<App>, ask: Ask) -> Answered {
    let page = Page::of(&ask)?;
    let pinned = app.engine.pin();
    let users = Users::of(&app, &pinned);
    let from = page.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let policies = pinned.dynamic_policies().range::<str, _>((from, Bound::Unbounded)).take(page.limit + 1);
    let policies: Vec<PolicyShown<'_>> =
        policies.map(|(_, policy)| PolicyShown::of(policy, &pinned, &users)).collect();
    let (policies, next) = page.cut(policies, |shown| shown.name);
    Ok(json(&PolicyPage { policies, next }))
}

impl<'p> PolicyShown<'p> {
    fn of(policy: &'p DynamicPolicy, pinned: &Snapshot, users: &Users) -> Self {
        let spec = &policy.spec;
        let (requests_per_second, burst_size) = limits::rate_and_burst(&spec.plan).unzip();
        Self {
            id: &spec.name,
            name: &spec.name,
            description: &spec.description,
            requests_per_second,
            burst_size,
            limits: shown::limits(&spec.plan),
            by: spec.by.iter().map(|field| &**field).collect(),
            on_exceed: spec.on_exceed.to_string(),
            on_outage: spec.on_outage.map(|on_outage| on_outage.to_string()),
            effective_on_outage: spec.in_outage(pinned.policies.on_outage()).to_string(),
            in_force: pinned.holds(&spec.name),
            routes: users.count(&spec.name),
            version: policy.version,
            created_at: Moment(policy.created),
            updated_at: Moment(policy.updated),
        }
    }
}

/// A policy for the audit log.
fn in_words(app: &App, policy: &DynamicPolicy) -> String {
    policy.spec.in_words(app.engine.pin().policies.on_outage())
}

/// A policy with its ETag.
fn show(app: &App, policy: &DynamicPolicy) -> Response {
    let pinned = app.engine.pin();
    let mut response = json(&PolicyShown::of(policy, &pinned, &Users::of(app, &pinned)));
    let tag = HeaderValue::try_from(format!("\"{}\"", policy.tag())).expect("tags fit into a header");
    response.headers_mut().insert(ETAG, tag);
    response
}

/// Reads a member in the grammar of limits.
fn read<T: FromStr<Err = GrammarError>>(member: &str, text: Option<&Text<'_>>) -> Result<Option<T>, Problem> {
    let read = text.map(|text| text.as_str().parse()).transpose();
    read.map_err(|error| Problem::bad_request(format!("`{member}`: {error}")))
}

/// The policy of this name.
fn find<'p>(policies: &'p DynamicPolicies, name: &str) -> Result<&'p Arc<DynamicPolicy>, Problem> {
    policies.get(name).ok_or_else(|| {
        let near = nearest(name, policies.keys().map(|known| &**known));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let name = name.chars().take(64).collect();
        Problem::not_found(format!("{}{hint}", ChangeFault::Unknown { name }))
    })
}

/// Why a policy was not changed.
fn refused(app: &App, fault: ChangeFault) -> Problem {
    if let ChangeFault::Unknown { name } = &fault
        && let Err(problem) = find(app.engine.pin().dynamic_policies(), name)
    {
        return problem;
    }
    fault.into()
}

/// The ETags in `If-Match`; `None` if the caller accepts any state.
fn expected(ask: &Ask) -> Option<Vec<String>> {
    let values: Vec<&HeaderValue> = ask.headers.get_all(IF_MATCH).iter().collect();
    let texts = values.iter().filter_map(|value| value.to_str().ok());
    let tags: Vec<&str> = texts.flat_map(|text| text.split(',')).map(str::trim).collect();
    let any = values.is_empty() || tags.contains(&"*");
    let bare = |tag: &&str| Some(tag.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    (!any).then(|| tags.iter().filter_map(bare).collect())
}
