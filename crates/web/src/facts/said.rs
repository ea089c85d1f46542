//! Reads the single value of a header, cookie or query parameter.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::COOKIE;

use super::Wrong;

/// An address as text, without a heap allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpText {
    bytes: [u8; Self::MOST],
    len: u8,
}

impl IpText {
    /// The longest text of an address.
    const MOST: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();

    #[inline]
    pub(super) fn of(address: IpAddr) -> Self {
        let mut text = Self { bytes: [0; Self::MOST], len: 0 };
        match address {
            IpAddr::V4(address) => {
                // The standard formatter takes longer than a decision.
                for (index, part) in address.octets().into_iter().enumerate() {
                    text.push(if index == 0 { "" } else { "." });
                    text.push(itoa::Buffer::new().format(part));
                }
            }
            IpAddr::V6(address) => write!(text, "{address}").expect("there is room for any address"),
        }
        text
    }

    #[inline]
    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("addresses are written in ASCII")
    }

    #[inline]
    fn push(&mut self, part: &str) {
        let start = usize::from(self.len);
        self.bytes[start..start + part.len()].copy_from_slice(part.as_bytes());
        self.len += u8::try_from(part.len()).expect("parts are short");
    }
}

impl Write for IpText {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        if usize::from(self.len) + part.len() > Self::MOST {
            return Err(std::fmt::Error);
        }
        self.push(part);
        Ok(())
    }
}

/// The value of a header. Services that read headers as variables take `_` for `-`: to them, a line that
/// differs only in these characters is the same header.
pub(super) fn header<'r>(headers: &'r HeaderMap, name: &str) -> Result<Option<&'r str>, Wrong> {
    let values = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
    let value = one(values)?;
    for (other, said) in headers {
        if is_disguise(other.as_str(), name) && Some(said.as_bytes().trim_ascii()) != value {
            return Err(Wrong::Twice);
        }
    }
    value.map(utf8).transpose()
}

/// Whether two different names are the same with `-` for `_`.
fn is_disguise(other: &str, name: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    other.len() == name.len()
        && !other.eq_ignore_ascii_case(name)
        && other.bytes().map(plain).eq(name.bytes().map(plain))
}

/// The value of a cookie. Several lines of cookies are one list, because HTTP/2 sends them as separate lines.
/// Some services decode names and values like those of a query, so two spellings are one cookie here.
pub(super) fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Result<Option<Cow<'r, str>>, Wrong> {
    let lines = headers.get_all(COOKIE).iter().map(http::HeaderValue::as_bytes);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    let pairs = pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        Some((pair[..equals].trim_ascii(), unquoted(pair[equals + 1..].trim_ascii())))
    });
    one_of(pairs, name)
}

/// The value of a query parameter. Names are decoded too, since parsers read `%75ser` as `user`. It may occur
/// several times with the same value, and under any name that some parser takes for this one.
pub(super) fn query<'r>(query: &'r str, wanted: &str) -> Result<Option<Cow<'r, str>>, Wrong> {
    let plain_wanted = plain(wanted.as_bytes(), wanted);
    // Some readers part at `;` as well: to them another member begins there.
    let is_named = |part: &str| plain(&decoded(name_of(part)), wanted) == plain_wanted;
    let parted = |member: &str| member.contains(';') && member.split(';').any(is_named);
    if query.split('&').any(parted) {
        return Err(Wrong::Parted);
    }
    let pairs = query.split('&').map(|member| {
        let (name, value) = member.split_once('=').unwrap_or((member, ""));
        (name.as_bytes(), value.as_bytes())
    });
    one_of(pairs, wanted)
}

/// The one value that pairs have under a name, however it is spelt.
fn one_of<'r>(
    pairs: impl Iterator<Item = (&'r [u8], &'r [u8])>,
    wanted: &str,
) -> Result<Option<Cow<'r, str>>, Wrong> {
    let plain_wanted = plain(wanted.as_bytes(), wanted);
    let named = pairs.filter(|(name, _)| plain(&decoded_bytes(name), wanted) == plain_wanted);
    match one(named.map(|(_, value)| decoded_bytes(value)))? {
        Some(Cow::Borrowed(bytes)) => utf8(bytes).map(|text| Some(Cow::Borrowed(text))),
        Some(Cow::Owned(bytes)) => {
            String::from_utf8(bytes).map(|text| Some(Cow::Owned(text))).map_err(|_| Wrong::NotUtf8)
        }
        None => Ok(None),
    }
}

pub(super) fn name_of(member: &str) -> &str {
    member.split_once('=').map_or(member, |(name, _)| name)
}

/// A name in the form of the most lenient parser: without leading blanks, up to a NUL, without a bracketed
/// suffix (unless the wanted name has one), and with `_` for dots and blanks.
fn plain<'n>(name: &'n [u8], wanted: &str) -> Cow<'n, [u8]> {
    let name = name.trim_ascii_start();
    let ends = |byte: &u8| *byte == 0 || (*byte == b'[' && !wanted.contains('['));
    let end = name.iter().position(ends);
    let name = &name[..end.unwrap_or(name.len())];
    let stands_in = |byte: u8| if matches!(byte, b' ' | b'.') { b'_' } else { byte };
    if name.iter().all(|byte| stands_in(*byte) == *byte) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.iter().map(|byte| stands_in(*byte)).collect())
}

/// The only value, however often it occurs.
fn one<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Result<Option<T>, Wrong> {
    let Some(first) = values.next() else { return Ok(None) };
    if values.all(|value| value == first) { Ok(Some(first)) } else { Err(Wrong::Twice) }
}

/// Whether two names are the same to a case-insensitive parser.
pub(super) fn same(one: &str, other: &str) -> bool {
    fn fold(name: &str) -> impl Iterator<Item = char> {
        name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
    }
    if one.is_ascii() && other.is_ascii() {
        one.eq_ignore_ascii_case(other)
    } else {
        fold(one).eq(fold(other))
    }
}

pub(super) fn utf8(bytes: &[u8]) -> Result<&str, Wrong> {
    str::from_utf8(bytes).map_err(|_| Wrong::NotUtf8)
}

/// Removes the quotes around a cookie's value, which are not part of it.
fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    inner.unwrap_or(value)
}

/// Decodes form encoding: `+` is a space, and `%` with two digits is a byte; any other `%` stays.
pub(super) fn decoded(text: &str) -> Cow<'_, [u8]> {
    decoded_bytes(text.as_bytes())
}

fn decoded_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [byte, after @ ..] = rest {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let escaped = if *byte == b'%' { digit(0).zip(digit(1)) } else { None };
        let escaped = escaped.and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
        out.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    Cow::Owned(out)
}
