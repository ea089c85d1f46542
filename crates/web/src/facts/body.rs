//! What the body of a request says, where somebody has read it: one member of a form, or of JSON.
//!
//! The service behind reads the same body with a reader of its own. So whatever two readers could see
//! differently is refused: a member that is there several times with values that differ, in whatever
//! letters its name is written or whatever stands around it, and bodies in another encoding.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Wrong;
use super::said::{member, utf8};

/// A body that was read whole.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Body {
    kind: BodyKind,
    bytes: Bytes,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyKind {
    /// `application/x-www-form-urlencoded`.
    #[default]
    Form,
    /// `application/json`, or a kind of it.
    Json,
}

impl BodyKind {
    /// How the body of a request with these headers is written; `None` if it cannot be looked into.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let (written, None) = (types.next()?.to_str().ok()?, types.next()) else { return None };
        let mut parts = written.split(';').map(str::trim);
        let media = parts.next()?;
        let plain = headers.get_all(CONTENT_ENCODING).iter().all(|encoding| encoding == "identity");
        if !plain || parts.any(names_other_letters) {
            return None;
        }
        let is = |known: &str| media.eq_ignore_ascii_case(known);
        let ends = |end: &str| {
            let start = media.len().checked_sub(end.len());
            start.and_then(|start| media.get(start..)).is_some_and(|own| own.eq_ignore_ascii_case(end))
        };
        match () {
            () if is("application/x-www-form-urlencoded") => Some(Self::Form),
            () if is("application/json") || ends("+json") => Some(Self::Json),
            () => None,
        }
    }
}

/// Whether a parameter says that the text is not UTF-8.
fn names_other_letters(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let value = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("charset")
        && !["utf-8", "utf8", "us-ascii"].iter().any(|known| value.eq_ignore_ascii_case(known))
}

impl Body {
    /// The longest body that is worth reading for what it says, in bytes.
    pub const MOST_BYTES: usize = 64 * 1024;

    /// A body that is written like this.
    pub fn new(kind: BodyKind, bytes: Bytes) -> Self {
        Self { kind, bytes }
    }

    /// What a member of a form says.
    pub(super) fn form(&self, name: &str) -> Result<Option<Cow<'_, str>>, Wrong> {
        if self.kind != BodyKind::Form {
            return Ok(None);
        }
        member(utf8(&self.bytes)?, name, |own, wanted| match (str::from_utf8(own), str::from_utf8(wanted)) {
            (Ok(own), Ok(wanted)) => same(own, wanted),
            _ => false,
        })
    }

    /// What a member of JSON says, if that is a text, a number or a truth. Points lead inside: `a.b`.
    pub(super) fn json(&self, path: &str) -> Result<Option<Cow<'_, str>>, Wrong> {
        if self.kind != BodyKind::Json {
            return Ok(None);
        }
        let mut reader = serde_json::Deserializer::from_slice(&self.bytes);
        let found = Find { path: Some(path) }.deserialize(&mut reader);
        match found.and_then(|found| reader.end().map(|()| found)) {
            Ok(Found::Nothing) => Ok(None),
            Ok(Found::Text(text)) => Ok(Some(Cow::Owned(text))),
            Ok(Found::Twice) => Err(Wrong::Twice),
            Err(_) => Err(Wrong::NotJson),
        }
    }
}

/// Whether two names are the same to a reader that does not look at upper and lower case.
fn same(one: &str, other: &str) -> bool {
    fn fold(name: &str) -> impl Iterator<Item = char> {
        name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
    }
    if one.is_ascii() && other.is_ascii() {
        one.eq_ignore_ascii_case(other)
    } else {
        fold(one).eq(fold(other))
    }
}

/// Looks for what lies at the end of a path, or takes what is there.
#[derive(Clone, Copy)]
struct Find<'p> {
    path: Option<&'p str>,
}

/// What was found.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    Text(String),
    /// Several, and they differ.
    Twice,
}

impl Find<'_> {
    fn take(self, text: impl fmt::Display) -> Found {
        if self.path.is_none() { Found::Text(text.to_string()) } else { Found::Nothing }
    }
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let Some(path) = self.path else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Found::Nothing);
        };
        let (wanted, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            // Some readers stop at a NUL.
            let own = name.split('\0').next().unwrap_or_default();
            if !same(own, wanted) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let next = map.next_value_seed(Find { path: rest })?;
            found = Some(match found {
                None => next,
                Some(earlier) if earlier == next => next,
                Some(_) => Found::Twice,
            });
        }
        Ok(found.unwrap_or(Found::Nothing))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::Nothing)
    }

    fn visit_str<E>(self, text: &str) -> Result<Found, E> {
        Ok(self.take(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Found, E> {
        Ok(self.take(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Found, E> {
        Ok(self.take(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Found, E> {
        Ok(self.take(number))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Found, E> {
        Ok(self.take(truth))
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found::Nothing)
    }
}

/// Says nothing of what is in it: there may be a password.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("kind", &self.kind).field("len", &self.bytes.len()).finish()
    }
}
