//! Rate limits in response headers.

use std::fmt::Write;

use axum::http::header::{HeaderName, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue};
use tollgate_core::{Decision, Limit, Line, Span, Timestamp, When};

use super::endpoint::Ask;

/// The id by which a caller finds a request again.
pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
const FORMAT: HeaderName = HeaderName::from_static("x-ratelimit-format");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const BURST: HeaderName = HeaderName::from_static("x-ratelimit-burst");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const IETF_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const IETF: HeaderName = HeaderName::from_static("ratelimit");

/// The largest whole number that a structured field may hold.
const MOST_FIELD_NUMBER: u64 = 999_999_999_999_999;

/// Whether the caller asked for the IETF's fields too.
pub(crate) fn wants_ietf(ask: &Ask) -> bool {
    ask.query("ratelimit") == Some("ietf")
        || ask.headers.get(FORMAT).is_some_and(|format| format.as_bytes().eq_ignore_ascii_case(b"ietf"))
}

/// Says what the binding limit shows.
pub(crate) fn rate_limit(decision: &Decision<'_>, headers: &mut HeaderMap) {
    let Some((limit, reading)) = decision.binding() else { return };
    headers.insert(LIMIT, limit.number().into());
    if let Limit::Bucket(bucket) = limit {
        headers.insert(BURST, bucket.burst().into());
    }
    headers.insert(REMAINING, reading.remaining.into());
    if let Some(reset) = reading.reset {
        headers.insert(RESET, reset.as_secs_ceil().into());
    }
}

/// Whole seconds to wait: rounded up, and never none.
pub(crate) fn whole_secs(wait: Span) -> u64 {
    wait.as_secs_ceil().max(1)
}

/// Says how long to wait.
pub(crate) fn retry_after(wait: Option<Span>, headers: &mut HeaderMap) {
    if let Some(wait) = wait {
        headers.insert(RETRY_AFTER, whole_secs(wait).into());
    }
}

/// Says what every enforced rule shows, in the IETF's structured fields.
pub(crate) fn ietf(decision: &Decision<'_>, headers: &mut HeaderMap) {
    let mut policy = String::new();
    let mut state = String::new();
    for line in decision.lines().filter(|line| !line.rule.observes()) {
        write_line(&line, decision.outcome.now, &mut policy, &mut state);
    }
    for (name, value) in [(IETF_POLICY, policy), (IETF, state)] {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
}

fn write_line(line: &Line<'_>, now: Timestamp, policy: &mut String, state: &mut String) {
    let Some((limit, reading)) = line.binding() else { return };
    // Only visible ASCII can be quoted in a structured field.
    if !line.rule.name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\') {
        return;
    }
    let name = &line.rule.name;
    let comma = if policy.is_empty() { "" } else { ", " };
    let number = |number: u64| number.min(MOST_FIELD_NUMBER);
    let mut written = || -> std::fmt::Result {
        write!(policy, "{comma}\"{name}\";q={}", number(limit.number()))?;
        if let Some(period) = limit.period() {
            write!(policy, ";w={}", number(period.as_secs_ceil()))?;
        }
        write!(state, "{comma}\"{name}\";r={}", number(reading.remaining))?;
        let until = match reading.when {
            When::After(span) => Some(span),
            _ => reading.reset.map(|reset| reset.since(now)),
        };
        until.map_or(Ok(()), |span| write!(state, ";t={}", number(span.as_secs_ceil())))
    };
    written().expect("writing to a string cannot fail");
}
