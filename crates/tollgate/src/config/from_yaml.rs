//! YAML text becomes a tree. Nesting, size, anchors and aliases are bounded by the parser's budget.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, MessageFormatter, Options, Spanned, UserMessageFormatter};

use super::problem::{ConfigError, Problem, shown};
use super::tree::{Entry, Node, Place, Value};

/// Reads a file's text.
pub(super) fn read(text: &str, source: &Arc<str>) -> Result<Node, ConfigError> {
    parse(text, &|location: Location| spot(location, source))
}

/// Reads the value of an environment variable. Its lines and columns say nothing to anybody.
pub(super) fn read_variable(text: &str, name: &Arc<str>) -> Result<Node, ConfigError> {
    parse(text, &|_| Place::Variable { name: Arc::clone(name) })
}

fn parse(text: &str, place: &dyn Fn(Location) -> Place) -> Result<Node, ConfigError> {
    let spanned: Spanned<Parsed> = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let message = message(&error);
        Problem::new(
            place(error.location().unwrap_or(Location::UNKNOWN)),
            String::new(),
            format!("not valid YAML: {message}"),
        )
    })?;
    Ok(node(spanned, place))
}

/// No configuration comes near these bounds, and nothing within them takes noticeable time.
fn options() -> Options {
    serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_events: 500_000,
            max_nodes: 250_000,
            max_aliases: 1_000,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
    }
}

fn spot(location: Location, source: &Arc<str>) -> Place {
    let source = Arc::clone(source);
    if location == Location::UNKNOWN {
        return Place::Source { source };
    }
    Place::Spot { source, line: number(location.line()), column: number(location.column()) }
}

fn number(count: impl TryInto<usize>) -> usize {
    count.try_into().unwrap_or(usize::MAX)
}

fn message(mut error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error as E;
    while let E::AliasError { error: inner, .. } | E::WithSnippet { error: inner, .. } = error {
        error = inner;
    }
    if let E::Budget { .. }
    | E::AliasReplayCounterOverflow { .. }
    | E::AliasReplayLimitExceeded { .. }
    | E::AliasExpansionLimitExceeded { .. }
    | E::AliasReplayStackDepthExceeded { .. } = error
    {
        return "too long, too deeply nested or too full of aliases for a configuration".to_owned();
    }
    // The parser may quote what was written: keep it on one line.
    let message = UserMessageFormatter.format_message(error);
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

fn node(spanned: Spanned<Parsed>, place: &dyn Fn(Location) -> Place) -> Node {
    // Behind an alias, what is wrong lies where the anchor is.
    let here = place(spanned.defined);
    let value = match spanned.value {
        Parsed::Leaf(value) => value,
        Parsed::List(nodes) => Value::List(nodes.into_iter().map(|child| node(child, place)).collect()),
        Parsed::Table(entries) => Value::Table(
            entries
                .into_iter()
                .map(|(key, child)| Entry {
                    key_place: place(key.defined),
                    key: key.value,
                    node: node(child, place),
                })
                .collect(),
        ),
    };
    Node { value, place: here }
}

enum Parsed {
    Leaf(Value),
    List(Vec<Spanned<Parsed>>),
    Table(Vec<(Spanned<String>, Spanned<Parsed>)>),
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true or false, a list or a table")
    }

    fn visit_unit<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parsed, D::Error> {
        Parsed::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Integer(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Integer(value.into())))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Integer(value)))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Parsed, E> {
        let too_big = |_| E::custom(format!("the number {} is too big", shown(&value.to_string())));
        i128::try_from(value).map(|value| Parsed::Leaf(Value::Integer(value))).map_err(too_big)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Parsed, E> {
        Ok(Parsed::Leaf(Value::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parsed, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Parsed::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Parsed, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = table.next_entry()? {
            entries.push(entry);
        }
        Ok(Parsed::Table(entries))
    }
}
