//! Reads the head of a request. It is strict: if the gateway reads a head differently from the upstream,
//! requests can evade limits.

use std::cell::OnceCell;
use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method};
use tollgate_web::method::{self, BadMethod};

use super::decode::Decoder;
use super::lines::{Kind, Lines, MOST_LINES, words};

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    /// Path and query as the client sent them.
    pub(crate) target: Bytes,
    /// The one `Host`, if there is one.
    pub(crate) host: Option<Bytes>,
    pub(crate) version: Version,
    pub(crate) lines: Lines,
    /// How its body ends.
    pub(crate) body: Decoder,
    /// Whether the connection closes after this request.
    pub(crate) close: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects: bool,
    /// The protocol that the client asks to upgrade to, if it is a single one that can be forwarded.
    pub(crate) upgrade: Option<Bytes>,
    /// Whether the client accepts trailers.
    pub(crate) trailers: bool,
    /// Whether a header gives the length of the body, even 0.
    pub(crate) says_length: bool,
    /// The lines as a map, built on demand.
    pub(crate) map: OnceCell<HeaderMap>,
}

/// The version of HTTP/1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    #[default]
    Http11,
    Http2,
}

/// Why a head is refused. The client's fault; the connection cannot be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is malformed or ambiguous; the text says how.
    Malformed(&'static str),
    /// It is longer than allowed, or has too many lines.
    TooLarge,
    /// It is meant for a forward proxy.
    NotForUs,
}

impl Refused {
    /// The text for a header name that some servers read as another.
    pub(crate) const DISGUISED: &str = "a header name has `_` where another has `-`";
}

/// The bounds of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) bytes: usize,
    pub(crate) lines: usize,
}

/// Takes a head from the inbox into `head`, which must be cleared. Returns whether the head was complete.
/// `scanned` is how far earlier calls have searched; it starts at 0 for each head.
pub(crate) fn take(
    inbox: &mut BytesMut,
    scanned: &mut usize,
    most: Most,
    head: &mut RequestHead,
) -> Result<bool, Refused> {
    // Some clients send an empty line after a body that they did not announce.
    while *scanned == 0 && inbox.starts_with(b"\r\n") {
        inbox.advance(2);
    }
    let Some(end) = find_end(inbox, scanned)? else {
        return if inbox.len() >= most.bytes { Err(Refused::TooLarge) } else { Ok(false) };
    };
    if end > most.bytes {
        return Err(Refused::TooLarge);
    }
    *scanned = 0;
    head.parse(inbox.split_to(end).freeze(), most.lines)?;
    Ok(true)
}

/// Finds the end of the head. Every line must end in CR LF.
fn find_end(inbox: &[u8], scanned: &mut usize) -> Result<Option<usize>, Refused> {
    for at in memchr::memchr_iter(b'\n', &inbox[*scanned..]).map(|at| at + *scanned) {
        if at == 0 || inbox[at - 1] != b'\r' {
            return Err(Refused::Malformed("a line ends without CR"));
        }
        if at >= 3 && inbox[at - 2] == b'\n' {
            return Ok(Some(at + 1));
        }
    }
    *scanned = inbox.len();
    Ok(None)
}

fn refusal(error: httparse::Error) -> Refused {
    match error {
        httparse::Error::TooManyHeaders => Refused::TooLarge,
        httparse::Error::Version => Refused::Malformed("the version is neither HTTP/1.0 nor HTTP/1.1"),
        httparse::Error::HeaderName => Refused::Malformed("the name of a header is malformed"),
        httparse::Error::HeaderValue => Refused::Malformed("the value of a header is malformed"),
        httparse::Error::NewLine => Refused::Malformed("a line does not end in CR LF"),
        _ => Refused::Malformed("the first line is malformed"),
    }
}

impl RequestHead {
    /// Clears the head for the next request.
    pub(crate) fn clear(&mut self) {
        self.target = Bytes::new();
        self.host = None;
        self.upgrade = None;
        self.lines.clear();
        self.map = OnceCell::new();
    }

    fn parse(&mut self, bytes: Bytes, most_lines: usize) -> Result<(), Refused> {
        let mut headers = [const { MaybeUninit::uninit() }; MOST_LINES];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(&bytes, &mut headers) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(Refused::Malformed("the head does not end where its lines do")),
            Err(error) => return Err(refusal(error)),
        }
        if request.headers.len() > most_lines {
            return Err(Refused::TooLarge);
        }
        self.lines.find(request.headers, &bytes);
        let method = request.method.unwrap_or_default().as_bytes();
        self.method =
            Method::from_bytes(method).map_err(|_| Refused::Malformed("the method is malformed"))?;
        method::check(&self.method)?;
        self.version = if request.version == Some(1) { Version::Http11 } else { Version::Http10 };
        let target = request.path.unwrap_or_default();
        if !target.is_ascii() {
            return Err(Refused::Malformed("the target has bytes that are not ASCII"));
        }
        self.target = bytes.slice_ref(target.as_bytes());
        self.close = self.version == Version::Http10;
        (self.expects, self.trailers) = (false, false);
        self.lines.keep(bytes.clone());
        self.read_lines(&bytes)?;
        self.read_target()
    }

    /// The lines as a map.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.map.get_or_init(|| self.lines.to_map())
    }

    /// The value of the first line of this name.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        self.lines.iter().find(|line| line.name.eq_ignore_ascii_case(name.as_bytes())).map(|line| line.value)
    }

    /// Reads the header lines that describe the message itself.
    fn read_lines(&mut self, bytes: &Bytes) -> Result<(), Refused> {
        let mut named: Vec<Bytes> = Vec::new();
        let mut upgrade = None;
        let (mut asks_upgrade, mut keeps) = (false, false);
        let mut length = None;
        let mut chunked = false;
        for line in self.lines.iter() {
            match line.kind {
                Kind::Host => self.host = Some(one(self.host.is_some(), bytes.slice_ref(line.value))?),
                Kind::ContentLength => length = Some(one(length.is_some(), content_length(line.value)?)?),
                Kind::TransferEncoding => chunked = one(chunked, is_chunked(line.value)?)?,
                Kind::Connection => {
                    for word in words(line.value) {
                        match word {
                            word if word.eq_ignore_ascii_case(b"close") => self.close = true,
                            word if word.eq_ignore_ascii_case(b"keep-alive") => keeps = true,
                            word if word.eq_ignore_ascii_case(b"upgrade") => asks_upgrade = true,
                            word if word.eq_ignore_ascii_case(b"te") => {}
                            word => named.push(bytes.slice_ref(word)),
                        }
                    }
                }
                Kind::Upgrade => upgrade = Some(bytes.slice_ref(line.value)),
                Kind::Te => {
                    self.trailers |= words(line.value).any(|word| word.eq_ignore_ascii_case(b"trailers"))
                }
                Kind::Expect => self.expects = expectation(line.value)?,
                Kind::Disguised => {
                    return Err(Refused::Malformed(Refused::DISGUISED));
                }
                _ => {}
            }
        }
        named.iter().for_each(|name| self.lines.hide(name));
        if chunked && (length.is_some() || self.version == Version::Http10) {
            return Err(Refused::Malformed("the body is chunked, but another header contradicts it"));
        }
        self.says_length = length.is_some();
        self.body = match (chunked, length) {
            (true, _) => Decoder::CHUNKED,
            (false, Some(length)) if length > 0 => Decoder::Length(length),
            (false, _) => Decoder::Empty,
        };
        if self.version == Version::Http10 {
            self.close = !keeps;
            self.expects = false;
        }
        // An upgrade to HTTP/2 concerns only the client and the gateway, which does not offer it.
        let passes =
            |name: &Bytes| !words(name).any(|word| word.len() >= 2 && word[..2].eq_ignore_ascii_case(b"h2"));
        let may = asks_upgrade && self.version == Version::Http11 && self.body == Decoder::Empty;
        self.upgrade = upgrade.filter(|name| may && passes(name));
        Ok(())
    }

    /// Brings the target into origin form, and makes sure that there is exactly one host.
    fn read_target(&mut self) -> Result<(), Refused> {
        if self.host.is_none() && self.version == Version::Http11 {
            return Err(Refused::Malformed("there is no Host"));
        }
        if !self.host.as_ref().is_none_or(|host| is_host(host)) {
            return Err(Refused::Malformed("the Host is malformed"));
        }
        if matches!(self.method, Method::CONNECT | Method::TRACE) {
            return Err(Refused::NotForUs);
        }
        match self.target.first() {
            Some(b'/') => {}
            Some(b'*') if self.target.len() == 1 && self.method == Method::OPTIONS => {}
            _ => self.read_absolute()?,
        }
        let malformed = memchr::memchr(b'#', &self.target).is_some();
        if malformed { Err(Refused::Malformed("the target has a fragment")) } else { Ok(()) }
    }

    fn read_absolute(&mut self) -> Result<(), Refused> {
        let begins = |scheme: &[u8]| {
            self.target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let skipped = match () {
            () if begins(b"http://") => 7,
            () if begins(b"https://") => 8,
            () => return Err(Refused::Malformed("the target is neither a path nor a URL")),
        };
        let rest = self.target.slice(skipped..);
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let authority = rest.slice(..end);
        if !is_host(&authority) || authority.is_empty() {
            return Err(Refused::Malformed("the target's host is malformed"));
        }
        if self.host.as_ref().is_some_and(|host| !host.eq_ignore_ascii_case(&authority)) {
            return Err(Refused::Malformed("the Host is another than the target's"));
        }
        self.host = Some(authority);
        self.target = match rest.get(end) {
            Some(b'/') => rest.slice(end..),
            Some(_) => [b"/", &rest[end..]].concat().into(),
            None => Bytes::from_static(b"/"),
        };
        Ok(())
    }
}

/// Refuses a header that occurs a second time.
fn one<T>(again: bool, value: T) -> Result<T, Refused> {
    if again { Err(Refused::Malformed("a header that may occur once occurs twice")) } else { Ok(value) }
}

impl From<BadMethod> for Refused {
    fn from(_: BadMethod) -> Self {
        Self::Malformed(BadMethod::WORDS)
    }
}

pub(crate) fn content_length(value: &[u8]) -> Result<u64, Refused> {
    let digits = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
    let number = || std::str::from_utf8(value).ok()?.parse().ok();
    digits.then(number).flatten().ok_or(Refused::Malformed("the Content-Length is not a number"))
}

fn is_chunked(value: &[u8]) -> Result<bool, Refused> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(true);
    }
    Err(Refused::Malformed("the Transfer-Encoding is not exactly `chunked`"))
}

pub(crate) fn expectation(value: &[u8]) -> Result<bool, Refused> {
    if value.eq_ignore_ascii_case(b"100-continue") {
        return Ok(true);
    }
    Err(Refused::Malformed("the expectation is unknown"))
}

/// Whether a text can be a host with or without a port. An empty text can.
pub(crate) fn is_host(text: &[u8]) -> bool {
    text.len() <= 260 && text.iter().all(|byte| IN_HOSTS[usize::from(*byte)])
}

/// The bytes that may occur in a host.
const IN_HOSTS: [bool; 256] = {
    let mut fits = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let letter = (byte as u8).is_ascii_alphanumeric();
        fits[byte] = letter || matches!(byte as u8, b'-' | b'.' | b'_' | b':' | b'[' | b']');
        byte += 1;
    }
    fits
};
