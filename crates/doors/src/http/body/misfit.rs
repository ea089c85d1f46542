//! Explains why a body is refused: what is wrong, where, and what to write instead.
//!
//! The first reading of a body is fast, and its error is text. So a refused body is read again, as a tree, with
//! an error type that keeps the parts of the explanation apart.

use std::fmt::{self, Display};

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;
use tollgate_core::policy::nearest;

/// An explanation contains part of the body, which can be long.
const MOST_CHARS: usize = 400;

/// The longest body that is read again: a tree takes many times its memory.
const MOST_BYTES: usize = 1 << 20;

/// What is wrong with a body that did not become a `T`. `first` is the error of the first reading.
pub(super) fn explain<'b, T: Deserialize<'b>>(text: &str, first: &serde_json::Error) -> String {
    if text.len() > MOST_BYTES {
        return first.to_string().chars().take(MOST_CHARS).collect();
    }
    let found = match serde_json::from_str::<Value>(text) {
        Err(error) => format!("the body is not JSON: {error}"),
        Ok(tree) => match serde_path_to_error::deserialize::<_, T>(Tree(&tree)) {
            Err(error) => located(error),
            // A tree has every member once.
            Ok(_) => first.to_string(),
        },
    };
    found.chars().take(MOST_CHARS).collect()
}

/// The explanation, and where in the body that is.
fn located(error: serde_path_to_error::Error<Misfit>) -> String {
    let path = error.path().to_string();
    let Misfit { what, unknown } = error.into_inner();
    // The explanation has the name of an unknown member already, so the path shown is that of its object.
    let above = unknown.and_then(|name| path.strip_suffix(&*name));
    match above.map_or(&*path, |above| above.strip_suffix('.').unwrap_or(above)) {
        "" | "." => what,
        path if what.ends_with('?') => format!("{what} at `{path}`"),
        path => format!("{what}, at `{path}`"),
    }
}

/// Why a body does not fit.
#[derive(Debug)]
struct Misfit {
    what: String,
    /// The name of the unknown member.
    unknown: Option<String>,
}

/// A part of the body.
#[derive(Clone, Copy)]
struct Tree<'t>(&'t Value);

impl Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Misfit {}

impl Error for Misfit {
    fn custom<T: Display>(what: T) -> Self {
        Self { what: what.to_string(), unknown: None }
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(truth) => truth.to_string(),
            Unexpected::Unsigned(number) => format!("the number {number}"),
            Unexpected::Signed(number) => format!("the number {number}"),
            Unexpected::Float(number) => format!("the number {number}"),
            Unexpected::Str(text) => format!("the text {text:?}"),
            Unexpected::Unit => "null".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "an object".to_owned(),
            other => other.to_string(),
        };
        Self::custom(format_args!("expected {wanted}, not {found}"))
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_type(found, wanted)
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        let what = match nearest(name, known.iter().copied()) {
            Some(near) => format!("`{name}` is not known here; did you mean `{near}`?"),
            None => not_among(name, known),
        };
        Self { what, unknown: Some(name.to_owned()) }
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::custom(not_among(word, known))
    }

    fn missing_field(name: &'static str) -> Self {
        Self::custom(format_args!("`{name}` is missing"))
    }
}

fn not_among(name: &str, known: &[&str]) -> String {
    let name: String = name.chars().take(64).collect();
    format!("`{name}` is not known here; known are: `{}`", known.join("`, `"))
}

impl<'de> Deserializer<'de> for Tree<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, number) => visitor.visit_f64(number.unwrap_or(f64::MAX)),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Tree))),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.as_str(), Tree(value)));
                visitor.visit_map(MapDeserializer::new(members))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(IntoDeserializer::into_deserializer(word.as_str())),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Misfit> for Tree<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
