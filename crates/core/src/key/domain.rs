//! Domains in one normalized form: lower case, A-labels (IDNA), no final dot.
//!
//! An address literal (`[192.0.2.1]`, `[IPv6:2001:db8::1]`) counts as a domain too, as in mail addresses.
//! Labels may contain underscores, which are common and have one spelling.

use core::net::IpAddr;

use crate::charge::KeyText;

/// The longest domain, in bytes: no DNS name is longer.
const MOST_BYTES: usize = 253;
/// The longest label of a domain, in bytes.
const MOST_LABEL_BYTES: usize = 63;

const EMPTY_LABEL: &str = "there is nothing between two dots, or before the first one";
const TOO_LONG: &str = "it has more than 253 bytes, or more than 63 between two dots";
const BAD_CHARACTER: &str = "it contains a character that no domain has";
const BAD_HYPHEN: &str = "a part of it begins or ends with a hyphen";
const BAD_IDNA: &str = "IDNA does not allow it";
const BAD_LITERAL: &str = "brackets must contain an IP address, as in `[192.0.2.1]` or `[IPv6:2001:db8::1]`";

/// The class of a byte in a domain's normalized form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Hyphen,
    Dot,
    Other,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'_' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b'-' => Class::Hyphen,
            b'.' => Class::Dot,
            _ => Class::Other,
        };
        byte += 1;
    }
    classes
};

/// Whether a text is certainly a domain in its normalized form. For A-labels this returns false, since they
/// must be decoded to be checked.
#[inline]
pub(super) fn is_plain(domain: &[u8]) -> bool {
    check(domain).is_ok() && !has_a_label(domain)
}

/// Appends the normalized form of a domain; nothing if it is empty. The error says what is wrong.
pub(super) fn write(value: &str, out: &mut KeyText) -> Result<(), &'static str> {
    let start = out.len();
    if let Some(rest) = value.strip_prefix('[') {
        return write_literal(rest.strip_suffix(']').ok_or(BAD_LITERAL)?, out);
    }
    if value.is_ascii() && !has_a_label(value.as_bytes()) {
        out.extend_from_slice(value.as_bytes());
        out[start..].make_ascii_lowercase();
    } else {
        let ascii = idna::domain_to_ascii_cow(value.as_bytes(), idna::AsciiDenyList::URL);
        out.extend_from_slice(ascii.map_err(|_| BAD_IDNA)?.as_bytes());
    }
    // The full stops of other scripts have become dots here.
    if out[start..].ends_with(b".") {
        out.pop();
    }
    if out.len() == start { Ok(()) } else { check(&out[start..]) }
}

/// Whether the last label is a number, as in IPv4 addresses but in no DNS name.
pub(super) fn ends_in_number(domain: &[u8]) -> bool {
    let last = domain.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    !last.is_empty() && last.iter().all(u8::is_ascii_digit)
}

/// Checks a domain in lower case.
#[inline]
fn check(domain: &[u8]) -> Result<(), &'static str> {
    if domain.len() > MOST_BYTES {
        return Err(TOO_LONG);
    }
    let (mut before, mut label) = (Class::Dot, 0);
    for byte in domain {
        let class = CLASSES[usize::from(*byte)];
        match (before, class) {
            (_, Class::Other) => return Err(BAD_CHARACTER),
            (Class::Dot, Class::Dot) => return Err(EMPTY_LABEL),
            (Class::Dot, Class::Hyphen) | (Class::Hyphen, Class::Dot) => return Err(BAD_HYPHEN),
            (_, Class::Dot) => label = 0,
            _ => label += 1,
        }
        if label > MOST_LABEL_BYTES {
            return Err(TOO_LONG);
        }
        before = class;
    }
    match before {
        Class::Dot => Err(EMPTY_LABEL),
        Class::Hyphen => Err(BAD_HYPHEN),
        _ => Ok(()),
    }
}

/// Whether any label starts with `xn--`.
#[inline]
fn has_a_label(domain: &[u8]) -> bool {
    let begins = |at: usize| at == 0 || domain[at - 1] == b'.';
    let marks = domain.windows(4).enumerate().filter(|(_, four)| four[2..] == *b"--");
    marks.into_iter().any(|(at, four)| begins(at) && four.eq_ignore_ascii_case(b"xn--"))
}

fn write_literal(literal: &str, out: &mut KeyText) -> Result<(), &'static str> {
    let tagged = literal.get(..5).filter(|tag| tag.eq_ignore_ascii_case("IPv6:"));
    let address = match tagged {
        Some(_) => literal[5..].parse().ok().map(IpAddr::V6),
        None => literal.parse().ok().map(IpAddr::V4),
    };
    let address = address.ok_or(BAD_LITERAL)?.to_canonical();
    out.extend_from_slice(if address.is_ipv4() { b"[" } else { b"[ipv6:" });
    super::write_text(address, out);
    out.push(b']');
    Ok(())
}
