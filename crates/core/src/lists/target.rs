//! The target of a list entry: a network, or field values that must all match.
//!
//! ```text
//! target := network | FIELD "=" VALUE ( "," FIELD "=" VALUE )*
//! ```
//!
//! Commas and backslashes in a value are escaped with a backslash, as in keys. Values are normalized like those
//! of keys, according to the kind of their field.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::charge::KeyText;
use crate::grammar::GrammarError;
use crate::key::{self, FieldKind, Kinds, Presence};
use crate::net::Net;
use crate::rule::{Field, Rule};

/// The target of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Every address of a network, in any field that holds addresses.
    Net(Net),
    /// Attempts with all these values, each in its normalized form; sorted by the field.
    Values(Box<[(Field, Box<str>)]>),
}

const EXAMPLES: &str = "write an address, a network, or a field and its value, as in `user=bob`";

impl Target {
    /// Parses a target, as in `203.0.113.0/24`, `user=bob` or `user=bob,ip=203.0.113.7`.
    pub fn parse(text: &str, kinds: &Kinds) -> Result<Self, GrammarError> {
        if !text.contains('=') {
            if !text.contains(['.', ':', '/']) {
                let problem = format!("this is neither an address nor a field: {EXAMPLES}");
                return Err(GrammarError { text: text.to_owned(), at: 0, problem });
            }
            return Net::parse(text).map(Self::Net);
        }
        let mut values = Vec::new();
        for (at, part) in parts(text) {
            let wrong =
                |problem: &str| GrammarError { text: text.to_owned(), at, problem: problem.to_owned() };
            let (name, value) = part.split_once('=').ok_or_else(|| {
                wrong("a field is followed by `=` and its value; a comma in a value is written `\\,`")
            })?;
            let value = unescaped(value)
                .ok_or_else(|| wrong("a value cannot end in a single backslash; write `\\\\`"))?;
            values.push((name, value, at));
        }
        let values = values.iter().map(|(name, value, at)| (*name, value.as_str(), *at));
        Self::of_values(values, text, kinds)
    }

    /// Whether it is every address of IPv4 or of IPv6.
    pub fn is_every_address(&self) -> bool {
        matches!(self, Self::Net(net) if net.length() == 0)
    }

    /// The target of these fields and their values.
    pub fn of_fields<'f>(
        fields: impl IntoIterator<Item = (&'f str, &'f str)>,
        kinds: &Kinds,
    ) -> Result<Self, GrammarError> {
        let fields: Vec<(&str, &str)> = fields.into_iter().collect();
        let text: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let fields = fields.iter().map(|(name, value)| (*name, *value, 0));
        Self::of_values(fields, &text.join(","), kinds)
    }

    /// The target of a rule's key; `None` for a rule without a key.
    pub fn of_key(rule: &Rule, key: &str) -> Option<Self> {
        let values = key::split(key, rule.by.len()).filter(|_| !rule.by.is_empty())?;
        if let ([Field { kind: FieldKind::Ip { .. }, .. }], [value]) = (&*rule.by, &*values) {
            return Net::parse(value).ok().map(Self::Net);
        }
        let values = rule.by.iter().cloned().zip(values.into_iter().map(String::into_boxed_str));
        Some(Self::sorted(values.collect()))
    }

    fn of_values<'v>(
        values: impl ExactSizeIterator<Item = (&'v str, &'v str, usize)>,
        text: &str,
        kinds: &Kinds,
    ) -> Result<Self, GrammarError> {
        let wrong = |at: usize, problem: String| Err(GrammarError { text: text.to_owned(), at, problem });
        let count = values.len();
        if !(1..=Rule::MOST_FIELDS).contains(&count) {
            return wrong(0, format!("a target names 1 to {} fields", Rule::MOST_FIELDS));
        }
        let mut found: Vec<(Field, Box<str>)> = Vec::new();
        for (name, value, at) in values {
            if let Err(problem) = key::check_field_name(name) {
                return wrong(at, problem);
            }
            if found.iter().any(|(field, _)| *field.name == *name) {
                return wrong(at, format!("the field `{name}` is written twice"));
            }
            let kind = kinds.of(name);
            if let (1, FieldKind::Ip { .. }) = (count, kind) {
                return Net::parse(value).map(Self::Net).or_else(|error| {
                    let before = if at == 0 && text.starts_with(name) { name.len() + 1 } else { 0 };
                    wrong(at + before + error.at, error.problem)
                });
            }
            let mut plain = KeyText::new();
            match kind.write(value, &mut plain) {
                Ok(Presence::Present) => {}
                Ok(Presence::Absent) => {
                    return wrong(at, format!("the value of `{name}` is an empty address"));
                }
                Err(error) => return wrong(at, format!("the value of `{name}` {error}")),
            }
            let plain = core::str::from_utf8(&plain).expect("values are written as text");
            found.push((Field { name: name.into(), kind }, plain.into()));
        }
        Ok(Self::sorted(found))
    }

    fn sorted(mut values: Vec<(Field, Box<str>)>) -> Self {
        values.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        Self::Values(values.into())
    }

    /// The values, joined as in keys.
    pub(super) fn joined(&self) -> String {
        let Self::Values(values) = self else { return self.to_string() };
        let several = values.len() > 1;
        let values = values.iter().map(|(_, value)| if several { escaped(value) } else { value.to_string() });
        values.collect::<Vec<_>>().join(",")
    }
}

/// Writes the values of these fields as [`Target::joined`] does; `None` if one is absent or invalid.
pub(super) fn write_joined<'v>(
    fields: &[Field],
    value: impl Fn(&str) -> Option<&'v str>,
    out: &mut KeyText,
) -> Option<()> {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let start = out.len();
        if field.kind.write(value(&field.name)?, out).ok()? == Presence::Absent {
            return None;
        }
        if fields.len() > 1 {
            key::escape_from(start, out);
        }
    }
    Some(())
}

/// The parts of a text between its commas, with their offsets.
fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = Some(0);
    core::iter::from_fn(move || {
        let from = start?;
        let mut escape = false;
        let end = text[from..].char_indices().find(|(_, c)| {
            let separates = *c == ',' && !escape;
            escape = *c == '\\' && !escape;
            separates
        });
        let end = end.map(|(at, _)| from + at);
        start = end.map(|end| end + 1);
        Some((from, &text[from..end.unwrap_or(text.len())]))
    })
}

fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next()? } else { c });
    }
    Some(plain)
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

/// Prints in the form that it is parsed from.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = match self {
            Self::Net(net) => return net.fmt(f),
            Self::Values(values) => values,
        };
        for (index, (field, value)) in values.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", field.name, escaped(value))?;
        }
        Ok(())
    }
}
