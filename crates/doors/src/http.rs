//! The HTTP API.
//!
//! One table of [`endpoint::Endpoint`]s makes the router, the roles, the metrics and the OpenAPI
//! document, so none of them can speak of a route that the others do not know. Absent on purpose:
//! listening, TLS and timeouts, which belong to whoever serves the router.

mod answer;
mod auth;
mod bans;
mod body;
mod check;
mod endpoint;
mod give;
mod headers;
mod holds;
mod json;
mod mail_shape;
mod metrics;
mod openapi;
mod path;
mod problem;
mod ratelimits;
mod shown;
mod status;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use prometheus_client::registry::Registry;
use tollgate_engine::Engine;

pub use auth::{AccessKey, AccessKeys, Role};
use endpoint::Endpoint;
use problem::Problem;
pub use problem::TooLate;

/// What the HTTP door is made of.
pub struct HttpParts {
    /// Who decides.
    pub engine: Arc<Engine>,
    /// Who may ask for what, for as long as nobody replaces them.
    pub keys: Arc<AccessKeys>,
    /// Reads the configuration again, or says what is wrong with it.
    pub reload: Reload,
    /// The program's own metrics; those of the engine and of this door are added.
    pub registry: Registry,
}

/// Reads the configuration again, or says what is wrong with it.
pub type Reload = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What every request shares.
pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) keys: Arc<AccessKeys>,
    pub(crate) reload: Reload,
    pub(crate) registry: Registry,
    pub(crate) meters: metrics::HttpMeters,
    pub(crate) openapi: Vec<u8>,
    /// What may stand in the query of each endpoint.
    pub(crate) queries: Vec<Vec<&'static str>>,
}

/// The HTTP API as a router.
pub fn router(parts: HttpParts) -> Router {
    let endpoints = all();
    let meters = metrics::HttpMeters::new(&endpoints);
    let mut registry = parts.registry;
    metrics::register(&mut registry, &parts.engine, &meters);
    let openapi = openapi::document(&endpoints).to_string().into_bytes();
    let app = Arc::new(App {
        engine: parts.engine,
        keys: parts.keys,
        reload: parts.reload,
        registry,
        meters,
        openapi,
        queries: endpoints.iter().map(Endpoint::query_names).collect(),
    });
    let mut router = Router::new();
    for (index, endpoint) in endpoints.into_iter().enumerate() {
        router = router.route(endpoint.pattern, (endpoint.serve)(index));
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

/// Every endpoint there is.
fn all() -> Vec<Endpoint> {
    let groups = [
        check::endpoints(),
        give::endpoints(),
        holds::endpoints(),
        ratelimits::endpoints(),
        bans::endpoints(),
        view::endpoints(),
        status::endpoints(),
    ];
    groups.into_iter().flatten().collect()
}
