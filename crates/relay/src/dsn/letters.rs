//! The characters that a report may use. It is ASCII unless its recipient's own address is not: the server that could not
//! take the message often is the one that the report goes through.

use std::fmt::Write;

/// The longest value that comes from outside, in bytes.
const MOST_VALUE: usize = 900;

/// The characters that a report may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    /// ASCII. Other characters are written as `\x{F6}`.
    Ascii,
    /// All of Unicode, over SMTPUTF8.
    Utf8,
}

impl Letters {
    /// A value from outside, fit for one line.
    pub(super) fn line(self, text: &str) -> String {
        let text = &text[..text.floor_char_boundary(MOST_VALUE)];
        let mut out = String::with_capacity(text.len());
        for char in text.chars() {
            match char {
                _ if char.is_control() => out.push(' '),
                _ if char.is_ascii() || self == Self::Utf8 => out.push(char),
                _ => escape(char, &mut out),
            }
        }
        out
    }

    /// An address with its type (RFC 3464, RFC 6533).
    pub(super) fn typed_address(self, address: &str) -> String {
        if address.is_ascii() {
            return format!("rfc822; {}", self.line(address));
        }
        if self == Self::Utf8 {
            return format!("utf-8; {}", self.line(address));
        }
        let mut out = "utf-8; ".to_owned();
        for char in address.chars() {
            match char {
                '!'..='~' if !matches!(char, '\\' | '+' | '=') => out.push(char),
                _ => escape(char, &mut out),
            }
        }
        out
    }
}

/// `\x{F6}`, as RFC 6533 writes a character beyond ASCII.
fn escape(char: char, out: &mut String) {
    let _ = write!(out, "\\x{{{:02X}}}", u32::from(char));
}
