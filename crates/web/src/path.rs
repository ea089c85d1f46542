//! The path of a request, in one spelling.
//!
//! Whoever routes by one spelling of a path, limits by another and forwards a third can be slipped
//! past. So a path is brought into its normal form once, and this form is routed, limited and forwarded.
//! What two servers might read differently is refused instead of guessed at.

use std::borrow::Cow;
use std::fmt;

/// Why a path is not taken. The caller's fault, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// It does not begin with a slash.
    NotAbsolute,
    /// It holds a control character, a space, or a mark that is not allowed in a path; or one of them
    /// encoded, where it could pass for another thing later on.
    Forbidden {
        /// Which byte.
        byte: u8,
    },
    /// A `%` is not followed by two hexadecimal digits.
    BadEscape,
    /// A slash or a backslash is encoded: some decode it before they take paths apart, some after.
    EncodedSlash,
    /// It is not UTF-8 once it is decoded.
    NotUtf8,
    /// It leads above the root.
    AboveRoot,
    /// A segment of dots carries parameters, as in `..;a`: some drop these, and climb.
    DottedParameters,
}

/// The normal form: encoded letters, digits and `-._~` are decoded, other escapes are in upper case,
/// what has to be encoded is, `.` and `..` are resolved, and slashes are merged. A path in its normal
/// form is answered as it is.
pub fn normal(raw_path: &str) -> Result<Cow<'_, str>, BadPath> {
    if !raw_path.starts_with('/') {
        return Err(BadPath::NotAbsolute);
    }
    if is_plain(raw_path.as_bytes()) {
        return Ok(Cow::Borrowed(raw_path));
    }
    let decoded = decode(raw_path)?;
    resolve(&decoded).map(Cow::Owned)
}

/// What a byte does in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It stands for itself, encoded or not.
    Unreserved,
    /// It stands for itself; encoded it may mean another thing.
    Reserved,
    /// It is encoded.
    Encoded,
    /// It cannot be there, encoded or not.
    Never,
    /// It cannot be there unless it is encoded.
    Marks,
}

const fn part(byte: u8) -> Part {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => Part::Unreserved,
        b'/' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' => {
            Part::Reserved
        }
        b'"' | b'<' | b'>' | b'[' | b']' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => Part::Encoded,
        0..0x20 | 0x7f | b'\\' => Part::Never,
        b' ' | b'#' | b'?' | b'%' => Part::Marks,
    }
}

static PARTS: [Part; 256] = {
    let mut parts = [Part::Never; 256];
    let mut byte = 0;
    while byte < 256 {
        parts[byte] = part(byte as u8);
        byte += 1;
    }
    parts
};

/// Whether a path is in its normal form already, as far as a short look can tell.
fn is_plain(path: &[u8]) -> bool {
    let mut before = b' ';
    path.iter().all(|byte| {
        let after_slash = before == b'/';
        before = *byte;
        let plain = matches!(PARTS[usize::from(*byte)], Part::Unreserved | Part::Reserved);
        plain && !(after_slash && matches!(byte, b'/' | b'.'))
    })
}

/// Decodes what need not be encoded, encodes what must be, and refuses what may not be there.
fn decode(path: &str) -> Result<String, BadPath> {
    let mut out = String::with_capacity(path.len());
    let mut plain = Vec::new();
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let (byte, escaped) = match byte {
            b'%' => (escape(&mut bytes).ok_or(BadPath::BadEscape)?, true),
            byte => (byte, false),
        };
        match PARTS[usize::from(byte)] {
            Part::Never if byte == b'\\' && escaped => return Err(BadPath::EncodedSlash),
            Part::Never => return Err(BadPath::Forbidden { byte }),
            Part::Marks if !escaped => return Err(BadPath::Forbidden { byte }),
            Part::Reserved if byte == b'/' && escaped => return Err(BadPath::EncodedSlash),
            Part::Reserved if !escaped => out.push(char::from(byte)),
            Part::Unreserved => out.push(char::from(byte)),
            Part::Reserved | Part::Encoded | Part::Marks => push_escaped(byte, &mut out),
        }
        plain.push(byte);
    }
    str::from_utf8(&plain).map_err(|_| BadPath::NotUtf8)?;
    Ok(out)
}

/// The byte that two hexadecimal digits stand for.
fn escape(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let mut digit = || char::from(bytes.next()?).to_digit(16);
    let (high, low) = (digit()?, digit()?);
    u8::try_from(high << 4 | low).ok()
}

fn push_escaped(byte: u8, out: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.extend(['%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Resolves the segments of dots, and merges slashes.
fn resolve(path: &str) -> Result<String, BadPath> {
    let mut out = String::with_capacity(path.len());
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "" | "." => {}
            ".." => {
                let parent = out.rfind('/').ok_or(BadPath::AboveRoot)?;
                out.truncate(parent);
            }
            _ if climbs_for_some(segment) => return Err(BadPath::DottedParameters),
            segment => {
                out.push('/');
                out.push_str(segment);
                continue;
            }
        }
        // What ends in nothing, or in dots, is a directory.
        if last {
            out.push('/');
        }
    }
    Ok(out)
}

/// Whether a segment is dots to those who drop its parameters.
fn climbs_for_some(segment: &str) -> bool {
    let bare = segment.split(';').next().and_then(|bare| bare.split("%3B").next()).unwrap_or_default();
    bare.len() < segment.len() && matches!(bare, "." | "..")
}

impl fmt::Display for BadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("the path does not begin with a slash"),
            Self::Forbidden { byte } => write!(f, "the byte {byte:#04x} is not allowed in a path"),
            Self::BadEscape => f.write_str("a `%` in the path is not followed by two hexadecimal digits"),
            Self::EncodedSlash => f.write_str("a slash or backslash in the path is encoded"),
            Self::NotUtf8 => f.write_str("the path is not UTF-8 once it is decoded"),
            Self::AboveRoot => f.write_str("the path leads above the root"),
            Self::DottedParameters => f.write_str("a segment of dots in the path carries parameters"),
        }
    }
}

impl std::error::Error for BadPath {}
