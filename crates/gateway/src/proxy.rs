//! The way of a request to its response: route, limits, upstream.

mod ahead;
mod guarding;
pub(crate) mod held;
pub(crate) mod limits;
mod note;
mod over_http2;
mod passing;
mod tunnels;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use http::header::ALLOW;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tollgate_engine::Snapshot;
use tollgate_web::{Correlation, Problem, path};

use crate::connection::Downstream;
use crate::exchange::Client;
use crate::forward::split_target;
use crate::h1::decode::Decoder;
use crate::h1::request::RequestHead;
use crate::h1::write::Answer;
use crate::plan::Route;
use crate::route::{Found, Headers};
use crate::upstream::Pool;
use crate::worker::Local;
use limits::Limited;
use note::Note;
pub(crate) use note::note_refused;
pub(crate) use tunnels::Tunnel;

/// How a request ended.
pub(crate) enum Passed {
    /// The whole response was sent.
    Whole,
    /// Nothing was sent yet; this response is to be sent.
    Answer(Box<Answer>),
    /// As `Answer`, and the connection closes after it.
    Refused(Box<Answer>),
    /// Part of a response was sent and the rest never will be, or the client is gone.
    Cut,
    /// The connection switches to another protocol, and the client was told so.
    Tunnel(Box<Tunnel>),
}

/// The header with the client's own id of a request.
const ID: &str = "x-correlation-id";

/// The status that is logged and counted if the client went away before the response.
const CLIENT_GONE: u16 = 499;

/// The text for a request that would have to wait while the gateway shuts down.
const ENDING: &str = "the gateway is ending: try again";

/// A request whose route is known.
struct Case<'c> {
    downstream: &'c Downstream,
    request: &'c RequestHead,
    local: Rc<Local>,
    route: usize,
    path: &'c str,
    query: Option<&'c [u8]>,
    host: &'c str,
    /// Its id, if the request is logged.
    logged: Option<&'c Correlation>,
    /// The policies that were pinned for a login.
    policies: OnceCell<Arc<Snapshot>>,
}

/// Applies the limits of a request and forwards it.
pub(crate) async fn pass<C: Client>(
    downstream: &Downstream,
    client: &mut C,
    request: &RequestHead,
) -> Passed {
    let local = downstream.worker.local();
    let logged = note::is_logged(downstream, &local).then(|| correlation_of(request).settled());
    let mut note = Note::new(downstream, request, logged.as_ref());
    let (path, query) = split_target(&request.target);
    let found = normal_path(path).and_then(|path| {
        let host = downstream.host(request.host.as_deref())?;
        let found = local.plan.table.find(&host, &path, &request.method, request);
        Ok((path, host, found))
    });
    let (path, host, route) = match found {
        Ok((path, host, Found::Route(route))) => (path, host, route),
        Ok((path, _, found)) => {
            let answer = lost(found, correlation(request, logged.as_ref()));
            note.path = &path;
            note.end(&local, answer.status.as_u16());
            return Passed::Answer(Box::new(answer));
        }
        Err(problem) => {
            note.end(&local, problem.status.as_u16());
            return Passed::Refused(Box::new(problem.answer(&correlation(request, logged.as_ref())).into()));
        }
    };
    note.path = &path;
    note.route = Some(route);
    let case = Case {
        downstream,
        request,
        local,
        route,
        path: &path,
        query,
        host: &host,
        logged: logged.as_ref(),
        policies: OnceCell::new(),
    };
    let passed = match case.weigh(client, &mut note).await {
        None => {
            note.status = CLIENT_GONE;
            Ok(Passed::Cut)
        }
        Some(Limited::Refused(answer)) => {
            note.end(&case.local, answer.status.as_u16());
            return Passed::Answer(answer);
        }
        Some(Limited::Admitted(mut admitted)) => {
            let passed = match &case.route().guard {
                None => case.forward(client, &mut admitted, &mut note).await,
                // Boxed, since few routes have a guard.
                Some(guard) => Box::pin(case.forward_guarded(guard, client, &mut admitted, &mut note)).await,
            };
            if let Err(answer) = &passed {
                admitted.answered(answer.status.as_u16());
                admitted.held.end().await;
            }
            passed
        }
    };
    match passed {
        Ok(passed) => {
            note.end(&case.local, note.status);
            passed
        }
        Err(answer) => {
            note.end(&case.local, answer.status.as_u16());
            Passed::Answer(Box::new(answer))
        }
    }
}

/// The path in its normal form, by which it is routed, limited and forwarded.
pub(crate) fn normal_path(path: &[u8]) -> Result<Cow<'_, str>, Problem> {
    let path = str::from_utf8(path).map_err(|_| Problem::bad_request("the path is not ASCII"))?;
    Ok(path::normal(path)?)
}

/// The response to a request that matches no route.
fn lost(found: Found, correlation: Correlation) -> Answer {
    let Found::OtherMethods(methods) = found else {
        return Problem::not_found("no route takes this host and path").answer(&correlation).into();
    };
    let mut answer = Problem::method_not_allowed("no route takes this method here").answer(&correlation);
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
        answer.headers_mut().insert(ALLOW, names);
    }
    answer.into()
}

/// The id of a request: that of its log line, or else the client's.
fn correlation(request: &RequestHead, logged: Option<&Correlation>) -> Correlation {
    logged.map_or_else(|| correlation_of(request), Correlation::clone)
}

/// The client's own id of the request.
fn correlation_of(request: &RequestHead) -> Correlation {
    let Some(value) = request.value(ID).and_then(|value| HeaderValue::from_bytes(value).ok()) else {
        return Correlation::default();
    };
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(HeaderName::from_static(ID), value);
    Correlation::of(&headers)
}

impl Headers for RequestHead {
    fn has(&self, name: &HeaderName, value: Option<&HeaderValue>) -> bool {
        let name = name.as_str().as_bytes();
        let mut lines = self.lines.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
        lines.any(|line| value.is_none_or(|value| line.value == value.as_bytes()))
    }
}

impl Case<'_> {
    fn route(&self) -> &Route {
        &self.local.plan.routes[self.route]
    }

    fn pool(&self) -> &Pool {
        &self.local.pools[self.route().upstream]
    }

    fn problem(&self, problem: &Problem) -> Answer {
        self.answer(problem, &self.correlation())
    }

    fn answer(&self, problem: &Problem, correlation: &Correlation) -> Answer {
        let mut answer = problem.answer(correlation);
        self.local.plan.settings.credentials.ask_in(answer.headers_mut());
        answer.into()
    }

    fn correlation(&self) -> Correlation {
        correlation(self.request, self.logged)
    }

    /// The id of the request: that of its log line, or else the client's.
    fn sent_id(&self) -> Option<&str> {
        match self.logged {
            Some(logged) => logged.text(),
            None => self.request.value(ID).and_then(Correlation::fit),
        }
    }

    /// Applies the limits of the request before any of it is forwarded. `None` if the client went away
    /// meanwhile.
    async fn weigh<C: Client>(&self, client: &mut C, note: &mut Note<'_>) -> Option<Limited> {
        // A body that is too long is refused without counting it.
        if matches!(self.request.body, Decoder::Length(length) if length > self.route().body_bytes) {
            let problem = Problem::too_large(self.most_bytes());
            return Some(Limited::Refused(Box::new(self.problem(&problem))));
        }
        self.limit(client, note).await
    }

    fn most_bytes(&self) -> usize {
        usize::try_from(self.route().body_bytes).unwrap_or(usize::MAX)
    }
}
