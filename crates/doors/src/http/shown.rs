//! Domain values as they are shown: moments, spans, limits, verdicts.

use std::fmt::{self, Display};

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde::{Serialize, Serializer};
use tollgate_core::{OnExceed, Origin, Plan, Reading, Timestamp, Verdict, When};

/// A value that is sent as its text, written straight into the answer.
#[derive(Clone, Copy)]
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A moment in RFC 3339, UTC.
#[derive(Clone, Copy)]
pub(crate) struct Moment(pub(crate) Timestamp);

impl Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX).fmt(f)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A verdict in a word.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Wait(_) => "wait",
        Verdict::Defer(_) => "defer",
        Verdict::Deny => "deny",
    }
}

/// How a decision was reached, in a word.
pub(crate) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Store => "store",
        Origin::Local(_) => "local",
        Origin::Outage(_) => "outage",
        Origin::Fixed => "fixed",
        Origin::Barred => "barred",
    }
}

/// Why a decision was reached without the store, in a word.
pub(crate) fn reason(origin: Origin) -> Option<&'static str> {
    match origin {
        Origin::Local(reason) | Origin::Outage(reason) => Some(reason.name()),
        Origin::Store | Origin::Fixed | Origin::Barred => None,
    }
}

/// What a rule does when it is exceeded, as it is written.
pub(crate) fn on_exceed(on_exceed: OnExceed) -> String {
    match on_exceed {
        OnExceed::Reject => "reject".to_owned(),
        OnExceed::Observe => "observe".to_owned(),
        OnExceed::Wait(most) => format!("wait {most}"),
        OnExceed::Defer(how) => {
            let aligned = if how.aligned { " aligned" } else { "" };
            let jitter = match how.jitter.as_micros() {
                0 => String::new(),
                _ => format!(" jitter {}", how.jitter),
            };
            format!("defer{aligned}{jitter}")
        }
    }
}

/// The limits of a plan, as they are written; none is `unlimited`.
pub(crate) fn limits(plan: &Plan) -> Vec<String> {
    match plan.limits() {
        [] => vec!["unlimited".to_owned()],
        limits => limits.iter().map(ToString::to_string).collect(),
    }
}

/// Milliseconds until an attempt conforms, where waiting alone helps.
pub(crate) fn retry_after_ms(when: When) -> Option<u64> {
    match when {
        When::After(span) => Some(span.as_millis_ceil()),
        When::Now | When::OnRelease | When::Never => None,
    }
}

/// Milliseconds until a limit is whole again, where it is by itself.
pub(crate) fn reset_after_ms(reading: Reading, now: Timestamp) -> Option<u64> {
    reading.reset.map(|reset| reset.since(now).as_millis_ceil())
}

/// An answer of 200 with this body.
pub(crate) fn json(body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).expect("answers are plain text and numbers");
    json_bytes(bytes)
}

/// An answer of 200 with this JSON.
pub(crate) fn json_bytes(bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
