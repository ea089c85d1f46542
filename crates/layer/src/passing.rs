//! Turns a request into a decision.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::Either;
use tollgate_core::limit::Holding;
use tollgate_core::policy::Policy;
use tollgate_core::{Attempt, Decision};
use tollgate_engine::admit::{Admitted, Holds};
use tollgate_engine::{Admission, Admit, Engine, Fault, NotAdmitted, Taken, Terms};
use tollgate_web::answer::Problem;
use tollgate_web::facts::{Asked, Source};
use tollgate_web::{Correlation, Facts, Identity, method, path};

use crate::body::Held;
use crate::layer::Setup;
use crate::service::Body;

/// An admitted request.
pub(crate) struct Passed {
    /// The headers for its response.
    pub(crate) headers: Headers,
    /// What it took.
    pub(crate) taken: Taken,
}

/// Headers to add to a response.
pub(crate) struct Headers(HeaderMap);

/// What a decision means for its request.
pub(crate) type Seen = Result<Headers, Refusal>;

/// The response to a refused request.
pub(crate) type Refusal = Box<Response<Bytes>>;

impl Passed {
    /// Adds the headers to a response, where they replace the service's of the same names. The body takes
    /// over the holds of the request.
    pub(crate) fn say<R: HttpBody>(mut self, answer: Response<R>) -> Response<Body<R>> {
        let lease = self.taken.lease();
        let mut answer = answer.map(|body| Either::Left(Held::new(body, lease)));
        answer.headers_mut().extend(self.headers.0);
        answer
    }
}

impl Setup {
    /// Applies the limits to a request. An error is the response to send.
    pub(crate) fn admit(self: &Arc<Self>, parts: &Parts) -> Result<Admit<Seen>, Refusal> {
        self.ask(parts).map_err(|problem| self.problem(&problem, &Known::of(parts)))
    }

    /// Turns an admission into the request's result. An error is the response to send.
    pub(crate) fn conclude(&self, admitted: Admitted<Seen>, known: &Known) -> Result<Passed, Refusal> {
        match admitted {
            Ok(Admission { seen: Ok(headers), taken, .. }) => Ok(Passed { headers, taken }),
            Ok(Admission { seen: Err(refusal), .. }) => Err(Box::new(known.said(*refusal))),
            Err(NotAdmitted::Fault(Fault::Mistake(mistake))) => {
                Err(self.problem(&Problem::about(mistake, &self.aliases), known))
            }
            Err(not_admitted) => Err(self.problem(&not_admitted.into(), known)),
        }
    }

    fn ask(self: &Arc<Self>, parts: &Parts) -> Result<Admit<Seen>, Problem> {
        let pinned = self.admissions.pin();
        let policy = pinned.policies.find(&self.policy);
        let policy = policy.map_err(|mistake| Problem::about(mistake, &self.aliases))?;
        // Without a peer the client is unknown, so the lists are not checked.
        let wanted = self.admissions.engine.lists.wanted().filter(|_| self.peer(parts).is_some());
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let fields = policy.fields().chain(listed.iter().map(|name| &**name));
        let asks = fields.filter_map(|field| self.aliases.source(field)).any(|source| source.is_proved());
        let identity = if asks { self.identity(parts)? } else { Identity::default() };
        method::check(&parts.method)?;
        let path = path::normal(parts.uri.path())?;
        let host = host_of(parts)?;
        let facts = Facts {
            route: &self.route,
            client: self.client(parts, policy)?,
            address: None,
            method: &parts.method,
            path: &path,
            query: parts.uri.query(),
            host: &host,
            headers: &parts.headers,
            identity: &identity,
            body: None,
        };
        let mut asked = Asked::default();
        facts.ask_beside(policy, listed, &self.aliases, &mut asked)?;
        self.check_holding(policy)?;
        let attempt = Attempt { policy: &self.policy, fields: &asked.pairs(), cost: 1, id: None };
        let correlation = Correlation::of(&parts.headers);
        let known_by = correlation.clone();
        let setup = Arc::clone(self);
        let see = move |engine: &Engine, decision: &Decision<'_>| {
            if !decision.allowed() {
                return Err(Box::new(setup.answers.refusal(engine, decision, &correlation)));
            }
            let mut headers = HeaderMap::new();
            setup.answers.headers(decision, &mut headers);
            Ok(Headers(headers))
        };
        let terms = Terms { holds: Holds::ByTaken, correlation: known_by.text(), ..Terms::default() };
        Ok(pinned.admit(&attempt, terms, see))
    }

    fn problem(&self, problem: &Problem, known: &Known) -> Refusal {
        let mut answer = problem.answer(&known.correlation);
        self.credentials.ask_in(answer.headers_mut());
        Box::new(known.said(answer))
    }

    /// Fails if the layer cannot keep the holds of this policy's requests.
    fn check_holding(&self, policy: &Policy) -> Result<(), Problem> {
        match policy.holding() {
            Holding::Nothing => Ok(()),
            _ if self.tended => Ok(()),
            Holding::UntilReleased if self.admissions.engine.counters.answer_at_once() => Ok(()),
            _ => {
                let detail =
                    "a rule has an `at once` limit that needs leases: set them with `TollgateLayer::leases`";
                Err(Problem::misconfigured(detail))
            }
        }
    }

    /// The identity of the caller: from an earlier layer, or else from its credentials.
    fn identity(&self, parts: &Parts) -> Result<Identity, Problem> {
        if let Some(identity) = parts.extensions.get::<Identity>() {
            return Ok(identity.clone());
        }
        let recognised = self.credentials.recognise(&parts.headers);
        recognised.map_err(|bad| Problem::unauthorized(bad.to_string()))
    }

    /// The peer's address.
    fn peer(&self, parts: &Parts) -> Option<IpAddr> {
        self.peer.as_ref().and_then(|find| find(&parts.extensions))
    }

    /// The client's address; an arbitrary one if no rule needs it.
    fn client(&self, parts: &Parts, policy: &Policy) -> Result<IpAddr, Problem> {
        if let Some(peer) = self.peer(parts) {
            return Ok(self.proxies.client(peer, &parts.headers));
        }
        if policy.fields().any(|field| self.aliases.source(field) == Some(Source::Ip)) {
            let detail =
                "a rule counts by `ip`, but the peer's address is unknown: set it with `TollgateLayer::peer`";
            return Err(Problem::misconfigured(detail));
        }
        Ok(Ipv4Addr::UNSPECIFIED.into())
    }
}

/// What the layer keeps of a request after passing it on.
pub(crate) struct Known {
    correlation: Correlation,
    is_grpc: bool,
}

impl Known {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self { correlation: Correlation::of(&parts.headers), is_grpc: is_grpc(parts) }
    }

    /// A refusal in the request's own protocol.
    fn said(&self, refusal: Response<Bytes>) -> Response<Bytes> {
        if self.is_grpc { as_grpc(refusal) } else { refusal }
    }
}

/// The requested host in its normal form; empty if there is none.
fn host_of(parts: &Parts) -> Result<std::borrow::Cow<'_, str>, Problem> {
    let said = parts.headers.get(HOST).map(|value| value.to_str().unwrap_or("\u{0}"));
    let authority = parts.uri.authority().map(http::uri::Authority::as_str).or(said);
    let bad = |_| Problem::bad_request("the `Host` is not a host");
    authority.map_or(Ok("".into()), |authority| path::normal_host(authority).map_err(bad))
}

fn is_grpc(parts: &Parts) -> bool {
    parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The same denial for gRPC: only headers, with a gRPC status.
fn as_grpc(refusal: Response<Bytes>) -> Response<Bytes> {
    let (mut parts, _) = refusal.into_parts();
    let (status, message) = match parts.status {
        StatusCode::TOO_MANY_REQUESTS => ("8", "rate limit exceeded"),
        StatusCode::UNAUTHORIZED => ("16", "the caller is unknown"),
        StatusCode::FORBIDDEN => ("7", "the caller is not admitted"),
        StatusCode::BAD_REQUEST => ("3", "the request cannot be limited"),
        StatusCode::SERVICE_UNAVAILABLE => ("14", "the rate limiter cannot be used"),
        _ => ("13", "the rate limiter is set up wrongly"),
    };
    parts.status = StatusCode::OK;
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    parts.headers.insert("grpc-status", HeaderValue::from_static(status));
    parts.headers.insert("grpc-message", HeaderValue::from_static(message));
    Response::from_parts(parts, Bytes::new())
}
