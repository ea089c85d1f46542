//! Numbers in bodies with bounds or formats of their own.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A priority from -100 to 100.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priority(pub(crate) i8);

/// How long an upstream asks to pause.
#[derive(Clone, Debug)]
pub(crate) enum RetryAfter<'b> {
    /// A number of seconds.
    Seconds(f64),
    /// The value of a `Retry-After` header, or a duration.
    Text(Cow<'b, str>),
}

const MOST_PRIORITY: i64 = 100;

struct PriorityVisitor;

impl Visitor<'_> for PriorityVisitor {
    type Value = Priority;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Priority, E> {
        let within = i8::try_from(number).ok().filter(|_| number.abs() <= MOST_PRIORITY);
        within.map(Priority).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Priority, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_i64(PriorityVisitor)
    }
}

struct RetryAfterVisitor;

impl<'de> Visitor<'de> for RetryAfterVisitor {
    type Value = RetryAfter<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("seconds, a duration as in \"7s\", or what a Retry-After header says")
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<RetryAfter<'de>, E> {
        Ok(RetryAfter::Seconds(seconds as f64))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<RetryAfter<'de>, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(seconds), &self)),
        }
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<RetryAfter<'de>, E> {
        if seconds < 0.0 {
            return Err(E::invalid_value(Unexpected::Float(seconds), &self));
        }
        Ok(RetryAfter::Seconds(seconds))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<RetryAfter<'de>, E> {
        Ok(RetryAfter::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RetryAfter<'de>, E> {
        Ok(RetryAfter::Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for RetryAfter<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RetryAfterVisitor)
    }
}

impl JsonSchema for Priority {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Priority".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": -MOST_PRIORITY, "maximum": MOST_PRIORITY })
    }
}

impl JsonSchema for RetryAfter<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RetryAfter".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"], "minimum": 0 })
    }
}
