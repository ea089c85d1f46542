//! Lists in bodies: bounded, and optionally a single item instead of a list.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, SeqAccess, Visitor};

/// A list of at most `MOST` items.
#[derive(Debug)]
pub(crate) struct AtMost<const MOST: usize, T>(pub(crate) Vec<T>);

/// As [`AtMost`], but a single item need not be in a list.
#[derive(Debug)]
pub(crate) struct OneOrMore<const MOST: usize, T>(pub(crate) Vec<T>);

struct AtMostVisitor<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for AtMostVisitor<MOST, T> {
    type Value = AtMost<MOST, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AtMost<MOST, T>, A::Error> {
        // The length of a list is rarely known, and moving its items is costly.
        let mut items = Vec::with_capacity(MOST.min(128));
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

    fn schema_name() -> Cow<'static, str> {
        format!("AtMost{MOST}{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "maxItems": MOST })
    }
}

struct OneOrMoreVisitor<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for OneOrMoreVisitor<MOST, T> {
    type Value = OneOrMore<MOST, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string, or a list of at most {MOST}")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<OneOrMore<MOST, T>, E> {
        T::deserialize(BorrowedStrDeserializer::new(text)).map(|one| OneOrMore(vec![one]))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore<MOST, T>, E> {
        T::deserialize(text.into_deserializer()).map(|one| OneOrMore(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOrMore<MOST, T>, A::Error> {
        AtMostVisitor::<MOST, T>(PhantomData).visit_seq(list).map(|AtMost(items)| OneOrMore(items))
    }
}

impl<'de, const MOST: usize, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<MOST, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMoreVisitor(PhantomData))
    }
}

impl<const MOST: usize, T: JsonSchema> JsonSchema for OneOrMore<MOST, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMore{MOST}{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<T>(), AtMost::<MOST, T>::json_schema(generator)] })
    }
}
