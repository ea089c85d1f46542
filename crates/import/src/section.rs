//! Tables of foreign files: which of their keys were read, and which were not.

use tollgate_tree::{Entry, Node, Path, Place, Value};

use crate::work::Work;

/// A table whose keys are taken one after the other. Its path is for messages.
pub(crate) struct Section<'t> {
    entries: &'t [Entry],
    taken: Vec<bool>,
    /// The path of the table.
    pub(crate) path: Path,
    /// The position of the table.
    pub(crate) place: &'t Place,
}

/// A number with or without decimals, as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Whole(u64),
    Decimal(f64),
}

impl<'t> Section<'t> {
    /// The table; `None` if the value is nothing. Another value is wrong.
    pub(crate) fn of(node: &'t Node, path: Path, work: &mut Work<'_>) -> Option<Self> {
        match &node.value {
            Value::Table(entries) => {
                Some(Self { entries, taken: vec![false; entries.len()], path, place: &node.place })
            }
            Value::Null => None,
            other => {
                let what = if path.is_root() { "the file".to_owned() } else { format!("`{path}`") };
                work.wrong(&node.place, format!("{what} is {}, where a table is expected", other.kind()));
                None
            }
        }
    }

    /// Some entries of a table.
    pub(crate) fn of_entries(entries: &'t [Entry], path: Path, place: &'t Place) -> Self {
        Self { entries, taken: vec![false; entries.len()], path, place }
    }

    /// The entry with this key, however it is spelt: `redis-key-prefix`, `redisKeyPrefix`, `redis_key_prefix`.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'t Entry> {
        let index = self.entries.iter().position(|entry| same(&entry.key, key))?;
        self.taken[index] = true;
        Some(&self.entries[index])
    }

    /// The table below a key.
    pub(crate) fn section(&mut self, key: &str, work: &mut Work<'_>) -> Option<Section<'t>> {
        let entry = self.take(key)?;
        Section::of(&entry.node, self.path.key(&entry.key), work)
    }

    /// All entries, taken from now on.
    pub(crate) fn take_all(&mut self) -> &'t [Entry] {
        self.taken.fill(true);
        self.entries
    }

    /// A text, or another value as a text.
    pub(crate) fn text(&mut self, key: &str, work: &mut Work<'_>) -> Option<(String, &'t Place)> {
        let entry = self.take(key)?;
        let text = match &entry.node.value {
            Value::Null => return None,
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            other => {
                let path = self.path.key(&entry.key);
                work.wrong(
                    &entry.node.place,
                    format!("`{path}` is {}, where a text is expected", other.kind()),
                );
                return None;
            }
        };
        Some((text, &entry.node.place))
    }

    /// True or false.
    pub(crate) fn flag(&mut self, key: &str, work: &mut Work<'_>) -> Option<(bool, &'t Place)> {
        let entry = self.take(key)?;
        let value = match &entry.node.value {
            Value::Null => return None,
            Value::Bool(value) => *value,
            Value::Text(text) if text == "true" || text == "on" || text == "yes" => true,
            Value::Text(text) if text == "false" || text == "off" || text == "no" => false,
            other => {
                let path = self.path.key(&entry.key);
                let kind = other.kind();
                work.wrong(&entry.node.place, format!("`{path}` is {kind}, where true or false is expected"));
                return None;
            }
        };
        Some((value, &entry.node.place))
    }

    /// A whole number from 0 on.
    pub(crate) fn whole(&mut self, key: &str, work: &mut Work<'_>) -> Option<(u64, &'t Place)> {
        let path = self.path.key(key);
        match self.number(key, work)? {
            (Number::Whole(number), place) => Some((number, place)),
            (Number::Decimal(number), place) => {
                work.wrong(place, format!("`{path}` is {number}, where a whole number is expected"));
                None
            }
        }
    }

    /// A number from 0 on.
    pub(crate) fn number(&mut self, key: &str, work: &mut Work<'_>) -> Option<(Number, &'t Place)> {
        let entry = self.take(key)?;
        let place = &entry.node.place;
        let number = match &entry.node.value {
            Value::Null => return None,
            Value::Integer(number) => u64::try_from(*number).ok().map(Number::Whole),
            Value::Float(number) => decimal(*number),
            Value::Text(text) => match text.trim().parse() {
                Ok(whole) => Some(Number::Whole(whole)),
                Err(_) => text.trim().parse().ok().and_then(decimal),
            },
            _ => None,
        };
        if number.is_none() {
            let path = self.path.key(&entry.key);
            work.wrong(place, format!("`{path}` is not a number from 0 on"));
        }
        Some((number?, place))
    }

    /// Reports the keys that were not read.
    pub(crate) fn leave(self, why: &str, work: &mut Work<'_>) {
        for (entry, _) in self.entries.iter().zip(&self.taken).filter(|(_, taken)| !**taken) {
            work.left_out(&entry.key_place, format!("`{}`: {why}", self.path.key(&entry.key)));
        }
    }
}

fn decimal(number: f64) -> Option<Number> {
    let whole = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, and below 2^53"
    )]
    if whole {
        return Some(Number::Whole(number as u64));
    }
    (number.is_finite() && number > 0.0).then_some(Number::Decimal(number))
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Decimal(number) => number.fmt(f),
        }
    }
}

/// Whether two keys are the same in the relaxed spelling of Spring.
pub(crate) fn same(written: &str, key: &str) -> bool {
    let plain = |text: &str| -> Vec<u8> {
        let kept = text.bytes().filter(|byte| !matches!(byte, b'-' | b'_'));
        kept.map(|byte| byte.to_ascii_lowercase()).collect()
    };
    written == key || plain(written) == plain(key)
}
