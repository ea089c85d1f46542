//! Reads the account of a login from its query or its body.
//!
//! The service reads the same login with its own parser. So a login is refused if two common parsers
//! (Werkzeug, Django, Servlet, Rails, PHP, Express) could find different accounts in it. That is so if the
//! name occurs twice, both in the query and in the body, as an array, in another case, or under a name that
//! some parser treats as the same; or if the value can be decoded in two ways.

use std::borrow::Cow;

use super::Wrong;
use super::said::{decoded, name_of, same};

const ELSEWHERE: &str = "its name is in the query and in the body";
const ESCAPED: &str = "an escape in its value is malformed";
const CONTROL: &str = "its value has a control character";
const LIKE_JSON: &str = "the form begins as JSON does";

/// The only member of this name in a query or form.
pub(super) fn member<'r>(text: &'r str, wanted: &str) -> Result<Option<Cow<'r, str>>, Wrong> {
    let names = Names::of_form(wanted);
    let mut found = None;
    for member in text.split('&') {
        // Some parsers also split at `;` and start another member there.
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

/// As [`member`], for the body of a form.
pub(super) fn form_member<'r>(text: &'r str, wanted: &str) -> Result<Option<Cow<'r, str>>, Wrong> {
    // A service may parse JSON whatever the content type says.
    let start = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if start.starts_with(['{', '[']) {
        return Err(Wrong::Unclear(LIKE_JSON));
    }
    member(text, wanted)
}

/// Refuses a query or form in which some parser finds this member.
pub(super) fn check_absent(text: &str, names: &Names<'_>) -> Result<(), Wrong> {
    let mut parts = text.split(['&', ';']);
    let found = parts.any(|part| names.may_mean(name_of(part)));
    if found { Err(Wrong::Unclear(ELSEWHERE)) } else { Ok(()) }
}

/// Refuses a value that parsers or services could truncate or decode differently.
pub(super) fn check_value(text: &str) -> Result<(), Wrong> {
    let odd = text.chars().any(char::is_control);
    if odd { Err(Wrong::Unclear(CONTROL)) } else { Ok(()) }
}

/// The decoded value of a member, if every parser decodes it alike.
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

/// Whether a member states the encoding of the form, as browsers send it.
fn is_charset(name: &str) -> bool {
    decoded(name).trim_ascii().eq_ignore_ascii_case(b"_charset_")
}

fn is_utf8(value: &str) -> bool {
    let value = decoded(value);
    value.is_empty() || value.eq_ignore_ascii_case(b"utf-8") || value.eq_ignore_ascii_case(b"utf8")
}

/// A name split as parsers do: `a[b]` is `b` inside `a`.
pub(super) struct Names<'n> {
    parts: Vec<Cow<'n, str>>,
    /// Whether dots split names too.
    points: bool,
}

impl<'n> Names<'n> {
    /// The name of a member of a form or a query.
    pub(super) fn of_form(name: &'n str) -> Self {
        let points = name.contains('[') || name.contains('.');
        Self { parts: parts(name, points), points }
    }

    /// The name of a JSON member; dots lead into objects.
    pub(super) fn of_json(path: &'n str) -> Self {
        Self { parts: path.split('.').map(Cow::Borrowed).collect(), points: true }
    }

    /// Whether some parser could read a name as this one, as its parent, or as something inside it.
    fn may_mean(&self, written: &str) -> bool {
        let name = String::from_utf8_lossy(&decoded(written)).into_owned();
        // PHP replaces an unclosed bracket by `_`.
        self.meets(&parts(&name, self.points)) || self.meets(&[Cow::Owned(name.replace('[', "_"))])
    }

    fn meets(&self, other: &[Cow<'_, str>]) -> bool {
        !other.is_empty() && self.parts.iter().zip(other).all(|(one, two)| same(&plain(one), &plain(two)))
    }
}

/// The parts of a name with brackets, up to a NUL, where some parsers stop.
fn parts(name: &str, points: bool) -> Vec<Cow<'_, str>> {
    let name = name.split('\0').next().unwrap_or_default();
    let splits = |c: char| matches!(c, '[' | ']') || points && c == '.';
    name.split(splits).filter(|part| !plain(part).is_empty()).map(Cow::Borrowed).collect()
}

/// A name in the form of the most lenient parser: without surrounding blanks and invisible characters, and
/// with `_` for dots and blanks inside.
fn plain(name: &str) -> String {
    let unseen = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '?' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
    };
    name.trim_matches(unseen).replace([' ', '.'], "_")
}

/// Whether a JSON parser or the service behind it could take one name for the other.
pub(super) fn akin(one: &str, other: &str) -> bool {
    let up_to_nul = |name: &str| plain(name.split('\0').next().unwrap_or_default());
    one == other || same(&up_to_nul(one), &up_to_nul(other))
}
