//! Rate limits in response headers.

use std::fmt::Write;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use tollgate_core::{Decision, Limit, Line, Reading, Rule, Span, Timestamp, When};

use super::header_sink::{HeaderSink, Name};

const LIMIT: Name = Name::new(HeaderName::from_static("x-ratelimit-limit"), "x-ratelimit-limit: ");
const BURST: Name = Name::new(HeaderName::from_static("x-ratelimit-burst"), "x-ratelimit-burst: ");
const REMAINING: Name =
    Name::new(HeaderName::from_static("x-ratelimit-remaining"), "x-ratelimit-remaining: ");
const RESET: Name = Name::new(HeaderName::from_static("x-ratelimit-reset"), "x-ratelimit-reset: ");
const TYPE: Name = Name::new(HeaderName::from_static("x-ratelimit-type"), "x-ratelimit-type: ");
const RETRY_AFTER_MS: Name = Name::new(HeaderName::from_static("retry-after-ms"), "retry-after-ms: ");
const SHOULD_RETRY: Name = Name::new(HeaderName::from_static("x-should-retry"), "x-should-retry: ");
const IETF_POLICY: Name = Name::new(HeaderName::from_static("ratelimit-policy"), "ratelimit-policy: ");
const IETF: Name = Name::new(HeaderName::from_static("ratelimit"), "ratelimit: ");

/// The largest whole number that a structured field may hold.
const MOST_FIELD_NUMBER: u64 = 999_999_999_999_999;

/// Writes the headers of the limit with the least room.
pub fn rate_limit(decision: &Decision<'_>, headers: &mut impl HeaderSink) {
    if let Some((limit, reading)) = decision.binding() {
        show(limit, reading, headers);
    }
}

/// Writes the reading of a limit and the type of its rule. It replaces all headers of these names, since
/// values of two sources would not fit together.
pub(super) fn rate_limit_and_type(
    rule: &Rule,
    limit: &Limit,
    reading: Reading,
    headers: &mut impl HeaderSink,
) {
    if burst(limit).is_none() {
        headers.forget(BURST);
    }
    if reading.reset.is_none() {
        headers.forget(RESET);
    }
    show(limit, reading, headers);
    say_kind(rule, headers);
}

#[inline]
fn show(limit: &Limit, reading: Reading, headers: &mut impl HeaderSink) {
    headers.number(LIMIT, limit.number());
    if let Some(burst) = burst(limit) {
        headers.number(BURST, burst);
    }
    headers.number(REMAINING, reading.remaining);
    if let Some(reset) = reading.reset {
        headers.number(RESET, reset.as_secs_ceil());
    }
}

/// The most units that can accumulate, of a limit whose units come back one by one.
#[inline]
fn burst(limit: &Limit) -> Option<u64> {
    limit.refill()?.burst
}

/// Whether these headers replace one of this name. Case does not matter.
pub fn is_ours(name: &[u8]) -> bool {
    // All of the names begin with one of these letters, and few others do.
    matches!(name.first(), Some(b'x' | b'X' | b'r' | b'R'))
        && [LIMIT, BURST, REMAINING, RESET, TYPE, IETF_POLICY, IETF]
            .iter()
            .any(|ours| ours.header.as_str().as_bytes().eq_ignore_ascii_case(name))
}

/// Writes the type of a rule: `consumer`, `route`, or the rule's name.
fn say_kind(rule: &Rule, headers: &mut impl HeaderSink) {
    let by = |name: &str| rule.by.iter().any(|field| *field.name == *name);
    if by("consumer") {
        headers.fixed(TYPE, "consumer");
    } else if by("route") {
        headers.fixed(TYPE, "route");
    } else {
        headers.text(TYPE, &rule.name);
    }
}

/// The wait in whole seconds: rounded up, and at least 1.
pub fn whole_secs(wait: Span) -> u64 {
    wait.as_secs_ceil().max(1)
}

/// The wait in whole milliseconds: rounded up, and at least 1.
pub fn whole_millis(wait: Span) -> u64 {
    wait.as_millis_ceil().max(1)
}

/// Writes when to retry: `Retry-After`, and `retry-after-ms`, which the client libraries of some APIs prefer. Many
/// programs sleep as long as these say, even for days. So `x-should-retry: false` tells them not to retry by themselves
/// if the wait is longer than `within`, or if waiting never helps.
pub fn retry(when: When, within: Span, headers: &mut impl HeaderSink) {
    if let When::After(wait) = when {
        headers.number(Name::new(RETRY_AFTER, "retry-after: "), whole_secs(wait));
        headers.number(RETRY_AFTER_MS, whole_millis(wait));
    }
    let in_vain = match when {
        When::After(wait) => wait > within,
        When::Never => true,
        When::Now | When::OnRelease => false,
    };
    if in_vain {
        headers.fixed(SHOULD_RETRY, "false");
    }
}

/// Writes the readings of every enforced rule as the IETF's structured fields.
pub fn ietf(decision: &Decision<'_>, headers: &mut impl HeaderSink) {
    let mut policy = String::new();
    let mut state = String::new();
    for line in decision.lines().filter(|line| !line.rule.observes()) {
        write_line(&line, decision.outcome.now, &mut policy, &mut state);
    }
    for (name, value) in [(IETF_POLICY, policy), (IETF, state)] {
        if !value.is_empty() {
            headers.text(name, &value);
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

/// A number as a header value. Small numbers come from a table.
pub(super) fn number(number: u64) -> HeaderValue {
    let ready = usize::try_from(number).ok().filter(|number| *number < READY);
    let bytes = match ready {
        Some(number) => {
            let width = 1 + usize::from(number >= 10) + usize::from(number >= 100);
            Bytes::from_static(&SMALL[3 * number + 3 - width..3 * number + 3])
        }
        None => Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    };
    HeaderValue::from_maybe_shared(bytes).expect("digits fit into a header")
}

/// The size of the table.
const READY: usize = 1000;

/// The numbers below [`READY`], three digits each.
static SMALL: [u8; 3 * READY] = {
    let mut digits = [b'0'; 3 * READY];
    let mut number = 0;
    while number < READY {
        digits[3 * number] = b'0' + (number / 100) as u8;
        digits[3 * number + 1] = b'0' + (number / 10 % 10) as u8;
        digits[3 * number + 2] = b'0' + (number % 10) as u8;
        number += 1;
    }
    digits
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are() {
        for wanted in (0..2_000).chain([9_999, 1_768_471_200, u64::MAX]) {
            assert_eq!(number(wanted).to_str().unwrap(), wanted.to_string());
        }
    }
}
