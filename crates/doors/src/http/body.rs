//! Reading JSON bodies: strings are borrowed from the body where they can be, and everything is
//! bounded.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use smallvec::SmallVec;

use super::problem::Problem;

/// The most fields that an attempt may bring.
pub(crate) const MOST_FIELDS: usize = 32;

/// Text from a body, copied only if it was written with escapes.
#[derive(Debug)]
pub(crate) enum Text<'b> {
    Given(&'b str),
    Unescaped(String),
    /// A number, where one may stand for its digits.
    Number(Digits),
}

/// The digits of a number, without an allocation.
#[derive(Debug)]
pub(crate) struct Digits {
    bytes: [u8; 20],
    length: u8,
}

/// A whole number of at least 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole(pub(crate) u64);

/// The fields of an attempt, in the order in which they were written.
#[derive(Debug, Default)]
pub(crate) struct Fields<'b>(pub(crate) SmallVec<[(Text<'b>, Text<'b>); 6]>);

/// A list of at most so many.
#[derive(Debug)]
pub(crate) struct AtMost<const MOST: usize, T>(pub(crate) Vec<T>);

/// Reads a body, or says where it goes wrong.
pub(crate) fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Problem> {
    // A list would be taken for the members of the object in their order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::bad_request("expected an object, not a list, at line 1 column 1"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let whole = error.to_string();
        let message = whole.rsplit_once(" at line ").map_or(&*whole, |(message, _)| message);
        // What was sent is part of the message, and can be long.
        let message: String = message.chars().take(400).collect();
        Problem::bad_request(format!("{message}, at line {} column {}", error.line(), error.column()))
    })
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Given(text) => text,
            Self::Unescaped(text) => text,
            Self::Number(digits) => {
                std::str::from_utf8(&digits.bytes[..usize::from(digits.length)]).expect("digits are text")
            }
        }
    }
}

impl Digits {
    fn of(number: u64) -> Self {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        let mut bytes = [0; 20];
        bytes[..digits.len()].copy_from_slice(digits);
        Self { bytes, length: u8::try_from(digits.len()).expect("a number has at most 20 digits") }
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text::Given(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text::Unescaped(text.to_owned()))
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
        Ok(Value(Text::Given(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value(Text::Unescaped(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(Value(Text::Number(Digits::of(number))))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value<'de>, E> {
        Ok(Value(Text::Given(if truth { "true" } else { "false" })))
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
        f.write_str("an object of fields")
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

struct AtMostVisitor<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for AtMostVisitor<MOST, T> {
    type Value = AtMost<MOST, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AtMost<MOST, T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            if items.len() == MOST {
                return Err(A::Error::custom(format_args!("more than {MOST} in one list")));
            }
            items.push(item);
        }
        Ok(AtMost(items))
    }
}

impl<'de, const MOST: usize, T: Deserialize<'de>> Deserialize<'de> for AtMost<MOST, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AtMostVisitor(PhantomData))
    }
}

impl<const MOST: usize, T: JsonSchema> JsonSchema for AtMost<MOST, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("AtMost{MOST}{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "maxItems": MOST })
    }
}

impl JsonSchema for Text<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
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

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Whole".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": tollgate_core::MAX_EXACT })
    }
}

impl JsonSchema for Fields<'_> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
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
