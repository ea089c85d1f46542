//! The HTTP API.
//!
//! One table of [`endpoint::Endpoint`]s produces the router, the roles, the metrics and the OpenAPI document,
//! so they all have the same routes. Absent on purpose: listening, TLS and time-outs, which belong to the
//! server of the router.

mod accounts;
mod acquire;
mod aliases;
mod answer;
mod audit;
mod auth;
mod bans;
mod body;
mod check;
mod console;
mod consumers;
mod counters;
mod decision;
mod endpoint;
mod exposition;
mod forward_auth;
mod guards;
mod holds;
mod incoming;
mod keys;
mod limits;
mod live;
mod mail_shape;
mod messages;
mod metrics;
mod openapi;
mod overrides;
mod paced;
mod page;
mod pages;
mod path;
mod policies;
mod problem;
mod refund;
mod routes;
mod rules;
mod session;
mod shown;
mod status;
mod submit;
mod tenancy;
mod top;
mod view;
mod waiting;
mod wrong_tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tollgate_core::Clock;
use tollgate_engine::{Admissions, Engine, PacedLog, Pacer};
use tollgate_relay::Relay;

pub use auth::{AccessKey, AccessKeys, MailTenant, Role};
use endpoint::Endpoint;
pub use forward_auth::{ForwardAuth, ForwardAuthSettings};
pub use incoming::{MOST_BODY_BYTES_IN_TOTAL, MOST_BODY_BYTES_PER_CONNECTION, Peer};
pub use live::Live;
use problem::Problem;
pub use problem::TooLate;
pub use routes::{KnownRoutes, RouteInfo};
pub use submit::is_upload;
pub use waiting::{LONGEST_WAIT, Patience};

/// The parts of the HTTP door.
pub struct HttpParts {
    /// Decides attempts.
    pub admissions: Admissions,
    /// Lets attempts wait for their turn.
    pub pacer: Pacer,
    /// The access keys; they can be replaced while the router serves.
    pub keys: Arc<AccessKeys>,
    /// Reloads the configuration, or returns its errors.
    pub reload: Reload,
    /// The routes of the gateway; none if there is no gateway.
    pub routes: KnownRoutes,
    /// The settings of forward-auth; they can be replaced while the router serves.
    pub forward_auth: Arc<ForwardAuth>,
    /// The mail relay; `None` if there is none.
    pub relay: Option<Arc<Relay>>,
    /// What happens now; its owner calls it once a second.
    pub live: Arc<Live>,
    /// The time of sessions and changes.
    pub clock: Arc<dyn Clock>,
    /// The program's own metrics; those of the engine and of this door are added.
    pub registry: Registry,
}

/// Reloads the configuration, and returns the changed settings that need a restart; or returns its errors.
pub type Reload = Arc<dyn Fn() -> Result<Vec<String>, String> + Send + Sync>;

/// What all requests share.
pub(crate) struct App {
    pub(crate) admissions: Admissions,
    pub(crate) engine: Arc<Engine>,
    pub(crate) pacer: Pacer,
    /// Slots for waiting requests.
    pub(crate) places: Semaphore,
    pub(crate) keys: Arc<AccessKeys>,
    pub(crate) reload: Reload,
    pub(crate) routes: KnownRoutes,
    pub(crate) forward_auth: Arc<ForwardAuth>,
    pub(crate) warnings: forward_auth::Warnings,
    pub(crate) relay: Option<Arc<Relay>>,
    pub(crate) live: Arc<Live>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) changes: audit::Changes,
    pub(crate) wrong_tokens: wrong_tokens::WrongTokens,
    /// Paces the record of pauses that keys without the role `admin` report.
    pub(crate) reported_pauses: PacedLog,
    pub(crate) registry: Registry,
    pub(crate) meters: metrics::HttpMeters,
    pub(crate) openapi: Bytes,
    /// The request bodies in memory.
    pub(crate) bodies: incoming::SharedRoom,
    /// Whether each endpoint takes a body.
    pub(crate) takes_body: Vec<bool>,
    /// The query parameters of each endpoint.
    pub(crate) queries: Vec<Vec<&'static str>>,
    /// Whether each endpoint signs in.
    pub(crate) signs_in: Vec<bool>,
    /// Whether each endpoint serves keys with a tenant.
    pub(crate) serves_tenants: Vec<bool>,
}

impl App {
    /// The mail relay, if there is one.
    pub(crate) fn relay(&self) -> Result<&Arc<Relay>, Problem> {
        let missing = "this server has no mail relay: add `relay` to its configuration, and restart it";
        self.relay.as_ref().ok_or_else(|| Problem::not_found(missing))
    }
}

/// The HTTP API as a router.
pub fn router(parts: HttpParts) -> Router {
    let endpoints = all();
    let meters = metrics::HttpMeters::new(&endpoints);
    let mut registry = parts.registry;
    let engine = &parts.admissions.engine;
    metrics::register(&mut registry, engine, &parts.pacer, &meters);
    let openapi = openapi::document(&endpoints).to_string().into();
    let app = Arc::new(App {
        engine: Arc::clone(engine),
        pacer: parts.pacer.clone(),
        admissions: Admissions { pacer: Some(parts.pacer), ..parts.admissions.clone() },
        places: Semaphore::new(waiting::MOST_WAITING),
        keys: parts.keys,
        reload: parts.reload,
        routes: parts.routes,
        forward_auth: parts.forward_auth,
        warnings: forward_auth::Warnings::default(),
        relay: parts.relay,
        live: parts.live,
        clock: parts.clock,
        changes: audit::Changes::default(),
        wrong_tokens: wrong_tokens::WrongTokens::default(),
        reported_pauses: PacedLog::every(paced::RECORD_REPORTS_EVERY),
        registry,
        meters,
        openapi,
        bodies: incoming::SharedRoom::default(),
        takes_body: endpoints.iter().map(Endpoint::takes_body).collect(),
        queries: endpoints.iter().map(Endpoint::query_names).collect(),
        signs_in: endpoints.iter().map(|endpoint| endpoint.signs_in).collect(),
        serves_tenants: endpoints.iter().map(|endpoint| endpoint.tenants).collect(),
    });
    let mut router = Router::new();
    for (index, endpoint) in endpoints.into_iter().enumerate() {
        router = router.route(endpoint.pattern, (endpoint.serve)(index));
        if let Some(earlier) = aliases::earlier(endpoint.pattern) {
            router = router.route(&earlier, (endpoint.serve)(index));
        }
    }
    router
        .fallback(|State(app): State<Arc<App>>, request: Request| {
            endpoint::refuse(app, request, Problem::no_such_path)
        })
        .method_not_allowed_fallback(|State(app): State<Arc<App>>, request: Request| {
            endpoint::refuse(app, request, Problem::method_not_allowed)
        })
        .with_state(app)
}

/// All endpoints.
fn all() -> Vec<Endpoint> {
    let groups = [
        check::endpoints(),
        acquire::endpoints(),
        paced::endpoints(),
        forward_auth::endpoints(),
        refund::endpoints(),
        guards::endpoints(),
        holds::endpoints(),
        counters::endpoints(),
        keys::endpoints(),
        rules::endpoints(),
        bans::endpoints(),
        policies::endpoints(),
        routes::endpoints(),
        consumers::endpoints(),
        accounts::endpoints(),
        messages::endpoints(),
        submit::endpoints(),
        view::endpoints(),
        decision::endpoints(),
        top::endpoints(),
        live::endpoints(),
        audit::endpoints(),
        session::endpoints(),
        status::endpoints(),
        console::endpoints(),
    ];
    groups.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    /// The tests of roles and tenants go through the document, so nothing that needs a token may be missing in it.
    #[test]
    fn endpoints_that_need_a_token_are_documented() {
        for endpoint in super::all() {
            let documented = endpoint.role.is_none() || !endpoint.operations.is_empty();
            assert!(documented, "{} {}", endpoint.method, endpoint.pattern);
        }
    }

    #[test]
    fn endpoints_that_need_no_token_take_no_body() {
        let open = super::all().into_iter().filter(|endpoint| endpoint.role.is_none());
        let paths: Vec<&str> = open
            .map(|endpoint| {
                assert!(!endpoint.takes_body(), "{} reads a body from anybody", endpoint.pattern);
                endpoint.pattern
            })
            .collect();
        assert_eq!(
            paths,
            ["/livez", "/readyz", "/api/v1/openapi.json", "/", "/console.js", "/console.css", "/console.svg",]
        );
    }
}
