//! The head of a response. Upstreams are trusted more than clients are, yet where a body ends must be
//! plain too.

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
    /// How long the lines say that the body is, or would be if there were one.
    pub(crate) length: Option<u64>,
    /// Whether the connection ends after it.
    pub(crate) close: bool,
}

/// The body of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Body {
    /// There is none, whatever the lines say; they may say how long it would have been.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// Nobody knows how long.
    Chunked,
    /// It ends with the connection.
    UntilClose,
}

/// What is wrong with a head, in words.
pub(crate) type WrongResponse = &'static str;

/// Whether a status is one that a response can have: clients know what its first digit means.
pub(crate) fn is_status(status: &u16) -> bool {
    (100..600).contains(status)
}

/// Takes a head out of what was read. Answers whether it was all there.
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
    // The places are worked out before the bytes are taken, which are the same ones.
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
        // A message that says both may have been meant to be read in two ways.
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
    /// The length that is passed on, in one line however many there were. What has no body by its status
    /// does not say one.
    pub(crate) fn told_length(&self) -> Option<u64> {
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

/// The one number of a line. A list that says the same again and again comes from servers that
/// append.
fn content_length(value: &[u8]) -> Option<u64> {
    let mut numbers = value.split(|byte| *byte == b',').map(|text| {
        let text = text.trim_ascii();
        let digits = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
        digits.then(|| std::str::from_utf8(text).ok()?.parse::<u64>().ok()).flatten()
    });
    let first = numbers.next()??;
    numbers.all(|number| number == Some(first)).then_some(first)
}
