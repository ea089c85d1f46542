//! The account that a login names, in its query or in its body.
//!
//! The service behind reads the same login with a parser of its own. So a login is refused if two common
//! parsers (Werkzeug, Django, Servlet, Rails, PHP, Express) could find different accounts in it: the name
//! stands there twice, in the query and in the body, as an array, in other letters, or under a name that
//! some parser takes for this one; or the value can be decoded in two ways.

use std::borrow::Cow;

use super::Wrong;
use super::said::{decoded, name_of, same};

const ELSEWHERE: &str = "its name is in the query and in the body";
const ESCAPED: &str = "an escape in its value is malformed";
const CONTROL: &str = "its value has a control character";
const LIKE_JSON: &str = "the form begins as JSON does";

/// The one member of this name, in a text as queries and forms are written.
pub(super) fn member<'r>(text: &'r str, wanted: &str) -> Result<Option<Cow<'r, str>>, Wrong> {
    let names = Names::of_form(wanted);
    let mut found = None;
    for member in text.split('&') {
        // Some parsers split at `;` as well: to them another member begins there.
        if member.contains(';') && member.split(';').any(|part| names.may_mean(name_of(part))) {
            return Err(Wrong::Parted);
        }
        let (name, value) = member.split_once('=').unwrap_or((member, ""));
        if !names.may_mean(name) {
            if is_charset(name) && !is_utf8(value) {
                return Err(Wrong::NotUtf8);
            }
            continue;
        }
        if found.is_some() || *decoded(name) != *wanted.as_bytes() {
            return Err(Wrong::Twice);
        }
        found = Some(value);
    }
    found.map(value).transpose()
}

/// As [`member`], of the body of a form.
pub(super) fn form_member<'r>(text: &'r str, wanted: &str) -> Result<Option<Cow<'r, str>>, Wrong> {
    // A service may read JSON whatever the content type says.
    let start = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if start.starts_with(['{', '[']) {
        return Err(Wrong::Unclear(LIKE_JSON));
    }
    member(text, wanted)
}

/// Refuses a text, as queries and forms are written, in which some parser finds this member.
pub(super) fn check_absent(text: &str, names: &Names<'_>) -> Result<(), Wrong> {
    let mut parts = text.split(['&', ';']);
    let found = parts.any(|part| names.may_mean(name_of(part)));
    if found { Err(Wrong::Unclear(ELSEWHERE)) } else { Ok(()) }
}

/// Refuses a value that parsers or services could cut or decode differently.
pub(super) fn check_value(text: &str) -> Result<(), Wrong> {
    let odd = text.chars().any(char::is_control);
    if odd { Err(Wrong::Unclear(CONTROL)) } else { Ok(()) }
}

/// What the value of a member says, if every parser decodes it alike.
fn value(written: &str) -> Result<Cow<'_, str>, Wrong> {
    let mut escapes = written.split('%').skip(1).map(str::as_bytes);
    if !escapes.all(|after| matches!(after, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())) {
        return Err(Wrong::Unclear(ESCAPED));
    }
    let text = match decoded(written) {
        Cow::Borrowed(_) => Cow::Borrowed(written),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).map_err(|_| Wrong::NotUtf8)?),
    };
    check_value(&text)?;
    Ok(text)
}

/// Whether a member says in which encoding the form is, as browsers do if it is named so.
fn is_charset(name: &str) -> bool {
    decoded(name).trim_ascii().eq_ignore_ascii_case(b"_charset_")
}

fn is_utf8(value: &str) -> bool {
    let value = decoded(value);
    value.is_empty() || value.eq_ignore_ascii_case(b"utf-8") || value.eq_ignore_ascii_case(b"utf8")
}

/// A name as parsers take it apart: `a[b]` is `b` inside of `a`.
pub(super) struct Names<'n> {
    parts: Vec<Cow<'n, str>>,
    /// Whether points take names apart too.
    points: bool,
}

impl<'n> Names<'n> {
    /// The name of a member of a form or a query.
    pub(super) fn of_form(name: &'n str) -> Self {
        let points = name.contains('[') || name.contains('.');
        Self { parts: parts(name, points), points }
    }

    /// The name of a member of JSON, with points that lead inside.
    pub(super) fn of_json(path: &'n str) -> Self {
        Self { parts: path.split('.').map(Cow::Borrowed).collect(), points: true }
    }

    /// Whether some parser takes a name, as it is written, for this one, for something that it lies in, or
    /// for something inside of it.
    fn may_mean(&self, written: &str) -> bool {
        let name = String::from_utf8_lossy(&decoded(written)).into_owned();
        // PHP takes a bracket that is never closed for `_`.
        self.meets(&parts(&name, self.points)) || self.meets(&[Cow::Owned(name.replace('[', "_"))])
    }

    fn meets(&self, other: &[Cow<'_, str>]) -> bool {
        !other.is_empty() && self.parts.iter().zip(other).all(|(one, two)| same(&plain(one), &plain(two)))
    }
}

/// The parts of a name that is written with brackets, up to a NUL, at which some parsers end.
fn parts(name: &str, points: bool) -> Vec<Cow<'_, str>> {
    let name = name.split('\0').next().unwrap_or_default();
    let splits = |c: char| matches!(c, '[' | ']') || points && c == '.';
    name.split(splits).filter(|part| !plain(part).is_empty()).map(Cow::Borrowed).collect()
}

/// A name as the loosest parser takes it: without blanks and what cannot be seen around it, and with `_` for
/// points and blanks inside.
fn plain(name: &str) -> String {
    let unseen = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '?' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
    };
    name.trim_matches(unseen).replace([' ', '.'], "_")
}

/// Whether a parser of JSON or the service behind it could take one name for the other.
pub(super) fn akin(one: &str, other: &str) -> bool {
    let up_to_nul = |name: &str| plain(name.split('\0').next().unwrap_or_default());
    one == other || same(&up_to_nul(one), &up_to_nul(other))
}
