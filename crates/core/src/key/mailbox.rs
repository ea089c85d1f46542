//! Mail addresses in one normalized form (RFC 5321, RFC 6531).
//!
//! Unnecessary quotation marks and backslashes are removed. The local part is in lower case and in NFC. The
//! domain has the form of [`super::domain`]. An invalid mail address is refused, so that it cannot become a
//! key of its own.

use alloc::borrow::Cow;
use alloc::string::String;

use icu_normalizer::ComposingNormalizerBorrowed;

use super::{Presence, ValueError, domain};
use crate::charge::KeyText;

/// The mailbox that every host has, and that may be written without a domain.
const POSTMASTER: &str = "postmaster";

const NO_AT: &str = "there is no `@` in it";
const BAD_BRACKETS: &str = "of `<` and `>` only one is there";
const BAD_DOTS: &str = "before the `@` a dot begins, ends or follows another one";
const BAD_CHARACTER: &str = "a character before the `@` must be quoted, or is not allowed";
const BAD_QUOTES: &str = "its quotation marks are not closed, or do not enclose all before the `@`";
const NO_DOMAIN: &str = "there is nothing behind the `@`";
const BARE_IP: &str = "an IP address behind the `@` is written in brackets, as in `user@[192.0.2.1]`";

/// For each byte, whether it may be unquoted before the `@`, other than a dot.
const ATOM: [bool; 256] = {
    let mut atom = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        atom[byte] = matches!(
            byte as u8,
            b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'/' | b'=' | b'?'
                | b'^'..=b'`' | b'{'..=b'~'
        );
        byte += 1;
    }
    atom
};

/// Whether a text is certainly a mail address in its normalized form.
#[inline]
pub(super) fn is_plain(value: &str) -> bool {
    let bytes = value.as_bytes();
    let Some(at) = bytes.iter().position(|byte| *byte == b'@') else { return false };
    let (mut after_dot, local, domain) = (true, &bytes[..at], &bytes[at + 1..]);
    for byte in local {
        let dot = *byte == b'.';
        if dot && after_dot || !dot && !ATOM[usize::from(*byte)] {
            return false;
        }
        after_dot = dot;
    }
    !after_dot && domain::is_plain(domain) && !domain::ends_in_number(domain)
}

/// Appends the normalized form of an address; nothing for the null sender.
pub(super) fn write(value: &str, out: &mut KeyText) -> Result<Presence, ValueError> {
    write_parsed(value, out).map_err(|why| ValueError::NotAnAddress { why })
}

/// The domain of an address as written; `None` if it has none.
pub(super) fn domain_of(value: &str) -> Option<&str> {
    // No domain contains either character.
    let (_, domain) = value.strip_suffix('>').unwrap_or(value).rsplit_once('@')?;
    Some(domain)
}

fn write_parsed(value: &str, out: &mut KeyText) -> Result<Presence, &'static str> {
    let value = composed(value);
    let value = match value.strip_prefix('<') {
        Some(rest) => rest.strip_suffix('>').ok_or(BAD_BRACKETS)?,
        None => &value,
    };
    if value.is_empty() {
        return Ok(Presence::Absent);
    }
    if value.eq_ignore_ascii_case(POSTMASTER) {
        out.extend_from_slice(POSTMASTER.as_bytes());
        return Ok(Presence::Present);
    }
    let domain = match value.strip_prefix('"') {
        Some(quoted) => {
            let (local, domain) = unquoted(quoted)?;
            write_local(&local, out);
            domain
        }
        None => {
            let (local, domain) = value.split_once('@').ok_or(NO_AT)?;
            check_atoms(local)?;
            write_folded(local, out);
            domain
        }
    };
    out.push(b'@');
    let start = out.len();
    domain::write(domain, out)?;
    match &out[start..] {
        [] => Err(NO_DOMAIN),
        written if domain::ends_in_number(written) => Err(BARE_IP),
        _ => Ok(Presence::Present),
    }
}

/// Parses a quoted local part after its first quotation mark; returns it and the domain.
fn unquoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut local = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next().ok_or(BAD_QUOTES)? {
            '"' => break,
            '\\' => local.push(chars.next().filter(|c| matches!(c, ' '..='~')).ok_or(BAD_CHARACTER)?),
            ' ' => local.push(' '),
            c if is_visible(c) => local.push(c),
            _ => return Err(BAD_CHARACTER),
        }
    }
    check_joiners(&local)?;
    Ok((local, chars.as_str().strip_prefix('@').ok_or(BAD_QUOTES)?))
}

/// Appends a local part, quoted if necessary.
fn write_local(local: &str, out: &mut KeyText) {
    if check_atoms(local).is_ok() {
        return write_folded(local, out);
    }
    out.push(b'"');
    let mut folded = KeyText::new();
    write_folded(local, &mut folded);
    for byte in folded {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Checks an unquoted local part.
fn check_atoms(local: &str) -> Result<(), &'static str> {
    if local.split('.').any(str::is_empty) {
        return Err(BAD_DOTS);
    }
    let fits = |c: char| match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() => byte == b'.' || ATOM[usize::from(byte.to_ascii_lowercase())],
        _ => is_visible(c),
    };
    if local.chars().all(fits) { check_joiners(local) } else { Err(BAD_CHARACTER) }
}

/// Whether a character is visible, or a joiner. An address with any other character would look like one
/// without it.
fn is_visible(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}');
    !hidden && !c.is_control() && !c.is_whitespace()
}

/// Checks that joiners are between letters of a script that has them.
fn check_joiners(local: &str) -> Result<(), &'static str> {
    let joins = |c: char| matches!(c, '\u{200c}' | '\u{200d}');
    let beside = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !joins(c));
    let misplaced = |(at, joiner): (usize, &str)| {
        let (before, after) = (local[..at].chars().next_back(), local[at + joiner.len()..].chars().next());
        !beside(before) || !beside(after)
    };
    if local.match_indices(joins).any(misplaced) { Err(BAD_CHARACTER) } else { Ok(()) }
}

/// Appends a local part in lower case and in NFC.
fn write_folded(local: &str, out: &mut KeyText) {
    if local.is_ascii() {
        let start = out.len();
        out.extend_from_slice(local.as_bytes());
        out[start..].make_ascii_lowercase();
        return;
    }
    // One letter at a time, so that a final sigma equals the others.
    let lower = local.chars().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c });
    let lower: String = lower.collect();
    out.extend_from_slice(composed(&lower).as_bytes());
}

/// A text in NFC.
fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { text.into() } else { ComposingNormalizerBorrowed::new_nfc().normalize(text) }
}
