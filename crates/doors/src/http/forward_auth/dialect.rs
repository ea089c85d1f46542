//! The response format of a proxy.

use std::borrow::Cow;

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};

/// The header with the intended status.
const STATUS: HeaderName = HeaderName::from_static("x-tollgate-status");
/// The header with the intended body, in one line.
const BODY: HeaderName = HeaderName::from_static("x-tollgate-body");
/// The longest body that is put into a header. All headers must fit into a buffer of the proxy. A response
/// that does not fit is no response to the proxy, which may then let the request pass.
const MOST_BODY_BYTES: usize = 2048;

/// What a proxy understands, and which headers describe the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The proxy forwards a refusal unchanged.
    Plain,
    /// `auth_request` of nginx: it accepts only 401 and 403, and drops bodies.
    Nginx,
}

/// The headers that a proxy writes, and thereby replaces its client's.
pub(super) struct Names {
    pub(super) method: &'static str,
    pub(super) uri: &'static str,
    pub(super) host: &'static str,
}

impl Dialect {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "plain" => Some(Self::Plain),
            "nginx" => Some(Self::Nginx),
            _ => None,
        }
    }

    pub(super) fn names(self) -> Names {
        let host = "x-forwarded-host";
        match self {
            Self::Plain => Names { method: "x-forwarded-method", uri: "x-forwarded-uri", host },
            Self::Nginx => Names { method: "x-original-method", uri: "x-original-uri", host },
        }
    }

    /// Converts a response to this dialect.
    pub(super) fn say(self, response: Response<Bytes>) -> Response<Bytes> {
        match (self, response.status()) {
            (Self::Plain, _) | (_, StatusCode::OK | StatusCode::INTERNAL_SERVER_ERROR) => response,
            (Self::Nginx, _) => in_headers(response),
        }
    }
}

/// A refusal with everything in its headers.
fn in_headers(response: Response<Bytes>) -> Response<Bytes> {
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(STATUS, parts.status.as_u16().into());
    if body.len() <= MOST_BODY_BYTES
        && let Ok(line) = HeaderValue::from_bytes(&one_line(&body))
    {
        parts.headers.insert(BODY, line);
    }
    parts.status = StatusCode::FORBIDDEN;
    Response::from_parts(parts, body)
}

/// JSON in one line: control characters in it are only white space.
fn one_line(json: &[u8]) -> Cow<'_, [u8]> {
    if json.iter().any(u8::is_ascii_control) {
        json.iter().map(|byte| if byte.is_ascii_control() { b' ' } else { *byte }).collect()
    } else {
        json.into()
    }
}
