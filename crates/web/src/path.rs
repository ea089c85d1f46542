//! The path and the host of a request, each in one normal form.
//!
//! If one form of a path is routed, another limited and a third forwarded, requests can evade limits. So a
//! path is normalised once, and that form is routed, limited and forwarded. A path that two servers could
//! read differently is refused.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// Why a path is refused. The caller's fault, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// It does not begin with a slash.
    NotAbsolute,
    /// It has a control character, a space, or a character that is not allowed in a path; or one of these
    /// encoded, where a server could decode it later.
    Forbidden { byte: u8 },
    /// A `%` is not followed by two hexadecimal digits.
    BadEscape,
    /// A slash or a backslash is encoded: some servers decode it before they split the path, some after.
    EncodedSlash,
    /// It is not UTF-8 once it is decoded.
    NotUtf8,
    /// It leads above the root.
    AboveRoot,
    /// A dot segment has parameters, as in `..;a`: some servers drop them and move up.
    DottedParameters,
}

/// An authority without a valid host. The caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHost;

/// The longest host, in bytes: no DNS name is longer.
const MOST_HOST_BYTES: usize = 255;

/// The normal form: encoded letters, digits and `-._~` are decoded, other escapes are in upper case, reserved
/// bytes are encoded where necessary, `.` and `..` are resolved, and slashes are merged. A path in its normal
/// form is returned as it is.
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

/// The treatment of a byte in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It means the same, encoded or not.
    Unreserved,
    /// It means itself; encoded it may mean something else.
    Reserved,
    /// It must be encoded.
    Encoded,
    /// It is refused, encoded or not.
    Never,
    /// It is refused unless it is encoded.
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

/// Whether a path is already in its normal form, by a quick check. `false` may mean that it is.
fn is_plain(path: &[u8]) -> bool {
    let mut before = b' ';
    path.iter().all(|byte| {
        let after_slash = before == b'/';
        before = *byte;
        let plain = matches!(PARTS[usize::from(*byte)], Part::Unreserved | Part::Reserved);
        plain && !(after_slash && matches!(byte, b'/' | b'.'))
    })
}

/// Decodes what need not be encoded, encodes what must be, and refuses forbidden bytes.
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

/// The byte of two hexadecimal digits.
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

/// Resolves dot segments and merges slashes.
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
        // A path that ends in an empty segment or in dots is a directory.
        if last {
            out.push('/');
        }
    }
    Ok(out)
}

/// Whether a segment means `.` or `..` to a server that drops its parameters.
fn climbs_for_some(segment: &str) -> bool {
    let bare = segment.split(';').next().and_then(|bare| bare.split("%3B").next()).unwrap_or_default();
    bare.len() < segment.len() && matches!(bare, "." | "..")
}

/// The host of an authority (`Host` or `:authority`): in lower case, without port and without a final dot.
pub fn normal_host(authority: &str) -> Result<Cow<'_, str>, BadHost> {
    let (host, port) = split_port(authority).ok_or(BadHost)?;
    if host.len() > MOST_HOST_BYTES || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadHost);
    }
    if let Some(address) = host.strip_prefix('[') {
        let address: Ipv6Addr =
            address.strip_suffix(']').and_then(|text| text.parse().ok()).ok_or(BadHost)?;
        return Ok(format!("[{address}]").into());
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    if !is_host_name(host) {
        return Err(BadHost);
    }
    let lower = !host.bytes().any(|byte| byte.is_ascii_uppercase());
    Ok(if lower { host.into() } else { host.to_ascii_lowercase().into() })
}

fn split_port(authority: &str) -> Option<(&str, &str)> {
    let end = if authority.starts_with('[') { authority.find(']').map(|at| at + 1) } else { None };
    let end = end.or_else(|| authority.find(':')).unwrap_or(authority.len());
    let (host, rest) = authority.split_at(end);
    if rest.is_empty() { Some((host, "")) } else { Some((host, rest.strip_prefix(':')?)) }
}

/// Whether the host consists of labels of letters, digits, hyphens and underscores.
fn is_host_name(host: &str) -> bool {
    let mut before = b'.';
    let labels = host.bytes().all(|byte| {
        let after_dot = std::mem::replace(&mut before, byte) == b'.';
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte == b'.' && !after_dot
    });
    labels && before != b'.'
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

impl fmt::Display for BadHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host is not a name or an address, perhaps with a port")
    }
}

impl std::error::Error for BadHost {}
