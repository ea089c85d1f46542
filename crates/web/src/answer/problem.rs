//! Errors as RFC 9457 problems.

use std::borrow::Cow;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tollgate_core::{Listing, Mistake, Span, StoreError, When};
use tollgate_engine::{Fault, NotAdmitted};

use super::{Response, headers};
use crate::correlation::{CORRELATION_ID, Correlation};
use crate::facts::{Aliases, BadFact};
use crate::identity::BadCredential;
use crate::json;
use crate::path::{BadHost, BadPath};

/// The media type of problems.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The longest detail, in characters, so that a caller's input is never echoed at length.
const MOST_DETAIL_CHARS: usize = 600;
/// The usual size of a problem without its detail, in bytes.
const USUAL_BYTES: usize = 160;

/// Why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of the response.
    pub status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: Cow<'static, str>,
}

/// The body of a problem.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Problem"))]
pub struct ProblemBody<'p> {
    /// The kind of the problem: a constant path.
    r#type: &'p str,
    /// The kind as text.
    title: &'p str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request.
    detail: &'p str,
    /// The id of the request: the caller's, or a generated one.
    #[serde(rename = "correlationId")]
    correlation_id: &'p str,
}

impl Problem {
    /// A problem. Its kind is a constant path.
    pub fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, kind, title, detail: detail.into() }
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "/problems/bad-request", "Bad request", detail)
    }

    /// 401: the caller is unknown.
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "/problems/unauthorized", "Unauthorized", detail)
    }

    /// 403: the caller may not do this.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "/problems/forbidden", "Forbidden", detail)
    }

    /// 403: the caller is on the blocklist. The reason is shown only if it is public.
    pub fn banned(listing: &Listing) -> Self {
        let detail =
            if listing.show_reason { format!("banned: {}", listing.reason) } else { "banned".to_owned() };
        Self::new(StatusCode::FORBIDDEN, "/problems/banned", "Banned", detail)
    }

    /// 404: not found.
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "/problems/not-found", "Not found", detail)
    }

    /// 405: the resource does not support the method.
    pub fn method_not_allowed(detail: impl Into<Cow<'static, str>>) -> Self {
        let (kind, title) = ("/problems/method-not-allowed", "Method not allowed");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, kind, title, detail)
    }

    /// 408: the request did not arrive, or was not answered, in time.
    pub fn too_late(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "/problems/too-late", "Request timeout", detail)
    }

    /// 413: the body is longer than this many bytes.
    pub fn too_large(most: usize) -> Self {
        let detail = format!("the body is longer than {most} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "/problems/too-large", "Content too large", detail)
    }

    /// 415: the body's media type is not supported.
    pub fn unsupported_media(detail: impl Into<Cow<'static, str>>) -> Self {
        let (kind, title) = ("/problems/unsupported-media", "Unsupported media type");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, kind, title, detail)
    }

    /// 431: the headers are too many or too long.
    pub fn headers_too_large(detail: impl Into<Cow<'static, str>>) -> Self {
        let (kind, title) = ("/problems/headers-too-large", "Request header fields too large");
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, kind, title, detail)
    }

    /// 500: the configuration is wrong.
    pub fn misconfigured(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "/problems/misconfigured", "Misconfigured", detail)
    }

    /// 502: the upstream sent no response, or an invalid one.
    pub fn bad_gateway(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "/problems/bad-gateway", "Bad gateway", detail)
    }

    /// 429: the request would have to wait too long.
    fn rate_limit_exceeded(detail: &'static str) -> Self {
        let (kind, title) = ("/problems/rate-limit-exceeded", "Rate limit exceeded");
        Self::new(StatusCode::TOO_MANY_REQUESTS, kind, title, detail)
    }

    /// 503: temporarily unavailable.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "/problems/unavailable", "Service unavailable", detail)
    }

    /// 504: the upstream did not answer in time.
    pub fn gateway_timeout(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "/problems/gateway-timeout", "Gateway timeout", detail)
    }

    /// The cause of the problem, as text.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Its body with this correlation id.
    pub fn body<'p>(&'p self, id: &'p str) -> ProblemBody<'p> {
        let end = self.detail.char_indices().nth(MOST_DETAIL_CHARS).map_or(self.detail.len(), |(at, _)| at);
        ProblemBody {
            r#type: self.kind,
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail[..end],
            correlation_id: id,
        }
    }

    /// The complete response.
    pub fn answer(&self, correlation: &Correlation) -> Response {
        let id = correlation.id();
        let mut body = Vec::with_capacity(USUAL_BYTES + self.detail.len());
        json::write(&self.body(id.as_str()), &mut body);
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CORRELATION_ID, id.into());
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers::retry(When::After(Span::from_secs(1)), Span::MAX, headers);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (kind, title) = ("/problems/store-unavailable", "Store unavailable");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, title, error.to_string())
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Mistake(mistake) => Self::bad_request(mistake.to_string()),
            Fault::Store(error) => error.into(),
        }
    }
}

impl Problem {
    /// The problem of a request without credentials where a rule counts by a proved field.
    pub fn credentials_required() -> Self {
        Self::unauthorized("credentials are required: this is limited by caller")
    }

    /// The problem for a request that cannot be decided, given the sources of its fields. All HTTP doors use
    /// it.
    pub fn about(mistake: Mistake, aliases: &Aliases) -> Self {
        let is_proved = |field: &String| aliases.source(field).is_some_and(|source| source.is_proved());
        match mistake {
            Mistake::NoRuleApplies { fields, .. } if fields.iter().any(is_proved) => {
                Self::credentials_required()
            }
            // The client cannot change the policy.
            Mistake::NoRuleApplies { fields, .. } => Self::bad_request(format!(
                "the request has nothing that it can be limited by: it needs some of {}",
                fields.join(", ")
            )),
            Mistake::UnknownPolicy { .. } | Mistake::UnknownGuard { .. } | Mistake::UnknownField { .. } => {
                Self::misconfigured(mistake.to_string())
            }
            mistake => Self::bad_request(mistake.to_string()),
        }
    }
}

impl From<NotAdmitted> for Problem {
    fn from(not_admitted: NotAdmitted) -> Self {
        match not_admitted {
            NotAdmitted::TooLate { .. } => {
                Self::rate_limit_exceeded("the request would have to wait longer than its limits allow")
            }
            NotAdmitted::Full { .. } => Self::rate_limit_exceeded("too many requests are waiting already"),
            NotAdmitted::Ended => Self::unavailable("the server is ending, and nothing was taken: ask again"),
            NotAdmitted::Fault(fault) => fault.into(),
        }
    }
}

impl From<BadPath> for Problem {
    fn from(bad: BadPath) -> Self {
        Self::bad_request(bad.to_string())
    }
}

impl From<BadHost> for Problem {
    fn from(bad: BadHost) -> Self {
        Self::bad_request(bad.to_string())
    }
}

impl From<BadFact> for Problem {
    fn from(bad: BadFact) -> Self {
        match bad {
            BadFact::NoSource { .. } => Self::misconfigured(bad.to_string()),
            BadFact::NotUtf8 { .. }
            | BadFact::TooLong { .. }
            | BadFact::Twice { .. }
            | BadFact::Parted { .. }
            | BadFact::Unclear { .. }
            | BadFact::NotJson { .. } => Self::bad_request(bad.to_string()),
        }
    }
}

impl From<BadCredential> for Problem {
    fn from(bad: BadCredential) -> Self {
        Self::unauthorized(bad.to_string())
    }
}
