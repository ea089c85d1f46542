//! Any text gives a configuration or errors: never a panic, never an endless loop.

use proptest::prelude::*;
use tollgate::config::{self, Format};

fn answers(text: &str, format: Format, variables: Vec<(String, String)>) {
    if let Err(error) = config::load_str(text, format, "t", variables.into_iter()) {
        assert!(!error.problems.is_empty(), "a refusal has a reason:\n{text}");
        assert!(!error.to_string().is_empty());
    }
}

/// Pieces of configurations, so that random texts get past the parser.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_]{1,8}",
        "[0-9]{1,20}(/(s|hour|5m))?( (burst|sliding|calendar|at once|in) ?[0-9a-zA-Z/]{0,6})?",
        "\\PC{0,12}",
        proptest::sample::select(vec![
            "rules",
            "policies",
            "limits",
            "by",
            "overrides",
            "keys",
            "store",
            "memory",
            "file",
            "redis",
            "redis://a:b@c:1/2",
            "unix:/a?db=1",
            "redis+sentinel://[::1],b/c",
            "hash_tag",
            "listen",
            "http",
            "fields",
            "ip",
            "on_exceed",
            "on_outage",
            "count_when",
            "not 5xx",
            "local 1/3",
            "wait 5s",
            "defer",
            "enabled",
            "true",
            "null",
            "~",
            "<<",
            "*a",
            "&a x",
            "10/s burst 50",
            "1/day calendar in Europe/Berlin",
            "é/ü",
            "0.0.0.0:1",
            "\"",
            "'",
            "!!str",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Nested flow YAML, which nearly always parses.
fn tree() -> impl Strategy<Value = String> {
    fragment().prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|list| format!("[{}]", list.join(", "))),
            prop::collection::vec((fragment(), inner), 0..5).prop_map(|table| {
                let entries: Vec<String> =
                    table.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
                format!("{{{}}}", entries.join(", "))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_answered(text in "\\PC{0,200}|(.|\n){0,200}") {
        answers(&text, Format::Yaml, Vec::new());
        answers(&text, Format::Toml, Vec::new());
    }

    #[test]
    fn arbitrary_trees_are_answered(
        sections in prop::collection::vec((proptest::sample::select(vec![
            "rules", "policies", "keys", "store", "listen", "fields", "log", "enabled",
        ]), tree()), 0..4),
    ) {
        let lines: Vec<String> = sections.iter().map(|(name, tree)| format!("{name}: {tree}")).collect();
        answers(&lines.join("\n"), Format::Yaml, Vec::new());
    }

    #[test]
    fn arbitrary_limits_are_answered(limit in fragment(), key in "\\PC{0,20}") {
        let (limit, key) = (serde_json::to_string(&limit).unwrap(), serde_json::to_string(&key).unwrap());
        let text = format!("rules: {{ a: {{ by: ip, limits: {limit}, overrides: {{ {key}: {limit} }} }} }}");
        answers(&text, Format::Yaml, Vec::new());
    }

    #[test]
    fn arbitrary_variables_are_answered(name in "[A-Za-z_0-9]{0,30}", value in tree()) {
        let variables = vec![(format!("TOLLGATE__{name}"), value)];
        answers(config::STARTER, Format::Yaml, variables);
    }
}
