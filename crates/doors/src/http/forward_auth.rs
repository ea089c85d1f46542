//! `/api/v1/forward-auth/{policy}`: decides a request that a proxy asks about.
//!
//! The peer is the proxy, and rules count its client. A header that the client could have written is read
//! only if the proxy is known to replace it, so each dialect reads its own headers and no others. A wrong
//! question, or a missing token, gets 500 in every dialect: it is the proxy's fault, and a client that got
//! 400 or 401 would look for its own.

mod dialect;
mod forwarded;
mod warnings;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{self, HeaderMap, Uri};
use axum::response::Response;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use tollgate_core::{Attempt, Decision, Limit, Policy, Ticket};
use tollgate_engine::{Engine, Fault, NotAdmitted, Snapshot, Terms};
use tollgate_web::facts::{Asked, Source};
use tollgate_web::{Aliases, Answers, Correlation, Credentials, Facts, Identity, Problem, TrustedProxies};

use super::App;
use super::auth::PROXY_TOKEN;
use super::endpoint::{Endpoint, Operation, Unread};
use super::incoming::Peer;
use super::path;
use super::problem::{CORRELATION_ID, PROBLEM_JSON};
use dialect::Dialect;
use forwarded::{Forwarded, Query};
pub(crate) use warnings::Warnings;

/// The configured settings of forward-auth.
#[derive(Debug)]
pub struct ForwardAuthSettings {
    /// The proxies that may state the client's address. Without any, the proxy is the client.
    pub trusted_proxies: TrustedProxies,
    /// How clients prove their identity; without, all clients are anonymous.
    pub credentials: Arc<Credentials>,
    /// Aliases of fields.
    pub aliases: Aliases,
    /// How denials are written.
    pub answers: Answers,
}

/// The settings of forward-auth. They can be replaced, all at once, while the router serves.
#[derive(Debug, Default)]
pub struct ForwardAuth(ArcSwap<ForwardAuthSettings>);

impl Default for ForwardAuthSettings {
    /// No proxy is trusted, all clients are anonymous, and denials have the default form.
    fn default() -> Self {
        Self {
            trusted_proxies: TrustedProxies::none(),
            credentials: Arc::default(),
            aliases: Aliases::default(),
            answers: Answers::default(),
        }
    }
}

impl ForwardAuth {
    /// Starts with these settings.
    pub fn new(settings: ForwardAuthSettings) -> Self {
        Self(ArcSwap::from_pointee(settings))
    }

    /// The address of the client behind this peer.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.0.load().trusted_proxies.client(peer, headers)
    }

    /// Uses these settings from now on.
    pub fn replace(&self, settings: ForwardAuthSettings) {
        self.0.store(Arc::new(settings));
    }
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let about = "Decide a request for a proxy, which describes it in headers; every method does the same";
    let operation = Operation::new("/api/v1/forward-auth/{policy}", about)
        .query(&[
            ("route", "the name of the route, for rules that count by it"),
            ("dialect", "`plain`, or `nginx`, which gets 403 for every refusal, and all about it in headers"),
        ])
        .answers_nothing()
        .also::<Map<String, Value>>(403, PROBLEM_JSON)
        .also::<Map<String, Value>>(429, PROBLEM_JSON)
        .also::<Map<String, Value>>(503, PROBLEM_JSON);
    vec![Endpoint::for_proxies("/api/v1/forward-auth/{policy}", serve).does(operation)]
}

/// Handles every question. Its body is not read.
async fn serve(app: Arc<App>, request: Request, index: usize) -> Response {
    let started = app.meters.start();
    let (mut parts, body) = request.into_parts();
    let unread = Unread::of(&parts, &body);
    drop(body);
    let correlation = Correlation::of(&parts.headers);
    let query = Query::read(parts.uri.query());
    let dialect = query.as_ref().map_or(Dialect::Plain, |query| query.dialect);
    let admitted = app.keys.admits_proxy(&parts.headers);
    // The proxy's secret must not be counted or shown as the client's.
    parts.headers.remove(PROXY_TOKEN);
    let answered = match query {
        Ok(_) if !admitted => Err(Problem::misconfigured(
            "the proxy must send the token of a key without a tenant as `X-Tollgate-Token`",
        )),
        Ok(query) => decide(&app, &parts, &query, &correlation).await,
        Err(problem) => Err(problem),
    };
    let answered = answered.unwrap_or_else(|problem| {
        app.warnings.note(&problem, parts.uri.path(), app.meters.now());
        let mut answer = problem.answer(&correlation);
        app.forward_auth.0.load().credentials.ask_in(answer.headers_mut());
        answer
    });
    let mut response = dialect.say(answered);
    unread.close(&mut response);
    app.meters.note(index, response.status(), started);
    response.map(Body::from)
}

/// Decides, and returns the response.
async fn decide(
    app: &App,
    parts: &Parts,
    query: &Query<'_>,
    correlation: &Correlation,
) -> Result<http::Response<Bytes>, Problem> {
    let settings = app.forward_auth.0.load();
    let pinned = app.admissions.pin();
    let policy = policy(&pinned, &parts.uri)?;
    let forwarded = Forwarded::read(query.dialect, &parts.headers)?;
    let peer = parts.extensions.get::<Peer>().expect("the server of the router names the peer").address;
    let wanted = app.engine.lists.wanted();
    let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
    let asks = |is: fn(Source<'_>) -> bool| {
        let fields = policy.fields().chain(listed.iter().map(|name| &**name));
        fields.filter_map(|field| settings.aliases.source(field)).any(is)
    };
    let identity = match asks(|source| source.is_proved()) {
        true => settings.credentials.recognise(&parts.headers)?,
        false => Identity::default(),
    };
    if asks(|source| source == Source::Ip) && settings.trusted_proxies.ignores(peer, &parts.headers) {
        app.warnings.note_untrusted(peer, app.meters.now());
    }
    let path = if asks(|source| source == Source::Path) { forwarded.path()? } else { "".into() };
    let host = if asks(|source| source == Source::Host) { forwarded.host()? } else { "".into() };
    let facts = Facts {
        route: &query.route,
        client: settings.trusted_proxies.client(peer, &parts.headers),
        address: None,
        method: &forwarded.method,
        path: &path,
        query: if asks(|source| matches!(source, Source::Query(_))) { forwarded.query()? } else { None },
        host: &host,
        headers: &parts.headers,
        identity: &identity,
        body: None,
    };
    let mut asked = Asked::default();
    facts.ask_beside(policy, listed, &settings.aliases, &mut asked)?;
    let pairs = asked.pairs();
    let attempt = Attempt { policy: &policy.name, fields: &pairs, cost: 1, id: None };
    check_holds(policy, &attempt)?;
    let terms = Terms { correlation: correlation.text(), ..Terms::default() };
    let (answering, known) = (Arc::clone(&settings), correlation.clone());
    let see = move |engine: &Engine, decision: &Decision<'_>| answering.answer(engine, decision, &known);
    let admit = pinned.admit(&attempt, terms, see);
    admit.await.map(|admission| admission.seen).map_err(|not_admitted| match not_admitted {
        NotAdmitted::Fault(Fault::Mistake(mistake)) => Problem::about(mistake, &settings.aliases),
        other => other.into(),
    })
}

/// The requested policy.
fn policy<'s>(pinned: &'s Snapshot, uri: &Uri) -> Result<&'s Policy, Problem> {
    let name = percent_decode_str(path::rest(uri).0).decode_utf8_lossy();
    let policy =
        pinned.policies.find(&name).map_err(|mistake| Problem::misconfigured(mistake.to_string()))?;
    // A proxy that asks here does not report the response.
    if let Some(rule) = policy.rules.iter().find(|rule| rule.enabled && rule.count_when.is_some()) {
        let name = &rule.name;
        let problem = format!("rule `{name}` has `count_when`, and forward-auth does not see the answer");
        return Err(Problem::misconfigured(problem));
    }
    Ok(policy)
}

/// Refuses an attempt that would take a hold: a proxy that asks here does not report the end of a request, so the hold
/// would never be released. A hold may come from an override at one key, so the attempt's own limits decide.
fn check_holds(policy: &Policy, attempt: &Attempt<'_>) -> Result<(), Problem> {
    if !policy.holds() {
        return Ok(());
    }
    // An attempt that cannot be charged takes nothing; deciding it says why.
    let Ok(charges) = policy.charges(attempt, Ticket(0)) else { return Ok(()) };
    match charges.iter().find(|charge| charge.plan.limits().iter().any(Limit::holds)) {
        None => Ok(()),
        Some(charge) => Err(Problem::misconfigured(format!(
            "rule `{}` has an `at once` limit, and forward-auth does not see when a request ends",
            charge.plan.rule()
        ))),
    }
}

impl ForwardAuthSettings {
    fn answer(
        &self,
        engine: &Engine,
        decision: &Decision<'_>,
        correlation: &Correlation,
    ) -> http::Response<Bytes> {
        if !decision.allowed() {
            return self.answers.refusal(engine, decision, correlation);
        }
        let mut response = http::Response::default();
        self.answers.headers(decision, response.headers_mut());
        if let Some(given) = &correlation.sent {
            response.headers_mut().insert(CORRELATION_ID, given.clone());
        }
        response
    }
}
