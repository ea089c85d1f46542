//! HTTP/1 in both directions: what the gateway accepts, hyper reads identically, up to the same byte.
//!
//! A message whose head hyper refuses is no danger: a service that refuses a request cannot be made to read it
//! differently. It does so for three reasons:
//!
//! - the target of a request is not a URI for the `http` crate: it has `"` in its query, for example;
//! - a response of HTTP/1.0 has `Transfer-Encoding`, which the gateway reads as chunked before it closes;
//! - a response has more header lines than hyper's bound.
//!
//! A message whose head it accepts and whose body it does not is a difference. So is a body that ends elsewhere:
//! the bytes after it would be another request to the service than to the gateway.

use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, HeaderName, Method};
use tollgate_gateway::fuzzing::{Ends, Message, read_request, read_response};

use crate::differential::{self, HyperMessage, HyperRead};

/// Follows a request: a parser that reads on after its last byte reads another request.
const NEXT_REQUEST: &[u8] = b"GET /next HTTP/1.1\r\nhost: next.example\r\n\r\n";
/// Follows a response.
const NEXT_RESPONSE: &[u8] = b"HTTP/1.1 201 Next\r\ncontent-length: 4\r\n\r\nnext";

/// A request that the gateway accepts.
pub fn http_request(bytes: &[u8]) {
    let Some(own) = read_request(bytes) else { return };
    let followed = [&bytes[..own.taken], NEXT_REQUEST].concat();
    let again = read_request(&followed).expect("what was taken is a whole request");
    assert_eq!(again, own, "what follows a request changes nothing about it");
    // The gateway answers a path without a normal form with 400.
    let path = own.first.1.split('?').next().unwrap_or_default();
    if tollgate_web::path::normal(path).is_err() {
        return;
    }
    let reason = http::Uri::try_from(raw_target(bytes)).err().map(|_| Reason::NotAUri);
    let Some(other) = whole(differential::request(&followed), &own, reason) else { return };
    compare(&own, &other);
    assert_eq!(own.first.1, other.first.1, "the target");
    assert_eq!(own.host, other.host, "the host");
    assert_eq!(
        other.left.escape_ascii().to_string(),
        NEXT_REQUEST.escape_ascii().to_string(),
        "what is left"
    );
}

/// A response that the gateway accepts. The first byte chooses the method of the request.
pub fn http_response(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let method = if choice % 4 == 0 { Method::HEAD } else { Method::GET };
    let Some(own) = read_response(bytes, &method) else { return };
    let taken = &bytes[..own.taken];
    // Nothing can follow a response that ends with its connection.
    let next: &[u8] = if own.ends == Ends::Itself { NEXT_RESPONSE } else { b"" };
    let followed = [taken, next].concat();
    let again = read_response(&followed, &method).expect("what was taken is a whole response");
    assert_eq!(again, own, "what follows a response changes nothing about it");
    let old = taken.starts_with(b"HTTP/1.0") && own.headers.contains_key(TRANSFER_ENCODING);
    let reason = match own.headers.len() {
        lines if lines > MOST_HYPER_LINES => Some(Reason::TooManyLines),
        _ => old.then_some(Reason::OldAndChunked),
    };
    let Some(mut other) = whole(differential::response(&followed, &method), &own, reason) else { return };
    let mut left = next;
    // hyper passes an interim response on by itself, and then reads the next one.
    if own.first.0.starts_with('1') && own.first.0 != "101" {
        let last = read_response(next, &method).expect("a correct response");
        compare(&last, &other);
        left = &next[last.taken..];
        let (status, headers) = other.interim.pop().expect("hyper has read an interim response");
        *other = HyperMessage {
            first: (status.as_u16().to_string(), String::new()),
            headers,
            left: other.left,
            interim: other.interim,
            ..HyperMessage::default()
        };
    }
    compare(&own, &other);
    assert!(other.interim.is_empty(), "hyper reads several responses");
    assert_eq!(other.left.escape_ascii().to_string(), left.escape_ascii().to_string(), "what is left");
}

/// Why hyper may refuse a head that the gateway accepts.
#[derive(Debug)]
enum Reason {
    NotAUri,
    OldAndChunked,
    TooManyLines,
}

/// The most header lines that hyper reads.
const MOST_HYPER_LINES: usize = 100;

/// The message as hyper reads it; `None` if it refuses the head for this reason.
fn whole(read: HyperRead, own: &Message, reason: Option<Reason>) -> Option<Box<HyperMessage>> {
    match read {
        HyperRead::RefusedHead(error) => {
            assert!(error.is_parse(), "hyper does not refuse the head, but {error:?}: {own:?}");
            assert!(reason.is_some(), "hyper refuses the head: {error:?}: {own:?}");
            None
        }
        HyperRead::BrokenBody(other, error) => panic!("hyper refuses the body: {error}: {own:?}, {other:?}"),
        HyperRead::Whole(message) => Some(message),
    }
}

/// The target in the first line of a request.
fn raw_target(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_start().split(|byte| *byte == b' ').nth(1).unwrap_or_default()
}

fn compare(own: &Message, other: &HyperMessage) {
    assert_eq!(own.first.0, other.first.0, "the method or the status");
    assert_eq!(lines(&own.headers), lines(&other.headers), "the header lines");
    assert_eq!(own.body.escape_ascii().to_string(), other.body.escape_ascii().to_string(), "the body");
    // The gateway drops trailers that would say how to read the message, or where it came from.
    let mut trailers = lines(&other.trailers);
    trailers.retain(|(name, _)| may_trail(name));
    assert_eq!(lines(&own.trailers), trailers, "the trailers");
}

/// Whether the gateway may forward a trailer of this name, as its documentation says.
fn may_trail(name: &str) -> bool {
    let plain = name.replace('_', "-");
    let forwarding = plain.starts_with("x-forwarded-") && plain.len() > "x-forwarded-".len();
    let disguised = name != plain && ["content-type", "content-encoding"].contains(&&*plain);
    !forwarding && !disguised && !HOP_BY_HOP.contains(&&*plain)
}

/// The headers that the gateway handles itself.
const HOP_BY_HOP: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-real-ip",
];

fn lines(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let line =
        |(name, value): (&HeaderName, &http::HeaderValue)| (name.to_string(), value.as_bytes().to_vec());
    let mut lines: Vec<_> = headers.iter().map(line).collect();
    lines.sort();
    lines
}
