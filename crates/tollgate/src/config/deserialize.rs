//! Reads the tree as the written form: serde over [`Node`], with errors that know their path.
//!
//! Serde stops at the first error. To report all of them, each wrong part is reported and hidden, and the
//! rest is read again.

use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use tollgate_core::policy::nearest;

use super::problem::{ConfigError, Findings, hint, listed, shown};
use super::tree::{Entry, Node, Path, Value};
use super::{env_typos, hush, suspect};

/// After this many errors the rest is noise.
const MOST_MISTAKES: usize = 20;

/// Reads the whole tree as a `T`.
pub(super) fn read<T: DeserializeOwned>(tree: &Node) -> Result<T, ConfigError> {
    let mut findings = Findings::new(tree);
    let mut rest = tree.clone();
    for mistakes in 1.. {
        let mistake = match T::deserialize(Reader { node: &rest, path: Path::default() }) {
            Ok(read) => return findings.conclude(Some(read)),
            Err(mistake) => mistake,
        };
        let Mistake { message, hushed, part, at } = mistake;
        let at = at.unwrap_or_default();
        let message = hushed.filter(|_| hush::hides(&at)).unwrap_or(message);
        match part {
            Part::Key => findings.key(&at, message),
            // The missing part may only be hidden.
            Part::Missing if rest.hides_something(&at) => {}
            Part::Missing | Part::Value => findings.value(&at, message),
        }
        if at.is_root() || mistakes == MOST_MISTAKES {
            break;
        }
        rest.hide(&at);
    }
    findings.conclude(None)
}

/// A mistake that serde found.
#[derive(Debug)]
struct Mistake {
    message: String,
    /// The message without the written value, if it contains that. It is shown if the value may be a secret.
    hushed: Option<String>,
    part: Part,
    /// Its path; the innermost reader that passes it on sets it.
    at: Option<Path>,
}

/// Which part at a path is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Key,
    Value,
    /// A required part inside it.
    Missing,
}

impl Mistake {
    fn new(message: String) -> Self {
        Self { message, hushed: None, part: Part::Value, at: None }
    }

    /// Adds a guess at what was meant to the message.
    fn suspect(&mut self, what: Option<&str>) {
        let Some(what) = what else { return };
        for message in [Some(&mut self.message), self.hushed.as_mut()].into_iter().flatten() {
            let asked = message.strip_suffix('?').map(|asked| format!("{asked}, or is it {what}?"));
            *message = asked.unwrap_or_else(|| format!("{message}; is it {what}?"));
        }
    }

    fn at(mut self, path: impl FnOnce() -> Path) -> Self {
        self.at.get_or_insert_with(path);
        self
    }
}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        // Serde's names of plain types are for programmers. Serde says what it expected only as text, so the texts
        // are compared, and a test fails if one of them changes.
        let expected = match expected.to_string().as_str() {
            "a boolean" => "`true` or `false`".to_owned(),
            "a string" => "a text".to_owned(),
            "a sequence" => "a list".to_owned(),
            "u64" => format!("a whole number from 0 to {}", u64::MAX),
            other => other.to_owned(),
        };
        let hushed =
            format!("expected {expected}, found something else, which is not shown: it may be a secret");
        let is_text = matches!(found, Unexpected::Str(_) | Unexpected::Unsigned(_) | Unexpected::Float(_));
        Self {
            hushed: is_text.then_some(hushed),
            ..Self::new(format!("expected {expected}, found {}", Found(found)))
        }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let near = nearest(found, expected.iter().copied());
        let known = listed(expected.iter().copied());
        // A value that is similar to a known one is not a secret.
        let is_far = near.is_none();
        let near = hint(near);
        let hushed = format!("this, which is not shown because it may be a secret, is none of {known}");
        Self {
            hushed: is_far.then_some(hushed),
            ..Self::new(format!("`{}` is none of {known}{near}", shown(found)))
        }
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        let near = suspect::synonym(found, expected).or_else(|| nearest(found, expected.iter().copied()));
        let known = format!("; the keys here are {}", listed(expected.iter().copied()));
        let (remedy, hushed) = match (near, suspect::section_of(found)) {
            (Some(near), _) => (hint(Some(near)), None),
            (None, Some(section)) => (format!("; it belongs below `{section}`"), None),
            (None, None) => {
                (known.clone(), Some(format!("unknown key, which is not shown: it may be a secret{known}")))
            }
        };
        Self { part: Part::Key, hushed, ..Self::new(format!("unknown key `{}`{remedy}", shown(found))) }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { part: Part::Missing, ..Self::new(format!("the key `{field}` is missing")) }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

/// The unexpected value, in the terms of a configuration.
struct Found<'a>(Unexpected<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Str(text) => write!(f, "`{}`", shown(text)),
            Unexpected::Bool(value) => write!(f, "`{value}`"),
            Unexpected::Unsigned(value) => write!(f, "`{value}`"),
            Unexpected::Signed(value) => write!(f, "`{value}`"),
            Unexpected::Float(value) => write!(f, "`{value}`"),
            Unexpected::Map => f.write_str("a table"),
            Unexpected::Seq => f.write_str("a list"),
            Unexpected::Unit | Unexpected::Option => f.write_str("nothing"),
            other => other.fmt(f),
        }
    }
}

struct Reader<'n> {
    node: &'n Node,
    path: Path,
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let path = self.path.clone();
        let read = match &self.node.value {
            Value::Null | Value::Reported => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(value) => visit_integer(*value, visitor),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(nodes) => {
                visitor.visit_seq(Elements { path: &self.path, nodes: nodes.iter().enumerate() })
            }
            Value::Table(entries) => visitor.visit_map(Entries {
                path: &self.path,
                all: entries,
                entries: entries.iter(),
                current: None,
            }),
        };
        read.map_err(|mistake| mistake.at(|| path))
    }

    /// A number where a text belongs is a text without quotes.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.node.value {
            Value::Integer(value) => visitor.visit_string(value.to_string()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    /// Serde would also read a list by position, which is never intended.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match &self.node.value {
            Value::List(_) => Err(<Mistake as de::Error>::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    /// Every enumeration in a configuration is a choice of names.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let read = match &self.node.value {
            Value::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            other => Err(Mistake::new(format!(
                "expected one of {}, found {}",
                listed(names.iter().copied()),
                other.kind()
            ))),
        };
        read.map_err(|mistake| mistake.at(|| self.path))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}

fn visit_integer<'de, V: Visitor<'de>>(value: i128, visitor: V) -> Result<V::Value, Mistake> {
    match (u64::try_from(value), i64::try_from(value)) {
        (Ok(value), _) => visitor.visit_u64(value),
        (_, Ok(value)) => visitor.visit_i64(value),
        _ => Err(Mistake::new(format!("the number {value} is too big"))),
    }
}

struct Elements<'n> {
    path: &'n Path,
    nodes: std::iter::Enumerate<std::slice::Iter<'n, Node>>,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Mistake> {
        let next = self.nodes.by_ref().find(|(_, node)| !matches!(node.value, Value::Reported));
        let Some((index, node)) = next else { return Ok(None) };
        let path = self.path.index(index);
        let read = seed.deserialize(Reader { node, path: path.clone() });
        read.map(Some).map_err(|mistake| mistake.at(|| path))
    }
}

struct Entries<'n> {
    path: &'n Path,
    all: &'n [Entry],
    entries: std::slice::Iter<'n, Entry>,
    current: Option<&'n Entry>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Mistake;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Mistake> {
        self.current = self.entries.by_ref().find(|entry| !matches!(entry.node.value, Value::Reported));
        let Some(entry) = self.current else { return Ok(None) };
        let read: Result<_, Mistake> = seed.deserialize(entry.key.as_str().into_deserializer());
        read.map(Some).map_err(|mut mistake| {
            if mistake.part == Part::Key {
                if let Some(list) = suspect::unbracketed(self.all, entry) {
                    mistake.message = list;
                    mistake.hushed = None;
                    return mistake.at(|| self.path.key(&entry.key));
                }
                let outdented = suspect::outdented(&entry.node).filter(|_| self.path.is_root());
                let empty = || {
                    suspect::empty_above(self.all, entry)
                        .map(|above| format!("to be indented below `{above}`"))
                };
                mistake.suspect(outdented.map(str::to_owned).or_else(empty).as_deref());
            }
            let path = self.path.key(&entry.key);
            let hides = mistake.hushed.is_some() && hush::hides(&path);
            mistake.at(|| if hides { self.path.secret_key(&entry.key) } else { path })
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        let entry = self.current.take().expect("serde asks for a key before its value");
        let path = self.path.key(&entry.key);
        let read = seed.deserialize(Reader { node: &entry.node, path: path.clone() });
        read.map_err(|mut mistake| {
            let empty = matches!(entry.node.value, Value::Null) && entry_after(self.all, entry).is_some();
            if empty && mistake.at.as_ref().is_none_or(|at| *at == path) {
                mistake.message.push_str("; are its settings the lines below, to be indented further?");
            } else if self.path.keys().count() == 1
                && env_typos::is_section(&entry.key)
                // Deeper inside, the entry is not one of the section of that name.
                && mistake.at.as_ref().is_none_or(|at| at.keys().count() <= 3)
            {
                mistake.suspect(Some(&format!("the section `{}`, to be indented less", entry.key)));
            }
            mistake.at(|| path)
        })
    }
}

fn entry_after<'n>(entries: &'n [Entry], entry: &Entry) -> Option<&'n Entry> {
    entries.iter().skip_while(|above| !std::ptr::eq(*above, entry)).nth(1)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::config::tree::Place;

    fn refusal<T: DeserializeOwned + Debug>(value: Value) -> String {
        let node = Node { value, place: Place::Source { source: "t".into() } };
        let read = T::deserialize(Reader { node: &node, path: Path::default() });
        read.expect_err("it is of another type").message
    }

    #[test]
    fn expected_types_are_named_in_the_words_of_a_configuration() {
        let text = || Value::Text("x".to_owned());
        assert_eq!(refusal::<bool>(text()), "expected `true` or `false`, found `x`");
        assert_eq!(refusal::<String>(Value::List(Vec::new())), "expected a text, found a list");
        assert_eq!(refusal::<Vec<String>>(text()), "expected a list, found `x`");
        let number = "expected a whole number from 0 to 18446744073709551615, found";
        assert_eq!(refusal::<u64>(text()), format!("{number} `x`"));
        assert_eq!(refusal::<u64>(Value::Integer(-1)), format!("{number} `-1`"));
    }
}
