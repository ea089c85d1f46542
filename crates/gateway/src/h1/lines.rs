//! The header lines of a head, as they arrived.
//!
//! Most of them are forwarded byte for byte. So each is classified once, and a map is built only on demand.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::write;

/// The longest head of any message: offsets in it have 16 bits.
pub(crate) const MOST_BYTES: usize = 65_535;
/// The most lines of any message.
pub(crate) const MOST_LINES: usize = 1000;

/// The number of lines that need no heap allocation.
const MOST_KEPT: usize = 20;

/// The header lines of a head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    /// The whole head.
    bytes: Bytes,
    lines: SmallVec<[LinePlace; MOST_KEPT]>,
}

#[derive(Clone, Copy, Debug)]
struct LinePlace {
    name: (u16, u16),
    value: (u16, u16),
    kind: Kind,
}

/// One header line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'l> {
    pub(crate) name: &'l [u8],
    pub(crate) value: &'l [u8],
    pub(crate) kind: Kind,
}

/// What the gateway does with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Forwarded.
    Plain,
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    Te,
    Expect,
    ForwardedFor,
    ForwardedProto,
    ForwardedHost,
    /// Says where a request came from, and is accepted from trusted proxies only.
    Forwarding,
    /// Hop-by-hop: not forwarded.
    Hop,
    /// Has `_` for `-`, and so some servers would read it as another header.
    Disguised,
}

impl Lines {
    /// Records the offsets of the lines in `whole`, from which they were parsed.
    pub(crate) fn find(&mut self, headers: &[httparse::Header<'_>], whole: &[u8]) {
        let place = |part: &[u8]| {
            let start = part.as_ptr() as usize - whole.as_ptr() as usize;
            let bound = |at: usize| u16::try_from(at).expect("heads are at most 64 KiB long");
            (bound(start), bound(start + part.len()))
        };
        let lines = headers.iter().map(|header| LinePlace {
            name: place(header.name.as_bytes()),
            // The parser's empty values may point outside `whole`.
            value: if header.value.is_empty() { (0, 0) } else { place(header.value) },
            kind: kind_of(header.name.as_bytes()),
        });
        self.lines.clear();
        self.lines.extend(lines);
    }

    /// Keeps the bytes to which the offsets refer.
    pub(crate) fn keep(&mut self, bytes: Bytes) {
        self.bytes = bytes;
    }

    /// Frees the lines, but keeps a little memory.
    pub(crate) fn clear(&mut self) {
        self.bytes = Bytes::new();
        self.lines.clear();
        if self.lines.spilled() {
            self.lines = SmallVec::new();
        }
    }

    /// Makes lines from a map.
    pub(crate) fn from_map(map: &HeaderMap) -> Self {
        let size = map.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let mut bytes = BytesMut::with_capacity(size);
        let mut put = |part: &[u8], after: &[u8]| {
            // A line that does not fit is left out. That does not happen, since heads are bounded.
            let start = u16::try_from(bytes.len()).ok()?;
            bytes.extend_from_slice(part);
            let end = u16::try_from(bytes.len()).ok()?;
            bytes.extend_from_slice(after);
            Some((start, end))
        };
        let place = |(name, value): (&HeaderName, &HeaderValue)| {
            let name = name.as_str().as_bytes();
            Some(LinePlace {
                name: put(name, b": ")?,
                value: put(value.as_bytes(), b"\r\n")?,
                kind: kind_of(name),
            })
        };
        Self { lines: map.iter().filter_map(place).collect(), bytes: bytes.freeze() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines.iter().map(|place| self.line(place))
    }

    fn line(&self, place: &LinePlace) -> Line<'_> {
        Line {
            name: &self.bytes[range(place.name)],
            value: &self.bytes[range(place.value)],
            kind: place.kind,
        }
    }

    /// Writes the lines that `passes` accepts. Adjacent lines in the gateway's own format, which is most of
    /// them, are copied together.
    pub(crate) fn write(&self, out: &mut BytesMut, mut passes: impl FnMut(Line<'_>) -> bool) {
        let mut run = 0..0;
        for place in &self.lines {
            let line = self.line(place);
            if !passes(line) {
                continue;
            }
            let whole = usize::from(place.name.0)..usize::from(place.value.1) + 2;
            if run.end == whole.start && self.is_tidy(place) {
                run.end = whole.end;
                continue;
            }
            out.extend_from_slice(&self.bytes[run]);
            run = 0..0;
            if self.is_tidy(place) {
                run = whole;
            } else {
                write::line(out, line.name, line.value);
            }
        }
        out.extend_from_slice(&self.bytes[run]);
    }

    /// Whether a line is exactly `name: value\r\n`.
    fn is_tidy(&self, place: &LinePlace) -> bool {
        let (name, value) = (range(place.name), range(place.value));
        self.bytes.get(name.end..value.start) == Some(b": ")
            && self.bytes.get(value.end..value.end + 2) == Some(b"\r\n")
    }

    /// Marks the lines of this name so that they are not forwarded.
    pub(crate) fn hide(&mut self, name: &[u8]) {
        let Self { bytes, lines } = self;
        for place in lines.iter_mut().filter(|place| place.kind == Kind::Plain) {
            if bytes[range(place.name)].eq_ignore_ascii_case(name) {
                place.kind = Kind::Hop;
            }
        }
    }

    /// All lines as a map.
    pub(crate) fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.lines.len());
        for place in &self.lines {
            let name = HeaderName::from_bytes(&self.bytes[range(place.name)]);
            let value = HeaderValue::from_maybe_shared(self.bytes.slice(range(place.value)));
            if let (Ok(name), Ok(value)) = (name, value) {
                map.append(name, value);
            }
        }
        map
    }
}

fn range((start, end): (u16, u16)) -> Range<usize> {
    usize::from(start)..usize::from(end)
}

/// The items of a comma-separated value, without the empty ones.
pub(crate) fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

/// The kind of a header name. For most ordinary names the length alone decides.
pub(crate) fn kind_of(name: &[u8]) -> Kind {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    let known = match name.len() {
        2 if is(b"te") => Kind::Te,
        4 if is(b"host") => Kind::Host,
        6 if is(b"expect") => Kind::Expect,
        7 if is(b"upgrade") => Kind::Upgrade,
        9 if is(b"forwarded") || is(b"x-real-ip") => Kind::Forwarding,
        10 if is(b"connection") => Kind::Connection,
        10 if is(b"keep-alive") => Kind::Hop,
        14 if is(b"content-length") => Kind::ContentLength,
        14 if is(b"http2-settings") => Kind::Hop,
        15 if is(b"x-forwarded-for") => Kind::ForwardedFor,
        16 if is(b"x-forwarded-host") => Kind::ForwardedHost,
        16 if is(b"proxy-connection") => Kind::Hop,
        17 if is(b"transfer-encoding") => Kind::TransferEncoding,
        17 if is(b"x-forwarded-proto") => Kind::ForwardedProto,
        18 if is(b"proxy-authenticate") => Kind::Hop,
        19 if is(b"proxy-authorization") => Kind::Hop,
        _ => Kind::Plain,
    };
    match known {
        Kind::Plain if name.len() > 12 && name[..12].eq_ignore_ascii_case(b"x-forwarded-") => {
            Kind::Forwarding
        }
        Kind::Plain if memchr::memchr(b'_', name).is_some() => disguised(name),
        known => known,
    }
}

#[cold]
fn disguised(name: &[u8]) -> Kind {
    let plain: SmallVec<[u8; 32]> =
        name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
    match kind_of(&plain) {
        // The upstream reads a body by these.
        Kind::Plain
            if [&b"content-type"[..], b"content-encoding"]
                .iter()
                .any(|name| plain.eq_ignore_ascii_case(name)) =>
        {
            Kind::Disguised
        }
        Kind::Plain => Kind::Plain,
        _ => Kind::Disguised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_in_any_case_and_disguises_are_seen_through() {
        assert_eq!(kind_of(b"Transfer-Encoding"), Kind::TransferEncoding);
        assert_eq!(kind_of(b"transfer_encoding"), Kind::Disguised);
        assert_eq!(kind_of(b"X_Forwarded_For"), Kind::Disguised);
        assert_eq!(kind_of(b"Content_Type"), Kind::Disguised);
        assert_eq!(kind_of(b"X-FORWARDED-PREFIX"), Kind::Forwarding);
        assert_eq!(kind_of(b"api_key"), Kind::Plain);
        assert_eq!(kind_of(b"accept"), Kind::Plain);
    }

    fn written(head: &'static str, hidden: &[u8]) -> String {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut headers);
        response.parse(head.as_bytes()).unwrap();
        let mut lines = Lines::default();
        lines.find(response.headers, head.as_bytes());
        lines.keep(Bytes::from_static(head.as_bytes()));
        let mut out = BytesMut::new();
        lines.write(&mut out, |line| line.name != hidden);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn lines_are_copied_as_they_are_unless_they_are_odd() {
        let tidy = "HTTP/1.1 200 OK\r\nA: 1\r\nBb: 2 3\r\nC: \r\nD: 4\r\n\r\n";
        assert_eq!(written(tidy, b""), "A: 1\r\nBb: 2 3\r\nC: \r\nD: 4\r\n");
        assert_eq!(written(tidy, b"Bb"), "A: 1\r\nC: \r\nD: 4\r\n");
        assert_eq!(written(tidy, b"A"), "Bb: 2 3\r\nC: \r\nD: 4\r\n");
        let odd = "HTTP/1.1 200 OK\r\nA:1\r\nB:\t 2 \r\nC: 3\nD: 4\r\n\r\n";
        assert_eq!(written(odd, b""), "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n");
    }

    #[test]
    fn words_are_trimmed_and_never_empty() {
        let found: Vec<_> = words(b" close ,, x-a,\tte").collect();
        assert_eq!(found, [b"close".as_slice(), b"x-a", b"te"]);
    }
}
