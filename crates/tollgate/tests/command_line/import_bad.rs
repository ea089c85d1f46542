//! Files that cannot be imported: broken, hostile, of no known program, or of several. Each error says what is wrong and
//! where, and there is no configuration.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fmt::Write as _;

use proptest::prelude::*;
use tollgate_import::{Answers, Input, import};

fn refusal(files: &[(&str, &str)]) -> String {
    let inputs: Vec<Input<'_>> = files.iter().map(|(name, text)| Input { name, text }).collect();
    match import(&inputs, &Answers::default()) {
        Ok(imported) => panic!("this must be refused: {files:?}\n{}", imported.config),
        Err(error) => error.to_string(),
    }
}

#[test]
fn invalid_syntax_is_refused_at_its_position() {
    let table = [
        ("a.yaml", "rate_limit: [1, 2", "a.yaml:1:13: not valid YAML: unclosed bracket '['"),
        ("a.yaml", "rate_limit:\n\tglobal: 1", "a.yaml:2:2: not valid YAML: a tab: indent with spaces"),
        ("a.yaml", "domain: x\n---\nb: [", "a.yaml:3:4: not valid YAML: unclosed bracket '['"),
        ("a.json", r#"{"id": "a", "host": }"#, "a.json:1:21: not valid JSON: expected value"),
        (
            "a.toml",
            "[resources]\nmax_connections = \n",
            "a.toml:2:19: not valid TOML: string values must be quoted, expected literal string",
        ),
        (
            "a.conf",
            "server {\n  limit_req zone=a\n}\n",
            "a.conf:2:3: not valid nginx: the directive does not end with `;`",
        ),
        ("a.conf", "server {\n", "a.conf:1:1: not valid nginx: the block of `server` is never closed"),
        ("a.conf", "server { } }", "a.conf:1:12: not valid nginx: this `}` closes no block"),
        ("a.conf", "server { listen \"80; }", "a.conf:1:17: not valid nginx: the quotes are never closed"),
        ("a.conf", "{ }", "a.conf:1:1: not valid nginx: a block without a name before its `{`"),
        ("a.conf", "limit_req zone=a", "a.conf:1:1: not valid nginx: the directive does not end with `;`"),
    ];
    for (name, text, expected) in table {
        assert_eq!(refusal(&[(name, text)]), expected);
    }
}

/// Files with a value that cannot be meant, and the error.
const MEANINGLESS: [(&str, &str, &str); 20] = [
    (
        "a.yaml",
        "rate_limit: { global: { messages_per_hour: lots } }",
        "a.yaml:1:44: `rate_limit.global.messages_per_hour` is not a number from 0 on",
    ),
    (
        "a.yaml",
        "rate_limit: { global: { messages_per_hour: -1 } }",
        "a.yaml:1:44: `rate_limit.global.messages_per_hour` is not a number from 0 on",
    ),
    (
        "a.yaml",
        "rate_limit: { global: { messages_per_hour: 1.5 } }",
        "a.yaml:1:44: `rate_limit.global.messages_per_hour` is 1.5, where a whole number is expected",
    ),
    (
        "a.yaml",
        "rate_limit: { global: { messages_per_hour: 5 } }\n---\nrate_limit: { global: { messages_per_hour: 6 } }",
        "a.yaml:3:13: `rate_limit` is at a.yaml:1:13 already: keep one of them",
    ),
    (
        "a.yaml",
        "rate_limit: { global: 5 }",
        "a.yaml:1:23: `rate_limit.global` is a number, where a table is expected",
    ),
    (
        "a.yaml",
        "rate_limit: { global: { messages_per_hour: 99999999999999999 } }",
        "a.yaml:1:44: `99999999999999999/hour` cannot be counted: the largest number that is exact everywhere is 9007199254740991",
    ),
    (
        "a.yaml",
        "rate_limit: { recipient_domains: { Gmail.com: {}, gmail.com.: {} } }",
        "a.yaml:1:51: `gmail.com.` is the same key as at a.yaml:1:36: keep one of them",
    ),
    (
        "a.yaml",
        "rate_limit: { recipient_domains: { 'a b': {} } }",
        "a.yaml:1:36: `a b` cannot be a value of recipient_domain",
    ),
    ("a.json", r#"[{"limit_per_day": 1, "host": "h", "id": null}]"#, "a.json:1:2: the account has no `id`"),
    (
        "a.json",
        r#"[{"id": "a/b", "host": "h"}]"#,
        "a.json:1:9: `a/b` cannot name an account: use 1 to 64 of `A-Z a-z 0-9 _ . - @`",
    ),
    (
        "a.json",
        r#"[{"id": "a", "host": "h"}, {"id": "a", "host": "i"}]"#,
        "a.json:1:35: `default,a` is the same key as at a.json:1:9: keep one of them",
    ),
    ("a.yml", "rate-limit: { tiers: { a: { burst: 3 } } }", "a.yml:1:24: `rate-limit.tiers.a` has no `rate`"),
    (
        "a.yml",
        "rate-limit: { tiers: { a: { rate: 3, burst: 1, window: soon } } }",
        "a.yml:1:35: `3/soon burst=1` is not a rate that can be counted exactly",
    ),
    (
        "a.yaml",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: fortnight, requests_per_unit: 1 } }]",
        "a.yaml:2:45: `fortnight` is none of second, minute, hour, day, week, month and year",
    ),
    (
        "a.yaml",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day } }]",
        "a.yaml:2:37: the limit needs `unit` and `requests_per_unit`",
    ),
    ("a.yaml", "domain: d\ndescriptors: [{ value: a }]", "a.yaml:2:15: the descriptor has no `key`"),
    ("a.yaml", "[{ max_value: 1, namespace: a }]", "a.yaml:1:2: the limit needs `max_value` and `seconds`"),
    (
        "a.conf",
        "limit_req_zone $uri zone=a:1m rate=1r/h;\nserver { limit_req zone=a; }",
        "a.conf:1:1: `1r/h` is not a rate of nginx: they are written `10r/s` or `5r/m`",
    ),
    ("a.conf", "limit_conn_zone $uri zone=a:1m;\nserver { limit_conn a many; }", ""),
    (
        "a.conf",
        "http { server { } }",
        "a.conf:1:1: there is no `limit_req` and no `limit_conn` in this file: nothing to import",
    ),
];

#[test]
fn values_that_cannot_be_meant_are_refused_where_they_are() {
    for (name, text, expected) in MEANINGLESS {
        let error = refusal(&[(name, text)]);
        assert!(
            error == expected || expected.is_empty() && error.starts_with("a.conf:2:10: `many at once"),
            "{error}\n{expected}"
        );
    }
}

#[test]
fn a_mix_of_programs_is_refused_with_both_places() {
    let nginx = ("site.conf", "limit_req_zone $uri zone=a:1m rate=1r/s;");
    let sendry = ("sendry.yaml", "rate_limit: { enabled: true }");
    let apart = "import the files of one program at a time, each into a configuration of its own";
    assert_eq!(
        refusal(&[nginx, sendry]),
        format!("sendry.yaml:1:1: this belongs to Sendry, and site.conf:1:1 to nginx: {apart}")
    );
    let both =
        ("both.yaml", "rate_limit: { enabled: true }\ngateway: { ratelimit: { fallback-enabled: true } }");
    assert_eq!(
        refusal(&[both]),
        format!("both.yaml:2:1: this belongs to the API gateway, and both.yaml:1:1 to Sendry: {apart}")
    );
    let documents = ("two.yaml", "domain: d\ndescriptors: []\n---\n- { max_value: 1 }\n");
    assert_eq!(
        refusal(&[documents]),
        format!("two.yaml:4:3: this belongs to limitador, and two.yaml:1:1 to Envoy's ratelimit: {apart}")
    );
}

#[test]
fn a_file_of_no_known_program_is_refused_with_those_that_are_known() {
    for text in ["", "# nothing\n", "a: 1\n", "[]", "just words", "- 1\n- 2\n", "null"] {
        let error = refusal(&[("a.yaml", text)]);
        assert!(
            error.starts_with("a.yaml: this is not a file of a known program. Known are: Sendry ("),
            "{error}"
        );
    }
    let ours = refusal(&[("t.yaml", "rules: { a: { limits: 1/s } }\ngateway: { ratelimit: {} }")]);
    assert_eq!(
        ours,
        "t.yaml: this is a configuration of tollgate already: check it with `tollgate check-config`"
    );
}

#[test]
fn answers_to_questions_that_were_not_asked_are_refused() {
    let inputs = [Input { name: "a.yml", text: "rate-limit: { tiers: { api: { rate: 1, burst: 1 } } }" }];
    let answers = Answers::default().by("ap=user").unwrap();
    assert_eq!(import(&inputs, &answers).unwrap_err().to_string(), "`--by ap=…`: it answers for `api`");
    let answers = Answers::default().limit("route=1/s").unwrap();
    assert_eq!(
        import(&inputs, &answers).unwrap_err().to_string(),
        "`--limit route=…`: these files need no such answer"
    );
    for (bad, message) in [
        ("api", "write a name and its answer, as in `api-write=user`"),
        ("api=a b", "`a b` cannot name a field: use up to 64 of `A-Z a-z 0-9 _ . -`"),
        ("a=b,c,d,e,f", "at most 4 fields make a key"),
    ] {
        assert_eq!(Answers::default().by(bad).unwrap_err().to_string(), message);
    }
    assert!(Answers::default().limit("a=0").unwrap_err().to_string().contains("no limit at all"));
}

#[test]
fn hostile_files_are_refused_in_little_time_and_memory() {
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (this, last) in ('b'..='i').zip('a'..) {
        writeln!(laughs, "{this}: &{this} [{}]", vec![format!("*{last}"); 10].join(", ")).unwrap();
    }
    laughs.push_str("rate_limit: *i\n");
    let error = refusal(&[("a.yaml", &laughs)]);
    assert!(
        error.contains("the aliases expand to too much text") || error.contains("aliases, or anchors"),
        "{error}"
    );
    let deep = format!("rate_limit: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(refusal(&[("a.yaml", &deep)]).contains("nested more than 32 levels deep"));
    let deep = format!("{}{}", "server { ".repeat(10_000), "}".repeat(10_000));
    assert_eq!(
        refusal(&[("a.conf", &deep)]),
        "a.conf:1:296: not valid nginx: blocks are nested more than 32 levels deep: no nginx needs that"
    );
    let json = format!("{}1{}", r#"{"a":"#.repeat(50_000), "}".repeat(50_000));
    assert_eq!(refusal(&[("a.json", &json)]), "a.json:1:636: not valid JSON: recursion limit exceeded");
    let many = "[{ max_value: 1, seconds: 1, namespace: a, conditions: [x], variables: [] }]";
    let many =
        many.replace("}]", &format!("}}{}]", ", { max_value: 1, seconds: 1, namespace: a }".repeat(17)));
    assert_eq!(
        refusal(&[("a.yaml", &many)]).lines().count(),
        2,
        "two policies would have more than 16 rules"
    );
    let wrong = "- { max_value: x, seconds: 1 }\n".repeat(500);
    assert!(refusal(&[("a.yaml", &wrong)]).ends_with("and 950 more"));
}

#[test]
fn foreign_text_in_an_error_stays_on_its_line() {
    let text =
        "domains:\n  \"a\\nb.yaml:9:9: nothing is wrong\\e[2J\": { rate_limit: { messages_per_hour: 1 } }\n";
    let error = refusal(&[("a.yaml", text)]);
    assert_eq!(
        error,
        "a.yaml:2:3: `a\u{fffd}b.yaml:9:9: nothing is wrong\u{fffd}[2J` cannot be a value of domain"
    );
}

#[test]
fn foreign_text_cannot_leave_its_comment_or_its_quotes() {
    let name = "x\\nrules: {}\\u2028\\u202e\\\"";
    let limitador = format!(
        "- {{ namespace: \"{name}\", max_value: 1, seconds: 1, conditions: [\"{name}\"], variables: [\"{name}\"] }}\n"
    );
    let sendry =
        "domains: { 'a.example': { rate_limit: { messages_per_hour: 1 }, \"x\\ny\": 1 } }".to_owned();
    for text in [limitador, sendry] {
        let imported =
            import(&[Input { name: "a\nb\u{1b}[31m.yaml", text: &text }], &Answers::default()).unwrap();
        let config = &imported.config;
        assert!(!config.contains(['\u{1b}', '\u{2028}', '\u{202e}']), "{config}");
        assert!(
            config.lines().all(|line| !line.starts_with("rules: {}") && !line.starts_with('b')),
            "{config}"
        );
        tollgate::config::load_str(config, tollgate::config::Format::Yaml, "t.yaml", std::iter::empty())
            .unwrap_or_else(|error| panic!("{error}\n{config}"));
    }
}

/// A piece of a foreign file.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "rate_limit:",
        "domains:",
        "global:",
        "messages_per_hour:",
        "rate-limit:",
        "tiers:",
        "rate:",
        "burst:",
        "gateway:",
        "ratelimit:",
        "[resources]",
        "max_connections = ",
        "limit_req_zone",
        "$binary_remote_addr",
        "zone=a:1m",
        "rate=1r/s;",
        "server {",
        "}",
        "limit_req zone=a;",
        "domain:",
        "descriptors:",
        "- key:",
        "rate_limit:",
        "unit:",
        "max_value:",
        "- namespace:",
        "\"id\":",
        "{",
        "[",
        "]",
        ",",
        ":",
        "&a",
        "*a",
        "---",
        "'",
        "\"",
        "#",
        "0",
        "1.5",
        "-1",
        "null",
        "é",
        "\u{0}",
    ];
    prop_oneof![
        4 => prop::sample::select(words.to_vec()).prop_map(ToOwned::to_owned),
        1 => "[ -~]{0,8}",
    ]
}

proptest! {
    /// Whatever the text, there is an answer; and if it is a configuration, tollgate accepts it.
    #[test]
    fn any_text_is_refused_or_becomes_a_valid_configuration(
        pieces in prop::collection::vec((piece(), prop::sample::select(vec![" ", "\n", "\n  ", "\n    "])), 0..30),
        ending in prop::sample::select(vec!["yaml", "json", "toml", "conf", "env", "txt"]),
    ) {
        let text: String = pieces.iter().flat_map(|(piece, space)| [piece.as_str(), space]).collect();
        let name = format!("a.{ending}");
        if let Ok(imported) = import(&[Input { name: &name, text: &text }], &Answers::default()) {
            let secrets = imported.variables.iter().map(|name| (name.clone(), "a-long-enough-secret".to_owned()));
            let loaded = tollgate::config::load_str(&imported.config, tollgate::config::Format::Yaml, "t.yaml", secrets);
            prop_assert!(loaded.is_ok(), "{text}\n{}\n{}", imported.config, loaded.unwrap_err());
        }
    }
}
