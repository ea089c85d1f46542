//! Sessions of the console: a browser signs in with an access key and gets a cookie. The cookie is sealed, so
//! the server keeps nothing of it, and a session ends with its key.
//!
//! The cookie has no `Path`: browsers then send it only to paths beside this one, also below the base path of
//! a proxy, and not to other programs at the same host.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::http::header::{CACHE_CONTROL, COOKIE, ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::{Span, Timestamp};
use tollgate_engine::session::Session;

use super::App;
use super::auth::{Caller, Role};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::incoming::Peer;
use super::pages;
use super::problem::{PROBLEM_JSON, Problem, ProblemBody};
use super::shown::{Moment, json};

const PATH: &str = "/api/v1/session";
const NAME: &str = "tollgate_session";
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How long a session lasts.
const LASTS: Span = Span::from_secs(12 * 3_600);

/// Who is signed in.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
struct SessionShown<'s> {
    /// The name of the access key; null on a server without keys.
    key: Option<&'s str>,
    /// The role of the key: `read` or `admin`.
    role: &'static str,
    /// The tenant that the key belongs to; null if it belongs to none.
    tenant: Option<&'s str>,
    /// When the session ends (RFC 3339); null without a session.
    #[schemars(with = "Option<String>")]
    until: Option<Moment>,
    /// Whether the server has a mail relay.
    relay: bool,
    /// The version of the server.
    version: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct SignedOut {
    /// Always true.
    signed_out: bool,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let sign_in = Operation::new(PATH, "Sign in: get a session cookie for the token in the header")
        .answers::<SessionShown<'_>>()
        .also::<ProblemBody<'_>>(429, PROBLEM_JSON);
    let show = Operation::new(PATH, "Show who is signed in")
        .answers::<SessionShown<'_>>()
        .also::<ProblemBody<'_>>(429, PROBLEM_JSON);
    let sign_out = Operation::new(PATH, "Sign out: delete the session cookie")
        .answers::<SignedOut>()
        .also::<ProblemBody<'_>>(429, PROBLEM_JSON);
    let read = Some(Role::Read);
    vec![
        Endpoint::new(Method::POST, PATH, read, begin).serves_tenants().signs_in().does(sign_in),
        Endpoint::new(Method::GET, PATH, read, show_session).serves_tenants().signs_in().does(show),
        Endpoint::new(Method::DELETE, PATH, read, end).serves_tenants().signs_in().does(sign_out),
    ]
}

/// The caller of a request, by its token or by its session.
pub(crate) fn admit(app: &App, role: Role, parts: &Parts, signs_in: bool) -> Result<Option<Caller>, Problem> {
    match cookie(&parts.headers).filter(|_| !app.keys.is_empty() && !Caller::sends_token(&parts.headers)) {
        Some(text) => {
            pages::refuse_other_sites(&parts.method, &parts.headers)?;
            let session = app.engine.open_session(text, app.clock.now());
            let session = session.ok_or_else(Problem::session_ended)?;
            app.keys.admit_session(role, &session).map(Some)
        }
        None if Caller::sends_token(&parts.headers) => admit_token(app, role, parts, signs_in),
        None => app.keys.admit(role, &parts.headers),
    }
}

/// The caller of a request with a token. A wrong one is logged; an address that keeps sending them at sign-in has to wait.
fn admit_token(app: &App, role: Role, parts: &Parts, signs_in: bool) -> Result<Option<Caller>, Problem> {
    let client = || {
        let peer =
            parts.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address);
        app.forward_auth.client(peer, &parts.headers)
    };
    if signs_in {
        app.wrong_tokens.check_sign_in(client(), app.clock.now())?;
    }
    let admitted = app.keys.admit(role, &parts.headers);
    if admitted.as_ref().is_err_and(|problem| problem.status() == StatusCode::UNAUTHORIZED) {
        match signs_in {
            true => app.wrong_tokens.note_sign_in(client(), app.clock.now()),
            false => app.wrong_tokens.note_request(client(), app.clock.now()),
        }
    }
    admitted
}

async fn begin(app: Arc<App>, ask: Ask) -> Answered {
    let Some(caller) = ask.key() else { return Ok(shown(&app, &ask, None)) };
    if caller.until().is_some() {
        return Err(Problem::unauthorized());
    }
    let session = Session { hash: caller.hash(), until: app.clock.now() + LASTS };
    let mut response = shown(&app, &ask, Some(session.until));
    let (text, lasts) = (app.engine.seal_session(&session), LASTS.as_secs_ceil());
    set_cookie(&mut response, &ask.headers, &format!("{NAME}={text}; Max-Age={lasts}"));
    Ok(response)
}

async fn show_session(app: Arc<App>, ask: Ask) -> Answered {
    Ok(shown(&app, &ask, ask.key().and_then(Caller::until)))
}

async fn end(_: Arc<App>, ask: Ask) -> Answered {
    let mut response = json(&SignedOut { signed_out: true });
    set_cookie(&mut response, &ask.headers, &format!("{NAME}=; Max-Age=0"));
    Ok(response)
}

fn shown(app: &App, ask: &Ask, until: Option<Timestamp>) -> Response {
    let mut response = json(&SessionShown {
        key: ask.key().map(Caller::name),
        role: ask.key().map_or(Role::Admin, Caller::role).name(),
        tenant: ask.key().and_then(Caller::tenant).map(|tenant| &*tenant.name),
        until: until.map(Moment),
        relay: app.relay.is_some(),
        version: env!("CARGO_PKG_VERSION"),
    });
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Sets the cookie, for this path only, unseen by scripts and never sent for another site.
fn set_cookie(response: &mut Response, headers: &HeaderMap, cookie: &str) {
    let secure = if is_secure(headers) { "; Secure" } else { "" };
    let value = HeaderValue::try_from(format!("{cookie}; HttpOnly; SameSite=Strict{secure}"));
    response.headers_mut().insert(SET_COOKIE, value.expect("a sealed text is base64"));
}

/// Whether the browser uses TLS, as it says itself or as a proxy says. A wrong claim only makes the cookie
/// stricter.
fn is_secure(headers: &HeaderMap) -> bool {
    let starts = |name: HeaderName, start: &[u8]| {
        headers.get(name).is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(start))
    };
    starts(ORIGIN, b"https://") || starts(FORWARDED_PROTO, b"https")
}

/// The session cookie of a request.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies =
        lines.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    cookies.find(|(name, _)| *name == NAME).map(|(_, value)| value)
}
