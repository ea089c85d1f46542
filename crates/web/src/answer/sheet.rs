//! Where headers are written to: a map, or text as HTTP/1 has it.
//!
//! Most servers hold headers in a map. A proxy that writes them out at once has no use for one, and a
//! map takes longer to make than a decision.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::headers::number;

/// Headers that are being written. What is said under a name replaces what was said under it before,
/// unless it is added.
pub trait Sheet {
    /// Says a number.
    fn number(&mut self, name: HeaderName, number: u64);

    /// Says what never changes.
    fn fixed(&mut self, name: HeaderName, text: &'static str);

    /// Says a text, if it is fit for a header.
    fn text(&mut self, name: HeaderName, text: &str);

    /// Says this.
    fn value(&mut self, name: HeaderName, value: &HeaderValue);

    /// Says this beside what was said already.
    fn add(&mut self, name: HeaderName, value: &HeaderValue);

    /// Says nothing under this name.
    fn forget(&mut self, name: HeaderName);
}

impl Sheet for HeaderMap {
    fn number(&mut self, name: HeaderName, value: u64) {
        self.insert(name, number(value));
    }

    fn fixed(&mut self, name: HeaderName, text: &'static str) {
        self.insert(name, HeaderValue::from_static(text));
    }

    fn text(&mut self, name: HeaderName, text: &str) {
        match HeaderValue::from_str(text) {
            Ok(value) => self.insert(name, value),
            Err(_) => self.remove(name),
        };
    }

    fn value(&mut self, name: HeaderName, value: &HeaderValue) {
        self.insert(name, value.clone());
    }

    fn add(&mut self, name: HeaderName, value: &HeaderValue) {
        self.append(name, value.clone());
    }

    fn forget(&mut self, name: HeaderName) {
        self.remove(name);
    }
}

/// Headers as HTTP/1 writes them: `name: value` and the end of the line, one after the other. Nobody
/// else writes into it, so nothing has to be replaced.
#[derive(Clone, Debug, Default)]
pub struct Lines(pub Vec<u8>);

impl Lines {
    #[inline]
    fn line(&mut self, name: &HeaderName, value: &[u8]) {
        let name = name.as_str().as_bytes();
        self.0.reserve(name.len() + value.len() + 4);
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }
}

impl Sheet for Lines {
    fn number(&mut self, name: HeaderName, number: u64) {
        self.line(&name, itoa::Buffer::new().format(number).as_bytes());
    }

    fn fixed(&mut self, name: HeaderName, text: &'static str) {
        self.line(&name, text.as_bytes());
    }

    fn text(&mut self, name: HeaderName, text: &str) {
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            self.line(&name, text.as_bytes());
        }
    }

    fn value(&mut self, name: HeaderName, value: &HeaderValue) {
        self.line(&name, value.as_bytes());
    }

    fn add(&mut self, name: HeaderName, value: &HeaderValue) {
        self.line(&name, value.as_bytes());
    }

    fn forget(&mut self, _: HeaderName) {}
}

#[cfg(test)]
mod tests {
    use http::header::{AGE, ETAG, VIA};

    use super::*;

    fn fill(sheet: &mut impl Sheet) {
        sheet.number(AGE, 12_345);
        sheet.fixed(ETAG, "fixed");
        sheet.text(VIA, "a rule");
        sheet.text(ETAG, "x\r\ny: z");
    }

    #[test]
    fn lines_say_what_a_map_says_and_hold_no_line_breaks() {
        let (mut map, mut lines) = (HeaderMap::new(), Lines::default());
        fill(&mut map);
        fill(&mut lines);
        assert_eq!(lines.0, b"age: 12345\r\netag: fixed\r\nvia: a rule\r\n");
        assert_eq!((&map[AGE], &map[VIA]), (&"12345".parse().unwrap(), &"a rule".parse().unwrap()));
        assert!(!map.contains_key(ETAG), "what cannot be said is not said under this name by others either");
    }
}
