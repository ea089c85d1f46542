//! Errors as RFC 9457 problems, and the id that ties them to the caller's log.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::StoreError;
use tollgate_engine::Fault;

use super::headers::CORRELATION_ID;
use super::json::Json;

/// The media type of problems.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The longest detail, in characters: what a caller sent is never shown back at length.
const MOST_DETAIL_CHARS: usize = 600;

/// Why a request was not done.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
}

/// A problem as it is sent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemBody<'p> {
    /// What kind of problem this is: a path that does not change.
    r#type: &'p str,
    /// The kind in words.
    title: &'p str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request.
    detail: &'p str,
    /// The id of the request, as the caller sent it or as it was made up.
    #[serde(rename = "correlationId")]
    correlation_id: &'p str,
}

/// The id by which a caller finds this request again.
#[derive(Clone)]
pub(crate) struct Correlation {
    /// What the caller sent, if it is fit to be sent back.
    pub(crate) given: Option<HeaderValue>,
}

/// What a request is answered with if it takes too long. How long that is, whoever serves the router
/// says.
pub struct TooLate(Correlation);

impl TooLate {
    /// For a request with these headers.
    pub fn for_request(headers: &HeaderMap) -> Self {
        Self(Correlation::of(headers))
    }

    /// The answer, instead of the router's.
    pub fn answer(&self) -> Response {
        let detail = "the whole request did not come, or was not answered, in time";
        let (kind, title) = ("/problems/too-late", "Request timeout");
        Problem::new(StatusCode::REQUEST_TIMEOUT, kind, title, detail).answer(&self.0)
    }
}

impl Correlation {
    /// The longest id that is taken over, in bytes.
    const MOST_BYTES: usize = 128;

    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let fit = |value: &&HeaderValue| {
            (1..=Self::MOST_BYTES).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
        };
        Self { given: headers.get(CORRELATION_ID).filter(fit).cloned() }
    }

    /// The id: the caller's, or one that is made up now.
    pub(crate) fn id(&self) -> HeaderValue {
        self.given.clone().unwrap_or_else(|| {
            let random = getrandom::u64().expect("the system gives random numbers");
            let text = data_encoding::HEXLOWER.encode(&random.to_be_bytes());
            HeaderValue::try_from(text).expect("hexadecimal digits fit into a header")
        })
    }
}

/// An id as text; ids are visible ASCII.
pub(crate) fn id_text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, title, detail: detail.into() }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "/problems/bad-request", "Bad request", detail)
    }

    pub(crate) fn unauthorized() -> Self {
        let detail = "send a known token as `Authorization: Bearer …`, `X-API-Key` or `X-API-Token`";
        Self::new(StatusCode::UNAUTHORIZED, "/problems/unauthorized", "Unauthorized", detail)
    }

    pub(crate) fn forbidden(detail: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, "/problems/forbidden", "Forbidden", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "/problems/not-found", "Not found", detail)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::not_found("there is nothing at this path; /api/v1/openapi.json tells what there is")
    }

    pub(crate) fn method_not_allowed() -> Self {
        let detail = "this path does not know that method; /api/v1/openapi.json tells which it knows";
        let (kind, title) = ("/problems/method-not-allowed", "Method not allowed");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, kind, title, detail)
    }

    pub(crate) fn too_large(most: usize) -> Self {
        let detail = format!("the body is longer than {most} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "/problems/too-large", "Content too large", detail)
    }

    pub(crate) fn bad_configuration(detail: String) -> Self {
        let (kind, title) = ("/problems/bad-configuration", "Bad configuration");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, kind, title, detail)
    }

    pub(crate) fn list_full(detail: String) -> Self {
        Self::new(StatusCode::CONFLICT, "/problems/list-full", "List full", detail)
    }

    /// Writes its body under this id.
    pub(crate) fn write(&self, id: &HeaderValue, json: &mut Json) {
        serde_json::to_writer(json.bytes(), &self.body(id)).expect("a problem is plain text and numbers");
    }

    fn body<'p>(&'p self, id: &'p HeaderValue) -> ProblemBody<'p> {
        let end = self.detail.char_indices().nth(MOST_DETAIL_CHARS).map_or(self.detail.len(), |(at, _)| at);
        ProblemBody {
            r#type: self.kind,
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail[..end],
            correlation_id: id_text(id),
        }
    }

    /// The whole response.
    pub(crate) fn answer(&self, correlation: &Correlation) -> Response {
        let id = correlation.id();
        let body = serde_json::to_vec(&self.body(&id)).expect("a problem is plain text and numbers");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CORRELATION_ID, id);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
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
