//! From a request to a decision.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::Either;
use tollgate_core::limit::Holding;
use tollgate_core::policy::{Mistake, Policy};
use tollgate_core::{Attempt, Decision};
use tollgate_engine::engine::Fault;
use tollgate_engine::pending::Pending;
use tollgate_engine::{Lease, Leases};
use tollgate_web::answer::Problem;
use tollgate_web::facts::{Asked, BadFact, Source};
use tollgate_web::{Correlation, Facts, Identity, host, method, path};

use crate::body::Held;
use crate::layer::{Keeping, Terms};
use crate::service::Body;

/// What is known of a request that passed.
pub(crate) struct Passed {
    /// The headers for its answer.
    pub(crate) headers: Headers,
    /// Charges to refund if the answer does not count.
    pub(crate) pending: Option<Pending>,
    /// Its holds until its answer is sent.
    pub(crate) lease: Option<Lease>,
}

/// Headers to be put on an answer.
pub(crate) struct Headers(HeaderMap);

impl Headers {
    /// Puts them on an answer, in the place of what the service said under the same names. What its
    /// request holds goes with its body.
    pub(crate) fn say<R: HttpBody>(self, answer: Response<R>, lease: Option<Lease>) -> Response<Body<R>> {
        let mut answer = answer.map(|body| Either::Left(Held::new(body, lease)));
        answer.headers_mut().extend(self.0);
        answer
    }
}

impl Terms {
    /// Decides a request.
    pub(crate) async fn pass(&self, parts: &Parts) -> Result<Passed, Response<Bytes>> {
        let decided = self.decide(parts).await;
        decided.map_err(|refusal| if is_grpc(parts) { as_grpc(refusal) } else { refusal })
    }

    async fn decide(&self, parts: &Parts) -> Result<Passed, Response<Bytes>> {
        let problem = |problem: Problem| {
            let mut answer = problem.answer(&Correlation::of(&parts.headers));
            self.credentials.ask_in(answer.headers_mut());
            answer
        };
        let pinned = self.engine.pin();
        let policy = pinned.policies.find(&self.policy).map_err(|mistake| problem(misled(&mistake)))?;
        // Without a peer nobody knows whose request it is.
        let wanted = self.engine.wanted().filter(|_| self.peer(parts).is_some());
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let fields = policy.fields().chain(listed.iter().map(|name| &**name));
        let asks = fields.filter_map(|field| self.aliases.source(field)).any(|source| source.is_proved());
        let identity = if asks { self.identity(parts).map_err(problem)? } else { Identity::default() };
        method::check(&parts.method).map_err(|bad| problem(bad.into()))?;
        let path =
            path::normal(parts.uri.path()).map_err(|bad| problem(Problem::bad_request(bad.to_string())))?;
        let host = host_of(parts).map_err(problem)?;
        let facts = Facts {
            route: &self.route,
            client: self.client(parts, policy).map_err(problem)?,
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
        facts.ask_beside(policy, listed, &self.aliases, &mut asked).map_err(|bad| problem(unfit(&bad)))?;
        let pairs = asked.pairs();
        let leases = self.leases(policy).map_err(problem)?;
        let id = leases.map(Leases::fresh_id);
        let attempt = Attempt { policy: &self.policy, fields: &pairs, cost: 1, id: id.as_deref() };
        let correlation = Correlation::of(&parts.headers);
        let mut decision = Decision::for_caller(correlation.text());
        self.engine
            .decide_into(&pinned, &attempt, &mut decision)
            .await
            .map_err(|fault| problem(self.fault(&fault, policy, &identity)))?;
        if !decision.allowed() {
            return Err(self.answers.refusal(&self.engine, &decision, &correlation));
        }
        let mut headers = HeaderMap::new();
        self.answers.headers(&decision, &mut headers);
        let lease = leases.zip(id.as_deref()).map(|(leases, id)| leases.keep(&decision, id));
        Ok(Passed { headers: Headers(headers), pending: self.engine.pending(&decision), lease })
    }

    /// How the holds of this policy are kept; `None` if it has none.
    fn leases(&self, policy: &Policy) -> Result<Option<&Leases>, Problem> {
        match (policy.holding(), &self.keeping) {
            (Holding::Nothing, _) => Ok(None),
            (_, Keeping::Tended(leases)) => Ok(Some(leases)),
            (Holding::UntilReleased, Keeping::Untended(leases)) if self.engine.answers_at_once() => {
                Ok(Some(leases))
            }
            (_, Keeping::Untended(_)) => {
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

    /// The client's address; any, if no rule asks for it.
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

    fn fault(&self, fault: &Fault, policy: &Policy, identity: &Identity) -> Problem {
        match fault {
            Fault::Mistake(Mistake::NoRuleApplies { .. }) if self.asks_who(policy, identity) => {
                Problem::unauthorized("credentials are required: this is limited by caller")
            }
            Fault::Mistake(mistake @ (Mistake::NoRuleApplies { .. } | Mistake::BadValue { .. })) => {
                Problem::bad_request(mistake.to_string())
            }
            Fault::Mistake(mistake) => misled(mistake),
            Fault::Store(error) => Problem::unavailable(error.to_string()),
        }
    }

    /// Whether a rule would have applied if the request had proved who sent it.
    fn asks_who(&self, policy: &Policy, identity: &Identity) -> bool {
        policy.fields().any(|field| match self.aliases.source(field) {
            Some(Source::Subject) => identity.subject.is_none(),
            Some(Source::ApiKey) => identity.api_key.is_none(),
            Some(Source::Consumer) => identity.consumer.is_none(),
            Some(Source::Claim(name)) => identity.claim(name).is_none(),
            _ => false,
        })
    }
}

/// The host that was asked for, in its normal form; empty if there is none.
fn host_of(parts: &Parts) -> Result<std::borrow::Cow<'_, str>, Problem> {
    let said = parts.headers.get(HOST).map(|value| value.to_str().unwrap_or("\u{0}"));
    let authority = parts.uri.authority().map(http::uri::Authority::as_str).or(said);
    let bad = |_| Problem::bad_request("the `Host` is not a host");
    authority.map_or(Ok("".into()), |authority| host::normal(authority).map_err(bad))
}

/// What is wrong is not the caller's fault.
fn misled(mistake: &Mistake) -> Problem {
    Problem::misconfigured(mistake.to_string())
}

fn unfit(bad: &BadFact) -> Problem {
    match bad {
        BadFact::NoSource { .. } => Problem::misconfigured(bad.to_string()),
        _ => Problem::bad_request(bad.to_string()),
    }
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
