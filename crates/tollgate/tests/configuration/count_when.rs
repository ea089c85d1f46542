//! `count_when`: every valid form, and the messages for invalid ones.

use tollgate::config::{self, Config, ConfigError, Format};
use tollgate_web::Statuses;

fn load(text: &str) -> Result<Config, ConfigError> {
    config::load_str(text, Format::Yaml, "t.yaml", std::iter::empty())
}

#[test]
fn count_when_is_read_in_every_form() {
    let table = [
        ("401", "401"),
        ("4xx", "4xx"),
        ("[401, '403']", "[401, 403]"),
        ("[4xx, 503]", "[4xx, 503]"),
        ("not 5xx", "not 5xx"),
        ("'not [5xx, 404]'", "not [404, 5xx]"),
    ];
    for (written, meant) in table {
        let config = load(&format!("rules: {{ r: {{ limits: 5/s, count_when: {written} }} }}")).unwrap();
        let statuses = Statuses::from(config.policies.rule("r").unwrap().count_when.unwrap());
        assert_eq!(statuses.to_string(), meant, "{written}");
    }
    let block = load("rules:\n  r:\n    limits: 5/s\n    count_when: not [404, 5xx]\n").unwrap();
    let statuses = Statuses::from(block.policies.rule("r").unwrap().count_when.unwrap());
    assert_eq!(statuses.to_string(), "not [404, 5xx]");
    let all = load("rules: { r: { limits: 5/s } }").unwrap();
    assert_eq!(all.policies.rule("r").unwrap().count_when, None);
}

#[test]
fn an_empty_or_invalid_count_when_is_refused_at_its_position() {
    let table = [
        (
            "40x",
            "t.yaml:1:40: rules.a.count_when: `40x` is not a status: a status is `100` to `599`, or all of a kind, as in `4xx`
    40x
    ^",
        ),
        (
            "[401, not 5xx, 4XX]",
            "t.yaml:1:46: rules.a.count_when[1]: `not` goes before all of them, as in `not [404, 5xx]`
    not 5xx
    ^
t.yaml:1:55: rules.a.count_when[2]: `4XX` is written `4xx`
    4XX
    ^",
        ),
        (
            "[]",
            "t.yaml:1:40: rules.a.count_when: an empty list counts nothing: leave the rule out instead",
        ),
        (
            "true",
            "t.yaml:1:40: rules.a.count_when: expected statuses, as in `[401, 403]`, `4xx` or `not 5xx`, found `true`",
        ),
    ];
    for (written, words) in table {
        let error = load(&format!("rules: {{ a: {{ limits: 5/s, count_when: {written} }} }}")).unwrap_err();
        assert_eq!(error.to_string(), words, "{written}");
    }
}

#[test]
fn count_when_is_refused_for_limits_at_once() {
    let why = "holds for as long as something lasts, whatever the answer, and `count_when` would end it: put it into a rule of its own";
    let limits = "by: b, limits: [5/s, 2 at once], overrides: { x: 3 at once for 1m }";
    let error = load(&format!("rules: {{ a: {{ {limits}, count_when: 401 }} }}")).unwrap_err();
    let words = format!(
        "t.yaml:1:30: rules.a.limits: `2 at once` {why}\nt.yaml:1:64: rules.a.overrides.x: `3 at once for 1m` {why}"
    );
    assert_eq!(error.to_string(), words);
    assert!(load(&format!("rules: {{ a: {{ {limits} }} }}")).is_ok());
}
