//! HTTP/1 in both directions: what the gateway accepts, hyper reads identically. A message that hyper refuses is no
//! danger: a service that refuses a request cannot be made to read it differently.

use http::{HeaderMap, Method};
use tollgate_gateway::fuzzing::{Message, read_request, read_response};

use crate::differential::{self, HyperMessage};

/// A request that the gateway accepts.
pub fn http_request(bytes: &[u8]) {
    let Some(own) = read_request(bytes) else { return };
    let again = read_request(&bytes[..own.taken]).expect("what was taken is a whole request");
    assert_eq!(again, own, "what follows a request changes nothing about it");
    // The gateway answers a path without a normal form with 400, and hyper cuts a target at `#`.
    let path = own.first.1.split('?').next().unwrap_or_default();
    if tollgate_web::path::normal(path).is_err() || own.first.1.contains('#') {
        return;
    }
    if let Some(other) = differential::request(&bytes[..own.taken]) {
        compare(&own, &other);
        assert_eq!(own.first.1, other.first.1, "the target");
    }
}

/// A response that the gateway accepts. The first byte chooses the method of the request.
pub fn http_response(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let method = if choice % 4 == 0 { Method::HEAD } else { Method::GET };
    let Some(own) = read_response(bytes, &method) else { return };
    // hyper waits for the response that follows an interim one, and hands over a connection that switches protocols.
    if own.first.0.starts_with('1') {
        return;
    }
    if let Some(other) = differential::response(&bytes[..own.taken], &method) {
        compare(&own, &other);
    }
}

fn compare(own: &Message, other: &HyperMessage) {
    assert_eq!(own.first.0, other.first.0, "the method or the status");
    assert_eq!(lines(&own.headers), lines(&other.headers), "the header lines");
    assert_eq!(own.body, other.body, "the body");
}

fn lines(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), value.as_bytes().to_vec())
    };
    let mut lines: Vec<_> = headers.iter().map(line).collect();
    lines.sort();
    lines
}
