//! The body of a webhook as an operator writes it: JSON whose texts have placeholders.
//!
//! Only texts have placeholders, and the body is written as JSON after they are filled. So no value of a
//! login can end a text or add a member.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use tollgate_core::policy::nearest;

use crate::config::problem::{Findings, hint, shown};
use crate::config::tree::Path;

/// The body of a webhook's calls.
#[derive(Clone, PartialEq, Eq)]
pub struct BodyTemplate(Vec<(String, BodyNode)>);

/// A value of the body.
#[derive(Clone, PartialEq, Eq)]
enum BodyNode {
    Fixed(Value),
    Text(Vec<Piece>),
    List(Vec<BodyNode>),
    Table(Vec<(String, BodyNode)>),
}

#[derive(Clone, PartialEq, Eq)]
enum Piece {
    Fixed(String),
    Blank(BodyBlank),
}

/// A placeholder: a member of the notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyBlank {
    /// The id of the notice.
    Id,
    /// `locked` or `attacked`.
    Event,
    /// The guard.
    Guard,
    /// The rule.
    Rule,
    /// How many failures there were.
    Failures,
    /// When the step was reached.
    At,
    /// When the lock ends; empty if the step does not lock.
    LockedUntil,
    /// The value of a field; empty if the rule does not count by it.
    Field(Arc<str>),
}

/// All placeholders but the fields, by name.
const BLANKS: [(&str, BodyBlank); 7] = [
    ("id", BodyBlank::Id),
    ("event", BodyBlank::Event),
    ("guard", BodyBlank::Guard),
    ("rule", BodyBlank::Rule),
    ("failures", BodyBlank::Failures),
    ("at", BodyBlank::At),
    ("locked_until", BodyBlank::LockedUntil),
];

/// The largest body as it is written, in bytes of JSON, and how many placeholders it may have. A value has at
/// most 1024 bytes.
const MOST_BYTES: usize = 4_096;
const MOST_BLANKS: usize = 32;

impl BodyTemplate {
    /// Reads what is written. `fields` are those of the guard.
    pub(super) fn mean(
        written: &Map<String, Value>,
        fields: &[Arc<str>],
        path: &Path,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let bytes = serde_json::to_string(written).map_or(usize::MAX, |text| text.len());
        if bytes > MOST_BYTES {
            findings.value(path, format!("a body has at most {MOST_BYTES} bytes, and this one has {bytes}"));
            return None;
        }
        let mut reader = BodyReader { fields, findings, blanks: 0, broken: false };
        let table = reader.table(written, path);
        if reader.blanks > MOST_BLANKS {
            let problem = format!("a body has at most {MOST_BLANKS} placeholders");
            reader.wrong(path, problem);
        }
        (!reader.broken).then_some(Self(table))
    }

    /// The body, with these values at its placeholders.
    pub fn fill(&self, value: &impl Fn(&BodyBlank) -> String) -> Value {
        fill_table(&self.0, value)
    }
}

/// It may contain a secret of the receiver.
impl fmt::Debug for BodyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyTemplate(***)")
    }
}

fn fill_table(table: &[(String, BodyNode)], value: &impl Fn(&BodyBlank) -> String) -> Value {
    Value::Object(table.iter().map(|(name, node)| (name.clone(), fill(node, value))).collect())
}

fn fill(node: &BodyNode, value: &impl Fn(&BodyBlank) -> String) -> Value {
    match node {
        BodyNode::Fixed(fixed) => fixed.clone(),
        BodyNode::List(list) => Value::Array(list.iter().map(|node| fill(node, value)).collect()),
        BodyNode::Table(table) => fill_table(table, value),
        BodyNode::Text(pieces) => {
            let text = pieces.iter().map(|piece| match piece {
                Piece::Fixed(text) => text.clone(),
                Piece::Blank(blank) => value(blank),
            });
            Value::String(text.collect())
        }
    }
}

struct BodyReader<'r, 'f> {
    fields: &'r [Arc<str>],
    findings: &'r mut Findings<'f>,
    blanks: usize,
    broken: bool,
}

impl BodyReader<'_, '_> {
    fn wrong(&mut self, path: &Path, problem: String) {
        self.findings.value(path, problem);
        self.broken = true;
    }

    fn table(&mut self, written: &Map<String, Value>, path: &Path) -> Vec<(String, BodyNode)> {
        written.iter().map(|(name, value)| (name.clone(), self.node(value, &path.key(name)))).collect()
    }

    fn node(&mut self, written: &Value, path: &Path) -> BodyNode {
        match written {
            Value::Null | Value::Bool(_) | Value::Number(_) => BodyNode::Fixed(written.clone()),
            Value::String(text) => BodyNode::Text(self.text(text, path)),
            Value::Array(list) => {
                let nodes = list.iter().enumerate();
                BodyNode::List(nodes.map(|(at, value)| self.node(value, &path.index(at))).collect())
            }
            Value::Object(table) => BodyNode::Table(self.table(table, path)),
        }
    }

    /// `{name}` is a placeholder and `{{` is a brace, as in the bodies of the gateway.
    fn text(&mut self, text: &str, path: &Path) -> Vec<Piece> {
        let (mut pieces, mut fixed, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find('{') {
            fixed.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            if let Some(after) = rest.strip_prefix('{') {
                fixed.push('{');
                rest = after;
            } else if name.is_empty() {
                fixed.push('{');
            } else if let Some(after) = rest[name.len()..].strip_prefix('}') {
                pieces.push(Piece::Fixed(std::mem::take(&mut fixed)));
                pieces.extend(self.blank(name, path).map(Piece::Blank));
                rest = after;
            } else {
                let name = shown(name);
                self.wrong(path, format!("`{{{name}` lacks its `}}`; a literal brace is written `{{{{`"));
                break;
            }
        }
        fixed.push_str(rest);
        pieces.push(Piece::Fixed(fixed));
        pieces
    }

    fn blank(&mut self, name: &str, path: &Path) -> Option<BodyBlank> {
        self.blanks += 1;
        if let Some((_, blank)) = BLANKS.iter().find(|(known, _)| *known == name) {
            return Some(blank.clone());
        }
        let field = name.strip_prefix("fields.");
        if let Some(field) = field.and_then(|name| self.fields.iter().find(|field| ***field == *name)) {
            return Some(BodyBlank::Field(Arc::clone(field)));
        }
        let names: Vec<String> = BLANKS.iter().map(|(known, _)| (*known).to_owned()).collect();
        let fields = self.fields.iter().map(|field| format!("fields.{field}"));
        let names: Vec<String> = names.into_iter().chain(fields).collect();
        let near = hint(nearest(name, names.iter().map(String::as_str)));
        let name = shown(name);
        self.wrong(
            path,
            format!("there is no placeholder `{{{name}}}`{near}; there are {}", names.join(", ")),
        );
        None
    }
}
