//! Reads JSON bodies. Strings are borrowed from the body where possible, and everything is bounded.

mod lists;
mod misfit;
mod numbers;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use smallvec::SmallVec;

use super::problem::Problem;
pub(crate) use lists::{AtMost, OneOrMore};
pub(crate) use numbers::{Priority, RetryAfter};

/// The most fields of an attempt.
pub(crate) const MOST_FIELDS: usize = 32;

/// Text from a body, copied only if it has escapes or is a number.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<'b>(Cow<'b, str>);

/// A whole number of at least 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole(pub(crate) u64);

/// The fields of an attempt, in their order. Two are stored inline: moving more of them from call to call
/// would cost more than an allocation.
#[derive(Debug, Default)]
pub(crate) struct Fields<'b>(pub(crate) SmallVec<[(Text<'b>, Text<'b>); 2]>);

/// A `T` that must be an object. Serde alone would also accept a list of the members in their order.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

/// Reads a body. The error says where it is wrong.
pub(crate) fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Problem> {
    if body.trim_ascii().is_empty() {
        return Err(Problem::bad_request("the body is empty: expected an object"));
    }
    // Checked once as a whole, and not again for every string.
    let text = std::str::from_utf8(body).map_err(|error| {
        Problem::bad_request(format!("the body is not UTF-8 text after {} bytes", error.valid_up_to()))
    })?;
    let read = serde_json::from_str(text).map(|Object(read)| read);
    read.map_err(|error| Problem::bad_request(misfit::explain::<Object<T>>(text, &error)))
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

/// The value of a field.
struct Value<'b>(Text<'b>);

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a whole number of at least 0, or a boolean")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value(Text(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value(Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(Value(Text(Cow::Owned(itoa::Buffer::new().format(number).to_owned()))))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value<'de>, E> {
        Ok(Value(Text(Cow::Borrowed(if truth { "true" } else { "false" }))))
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Value<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of at least 0")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
        let whole = u64::try_from(number).map(Whole);
        whole.map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeVisitor)
    }
}

struct FieldsVisitor<'b>(PhantomData<&'b ()>);

impl<'de: 'b, 'b> Visitor<'de> for FieldsVisitor<'b> {
    type Value = Fields<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the fields of the attempt")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'b>, A::Error> {
        let mut fields = SmallVec::new();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if fields.len() == MOST_FIELDS {
                return Err(A::Error::custom(format_args!("more than {MOST_FIELDS} fields")));
            }
            fields.push((name, map.next_value::<Value<'de>>()?.0));
        }
        Ok(Fields(fields))
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Fields<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Object<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl JsonSchema for Text<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl JsonSchema for Whole {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Whole".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": tollgate_core::MAX_EXACT })
    }
}

impl JsonSchema for Fields<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Fields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What is known of the attempt: the fields that the policy's rules use.",
            "type": "object",
            "maxProperties": MOST_FIELDS,
            "additionalProperties": { "type": ["string", "integer", "boolean"], "minimum": 0 },
        })
    }
}
