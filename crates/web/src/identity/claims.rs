//! The claims of a verified token.

use serde_json::{Map, Value};

/// The claims of a token that rules can count by: texts, numbers and booleans. A member of a claim is named by its path,
/// as in `org.id`.
#[derive(Clone, Debug, Default)]
pub struct Claims(Box<[(Box<str>, Box<str>)]>);

/// The most names in a path. This bounds the memory for the paths of a token.
const DEEPEST: usize = 4;

impl Claims {
    /// Keeps those of these claims.
    pub(super) fn of(claims: &Map<String, Value>) -> Self {
        let mut found = Vec::new();
        // A claim whose own name has a dot comes before a member with the same path.
        found.extend(claims.iter().filter_map(|(name, value)| Some((name.as_str().into(), plain(value)?))));
        for (name, value) in claims {
            add_members(name, value, DEEPEST - 1, &mut found);
        }
        Self(found.into())
    }

    /// The value of a claim, as text.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

/// Adds the members of a claim by their paths.
fn add_members(path: &str, value: &Value, deeper: usize, found: &mut Vec<(Box<str>, Box<str>)>) {
    let Value::Object(members) = value else { return };
    for (name, value) in members {
        let path = format!("{path}.{name}");
        found.extend(plain(value).map(|value| (path.as_str().into(), value)));
        if deeper > 1 {
            add_members(&path, value, deeper - 1, found);
        }
    }
}

fn plain(value: &Value) -> Option<Box<str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(truth) => Some(truth.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_their_paths_and_lists_are_not() {
        let token = serde_json::json!({
            "sub": "ada", "org.id": "flat", "org": { "id": 7, "name": "acme", "roles": ["a"] },
            "https://app.example/tenant": { "id": "t" }, "a": { "b": { "c": { "d": 1, "e": { "f": 2 } } } },
        });
        let claims = Claims::of(token.as_object().expect("an object"));
        let found = |name| claims.find(name);
        assert_eq!(
            [found("sub"), found("org.id"), found("org.name")],
            [Some("ada"), Some("flat"), Some("acme")]
        );
        assert_eq!([found("https://app.example/tenant.id"), found("a.b.c.d")], [Some("t"), Some("1")]);
        assert_eq!([found("org"), found("org.roles"), found("a.b.c.e.f"), found("name")], [None; 4]);
    }
}
