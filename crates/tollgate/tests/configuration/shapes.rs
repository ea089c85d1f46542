//! Files of a wrong or foreign structure, through the real program: the error names the position and the
//! remedy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};

fn check_config(directory: &Path, file: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["check-config", file])
        .current_dir(directory)
        .env_clear()
        .output()
        .expect("the program starts")
}

/// Checks the standard error of `check-config` for each text.
fn refused(name: &str, table: &[(&str, &str)]) {
    let directory = tempfile::tempdir().unwrap();
    for (text, expected) in table {
        std::fs::write(directory.path().join(name), text).unwrap();
        let output = check_config(directory.path(), name);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}\n{said}");
        assert!(said.contains(expected), "for\n{text}\nexpected\n{expected}\nin\n{said}");
    }
}

#[test]
fn wrong_indentation_is_named() {
    refused(
        "t.yaml",
        &[
            (
                "rules:\n  a:\n    limits: 5/s\n   by: ip\n",
                "t.yaml:4:4: not valid YAML: the line is indented by 3 spaces, and those above it by 0, 2, 4: indent it like the ones that it belongs to",
            ),
            (
                "rules:\n  a:\n    limits: 5/s\n policies:\n  p: [a]\n",
                "4:2: not valid YAML: the line is indented by 1 space, and",
            ),
            ("rules:\n\ta: { limits: 5/s }\n", "t.yaml:2:2: not valid YAML: a tab: indent with spaces"),
            (
                "rules:\n  a:\n  limits: 5/s\n",
                "t.yaml:2:4: rules.a: expected a mapping, as in `{ by: ip, limits: [10/s burst 50] }`, found nothing; are its settings the lines below, to be indented further?",
            ),
            ("store:\nfile: x\n", "; is it to be indented below `store`?"),
            (
                "rules:\n  a:\n    limits: 5/s\n    overrides:\n    x: 6/s\n",
                "; is it to be indented below `overrides`?",
            ),
            (
                "rules:\n  a: { limits: 5/s }\n  policies:\n    p: [a]\n",
                "; is it the section `policies`, to be indented less?",
            ),
            (
                "store:\nmemory\nrules: {}\n",
                "t.yaml:2:1: not valid YAML: there is no `:` here: write `key: value`, or indent the line below its key",
            ),
        ],
    );
}

#[test]
fn a_field_that_the_gateway_does_not_know_is_refused_with_the_one_that_is_meant() {
    let gateway = |rest: &str| format!("gateway:\n  listen: 127.0.0.1:0\n{rest}");
    let upstreams = gateway("  upstreams: { u: { servers: [http://127.0.0.1:1] } }\n  routes: {}\n");
    let bounds = gateway("  upstreams: {}\n  routes: {}\n  head_timeout: 5s\n");
    let proxies = gateway("  upstreams: {}\n  routes: {}\n  trusted_proxies: [10.0.0.0/8]\n");
    let policy = gateway("  upstreams: {}\n  routes: { r: { upstream: u, rate_limit: p, prefix: / } }\n");
    let certificate = "gateway:\n  listen: { address: 127.0.0.1:0, tls: { cert: c.pem } }\n";
    let list = gateway("  upstreams: {}\n  routes:\n    - path: /\n      upstream: u\n");
    refused(
        "t.yaml",
        &[
            (&upstreams, "gateway.upstreams.u.servers: unknown key `servers`; did you mean `addresses`?"),
            (&bounds, "gateway.head_timeout: unknown key `head_timeout`; it belongs below `bounds`"),
            (&proxies, "gateway.trusted_proxies: unknown key `trusted_proxies`; it belongs below `clients`"),
            (&policy, "gateway.routes.r.rate_limit: unknown key `rate_limit`; did you mean `policy`?"),
            (certificate, "gateway.listen.tls.cert: unknown key `cert`; did you mean `certificate`?\n"),
            (&policy, "gateway.routes.r.prefix: unknown key `prefix`; did you mean `path`?"),
            (
                &list,
                "t.yaml:5:5: gateway.routes: expected a mapping with a name for each entry, found a list",
            ),
        ],
    );
}

#[test]
fn yaml_has_mappings_and_toml_has_tables() {
    refused("t.yaml", &[("rules: { a: 5/s }\n", "rules.a: expected a mapping, as in `{ by: ip,")]);
    refused("t.toml", &[("rules = { a = '5/s' }\n", "rules.a: expected a table, as in `{ by: ip,")]);
    refused("t.yaml", &[("rules: { a: { by: { x: 1 }, limits: 5/s } }\n", "found a mapping")]);
    refused("t.yaml", &[("rules: { a: 'a table' }\n", "found `a table`")]);
}

#[test]
fn limits_of_other_programs_are_refused_with_the_same_limit_in_ours() {
    let rule = |limits: &str| format!("rules: {{ a: {{ limits: {limits} }} }}\n");
    let table = [
        ("1k/hour", "rules.a.limits: write `1000/hour`"),
        ("10M/day", "rules.a.limits: write `10000000/day`"),
        ("10r/s burst=20", "rules.a.limits: write `10/s burst 1` and, in its rule, `on_exceed: wait 2s`"),
        ("100rpm", "write `100/min`"),
        ("10 rps", "write `10/s`"),
        ("5 concurrent", "write `5 at once`"),
        ("10 per 1 hour", "write `10/hour`"),
        ("100/m", "write `100/min`"),
        ("0.5/s", "write `1/2s`"),
        ("'1,000/hour'", "write `1000/hour`"),
        ("10/s burst=50", "write `10/s burst 50`"),
        ("10/s; 100/min", "these are 2 limits: write each as an entry of its own, `10/s` and `100/min`"),
        ("{ minute: 100 }", "rules.a.limits: write `100/min`"),
        ("[{ minute: 100 }]", "rules.a.limits[0]: write `100/min`"),
        (
            "{ second: 5, hour: 10000 }",
            "these are 2 limits: write each as an entry of its own, `5/s` and `10000/hour`",
        ),
        ("'minute: 100'", "write `100/min`"),
    ];
    for (limits, expected) in table {
        refused("t.yaml", &[(&rule(limits), expected)]);
    }
}

#[test]
fn a_second_document_and_too_many_aliases_are_named() {
    let aliases = format!("x: &x 1\ny: [{}]\n", vec!["*x"; 1_001].join(", "));
    refused(
        "t.yaml",
        &[
            (
                "rules: {}\n---\nrules: {}\n",
                "there is a second document behind `---`: a configuration is one document",
            ),
            (
                &aliases,
                "there are more than 1000 aliases, or anchors that are used too often: write them out",
            ),
        ],
    );
}

#[test]
fn a_file_with_a_hundred_thousand_overrides_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut text =
        "store: memory\nrules:\n  sender:\n    by: sender\n    limits: 100/hour\n    overrides:\n".to_owned();
    for index in 0..100_000 {
        text.push_str(&format!("      user{index}@customer.example: [5000/hour, 50000/day]\n"));
    }
    std::fs::write(directory.path().join("t.yaml"), &text).unwrap();
    let output = check_config(directory.path(), "t.yaml");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(0), "".into()));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.matches("@customer.example instead:").count(), 100_000);
}
