//! Domain values in responses: times, spans, limits, verdicts.

use std::fmt::Display;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde::{Serialize, Serializer};
use tollgate_core::{Plan, Reading, Timestamp, When};
pub(crate) use tollgate_web::words::{Moment, origin, reason, verdict};

/// A value that is written as its text.
#[derive(Clone, Copy)]
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The limits of a plan as text; no limit is `unlimited`.
pub(crate) fn limits(plan: &Plan) -> Vec<String> {
    match plan.limits() {
        [] => vec!["unlimited".to_owned()],
        limits => limits.iter().map(ToString::to_string).collect(),
    }
}

/// Milliseconds until an attempt conforms, if waiting helps.
pub(crate) fn retry_after_ms(when: When) -> Option<u64> {
    match when {
        When::After(span) => Some(span.as_millis_ceil()),
        When::Now | When::OnRelease | When::Never => None,
    }
}

/// Milliseconds until a limit is unused again, if that happens by itself.
pub(crate) fn reset_after_ms(reading: Reading, now: Timestamp) -> Option<u64> {
    reading.reset.map(|reset| reset.since(now).as_millis_ceil())
}

/// A response with 200 and this body.
pub(crate) fn json(body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).expect("answers are plain text and numbers");
    json_bytes(bytes)
}

/// A response with 200 and this JSON.
pub(crate) fn json_bytes(bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
