//! The destination of headers: a map, or lines of HTTP/1.
//!
//! Most servers keep headers in a map. The gateway writes them out at once and needs no map, which would take
//! longer to build than the decision.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::headers::number;

/// The name of a header, in both forms.
#[derive(Clone, Debug)]
pub struct Name {
    /// For maps.
    pub header: HeaderName,
    /// For lines: with the `: ` behind it.
    pub line: &'static str,
}

impl Name {
    /// A constant name in lower case, and the same with `: ` behind it.
    pub(super) const fn new(header: HeaderName, line: &'static str) -> Self {
        assert!(header_fits(line.as_bytes()), "a line goes on with the value");
        Self { header, line }
    }
}

const fn header_fits(line: &[u8]) -> bool {
    line.len() > 2 && line[line.len() - 2] == b':' && line[line.len() - 1] == b' '
}

/// Whether all bytes are visible ASCII or blanks.
fn is_visible(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Headers that are being written. A value replaces an earlier one of the same name, except with `add`.
pub trait HeaderSink {
    /// Sets a number.
    fn number(&mut self, name: Name, number: u64);

    /// Sets a constant text.
    fn fixed(&mut self, name: Name, text: &'static str);

    /// Sets a text, if it is valid in a header.
    fn text(&mut self, name: Name, text: &str);

    /// Sets a value.
    fn value(&mut self, name: Name, value: &HeaderValue);

    /// Adds a value beside the existing ones.
    fn add(&mut self, name: Name, value: &HeaderValue);

    /// Removes a header.
    fn forget(&mut self, name: Name);
}

impl HeaderSink for HeaderMap {
    fn number(&mut self, name: Name, value: u64) {
        self.insert(name.header, number(value));
    }

    fn fixed(&mut self, name: Name, text: &'static str) {
        self.insert(name.header, HeaderValue::from_static(text));
    }

    fn text(&mut self, name: Name, text: &str) {
        match HeaderValue::from_str(text) {
            Ok(value) => self.insert(name.header, value),
            Err(_) => self.remove(name.header),
        };
    }

    fn value(&mut self, name: Name, value: &HeaderValue) {
        self.insert(name.header, value.clone());
    }

    fn add(&mut self, name: Name, value: &HeaderValue) {
        self.append(name.header, value.clone());
    }

    fn forget(&mut self, name: Name) {
        self.remove(name.header);
    }
}

/// Headers in HTTP/1 form, one `name: value` line after the other. It has a single writer, so nothing is ever
/// replaced.
#[derive(Clone, Debug, Default)]
pub struct Lines(pub Vec<u8>);

impl Lines {
    // Always inlined, so that the length of a name is a constant and copying needs no call.
    #[inline(always)]
    fn line(&mut self, name: &Name, value: &[u8]) {
        self.0.extend_from_slice(name.line.as_bytes());
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }
}

impl HeaderSink for Lines {
    #[inline(always)]
    fn number(&mut self, name: Name, number: u64) {
        self.line(&name, itoa::Buffer::new().format(number).as_bytes());
    }

    #[inline(always)]
    fn fixed(&mut self, name: Name, text: &'static str) {
        self.line(&name, text.as_bytes());
    }

    #[inline(always)]
    fn text(&mut self, name: Name, text: &str) {
        if is_visible(text.as_bytes()) {
            self.line(&name, text.as_bytes());
        }
    }

    #[inline(always)]
    fn value(&mut self, name: Name, value: &HeaderValue) {
        self.line(&name, value.as_bytes());
    }

    fn add(&mut self, name: Name, value: &HeaderValue) {
        self.line(&name, value.as_bytes());
    }

    #[inline(always)]
    fn forget(&mut self, _: Name) {}
}

#[cfg(test)]
mod tests {
    use http::header::{AGE, ETAG, VIA};

    use super::*;

    fn fill(sink: &mut impl HeaderSink) {
        let etag = Name::new(ETAG, "etag: ");
        sink.number(Name::new(AGE, "age: "), 12_345);
        sink.fixed(etag.clone(), "fixed");
        sink.text(Name::new(VIA, "via: "), "a rule");
        sink.text(etag, "x\r\ny: z");
    }

    #[test]
    fn lines_equal_the_header_map_and_contain_no_line_breaks() {
        let (mut map, mut lines) = (HeaderMap::new(), Lines::default());
        fill(&mut map);
        fill(&mut lines);
        assert_eq!(lines.0, b"age: 12345\r\netag: fixed\r\nvia: a rule\r\n");
        assert_eq!((&map[AGE], &map[VIA]), (&"12345".parse().unwrap(), &"a rule".parse().unwrap()));
        assert!(!map.contains_key(ETAG), "what cannot be said is not said under this name by others either");
    }
}
