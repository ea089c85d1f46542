//! An endpoint, and the steps of every request: role, body, handler, metrics.
//!
//! This is one function instead of layers of middleware. Handlers are boxed, so that the compiler makes one copy
//! of these steps and not one for each endpoint.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use smallvec::SmallVec;

use super::App;
use super::auth::{Caller, Role};
use super::incoming::{self, Room};
use super::problem::{CORRELATION_ID, Correlation, Problem};
use super::session;
use super::tenancy;

/// The longest body in bytes, unless an endpoint has its own bound.
pub(crate) const MOST_BODY_BYTES: usize = 1 << 20;

/// One route: its path, the role it needs, its handler and its documentation.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// The path as the router has it.
    pub(crate) pattern: &'static str,
    /// The role that it needs; `None` if it is open.
    pub(crate) role: Option<Role>,
    /// How a token may be sent: names of the document's security schemes.
    pub(crate) tokens: &'static [&'static str],
    /// Whether it serves keys with a tenant, and checks itself what they reach.
    pub(crate) tenants: bool,
    /// Whether it signs in: an address that keeps sending wrong tokens has to wait.
    pub(crate) signs_in: bool,
    /// Its documentation; several entries if the last part of the path selects one.
    pub(crate) operations: Vec<Operation>,
    /// Makes the handler; the number is its index in the metrics.
    pub(crate) serve: Box<dyn Fn(usize) -> MethodRouter<Arc<App>>>,
}

/// The documentation of one operation.
pub(crate) struct Operation {
    /// The path as it is documented.
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) request: Option<SchemaOf>,
    /// Another media type that it takes.
    pub(crate) other_media: Option<&'static str>,
    pub(crate) query: &'static [(&'static str, &'static str)],
    /// Whether a response with 200 has no body.
    pub(crate) empty: bool,
    /// Status, media type and schema of each response that is not the common problem.
    pub(crate) answers: Vec<(u16, &'static str, SchemaOf)>,
}

/// Generates the schema of one type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One request, with its body read.
pub(crate) struct Ask {
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) correlation: Correlation,
    /// Extensions supplied by the server.
    pub(crate) extensions: Extensions,
    caller: Option<Caller>,
    /// The memory of the body, counted against the bounds on all bodies.
    room: Room,
}

/// The result of an endpoint.
pub(crate) type Answered = Result<Response, Problem>;

/// A handler at work.
pub(crate) type Running = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// A handler.
type Run = Arc<dyn Fn(Arc<App>, Ask) -> Running + Send + Sync>;

impl Endpoint {
    /// An endpoint that runs `run` for callers with the role.
    pub(crate) fn new<F, Fut>(method: Method, pattern: &'static str, role: Option<Role>, run: F) -> Self
    where
        F: Fn(Arc<App>, Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answered> + Send + 'static,
    {
        Self::with_body_of(MOST_BODY_BYTES, method, pattern, role, run)
    }

    /// As [`Endpoint::new`], with a bound of its own on the body.
    pub(crate) fn with_body_of<F, Fut>(
        most: usize,
        method: Method,
        pattern: &'static str,
        role: Option<Role>,
        run: F,
    ) -> Self
    where
        F: Fn(Arc<App>, Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answered> + Send + 'static,
    {
        Self::boxed(most, method, pattern, role, Arc::new(move |app, ask| Box::pin(run(app, ask))))
    }

    fn boxed(most: usize, method: Method, pattern: &'static str, role: Option<Role>, run: Run) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("only ordinary methods are used");
        let serve = move |index| {
            let run = Arc::clone(&run);
            let checks = Checks { role, most, index };
            on(filter, move |State(app): State<Arc<App>>, request: Request| serve(app, request, checks, run))
        };
        let tokens = &["bearer", "key", "token"];
        Self {
            method,
            pattern,
            role,
            tokens,
            tenants: false,
            signs_in: false,
            operations: Vec::new(),
            serve: Box::new(serve),
        }
    }

    /// An endpoint for proxies that ask for their clients. It accepts every method and is documented as
    /// `GET`. `run` gets the request unchecked, and the index for the metrics.
    pub(crate) fn for_proxies<F, Fut>(pattern: &'static str, run: F) -> Self
    where
        F: Fn(Arc<App>, Request, usize) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Response> + Send + 'static,
    {
        let serve = move |index| {
            let run = run.clone();
            any(move |State(app): State<Arc<App>>, request: Request| run(app, request, index))
        };
        Self {
            method: Method::GET,
            pattern,
            role: Some(Role::Check),
            tokens: &["proxy"],
            tenants: false,
            signs_in: false,
            operations: Vec::new(),
            serve: Box::new(serve),
        }
    }

    /// An endpoint that reads its body by itself, piece by piece.
    pub(crate) fn streaming<F, Fut>(method: Method, pattern: &'static str, role: Role, run: F) -> Self
    where
        F: Fn(Arc<App>, Ask, Body) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Answered> + Send + 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("only ordinary methods are used");
        let serve = move |index| {
            let run = run.clone();
            let checks = Checks { role: Some(role), most: MOST_BODY_BYTES, index };
            on(filter, move |State(app): State<Arc<App>>, request: Request| {
                serve_stream(app, request, checks, run)
            })
        };
        let tokens = &["bearer", "key", "token"];
        let (role, serve) = (Some(role), Box::new(serve));
        Self { method, pattern, role, tokens, tenants: false, signs_in: false, operations: Vec::new(), serve }
    }

    /// Whether it reads a body. A body sent to any other endpoint is not read.
    pub(crate) fn takes_body(&self) -> bool {
        self.operations.iter().any(|operation| operation.request.is_some())
    }

    /// Its query parameters.
    pub(crate) fn query_names(&self) -> Vec<&'static str> {
        self.operations.iter().flat_map(|operation| operation.query).map(|(name, _)| *name).collect()
    }

    /// Lets it serve keys with a tenant too. It must check itself what they reach.
    pub(crate) fn serves_tenants(mut self) -> Self {
        self.tenants = true;
        self
    }

    /// Makes an address that keeps sending wrong tokens wait.
    pub(crate) fn signs_in(mut self) -> Self {
        self.signs_in = true;
        self
    }

    /// Adds documentation.
    pub(crate) fn does(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }
}

impl Operation {
    /// An operation at a path.
    pub(crate) fn new(path: &'static str, summary: &'static str) -> Self {
        Self {
            path,
            summary,
            request: None,
            other_media: None,
            query: &[],
            empty: false,
            answers: Vec::new(),
        }
    }

    /// Its request body.
    pub(crate) fn takes<T: JsonSchema>(mut self) -> Self {
        self.request = Some(|generator| generator.subschema_for::<T>());
        self
    }

    /// Another media type of its request body, which is not decoded.
    pub(crate) fn takes_also(mut self, media: &'static str) -> Self {
        self.other_media = Some(media);
        self
    }

    /// Its query parameters.
    pub(crate) fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    /// Its body with 200.
    pub(crate) fn answers<T: JsonSchema>(mut self) -> Self {
        self.answers.push((200, "application/json", |generator| generator.subschema_for::<T>()));
        self
    }

    /// It has an empty body with 200.
    pub(crate) fn answers_nothing(mut self) -> Self {
        self.empty = true;
        self
    }

    /// A body with another status or media type.
    pub(crate) fn also<T: JsonSchema>(mut self, status: u16, media: &'static str) -> Self {
        self.answers.push((status, media, |generator| generator.subschema_for::<T>()));
        self
    }
}

/// The header in which a caller asks for the IETF fields.
const FORMAT: HeaderName = HeaderName::from_static("x-ratelimit-format");

impl Ask {
    /// Whether the caller wants the IETF fields too.
    pub(crate) fn wants_ietf(&self) -> bool {
        self.query("ratelimit") == Some("ietf")
            || self.headers.get(FORMAT).is_some_and(|format| format.as_bytes().eq_ignore_ascii_case(b"ietf"))
    }

    /// The name of the request's access key, for the log.
    pub(crate) fn caller(&self) -> &str {
        self.caller.as_ref().map_or("anonymous", Caller::name)
    }

    /// Reads the whole body into memory, within the bounds on all bodies.
    pub(crate) async fn read(&mut self, body: Body, most: usize) -> Result<Bytes, Problem> {
        incoming::read(&self.headers, body, most, &mut self.room).await
    }

    /// Takes so many bytes of the bounds on all bodies, for as long as the request lasts.
    pub(crate) fn take_room(&mut self, bytes: usize) -> Result<(), Problem> {
        self.room.grow_to(bytes)
    }

    /// As [`Ask::take_room`], for several copies of its body of so many bytes.
    pub(crate) fn take_copies(&mut self, bytes: usize, copies: usize) -> Result<(), Problem> {
        self.room.grow_to_copies(bytes, copies)
    }

    /// What all requests share.
    pub(crate) fn app(&self) -> &App {
        self.room.app()
    }

    /// The caller's key, beyond the request.
    pub(crate) fn into_caller(self) -> Option<Caller> {
        self.caller
    }

    /// The caller's key; `None` where there are no keys.
    pub(crate) fn key(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// Whether the caller's key belongs to a tenant.
    pub(crate) fn has_tenant(&self) -> bool {
        self.key().and_then(Caller::tenant).is_some()
    }

    /// The value of a query parameter.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let members = self.uri.query()?.split('&').filter_map(|member| member.split_once('='));
        members.filter(|(member, _)| *member == name).map(|(_, value)| value).next()
    }
}

/// The checks before an endpoint.
#[derive(Clone, Copy)]
struct Checks {
    role: Option<Role>,
    most: usize,
    index: usize,
}

async fn serve(app: Arc<App>, request: Request, checks: Checks, run: Run) -> Response {
    let started = app.meters.start();
    let (parts, body) = request.into_parts();
    let mut unread = Unread::of(&parts, &body);
    let correlation = Correlation::of(&parts.headers);
    let entered = match enter(&app, parts, &correlation, checks) {
        Ok(mut ask) if app.takes_body[checks.index] => {
            ask.read(body, checks.most).await.map(|body| Ask { body, ..ask })
        }
        entered => entered,
    };
    let answered = match entered {
        Ok(ask) => {
            if app.takes_body[checks.index] {
                unread = Unread::NOTHING;
            }
            match checks.role {
                Some(Role::Admin) => to_its_end(run(Arc::clone(&app), ask)).await,
                _ => run(Arc::clone(&app), ask).await,
            }
        }
        Err(problem) => Err(problem),
    };
    let mut response = finish(answered, correlation);
    unread.close(&mut response);
    app.meters.note(checks.index, response.status(), started);
    response
}

/// As [`serve`], for an endpoint that reads its body by itself.
async fn serve_stream<F, Fut>(app: Arc<App>, request: Request, checks: Checks, run: F) -> Response
where
    F: Fn(Arc<App>, Ask, Body) -> Fut,
    Fut: Future<Output = Answered> + Send + 'static,
{
    let started = app.meters.start();
    let (parts, body) = request.into_parts();
    let unread = Unread::of(&parts, &body);
    let correlation = Correlation::of(&parts.headers).settled();
    let answered = match enter(&app, parts, &correlation, checks) {
        Ok(ask) => run(Arc::clone(&app), ask, body).await,
        Err(problem) => Err(problem),
    };
    let mut response = finish(answered, correlation);
    // A refused request may have a body that was not read to its end.
    if !response.status().is_success() {
        unread.close(&mut response);
    }
    app.meters.note(checks.index, response.status(), started);
    response
}

/// Whether an unread body prevents the connection from carrying another request.
#[derive(Clone, Copy)]
pub(crate) struct Unread(bool);

impl Unread {
    pub(crate) const NOTHING: Self = Self(false);

    /// For a request of which only the head was read.
    pub(crate) fn of(parts: &Parts, body: &Body) -> Self {
        Self(parts.version < Version::HTTP_2 && !body.is_end_stream())
    }

    /// Adds `Connection: close` to the response, if necessary.
    pub(crate) fn close<B>(self, response: &mut axum::http::Response<B>) {
        if self.0 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Runs a change to its end and logs it, even if the caller disconnects meanwhile.
pub(crate) async fn to_its_end(change: Running) -> Answered {
    match tokio::spawn(change).await {
        Ok(answered) => answered,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// Answers a request that no endpoint handles.
pub(crate) async fn refuse(app: Arc<App>, request: Request, problem: fn() -> Problem) -> Response {
    let started = app.meters.start();
    let (parts, body) = request.into_parts();
    let mut response = finish(Err(problem()), Correlation::of(&parts.headers));
    Unread::of(&parts, &body).close(&mut response);
    app.meters.note(app.meters.unmatched(), response.status(), started);
    response
}

fn finish(answered: Answered, correlation: Correlation) -> Response {
    let mut response = answered.unwrap_or_else(|problem| problem.answer(&correlation));
    if let Some(given) = correlation.sent {
        response.headers_mut().entry(CORRELATION_ID).or_insert(given);
    }
    response
}

fn enter(app: &Arc<App>, parts: Parts, correlation: &Correlation, checks: Checks) -> Result<Ask, Problem> {
    let caller = match checks.role {
        Some(role) => session::admit(app, role, &parts, app.signs_in[checks.index])?,
        None => None,
    };
    if let Some(own) = caller.as_ref().and_then(Caller::tenant)
        && !app.serves_tenants[checks.index]
    {
        return Err(tenancy::needs_no_tenant(&own.name));
    }
    check_query(parts.uri.query(), &app.queries[checks.index])?;
    let Parts { uri, headers, extensions, .. } = parts;
    let room = Room::new(app, extensions.get(), caller.as_ref());
    let (body, correlation) = (Bytes::new(), correlation.clone());
    Ok(Ask { uri, headers, body, correlation, extensions, caller, room })
}

/// Refuses unknown and repeated query parameters. They would be ignored, and a `DELETE` with `?rule=x` must
/// not reset everything.
fn check_query(query: Option<&str>, known: &[&str]) -> Result<(), Problem> {
    let members = query.into_iter().flat_map(|query| query.split('&')).filter(|member| !member.is_empty());
    let names = members.map(|member| member.split_once('=').map_or(member, |(name, _)| name));
    let mut seen: SmallVec<[&str; 8]> = SmallVec::new();
    for name in names {
        if !known.contains(&name) {
            return Err(not_in_query(name, known));
        }
        if seen.contains(&name) {
            return Err(Problem::bad_request(format!("`{name}` is in the query twice")));
        }
        seen.push(name);
    }
    Ok(())
}

fn not_in_query(name: &str, known: &[&str]) -> Problem {
    let name: String = name.chars().take(64).collect();
    let can = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
    Problem::bad_request(format!("`{name}` is not a query parameter here; known are: {can}"))
}
