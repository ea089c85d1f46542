//! Warnings of a valid configuration: labelled, logged by `serve`, and failures with `--strict`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::program::{Home, text};
use serde_json::Value;

const DOUBTFUL: &str = "
store: memory
log: { format: json }
clients: { trusted_proxies: [0.0.0.0/1, 128.0.0.0/1, '::/0'] }
blocklist: [{ target: 0.0.0.0/0, until: 2020-01-01T00:00:00Z }, user=eve]
rules:
  a: { by: user, limits: 0, overrides: { bob: null } }
  b: { by: user, limits: [0/hour, 5/s] }
  c: { by: user, limits: unlimited }
policies: { p: [a, b, c] }
";

const EXPECTED: [(&str, &str); 6] = [
    (
        "clients.trusted_proxies: these networks are every IPv4 address, so any client can choose the address that it is counted by",
        "name only the networks of your proxies, as in `10.0.0.0/8`",
    ),
    (
        "clients.trusted_proxies: these networks are every IPv6 address, so any client can choose the address that it is counted by",
        "name only the networks of your proxies, as in `10.0.0.0/8`",
    ),
    (
        "blocklist: these networks are every IPv4 address, so every attempt that brings one is blocked",
        "name the networks that you mean",
    ),
    (
        "rules.a.limits: 0 and null mean that nothing is limited, not that nothing passes",
        "write `unlimited`; to block a key, put it on the `blocklist`",
    ),
    (
        "rules.a.overrides.bob: 0 and null mean that nothing is limited, not that nothing passes",
        "write `unlimited`; to block a key, put it on the `blocklist`",
    ),
    (
        "rules.b.limits[0]: 0 and null mean that nothing is limited, not that nothing passes",
        "write `unlimited`; to block a key, put it on the `blocklist`",
    ),
];

#[test]
fn check_config_labels_its_warnings_and_fails_on_them_if_it_is_strict() {
    let home = Home::with(DOUBTFUL);
    let lenient = home.program().args(["check-config"]).output().unwrap();
    assert_eq!((lenient.status.code(), text(&lenient.stderr)), (Some(0), ""));
    let said = text(&lenient.stdout);
    for (warning, remedy) in EXPECTED {
        let line = said
            .lines()
            .position(|line| line.starts_with("warning: tollgate.yaml:") && line.ends_with(warning));
        let line = line.unwrap_or_else(|| panic!("{warning} is missing in {said}"));
        assert_eq!(said.lines().nth(line + 1), Some(&*format!("  remedy: {remedy}")));
    }
    assert_eq!(said.matches("\nwarning: ").count(), EXPECTED.len(), "{said}");
    let strict = home.program().args(["check-config", "--strict"]).output().unwrap();
    assert_eq!(strict.status.code(), Some(2));
    assert_eq!(text(&strict.stderr), "error: there are 6 warnings, and --strict allows none\n");
    assert_eq!(text(&strict.stdout), said);
    let fine = Home::with("store: memory\nrules: { a: { limits: unlimited } }\npolicies: { p: [a] }\n");
    let strict = fine.program().args(["check-config", "--strict"]).output().unwrap();
    assert_eq!((strict.status.code(), text(&strict.stderr)), (Some(0), ""));
}

#[test]
fn a_server_logs_the_warnings_at_its_start_and_when_it_reloads() {
    let home = Home::with(DOUBTFUL);
    let server = home.start();
    let warnings = |log: &str| -> Vec<Value> {
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")));
        lines.filter(|line: &Value| line["msg"] == "the configuration may not do what you mean").collect()
    };
    let told = warnings(&server.log());
    assert_eq!(told.len(), EXPECTED.len(), "{}", server.log());
    for (line, (warning, remedy)) in told.iter().zip(EXPECTED) {
        assert_eq!((line["level"].as_str(), line["component"].as_str()), (Some("warn"), Some("config")));
        assert!(
            EXPECTED.iter().any(|(warning, _)| line["warning"].as_str().unwrap().ends_with(warning)),
            "{line}"
        );
        assert!(told.iter().any(|line| line["warning"].as_str().unwrap().ends_with(warning)), "{warning}");
        assert!(told.iter().any(|line| line["remedy"] == remedy), "{remedy}");
    }
    home.configure(&DOUBTFUL.replace("limits: unlimited", "limits: 0"));
    server.wait_for_log("rules.c.limits: 0 and null mean");
    server.stop();
}

/// The warnings of a configuration, and that it fails if it is strict.
fn warnings_of(config: &str) -> Vec<(String, String)> {
    let home = Home::with(config).variable("SECRET", "a-secret-that-is-long-enough-to-verify-tokens");
    let strict = home.program().args(["check-config", "--strict", "--json"]).output().unwrap();
    assert_eq!(strict.status.code(), Some(2), "{config}{}", text(&strict.stderr));
    let said: Value = serde_json::from_slice(&strict.stdout).unwrap();
    let texts = |warning: &Value| {
        let text = |name: &str| warning[name].as_str().unwrap().to_owned();
        (text("message"), text("remedy"))
    };
    said["warnings"].as_array().unwrap_or_else(|| panic!("{said}")).iter().map(texts).collect()
}

#[test]
fn each_trap_has_its_warning_and_its_remedy() {
    let claims = "
store: memory
clients: { trusted_proxies: [10.0.0.0/8], tokens: { secret_env: SECRET }, fields: { team: claim.groups } }
rules: { ip: { by: ip, limits: 10/s }, team: { by: team, limits: 10/s }, org: { by: claim.org.id, limits: 10/s } }
policies: { api: [ip, team, org] }
";
    for (config, message, remedy) in [
        (
            "store: memory\nrules: { used: { limits: 1/s }, other: { by: ip, limits: 2/s }, off: { limits: 1/s, enabled: false } }\npolicies: { api: [used] }\n",
            "the rule other is in no policy, so it limits nothing",
            "add `other` to a list below `policies`, or remove the rule",
        ),
        (
            "store: memory\nrules: { client: { by: ip, limits: 1/s } }\n",
            "there are no policies, so nothing is limited, and every check is answered with 400",
            "add one, as in `policies: { api: [client] }`, or create it with `tollgate policies`",
        ),
        (
            "store: memory\nrules: { client: { by: ip, limits: [10/hour, 1000/min] } }\npolicies: { api: [client] }\n",
            "tollgate.yaml:2:36: rules.client.limits: `1000/min` never denies anything, because `10/hour` allows less",
            "remove `1000/min`, or correct one of the two numbers or periods",
        ),
        (
            claims,
            "the rule team counts by the claim `groups`, which is a list or a table in the tokens of most issuers: the rule does not apply then",
            "count by a claim that is a text or a number, as in `subject` or `claim.org_id`; `claim.org.id` is the member `id` of the claim `org`",
        ),
    ] {
        assert_eq!(warnings_of(config), [(message.to_owned(), remedy.to_owned())], "{config}");
    }
}

#[test]
fn limits_without_brackets_are_told_to_have_them() {
    for (limits, message) in [
        (
            "{ by: ip, limits: 10/min, 100/hour, 1000/day }",
            "several limits need brackets: write `limits: [10/min, 100/hour, 1000/day]`",
        ),
        (
            "\n    by: ip\n    limits: 10/min, 100/hour",
            "these are 2 limits: write each as an entry of its own, `10/min` and `100/hour`",
        ),
    ] {
        let home = Home::with(&format!("rules:\n  client: {limits}\npolicies: {{ api: [client] }}\n"));
        let output = home.program().args(["check-config"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
}

/// The warnings of `check-config`.
fn warned(home: &Home) -> Vec<String> {
    let output = home.program().args(["check-config"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    text(&output.stdout).lines().filter(|line| line.starts_with("warning: ")).map(str::to_owned).collect()
}

#[test]
fn an_api_that_leaves_loopback_without_tls_is_a_warning_unless_that_is_settled() {
    let with = |listen: &str| {
        let key = "{ name: ops, role: admin, token_env: TOLLGATE_ADMIN_TOKEN }";
        let home = Home::with(&format!(
            "listen: {{ {listen} }}\nkeys: [{key}]\nrules: {{ a: {{ limits: 5/s }} }}\npolicies: {{ p: [a] }}\n"
        ));
        // The address of the file counts, not the one that tests listen on.
        let home = home.variable("TOLLGATE_ADMIN_TOKEN", "0123456789abcdef0123");
        let output =
            home.program().env_remove("TOLLGATE__LISTEN__HTTP").args(["check-config"]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        text(&output.stdout).matches("access keys travel unencrypted").count()
    };
    for (listen, warnings) in [
        ("http: 0.0.0.0:8080", 1),
        ("http: '[::]:8080'", 1),
        ("http: 10.0.0.1:8080, unencrypted: false", 1),
        ("http: 0.0.0.0:8080, unencrypted: true", 0),
        ("http: 127.0.0.1:8080", 0),
        ("http: '[::ffff:127.0.0.1]:8080'", 0),
    ] {
        assert_eq!(with(listen), warnings, "{listen}");
    }
}

#[test]
fn a_file_with_a_secret_that_every_user_can_read_is_a_warning() {
    let open = tempfile::Builder::new().prefix("open").tempdir_in("/tmp").unwrap();
    let rights =
        |path: &Path, mode: u32| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    rights(open.path(), 0o755);
    let token = open.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123").unwrap();
    let home = Home::with(&format!(
        "keys: [{{ name: ops, role: admin, token_file: {} }}]\nrules: {{ a: {{ limits: 5/s }} }}\npolicies: {{ p: [a] }}\n",
        token.display()
    ));
    let expected = "keys[0].token_file: every user of this machine can read";
    for (directory, file, is_open) in
        [(0o755, 0o644, true), (0o755, 0o604, true), (0o755, 0o640, false), (0o750, 0o644, false)]
    {
        rights(&token, file);
        rights(open.path(), directory);
        let found = warned(&home).iter().filter(|line| line.contains(expected)).count();
        assert_eq!(found, usize::from(is_open), "{directory:o} {file:o}: {:?}", warned(&home));
    }
    rights(&token, 0o644);
    rights(open.path(), 0o755);
    let link = home.path("link");
    std::os::unix::fs::symlink(&token, &link).unwrap();
    home.configure("keys: [{ name: ops, role: admin, token_file: ./link }]\nrules: { a: { limits: 5/s } }\npolicies: { p: [a] }\n");
    assert!(warned(&home).iter().any(|line| line.contains(expected)), "a link hides nothing");
}
