//! The problems of this API.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tollgate_core::{Mistake, Span, StoreError, When};
use tollgate_engine::pacer::PauseFault;
use tollgate_engine::{ChangeFault, Fault, NotAdmitted};
use tollgate_web::answer::headers::retry;
pub(crate) use tollgate_web::answer::{PROBLEM_JSON, ProblemBody};
pub(crate) use tollgate_web::correlation::{CORRELATION_ID, Correlation};

/// Why a request was refused or failed.
#[derive(Debug)]
pub(crate) struct Problem {
    problem: tollgate_web::Problem,
    /// How long to wait before the next try, where that is known.
    retry_after: Option<Span>,
}

/// The response to a request that takes too long. The server of the router decides when that is.
pub struct TooLate(Correlation);

impl TooLate {
    /// For a request with these headers.
    pub fn for_request(headers: &HeaderMap) -> Self {
        Self(Correlation::of(headers))
    }

    /// The response, instead of the router's.
    pub fn answer(&self) -> Response {
        Problem::too_late().answer(&self.0)
    }
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self::from_web(tollgate_web::Problem::new(status, kind, title, detail.into()))
    }

    fn from_web(problem: tollgate_web::Problem) -> Self {
        Self { problem, retry_after: None }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.problem.status
    }

    pub(crate) fn too_late() -> Self {
        let detail = "the whole request did not come, or was not answered, in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "/problems/too-late", "Request timeout", detail)
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "/problems/bad-request", "Bad request", detail)
    }

    pub(crate) fn unauthorized() -> Self {
        let detail = "send a known token as `Authorization: Bearer …`, `X-API-Key` or `X-API-Token`";
        Self::new(StatusCode::UNAUTHORIZED, "/problems/unauthorized", "Unauthorized", detail)
    }

    /// 429: an address sent too many wrong tokens at sign-in.
    pub(crate) fn too_many_wrong_tokens(wait: Span) -> Self {
        let secs = wait.as_secs_ceil();
        let detail = format!("too many wrong tokens came from this address: sign in again in {secs}s");
        let (kind, title) = ("/problems/too-many-wrong-tokens", "Too many wrong tokens");
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, kind, title, detail);
        Self { retry_after: Some(wait), ..problem }
    }

    /// A session has ended, or its key was removed.
    pub(crate) fn session_ended() -> Self {
        let detail = "the session has ended: sign in again";
        Self::new(StatusCode::UNAUTHORIZED, "/problems/session-ended", "Unauthorized", detail)
    }

    pub(crate) fn forbidden(detail: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, "/problems/forbidden", "Forbidden", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "/problems/not-found", "Not found", detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "/problems/conflict", "Conflict", detail)
    }

    fn changed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "/problems/changed", "Precondition failed", detail)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::not_found("there is nothing at this path; /api/v1/openapi.json lists all paths")
    }

    pub(crate) fn method_not_allowed() -> Self {
        let detail = "this path does not support the method; /api/v1/openapi.json lists the methods";
        let (kind, title) = ("/problems/method-not-allowed", "Method not allowed");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, kind, title, detail)
    }

    pub(crate) fn too_large(most: usize) -> Self {
        let detail = format!("the body is longer than {most} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "/problems/too-large", "Content too large", detail)
    }

    pub(crate) fn message_too_large() -> Self {
        let detail = "the message is larger than the relay's `max_size`";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "/problems/too-large", "Content too large", detail)
    }

    pub(crate) fn unsupported_media(detail: &'static str) -> Self {
        Self::from_web(tollgate_web::Problem::unsupported_media(detail))
    }

    pub(crate) fn misconfigured(detail: String) -> Self {
        Self::from_web(tollgate_web::Problem::misconfigured(detail))
    }

    /// Another body came under an idempotency key that was used before.
    pub(crate) fn reused_key() -> Self {
        let detail =
            "another message was submitted under this `Idempotency-Key`: use a new key for a new message";
        let (kind, title) = ("/problems/idempotency-key-reused", "Idempotency key reused");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, kind, title, detail)
    }

    /// No account can send the message.
    pub(crate) fn no_account(detail: String) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "/problems/no-account", "No account", detail)
    }

    pub(crate) fn bad_configuration(detail: String) -> Self {
        let (kind, title) = ("/problems/bad-configuration", "Bad configuration");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, kind, title, detail)
    }

    pub(crate) fn list_full(detail: String) -> Self {
        Self::new(StatusCode::CONFLICT, "/problems/list-full", "List full", detail)
    }

    /// The problem for a fault where fields only identify a user and nothing is attempted.
    pub(crate) fn about(fault: Fault) -> Self {
        match fault {
            Fault::Mistake(mistake) => Self::from_client_mistake(mistake),
            fault => fault.into(),
        }
    }

    fn from_client_mistake(mistake: Mistake) -> Self {
        match mistake {
            Mistake::NoRuleApplies { policy, fields } => Self::bad_request(format!(
                "no rule of policy `{policy}` applies: its rules need some of the fields {}",
                fields.join(", ")
            )),
            mistake => Fault::Mistake(mistake).into(),
        }
    }

    /// 503: something that this needs cannot be used now.
    pub(crate) fn unavailable(why: String) -> Self {
        Self::from_web(tollgate_web::Problem::unavailable(why))
    }

    /// There is no memory for the body of a request.
    pub(crate) fn no_room(why: &str) -> Self {
        Self::from_web(tollgate_web::Problem::unavailable(format!("{why}: wait a moment, and ask again")))
    }

    /// Its body with this id.
    pub(crate) fn body<'p>(&'p self, id: &'p str) -> ProblemBody<'p> {
        self.problem.body(id)
    }

    /// The complete response.
    pub(crate) fn answer(&self, correlation: &Correlation) -> Response {
        let mut response = self.problem.answer(correlation);
        if let Some(wait) = self.retry_after {
            retry(When::After(wait), Span::MAX, response.headers_mut());
        }
        response.map(Body::from)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::from_web(error.into())
    }
}

impl From<ChangeFault> for Problem {
    fn from(fault: ChangeFault) -> Self {
        let detail = fault.to_string();
        match fault {
            // Here policies are assigned to routes only.
            ChangeFault::InUse { users, .. } => {
                Self::conflict(format!("{detail} by the routes {}", listed(&users)))
            }
            ChangeFault::Configured { .. }
            | ChangeFault::Taken { .. }
            | ChangeFault::TooMany { .. }
            | ChangeFault::Contended { .. } => Self::conflict(detail),
            ChangeFault::Unknown { .. } => Self::not_found(detail),
            ChangeFault::NoPolicy(_) | ChangeFault::PolicySpec(_) | ChangeFault::Clash(_) => {
                Self::bad_request(detail)
            }
            ChangeFault::Changed { .. } => Self::changed(detail),
            ChangeFault::Store(error) => error.into(),
        }
    }
}

/// Names, the first few of many.
fn listed(names: &[String]) -> String {
    const FEW: usize = 10;
    let mut text = names.iter().take(FEW).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > FEW {
        text += &format!(" and {} more", names.len() - FEW);
    }
    text
}

impl From<PauseFault> for Problem {
    fn from(fault: PauseFault) -> Self {
        let detail = fault.to_string();
        match fault {
            PauseFault::Mistake(Mistake::UnknownPolicy { .. }) => Self::not_found(detail),
            PauseFault::Mistake(mistake) => Self::from_client_mistake(mistake),
            PauseFault::TooMany { .. } => Self::list_full(detail),
            PauseFault::Store(_) => {
                let (kind, title) = ("/problems/store-unavailable", "Store unavailable");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, title, detail)
            }
        }
    }
}

impl From<NotAdmitted> for Problem {
    fn from(not_admitted: NotAdmitted) -> Self {
        Self::from_web(not_admitted.into())
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::from_web(fault.into())
    }
}
