//! Parses YAML into a tree. The parser bounds nesting, size, anchors and aliases; an error names the exceeded
//! bound.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::{
    ExternalMessageSource, Location, MessageFormatter, Options, Spanned, UserMessageFormatter,
};

use crate::{Entry, Node, Place, SyntaxError, Value};

/// Parses a file's text. `remedy` is what to do if it has too many values.
pub fn read(text: &str, source: &Arc<str>, remedy: &str) -> Result<Node, SyntaxError> {
    read_from(text, 1, source, remedy)
}

/// Parses a part of a file's text, which begins in this line of the file, counted from 1.
pub fn read_from(
    text: &str,
    first_line: usize,
    source: &Arc<str>,
    remedy: &str,
) -> Result<Node, SyntaxError> {
    let place = |location: Location| place_at(location, source, first_line);
    parse(text, &place, remedy).map_err(|mut error| {
        if let Place::At { line, .. } = &error.place
            && let Some(message) = between_levels(text, line + 1 - first_line)
        {
            error.message = format!("not valid YAML: {message}");
        }
        error
    })
}

/// Parses the value of an environment variable. Lines and columns would mean nothing there.
pub fn read_variable(text: &str, name: &Arc<str>, remedy: &str) -> Result<Node, SyntaxError> {
    parse(text, &|_| Place::Variable { name: Arc::clone(name) }, remedy)
}

fn parse(text: &str, place: &dyn Fn(Location) -> Place, remedy: &str) -> Result<Node, SyntaxError> {
    let spanned: Spanned<Parsed> =
        serde_saphyr::from_str_with_options(text, options()).map_err(|error| SyntaxError {
            place: place(error.location().unwrap_or(Location::UNKNOWN)),
            message: format!("not valid YAML: {}", message(&error, remedy)),
        })?;
    Ok(node(spanned, place))
}

/// The deepest nesting.
const MOST_DEPTH: usize = 32;
/// The most values: enough for a rule with 250,000 overrides of two limits each.
const MOST_NODES: usize = 2_000_000;
/// The most aliases.
const MOST_ALIASES: usize = 1_000;
/// How many parser steps all aliases together may expand to.
const MOST_REPLAYED: usize = 100_000;

fn options() -> Options {
    serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: MOST_DEPTH,
            max_events: 2 * MOST_NODES,
            max_nodes: MOST_NODES,
            max_aliases: MOST_ALIASES,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MOST_REPLAYED,
        },
    }
}

fn place_at(location: Location, source: &Arc<str>, first_line: usize) -> Place {
    let source = Arc::clone(source);
    if location == Location::UNKNOWN {
        return Place::Source { source };
    }
    let line = number(location.line()).saturating_add(first_line - 1);
    Place::At { source, line, column: number(location.column()) }
}

fn number(count: impl TryInto<usize>) -> usize {
    count.try_into().unwrap_or(usize::MAX)
}

fn message(mut error: &serde_saphyr::Error, remedy: &str) -> String {
    use serde_saphyr::Error as E;
    while let E::AliasError { error: inner, .. } | E::WithSnippet { error: inner, .. } = error {
        error = inner;
    }
    match error {
        E::Budget { breach, .. } => return beyond(breach, remedy),
        E::AliasReplayCounterOverflow { .. }
        | E::AliasReplayLimitExceeded { .. }
        | E::AliasExpansionLimitExceeded { .. }
        | E::AliasReplayStackDepthExceeded { .. } => {
            return "the aliases expand to too much text: write it out where it is needed".to_owned();
        }
        E::ExternalMessage { source, .. } => {
            if let ExternalMessageSource::Parser(error) = &**source
                && let Some(message) = syntax(error.kind(), remedy)
            {
                return message;
            }
        }
        _ => {}
    }
    let message = UserMessageFormatter.format_message(error);
    let plain = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '.' | '-');
    if let E::DuplicateMappingKey { key, .. } = error
        && !key.as_ref().is_some_and(|key| key.chars().all(plain))
    {
        // The key may be a token that was pasted in the wrong place.
        return "the same key is written twice in one mapping".to_owned();
    }
    // The parser may quote the input: keep it on one line.
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

/// The message for a common syntax error, if the parser's own is not clear enough.
fn syntax(kind: &ErrorKind, remedy: &str) -> Option<String> {
    Some(match kind {
        ErrorKind::RecursionLimitExceeded => beyond(&BudgetBreach::Depth { depth: MOST_DEPTH + 1 }, remedy),
        ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation => "a tab: indent with spaces".to_owned(),
        ErrorKind::SimpleKeyExpected => {
            "there is no `:` here: write `key: value`, or indent the line below its key".to_owned()
        }
        _ => return None,
    })
}

/// The error for an indentation between the levels of the lines above it, which is not valid YAML.
fn between_levels(text: &str, line: usize) -> Option<String> {
    let indented =
        |line: &str| (!line.trim().is_empty()).then(|| line.len() - line.trim_start_matches(' ').len());
    let mut levels: Vec<usize> = Vec::new();
    for line in text.lines().take(line.checked_sub(1)?).filter(|line| !line.trim_start().starts_with('#')) {
        let Some(indent) = indented(line) else { continue };
        levels.retain(|level| *level < indent);
        levels.push(indent);
    }
    let indent = indented(text.lines().nth(line - 1)?)?;
    if levels.contains(&indent) || levels.last().is_none_or(|deepest| *deepest < indent) {
        return None;
    }
    let spaces = if indent == 1 { "space" } else { "spaces" };
    let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
    Some(format!(
        "the line is indented by {indent} {spaces}, and those above it by {}: indent it like the ones that it belongs to",
        levels.join(", ")
    ))
}

/// The bound that a text exceeded, and the remedy.
fn beyond(breach: &BudgetBreach, remedy: &str) -> String {
    use BudgetBreach as B;
    match breach {
        B::Depth { .. } => format!("it is nested more than {MOST_DEPTH} levels deep: no setting is"),
        B::Documents { .. } => {
            "there is a second document behind `---`: a configuration is one document".to_owned()
        }
        B::Aliases { .. } | B::Anchors { .. } | B::MergeKeys { .. } | B::AliasAnchorRatio { .. } => {
            format!(
                "there are more than {MOST_ALIASES} aliases, or anchors that are used too often: write them out"
            )
        }
        B::Nodes { .. } | B::Events { .. } | B::ScalarBytes { .. } => {
            format!("there are more than {MOST_NODES} values: {remedy}")
        }
        other => format!("it goes beyond a bound of the parser: {other:?}"),
    }
}

fn node(spanned: Spanned<Parsed>, place: &dyn Fn(Location) -> Place) -> Node {
    // Behind an alias, the error is where the anchor is.
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
        f.write_str("a text, a number, true or false, a list or a mapping")
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
        let too_big = |_| E::custom(format!("the number {value} is too big"));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        read(text, &"t.yaml".into(), "less").expect_err("it is not valid").message
    }

    #[test]
    fn common_syntax_errors_say_how_to_correct_them() {
        let tab = "not valid YAML: a tab: indent with spaces";
        assert_eq!(refusal("rules:\n\ta: 1\n"), tab);
        assert_eq!(refusal("?\n\ta\n"), tab);
        let colon = "there is no `:` here: write `key: value`, or indent the line below its key";
        assert_eq!(refusal("a: 1\nb\nc: 2\n"), format!("not valid YAML: {colon}"));
        let deep = "not valid YAML: it is nested more than 32 levels deep: no setting is";
        // The parser itself refuses this before its budget does.
        assert_eq!(refusal(&"[".repeat(100_000)), deep);
        assert_eq!(refusal(&format!("{}1{}", "[".repeat(33), "]".repeat(33))), deep);
    }

    /// Two million values take an unoptimised build half a minute, so only the message is tested.
    #[test]
    fn too_many_values_are_refused_with_the_bound_and_the_remedy() {
        let message = beyond(&BudgetBreach::Nodes { nodes: MOST_NODES + 1 }, "set overrides over the API");
        assert_eq!(message, "there are more than 2000000 values: set overrides over the API");
        let events = BudgetBreach::Events { events: 2 * MOST_NODES + 1 };
        assert_eq!(message, beyond(&events, "set overrides over the API"));
    }
}
