//! Values with their positions.

use std::fmt;
use std::sync::Arc;

/// A value and its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its position.
    pub place: Place,
}

/// The kinds of values.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A table, in the written order.
    Table(Vec<Entry>),
    /// A wrong value that was reported and is skipped from then on.
    Reported,
}

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The position of the key.
    pub key_place: Place,
    /// The value.
    pub node: Node,
}

/// The position of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file or text as a whole.
    Source {
        /// Its name.
        source: Arc<str>,
    },
    /// At a line and column of a file or text, both counted from 1.
    At {
        /// Its name.
        source: Arc<str>,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// In an environment variable.
    Variable {
        /// Its name.
        name: Arc<str>,
    },
}

impl Place {
    /// Whether it is in YAML, as everything except a TOML file is.
    pub fn is_yaml(&self) -> bool {
        match self {
            Self::Source { source } | Self::At { source, .. } => !source.ends_with(".toml"),
            Self::Variable { .. } => true,
        }
    }
}

/// The path from the root of a tree to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    /// A name that must not be shown.
    Secret(String),
    Index(usize),
}

impl Node {
    /// The position of the node at `path`, or of its nearest existing ancestor.
    pub fn place_at(&self, path: &Path) -> &Place {
        let mut node = self;
        for step in &path.0 {
            match node.child(step) {
                Some(child) => node = child,
                None => break,
            }
        }
        &node.place
    }

    /// The position of the last key of `path`; of the value if it is an element of a list.
    pub fn key_place_at(&self, path: &Path) -> &Place {
        let Some((Step::Key(key) | Step::Secret(key), above)) = path.0.split_last() else {
            return self.place_at(path);
        };
        let mut node = self;
        for step in above {
            match node.child(step) {
                Some(child) => node = child,
                None => return &node.place,
            }
        }
        node.entry(key).map_or(&node.place, |entry| &entry.key_place)
    }

    /// Hides the node at `path`, once it has been reported.
    pub fn hide(&mut self, path: &Path) {
        let mut node = self;
        for step in &path.0 {
            let child = match (step, &mut node.value) {
                (Step::Key(key) | Step::Secret(key), Value::Table(entries)) => {
                    entries.iter_mut().find(|entry| entry.key == *key).map(|entry| &mut entry.node)
                }
                (Step::Index(index), Value::List(nodes)) => nodes.get_mut(*index),
                _ => None,
            };
            match child {
                Some(child) => node = child,
                None => return,
            }
        }
        node.value = Value::Reported;
    }

    /// Whether something in the table at `path` was hidden.
    pub fn hides_something(&self, path: &Path) -> bool {
        let node = path.0.iter().try_fold(self, |node, step| node.child(step));
        match node.map(|node| &node.value) {
            Some(Value::Table(entries)) => {
                entries.iter().any(|entry| matches!(entry.node.value, Value::Reported))
            }
            _ => false,
        }
    }

    /// The entry of a table with this key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    fn child(&self, step: &Step) -> Option<&Self> {
        match (step, &self.value) {
            (Step::Key(key) | Step::Secret(key), _) => self.entry(key).map(|entry| &entry.node),
            (Step::Index(index), Value::List(nodes)) => nodes.get(*index),
            _ => None,
        }
    }
}

impl Value {
    /// The kind of the value, as text.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null | Self::Reported => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

impl Path {
    /// The path of these keys.
    pub fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| Step::Key((*key).to_owned())).collect())
    }

    /// The path to a key below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.to_owned()))
    }

    /// As [`Path::key`], for a name that must not be shown.
    #[must_use]
    pub fn secret_key(&self, key: &str) -> Self {
        self.then(Step::Secret(key.to_owned()))
    }

    /// The path to an element of the list here.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    /// The names in the path, without the indices.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|step| match step {
            Step::Key(key) | Step::Secret(key) => Some(key.as_str()),
            Step::Index(_) => None,
        })
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

/// Prints as users write it: `rules.domain.limits[1]`. Ambiguous names are quoted.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Secret(_) => write!(f, "{dot}***")?,
                Step::Key(key) if is_plain(key) => write!(f, "{dot}{key}")?,
                Step::Key(key) => write!(f, "{dot}{key:?}")?,
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source { source } => f.write_str(source),
            Self::At { source, line, column } => write!(f, "{source}:{line}:{column}"),
            Self::Variable { name } => write!(f, "environment variable {name}"),
        }
    }
}
