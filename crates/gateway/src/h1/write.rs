//! Writes the heads of outgoing messages.

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::encode::Encoder;
use super::lines::{Kind, Line};
use super::request::Version;
use super::response::{Body, ResponseHead};
use crate::captcha;
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

/// Writes the head of an upstream's response and the added lines. An added line replaces the upstream's lines
/// of the same name. Returns how the body is encoded, and whether the connection must close after it.
pub(crate) fn response(
    out: &mut BytesMut,
    head: &ResponseHead,
    added: &[u8],
    manner: Manner,
) -> (Encoder, bool) {
    status_line(out, head.status, &head.reason);
    head.lines.write(out, |Line { name, kind, .. }| match kind {
        Kind::Connection | Kind::TransferEncoding | Kind::ContentLength | Kind::Hop => false,
        Kind::Upgrade => head.status == 101,
        _ => !captcha::replace(added, name),
    });
    out.extend_from_slice(added);
    if let Some(length) = head.told_length() {
        number_line(out, b"content-length", length);
    }
    let (encoder, close) = match (head.body, manner.version) {
        (Body::None, _) => (Encoder::Empty, manner.close),
        (Body::Length(_), _) => (Encoder::Plain, manner.close),
        (_, Version::Http10) => (Encoder::Plain, true),
        (_, _) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            (Encoder::Chunked, manner.close)
        }
    };
    match head.status {
        101 => out.extend_from_slice(b"connection: upgrade\r\n"),
        _ => out.extend_from_slice(connection_line(manner.version, close)),
    }
    out.extend_from_slice(b"\r\n");
    (encoder, close)
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

fn status_line(out: &mut BytesMut, status: u16, reason: &[u8]) {
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
fn connection_line(version: Version, close: bool) -> &'static [u8] {
    match (close, version) {
        (true, _) => b"connection: close\r\n",
        (false, Version::Http10) => b"connection: keep-alive\r\n",
        (false, _) => b"",
    }
}
