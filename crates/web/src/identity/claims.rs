//! The claims of a verified token.

use serde_json::{Map, Value};

/// The claims of a token that rules can count by: texts, numbers and booleans.
#[derive(Clone, Debug, Default)]
pub struct Claims(Box<[(Box<str>, Box<str>)]>);

impl Claims {
    /// Keeps those of these claims.
    pub(super) fn of(claims: &Map<String, Value>) -> Self {
        let plain =
            claims.iter().filter_map(|(name, value)| Some((name.as_str().into(), plain(value)?.into())));
        Self(plain.collect())
    }

    /// The value of a claim, as text.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
