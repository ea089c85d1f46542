//! Reads the head of a response. It is more lenient than with requests, but the end of a body must be
//! unambiguous here too.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::Method;

use super::decode::Decoder;
use super::lines::{Kind, Lines, MOST_BYTES, MOST_LINES, words};

/// The head of a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) reason: Bytes,
    pub(crate) lines: Lines,
    pub(crate) body: Body,
    /// The length of the body by the header lines, even if there is no body.
    pub(crate) length: Option<u64>,
    /// Whether the connection closes after this response.
    pub(crate) close: bool,
}

/// The body of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Body {
    /// None, whatever the header lines say. They may give the length that it would have had.
    #[default]
    None,
    /// This many bytes.
    Length(u64),
    /// Chunks, of unknown length.
    Chunked,
    /// All bytes until the connection closes.
    UntilClose,
}

/// What is wrong with a head, as text.
pub(crate) type WrongResponse = &'static str;

/// Whether a response can have this status: clients know the meaning of its first digit.
pub(crate) fn is_status(status: &u16) -> bool {
    (100..600).contains(status)
}

/// Takes a head from the inbox. Returns whether it was complete.
pub(crate) fn take(
    inbox: &mut BytesMut,
    method: &Method,
    head: &mut ResponseHead,
) -> Result<bool, WrongResponse> {
    if inbox.is_empty() {
        return Ok(false);
    }
    let mut headers = [const { MaybeUninit::uninit() }; MOST_LINES];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let whole: &[u8] = &*inbox;
    let parsed = config.parse_response_with_uninit_headers(&mut response, whole, &mut headers);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length <= MOST_BYTES => length,
        Ok(httparse::Status::Partial) if whole.len() < MOST_BYTES => return Ok(false),
        Ok(_) => return Err("the head of the response is too long"),
        Err(_) => return Err("the head of the response is malformed"),
    };
    head.status = response.code.filter(is_status).ok_or("the status of the response is none")?;
    let version11 = response.version == Some(1);
    head.close = !version11;
    let reason = response.reason.unwrap_or_default();
    // The offsets are computed before the bytes are split off.
    let reason_at = if reason.is_empty() { 0 } else { reason.as_ptr() as usize - whole.as_ptr() as usize };
    let reason_end = reason_at + reason.len();
    head.lines.find(response.headers, whole);
    let bytes = inbox.split_to(length).freeze();
    head.reason = bytes.slice(reason_at..reason_end);
    head.lines.keep(bytes);
    head.read_lines(method, version11)?;
    Ok(true)
}

impl ResponseHead {
    fn read_lines(&mut self, method: &Method, version11: bool) -> Result<(), WrongResponse> {
        let mut named: Vec<Vec<u8>> = Vec::new();
        let mut length = None;
        let mut chunked = false;
        let mut closes = false;
        for line in self.lines.iter() {
            match line.kind {
                Kind::ContentLength => {
                    let number = content_length(line.value).ok_or("the Content-Length is not a number")?;
                    if length.is_some_and(|earlier| earlier != number) {
                        return Err("there are two Content-Lengths");
                    }
                    length = Some(number);
                }
                Kind::TransferEncoding if line.value.eq_ignore_ascii_case(b"chunked") && !chunked => {
                    chunked = true
                }
                Kind::TransferEncoding => return Err("the Transfer-Encoding is not exactly `chunked`"),
                Kind::Connection => {
                    for word in words(line.value) {
                        match word {
                            word if word.eq_ignore_ascii_case(b"close") => closes = true,
                            word if word.eq_ignore_ascii_case(b"keep-alive") => self.close = false,
                            word if word.eq_ignore_ascii_case(b"upgrade") => {}
                            word => named.push(word.to_vec()),
                        }
                    }
                }
                _ => {}
            }
        }
        named.iter().for_each(|name| self.lines.hide(name));
        // A message with both headers may be an attempt at smuggling.
        self.close |= closes || (chunked && (length.is_some() || !version11));
        self.length = length.filter(|_| !chunked);
        self.body = match (chunked, length) {
            _ if *method == Method::HEAD || self.status < 200 || matches!(self.status, 204 | 304) => {
                Body::None
            }
            (true, _) => Body::Chunked,
            (false, Some(length)) => Body::Length(length),
            (false, None) => Body::UntilClose,
        };
        Ok(())
    }
}

impl ResponseHead {
    /// The length to forward, in a single line even if the upstream sent several. A status that forbids a
    /// body forwards none.
    pub(crate) fn declared_length(&self) -> Option<u64> {
        match self.body {
            Body::Length(length) => Some(length),
            Body::None if self.status >= 200 && self.status != 204 => self.length,
            _ => None,
        }
    }
}

impl Body {
    pub(crate) fn decoder(self) -> Decoder {
        match self {
            Self::None => Decoder::Empty,
            Self::Length(length) => Decoder::Length(length),
            Self::Chunked => Decoder::CHUNKED,
            Self::UntilClose => Decoder::UntilClose,
        }
    }
}

/// The number in a `Content-Length`. Some servers append the same number again and again as a list.
fn content_length(value: &[u8]) -> Option<u64> {
    let mut numbers = value.split(|byte| *byte == b',').map(|text| {
        let text = text.trim_ascii();
        let digits = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
        digits.then(|| std::str::from_utf8(text).ok()?.parse::<u64>().ok()).flatten()
    });
    let first = numbers.next()??;
    numbers.all(|number| number == Some(first)).then_some(first)
}
