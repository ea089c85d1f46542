//! Limits and keys that are valid by themselves, but not where they are.

use tollgate::config::{self, Format};

fn refusal(text: &str) -> String {
    match config::load_str(text, Format::Yaml, "t.yaml", std::iter::empty()) {
        Ok(_) => panic!("this must be refused:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_field_of_the_key_cannot_be_bounded_per_attempt() {
    let clash = |limit: &str, field: &str, rule: &str, policy: &str| {
        format!(
            "`{limit}` bounds `{field}`, which is part of the key of rule `{rule}` in policy `{policy}`: a number that is bounded needs a field of its own"
        )
    };
    let own = "rules: { a: { by: k, limits: [1/s, 5 k per attempt] } }\npolicies: { p: [a] }";
    assert_eq!(
        refusal(own),
        format!("t.yaml:1:30: rules.a.limits: {}", clash("5 k per attempt", "k", "a", "p"))
    );
    let other = "rules:
  a: { by: k, limits: 1/s, overrides: { x: [2/s, 7 size per attempt] } }
  b: { by: [user, size], limits: 1/s }
policies: { p: [a], q: [b, a] }";
    assert_eq!(
        refusal(other),
        format!("t.yaml:2:39: rules.a.overrides: {}", clash("7 size per attempt", "size", "b", "q"))
    );
    let apart = other.replace("[b, a]", "[b]");
    assert!(config::load_str(&apart, Format::Yaml, "t.yaml", std::iter::empty()).is_ok());
}

#[test]
fn nothing_is_no_key() {
    for kind in ["text", "domain"] {
        let text = format!(
            "fields: {{ k: {kind} }}\nrules: {{ a: {{ by: k, limits: 1/s, overrides: {{ '': 2/s }} }} }}"
        );
        assert_eq!(refusal(&text), "t.yaml:2:48: rules.a.overrides.\"\": an empty value is not a key");
    }
}
