//! The part of a report that returns the message, or its header.

use std::io::Write;

/// The longest line of quoted-printable (RFC 2045, 6.7).
const MOST_LINE: usize = 76;

/// The available part of a message's text: all of it, its beginning, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// The beginning of the text.
    pub text: Vec<u8>,
    /// The length of the whole text.
    pub size: u64,
}

/// The part of a message that a report returns.
pub(super) struct Returned<'a> {
    text: &'a [u8],
    kind: &'static str,
    full: bool,
}

impl<'a> Returned<'a> {
    /// The whole message if the sender wants it and it is available, else its header. `utf8` says that the
    /// header is UTF-8.
    pub(super) fn of(original: &'a Original, full: bool, utf8: bool) -> Self {
        let Original { text: original, size } = original;
        if full && original.len() as u64 == *size {
            let kind = if utf8 { "message/global" } else { "message/rfc822" };
            return Self { text: original, kind, full };
        }
        let end = original.windows(4).position(|window| window == b"\r\n\r\n");
        let text = end.map_or(&original[..], |end| &original[..end + 2]);
        let kind = if utf8 { "message/global-headers" } else { "text/rfc822-headers" };
        Self { text, kind, full: false }
    }

    /// Whether it can be sent only with 8BITMIME. A header never: it may be encoded (RFC 6522, 4; RFC 6533, 6).
    pub(super) fn is_eight_bit(&self) -> bool {
        self.full && !self.text.is_ascii()
    }

    /// Appends it as a part of a report.
    pub(super) fn write(&self, boundary: &str, out: &mut Vec<u8>) {
        let encoding = match (self.text.is_ascii(), self.full) {
            (true, _) => "7bit",
            (false, true) => "8bit",
            (false, false) => "quoted-printable",
        };
        // A vector takes every byte.
        let _ = write!(
            out,
            "--{boundary}\r\nContent-Type: {}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n",
            self.kind
        );
        if encoding == "quoted-printable" {
            quoted_printable(self.text, out);
        } else {
            out.extend_from_slice(self.text);
        }
        if !self.text.ends_with(b"\r\n") {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends a text in quoted-printable.
fn quoted_printable(text: &[u8], out: &mut Vec<u8>) {
    let mut column = 0;
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        if let Some(next) = rest.strip_prefix(b"\r\n") {
            out.extend_from_slice(b"\r\n");
            (column, rest) = (0, next);
            continue;
        }
        let ends_line = after.is_empty() || after.starts_with(b"\r\n");
        let plain =
            matches!(byte, b'!'..=b'~' if *byte != b'=') || matches!(byte, b' ' | b'\t') && !ends_line;
        let width = if plain { 1 } else { 3 };
        // One column is left for the `=` that continues the line.
        if column + width >= MOST_LINE {
            out.extend_from_slice(b"=\r\n");
            column = 0;
        }
        if plain {
            out.push(*byte);
        } else {
            let _ = write!(out, "={byte:02X}");
        }
        (column, rest) = (column + width, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_printable_is_as_the_standard_says() {
        let encoded = |text: &[u8]| {
            let mut out = Vec::new();
            quoted_printable(text, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            encoded("Subject: grüße = x \r\nY: z\r\n".as_bytes()),
            "Subject: gr=C3=BC=C3=9Fe =3D x=20\r\nY: z\r\n"
        );
        assert_eq!(encoded(b"\r\x00\n."), "=0D=00=0A.");
        let long = encoded("ü".repeat(60).as_bytes());
        assert!(long.lines().all(|line| line.len() <= 76), "{long}");
        assert_eq!(long.replace("=\r\n", ""), "=C3=BC".repeat(60));
    }
}
