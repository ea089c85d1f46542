//! Parses TOML into a tree.

use std::sync::Arc;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use crate::{Entry, Node, Place, SyntaxError, Value};

/// Parses a file's text, and reports every syntax error.
pub fn read(text: &str, source: &Arc<str>) -> Result<Node, Vec<SyntaxError>> {
    let lines = Lines::new(text, source);
    let (table, mut errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        errors.sort_by_key(|error| error.span().map(|span| span.start));
        let problem = |error: ::toml::de::Error| {
            let place = error.span().map_or_else(|| lines.whole(), |span| lines.place(span.start));
            SyntaxError { place, message: format!("not valid TOML: {}", one_line(error.message())) }
        };
        return Err(errors.into_iter().map(problem).take(MOST_ERRORS).collect());
    }
    let place = lines.place(table.span().start);
    Ok(Node { value: lines.table(table.into_inner()), place })
}

/// After this many errors the rest is noise.
const MOST_ERRORS: usize = 20;

fn one_line(message: &str) -> String {
    message.split('\n').collect::<Vec<_>>().join("; ")
}

/// Turns byte offsets into positions.
struct Lines<'t> {
    text: &'t str,
    source: Arc<str>,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str, source: &Arc<str>) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, source: Arc::clone(source), starts }
    }

    fn whole(&self) -> Place {
        Place::Source { source: Arc::clone(&self.source) }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let column = self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1);
        Place::At { source: Arc::clone(&self.source), line, column }
    }

    fn node(&self, spanned: Spanned<DeValue<'_>>) -> Node {
        let place = self.place(spanned.span().start);
        let value = match spanned.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Datetime(datetime) => Value::Text(datetime.to_string()),
            DeValue::Float(float) => float.as_str().parse().map_or(Value::Float(f64::NAN), Value::Float),
            DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix())
                .map_or_else(|_| Value::Text(integer.to_string()), Value::Integer),
            DeValue::Array(array) => Value::List(array.into_iter().map(|child| self.node(child)).collect()),
            DeValue::Table(table) => self.table(table),
        };
        Node { value, place }
    }

    /// The parser sorts by name; users expect the written order.
    fn table(&self, table: DeTable<'_>) -> Value {
        let mut entries: Vec<_> = table.into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, node): (Spanned<_>, _)| {
            let key_place = self.place(key.span().start);
            let key: std::borrow::Cow<'_, str> = key.into_inner();
            Entry { key: key.into_owned(), key_place, node: self.node(node) }
        };
        Value::Table(entries.into_iter().map(entry).collect())
    }
}
