//! The server itself: liveness, readiness, metrics, the OpenAPI document, reloads.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, VARY};
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::Reason;
use tollgate_engine::Health;

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::exposition::Format;
use super::metrics;
use super::problem::{PROBLEM_JSON, Problem, ProblemBody};
use super::shown::{json, json_bytes};

#[derive(Serialize, JsonSchema)]
struct Status {
    /// `live`, `ready`, or `degraded`: decisions are made without the store, or the mail relay is broken.
    status: &'static str,
    /// Why the store cannot be used, or `relay`; only if `degraded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The cause in words; only if `degraded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// How many pauses of mail and accounts are in force; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pauses: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Reloaded {
    /// Always true.
    reloaded: bool,
    /// The settings that differ from those of the start, and apply only after a restart.
    needs_restart: Vec<String>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let reload = Operation::new("/api/v1/reload", "Reload the configuration")
        .answers::<Reloaded>()
        .also::<ProblemBody<'_>>(422, PROBLEM_JSON);
    let metrics = Operation::new("/metrics", "Show metrics in the format that `Accept` asks for")
        .also::<String>(200, Format::Text.media_type())
        .also::<String>(200, Format::OpenMetrics.media_type());
    let live = Operation::new("/livez", "Show whether the process lives").answers::<Status>();
    let ready = Operation::new("/readyz", "Show whether attempts can be decided").answers::<Status>();
    let openapi = Operation::new("/api/v1/openapi.json", "Describe this API")
        .answers::<serde_json::Map<String, serde_json::Value>>();
    vec![
        Endpoint::new(Method::POST, "/api/v1/reload", Some(Role::Admin), read_again).does(reload),
        Endpoint::new(Method::GET, "/metrics", Some(Role::Read), show_metrics).does(metrics),
        Endpoint::new(Method::GET, "/livez", None, lives).does(live),
        Endpoint::new(Method::GET, "/readyz", None, is_ready).does(ready),
        Endpoint::new(Method::GET, "/api/v1/openapi.json", None, describe).does(openapi),
    ]
}

async fn lives(_: Arc<App>, _: Ask) -> Answered {
    Ok(json(&Status { status: "live", reason: None, cause: None, pauses: None }))
}

/// A node is ready if it can decide: the store answers, or there is a fallback. The check leaves no trace.
async fn is_ready(app: Arc<App>, _: Ask) -> Answered {
    let pauses = app.relay.as_ref().map(|relay| relay.account_registry().pauses().len());
    let pauses = pauses.filter(|count| *count > 0);
    let degraded = |reason: Reason, cause: Option<String>| {
        json(&Status { status: "degraded", reason: Some(reason.name()), cause, pauses })
    };
    if let Health::Degraded(reason) = app.engine.counters.health() {
        return Ok(degraded(reason, app.engine.counters.outage_cause()));
    }
    let pinned = app.engine.pin();
    if let Some(rule) = pinned.policies.rules().iter().find(|rule| !rule.plan.limits().is_empty())
        && let Err(error) = app.engine.counters.look(&rule.plan, &rule.name).await
    {
        let reason = error.reason().filter(|_| app.engine.counters.are_shared());
        return reason.map(|reason| degraded(reason, Some(error.to_string()))).ok_or_else(|| error.into());
    }
    if let Some(cause) = app.relay.as_ref().and_then(|relay| relay.fault()) {
        return Ok(json(&Status { status: "degraded", reason: Some("relay"), cause: Some(cause), pauses }));
    }
    Ok(json(&Status { status: "ready", reason: None, cause: None, pauses }))
}

async fn describe(app: Arc<App>, _: Ask) -> Answered {
    Ok(json_bytes(app.openapi.clone()))
}

async fn show_metrics(app: Arc<App>, ask: Ask) -> Answered {
    let format = Format::of(&ask.headers);
    let mut response = Response::new(Body::from(metrics::page(&app, format).await));
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    head.insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

async fn read_again(app: Arc<App>, ask: Ask) -> Answered {
    let by = ask.caller();
    let needs_restart = (app.reload)().map_err(|problems| {
        tracing::warn!(component = "http", by, problems, "the reload failed: the old policies stay in force");
        Problem::bad_configuration(problems)
    })?;
    Change { action: "configuration.reload", what: "configuration", ..Change::default() }.record(&ask);
    Ok(json(&Reloaded { reloaded: true, needs_restart }))
}
