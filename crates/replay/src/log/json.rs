//! Lines of JSON: reads the values at named paths, without building the document.
//!
//! A path consists of member names with dots between them: `request.headers.User-Agent`. Of an array, the first
//! element counts. A member whose own name contains dots is found under that name too.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Row;

/// The wanted paths, as a tree of member names.
#[derive(Clone, Debug, Default)]
pub struct Places {
    root: Node,
    count: usize,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// The index of the value whose path ends here.
    value: Option<usize>,
    members: Vec<(Box<str>, Node)>,
}

/// A sample is searched for the names of columns to this depth.
const MOST_DEPTH: usize = 6;
/// The most columns that a sample can name.
const MOST_COLUMNS: usize = 1_000;

impl Places {
    /// Makes the tree for these paths.
    pub fn new(paths: &[Box<str>]) -> Self {
        let mut root = Node::default();
        for (index, path) in paths.iter().enumerate() {
            root.member(path).value = Some(index);
            let mut node = &mut root;
            for name in path.split('.') {
                node = node.member(name);
            }
            node.value = Some(index);
        }
        Self { root, count: paths.len() }
    }

    /// Reads the values of one line. Returns whether it is a JSON object.
    pub fn read(&self, line: &[u8], row: &mut Row) -> bool {
        row.clear(self.count);
        let mut reader = serde_json::Deserializer::from_slice(line);
        let read = Collect { node: &self.root, row }.deserialize(&mut reader);
        read.is_ok() && reader.end().is_ok() && line.trim_ascii_start().starts_with(b"{")
    }
}

impl Node {
    fn member(&mut self, name: &str) -> &mut Self {
        let place = self.members.iter().position(|(known, _)| **known == *name).unwrap_or_else(|| {
            self.members.push((name.into(), Self::default()));
            self.members.len() - 1
        });
        &mut self.members[place].1
    }
}

/// Adds the paths of all texts, numbers and booleans of a line. Returns false if the line is not a JSON object.
pub fn paths(line: &[u8], into: &mut BTreeSet<String>) -> bool {
    let Ok(serde_json::Value::Object(members)) = serde_json::from_slice(line) else { return false };
    add_paths(&serde_json::Value::Object(members), &mut String::new(), 0, into);
    true
}

fn add_paths(value: &serde_json::Value, path: &mut String, depth: usize, into: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(members) if depth < MOST_DEPTH => {
            for (name, member) in members {
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                add_paths(member, path, depth + 1, into);
                path.truncate(length);
            }
        }
        serde_json::Value::Array(elements) => {
            if let Some(first) = elements.first() {
                add_paths(first, path, depth + 1, into);
            }
        }
        serde_json::Value::Null | serde_json::Value::Object(_) => {}
        _ if into.len() < MOST_COLUMNS => drop(into.insert(path.clone())),
        _ => {}
    }
}

/// Copies the values below a node to a row.
struct Collect<'n, 'r> {
    node: &'n Node,
    row: &'r mut Row,
}

/// Finds a member of a node by its name.
struct MemberName<'n>(&'n Node);

impl<'de> DeserializeSeed<'de> for Collect<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Collect<'_, '_> {
    fn put(self, text: &[u8]) {
        if let Some(place) = self.node.value {
            self.row.put(place, text);
        }
    }
}

impl<'de> Visitor<'de> for Collect<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.put(text.as_bytes());
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.put(itoa::Buffer::new().format(number).as_bytes());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.put(itoa::Buffer::new().format(number).as_bytes());
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.put(number.to_string().as_bytes());
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.put(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        if elements.next_element_seed(self)?.is_some() {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(found) = members.next_key_seed(MemberName(self.node))? {
            match found {
                Some(node) => members.next_value_seed(Collect { node, row: &mut *self.row })?,
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de, 'n> DeserializeSeed<'de> for MemberName<'n> {
    type Value = Option<&'n Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for MemberName<'n> {
    type Value = Option<&'n Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.members.iter().find(|(known, _)| **known == *name).map(|(_, node)| node))
    }
}
