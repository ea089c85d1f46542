//! Writes header lines, and the gateway's own responses.

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::request::Version;
use crate::date::Date;

/// A complete response of the gateway itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// Its header lines in HTTP/1 form, without those that frame the message.
    pub(crate) lines: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl From<http::Response<Bytes>> for Answer {
    fn from(response: http::Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        let mut lines = BytesMut::new();
        for (name, value) in &parts.headers {
            line(&mut lines, name.as_str().as_bytes(), value.as_bytes());
        }
        Self { status: parts.status, lines: lines.into(), body: body.into() }
    }
}

/// Writes `name: value`.
#[inline]
pub(crate) fn line(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a header line with a number.
pub(crate) fn number_line(out: &mut BytesMut, name: &[u8], number: u64) {
    line(out, name, itoa::Buffer::new().format(number).as_bytes());
}

/// How a response is sent to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) version: Version,
    /// Whether the connection closes after it.
    pub(crate) close: bool,
}

/// Writes a complete response of the gateway itself.
pub(crate) fn answer(out: &mut BytesMut, answer: &Answer, date: &Date, with_body: WithBody, manner: Manner) {
    let (lines, body) = (&*answer.lines, &*answer.body);
    let reason = answer.status.canonical_reason().unwrap_or_default();
    status_line(out, answer.status.as_u16(), reason.as_bytes());
    out.extend_from_slice(lines);
    out.extend_from_slice(date.before_length());
    out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(connection_line(manner.version, manner.close));
    out.extend_from_slice(b"\r\n");
    if with_body == WithBody::Yes {
        out.extend_from_slice(body);
    }
}

/// Whether the body of a response is sent. `HEAD` gets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithBody {
    Yes,
    No,
}

pub(super) fn status_line(out: &mut BytesMut, status: u16, reason: &[u8]) {
    let usual: &[u8] = match (status, reason) {
        (200, b"OK") => b"HTTP/1.1 200 OK\r\n",
        (429, b"Too Many Requests") => b"HTTP/1.1 429 Too Many Requests\r\n",
        _ => b"",
    };
    if !usual.is_empty() {
        return out.extend_from_slice(usual);
    }
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// The `Connection` line, if one is needed.
pub(super) fn connection_line(version: Version, close: bool) -> &'static [u8] {
    match (close, version) {
        (true, _) => b"connection: close\r\n",
        (false, Version::Http10) => b"connection: keep-alive\r\n",
        (false, _) => b"",
    }
}
