//! The header lines of a head, as they came.
//!
//! Most of them are passed on byte for byte, so they are looked at once, to tell what kind they are,
//! and become a map only for those who need one.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::write;

/// The longest head of any message: places in it are 16 bits.
pub(crate) const MOST_BYTES: usize = 65_535;
/// The most lines of any message.
pub(crate) const MOST_LINES: usize = 1000;

/// How many places are remembered without memory of their own.
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

/// What is done with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Passed on.
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
    /// Says where a request came from, and is believed from proxies alone.
    Hearsay,
    /// Between this connection's two ends alone.
    Hop,
    /// Read as another by servers that cannot tell `-` from `_`.
    Disguised,
}

impl Lines {
    /// Takes note of where lines are in the `whole` that they were parsed from.
    pub(crate) fn find(&mut self, headers: &[httparse::Header<'_>], whole: &[u8]) {
        let place = |part: &[u8]| {
            let start = part.as_ptr() as usize - whole.as_ptr() as usize;
            let bound = |at: usize| u16::try_from(at).expect("heads are at most 64 KiB long");
            (bound(start), bound(start + part.len()))
        };
        let lines = headers.iter().map(|header| LinePlace {
            name: place(header.name.as_bytes()),
            // An empty value may lie outside.
            value: if header.value.is_empty() { (0, 0) } else { place(header.value) },
            kind: kind_of(header.name.as_bytes()),
        });
        self.lines.clear();
        self.lines.extend(lines);
    }

    /// Keeps the bytes that the lines were found in.
    pub(crate) fn keep(&mut self, bytes: Bytes) {
        self.bytes = bytes;
    }

    /// Lets go of everything, but not of a little memory.
    pub(crate) fn clear(&mut self) {
        self.bytes = Bytes::new();
        self.lines.clear();
        if self.lines.spilled() {
            self.lines = SmallVec::new();
        }
    }

    /// The lines of a map.
    pub(crate) fn from_map(map: &HeaderMap) -> Self {
        let size = map.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let mut bytes = BytesMut::with_capacity(size);
        let mut put = |part: &[u8], after: &[u8]| {
            // What does not fit is left out; a map never is that large, since heads are bounded.
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

    /// Writes those lines out that pass. Neighbours that look as we would write them, which most do, are
    /// copied together.
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

    /// Whether a line is `name: value` and the end of the line, with nothing else before or between.
    fn is_tidy(&self, place: &LinePlace) -> bool {
        let (name, value) = (range(place.name), range(place.value));
        self.bytes.get(name.end..value.start) == Some(b": ")
            && self.bytes.get(value.end..value.end + 2) == Some(b"\r\n")
    }

    /// Makes lines of this name such that they are not passed on.
    pub(crate) fn hide(&mut self, name: &[u8]) {
        let Self { bytes, lines } = self;
        for place in lines.iter_mut().filter(|place| place.kind == Kind::Plain) {
            if bytes[range(place.name)].eq_ignore_ascii_case(name) {
                place.kind = Kind::Hop;
            }
        }
    }

    /// All lines, as a map.
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

/// The words of a line that lists some, without the empty ones.
pub(crate) fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

/// What kind of line has this name. Names that nobody treats specially are told by their length in
/// most cases.
pub(crate) fn kind_of(name: &[u8]) -> Kind {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    let known = match name.len() {
        2 if is(b"te") => Kind::Te,
        4 if is(b"host") => Kind::Host,
        6 if is(b"expect") => Kind::Expect,
        7 if is(b"upgrade") => Kind::Upgrade,
        9 if is(b"forwarded") || is(b"x-real-ip") => Kind::Hearsay,
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
        Kind::Plain if name.len() > 12 && name[..12].eq_ignore_ascii_case(b"x-forwarded-") => Kind::Hearsay,
        Kind::Plain if memchr::memchr(b'_', name).is_some() => disguised(name),
        known => known,
    }
}

#[cold]
fn disguised(name: &[u8]) -> Kind {
    let plain: SmallVec<[u8; 32]> =
        name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
    match kind_of(&plain) {
        // How a body is read depends on these.
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
        assert_eq!(kind_of(b"X-FORWARDED-PREFIX"), Kind::Hearsay);
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
