//! Reads one member of a form or of JSON from a body.
//!
//! The service reads the same body with its own parser. So a body in another encoding is refused, and so is a
//! member that two parsers could read differently: see [`super::account`].

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Wrong;
use super::account::{self, Names};
use super::said::utf8;

/// A complete body.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Body {
    kind: BodyKind,
    bytes: Bytes,
}

/// The media type of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyKind {
    /// `application/x-www-form-urlencoded`.
    #[default]
    Form,
    /// `application/json`, or another type of JSON.
    Json,
}

/// Why a body cannot be looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is neither a form nor JSON, or it is compressed.
    Media,
    /// Parsers disagree about its content type: there are two, or one with a parameter that some parsers
    /// follow and others ignore.
    ContentType,
}

impl BodyKind {
    /// The media type of the body of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Result<Self, Unreadable> {
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let written = types.next().and_then(|written| written.to_str().ok()).ok_or(Unreadable::Media)?;
        if types.next().is_some() {
            return Err(Unreadable::ContentType);
        }
        let (media, parameters) = written.split_once(';').unwrap_or((written, ""));
        let kind = Self::of_media(&media.trim().to_ascii_lowercase()).ok_or(Unreadable::Media)?;
        if headers.get_all(CONTENT_ENCODING).iter().any(|encoding| encoding != "identity") {
            return Err(Unreadable::Media);
        }
        let mut parameters = parameters.split(';').map(str::trim).filter(|part| !part.is_empty());
        match (parameters.next(), parameters.next()) {
            (Some(one), None) if names_utf8(one) => Ok(kind),
            (None, _) => Ok(kind),
            _ => Err(Unreadable::ContentType),
        }
    }

    fn of_media(media: &str) -> Option<Self> {
        let is_token = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let suffixed = media.strip_prefix("application/").and_then(|name| name.strip_suffix("+json"));
        match media {
            "application/x-www-form-urlencoded" => Some(Self::Form),
            "application/json" => Some(Self::Json),
            // Some services compare only the start of the type.
            _ if suffixed.is_some_and(|name| is_token(name) && !name.starts_with("x-www-form")) => {
                Some(Self::Json)
            }
            _ => None,
        }
    }
}

/// Whether a parameter of a content type says that the text is UTF-8. Any other parameter could mislead some
/// service: `charset*=utf-16`, or a second `charset`.
fn names_utf8(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let value = quoted.unwrap_or(value);
    name.eq_ignore_ascii_case("charset")
        && ["utf-8", "utf8"].iter().any(|known| value.eq_ignore_ascii_case(known))
}

impl Body {
    /// The longest body that is read for its fields, in bytes.
    pub const MOST_BYTES: usize = 64 * 1024;

    /// A body of this kind.
    pub fn new(kind: BodyKind, bytes: Bytes) -> Self {
        Self { kind, bytes }
    }

    /// The value of a form member, in a request with this query.
    pub(super) fn form(&self, name: &str, query: Option<&str>) -> Result<Option<Cow<'_, str>>, Wrong> {
        if self.kind != BodyKind::Form {
            return Ok(None);
        }
        account::check_absent(query.unwrap_or_default(), &Names::of_form(name))?;
        account::form_member(utf8(&self.bytes)?, name)
    }

    /// The value of a JSON member, in a request with this query, if it is a text or a whole number. Dots lead
    /// into objects: `a.b`.
    pub(super) fn json(&self, path: &str, query: Option<&str>) -> Result<Option<Cow<'_, str>>, Wrong> {
        if self.kind != BodyKind::Json {
            return Ok(None);
        }
        account::check_absent(query.unwrap_or_default(), &Names::of_json(path))?;
        match self.find(path)? {
            Found::Nothing | Found::Other => Ok(None),
            Found::Text(text) => {
                account::check_value(&text)?;
                Ok(Some(Cow::Owned(text)))
            }
            Found::Twice => Err(Wrong::Twice),
        }
    }

    /// The value of a query parameter, in a request with this body: services read both.
    pub(super) fn query<'q>(&self, name: &str, query: &'q str) -> Result<Option<Cow<'q, str>>, Wrong> {
        match self.kind {
            BodyKind::Form => account::check_absent(utf8(&self.bytes)?, &Names::of_form(name))?,
            BodyKind::Json => {
                let top = name.split(['[', '.']).next().unwrap_or(name);
                if self.find(top)? != Found::Nothing {
                    return Err(Wrong::Twice);
                }
            }
        }
        account::member(query, name)
    }

    /// Whether some parser could find a member of this name.
    pub(super) fn may_have(&self, name: &str) -> Result<bool, Wrong> {
        Ok(match self.kind {
            BodyKind::Form => account::check_absent(utf8(&self.bytes)?, &Names::of_form(name)).is_err(),
            BodyKind::Json => match self.find(name) {
                Ok(found) => found != Found::Nothing,
                Err(Wrong::Unclear(_)) => true,
                Err(wrong) => return Err(wrong),
            },
        })
    }

    /// Finds the value at a path in JSON.
    fn find(&self, path: &str) -> Result<Found, Wrong> {
        // Some services parse a body as a form whatever the content type says.
        let text = utf8(&self.bytes)?;
        account::check_absent(text, &Names::of_json(path))?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let found = Find { path: Some(path) }.deserialize(&mut reader);
        found.and_then(|found| reader.end().map(|()| found)).map_err(|_| Wrong::NotJson)
    }
}

/// Finds the value at a path; without a path, takes the current value.
#[derive(Clone, Copy)]
struct Find<'p> {
    path: Option<&'p str>,
}

/// The result of a search.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    /// A text, or a whole number that every parser keeps exactly.
    Text(String),
    /// Another kind of value.
    Other,
    /// Several values, or one under a similar name.
    Twice,
}

/// The largest whole number that is exact in a parser with only floating-point numbers.
const MOST_EXACT: u64 = (1 << 53) - 1;

impl Find<'_> {
    fn take(self, text: impl fmt::Display) -> Found {
        if self.path.is_none() { Found::Text(text.to_string()) } else { Found::Other }
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
            return Ok(Found::Other);
        };
        let (wanted, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if !account::akin(&name, wanted) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let next = map.next_value_seed(Find { path: rest })?;
            found = Some(if found.is_none() && name == wanted { next } else { Found::Twice });
        }
        Ok(found.unwrap_or(Found::Nothing))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Found, E> {
        Ok(self.take(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Found, E> {
        Ok(if number <= MOST_EXACT { self.take(number) } else { Found::Other })
    }

    fn visit_i64<E>(self, number: i64) -> Result<Found, E> {
        Ok(if number.unsigned_abs() <= MOST_EXACT { self.take(number) } else { Found::Other })
    }

    /// Languages print floating-point numbers and booleans differently.
    fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found::Other)
    }
}

/// Prints nothing of the content: it may hold a password.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("kind", &self.kind).field("len", &self.bytes.len()).finish()
    }
}
