//! Turns the head of an HTTP/2 request into the form of an HTTP/1 head.

use std::cell::OnceCell;

use bytes::Bytes;
use h2::RecvStream;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use tollgate_web::method;

use crate::h1::decode::Decoder;
use crate::h1::lines::{Kind, Lines, MOST_BYTES, words};
use crate::h1::request::{Refused, RequestHead, Version, content_length, expectation, is_host};

/// Reads a head of at most `most_lines` lines.
pub(super) fn read(parts: Parts, body: &RecvStream, most_lines: usize) -> Result<RequestHead, Refused> {
    let Parts { method, uri, mut headers, .. } = parts;
    method::check(&method)?;
    if matches!(method, Method::CONNECT | Method::TRACE) {
        return Err(Refused::NotForUs);
    }
    if headers.values().any(has_blank_ends) {
        return Err(Refused::Malformed("the value of a header begins or ends with a blank"));
    }
    join_cookies(&mut headers);
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > MOST_BYTES || headers.len() > most_lines {
        return Err(Refused::TooLarge);
    }
    let host = host(uri.authority().map(http::uri::Authority::as_str), &headers)?;
    let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let lines = Lines::from_map(&headers);
    let (mut expects, mut trailers) = (false, false);
    for line in lines.iter() {
        match line.kind {
            Kind::Expect => expects = expectation(line.value)?,
            Kind::Te => trailers |= words(line.value).any(|word| word.eq_ignore_ascii_case(b"trailers")),
            Kind::Disguised => return Err(Refused::Malformed(Refused::DISGUISED)),
            _ => {}
        }
    }
    let length = length(&headers)?;
    Ok(RequestHead {
        method,
        target: Bytes::copy_from_slice(target.as_bytes()),
        host: Some(host),
        version: Version::Http2,
        lines,
        body: match length {
            _ if body.is_end_stream() => Decoder::Empty,
            Some(length) => Decoder::Length(length),
            None => Decoder::CHUNKED,
        },
        close: false,
        expects,
        upgrade: None,
        trailers,
        says_length: length.is_some(),
        map: OnceCell::from(headers),
    })
}

/// Whether a value begins or ends with a blank, which HTTP/2 forbids (RFC 9113, section 8.2.1). HTTP/1
/// ignores such blanks, so the upstream would read another value than the gateway compared.
fn has_blank_ends(value: &HeaderValue) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_blank(value.as_bytes().first()) || is_blank(value.as_bytes().last())
}

/// The host: `:authority`, or `Host`, or both if they agree.
fn host(authority: Option<&str>, headers: &HeaderMap) -> Result<Bytes, Refused> {
    let mut said = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
    let line = said.next();
    if said.next().is_some() {
        return Err(Refused::Malformed("there are two Hosts"));
    }
    let host = match (authority.map(str::as_bytes), line) {
        (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other) => {
            return Err(Refused::Malformed("the Host is another than the target's"));
        }
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => return Err(Refused::Malformed("there is no Host")),
    };
    if host.is_empty() || !is_host(host) {
        return Err(Refused::Malformed("the Host is malformed"));
    }
    Ok(Bytes::copy_from_slice(host))
}

fn length(headers: &HeaderMap) -> Result<Option<u64>, Refused> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next().map(|value| content_length(value.as_bytes())).transpose()?;
    if lengths.next().is_some() {
        return Err(Refused::Malformed("a header that may occur once occurs twice"));
    }
    Ok(length)
}

/// Joins the cookies into one line. HTTP/2 sends them separately, HTTP/1 in one line.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}
