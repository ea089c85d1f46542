//! Environment variables that override a configuration.

use tollgate::config::{self, Config, ConfigError, Format, StoreConfig};

const FILE: &str = "\
listen: { http: 127.0.0.1:1 }
keys:
  - { name: ops, role: read, token_sha256: 3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b }
rules:
  sender: { by: sender, limits: [100/hour], overrides: { A@B.example: 7/hour } }
  all: { limits: [1000/hour] }
policies:
  mail: [sender]
";

fn load(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config::load_str(FILE, Format::Yaml, "test.yaml", environment)
}

fn refusal(variables: &[(&str, &str)]) -> String {
    load(variables).expect_err("this must be refused").to_string()
}

#[test]
fn a_variable_replaces_what_the_file_says() {
    let config =
        load(&[("TOLLGATE__LISTEN__HTTP", "0.0.0.0:9090"), ("TOLLGATE__RULES__SENDER__LIMITS", "[5/hour]")]);
    let config = config.unwrap();
    assert_eq!(config.listen.http.to_string(), "0.0.0.0:9090");
    assert_eq!(config.policies.rule("sender").unwrap().plan.to_string(), "5/hour");
    assert_eq!(config.policies.rule("all").unwrap().plan.to_string(), "1000/hour");
}

#[test]
fn a_variable_adds_what_the_file_leaves_out() {
    let config = load(&[("TOLLGATE__STORE", "memory"), ("TOLLGATE__LOG__LEVEL", "trace")]).unwrap();
    assert_eq!(config.store, StoreConfig::Memory { max_keys: 1_000_000 });
    assert_eq!(config.log.level, config::Level::Trace);
}

#[test]
fn a_section_comes_before_what_is_inside_of_it() {
    let config = load(&[("TOLLGATE__STORE__MEMORY__MAX_KEYS", "9"), ("TOLLGATE__STORE", "{ memory: {} }")]);
    assert_eq!(config.unwrap().store, StoreConfig::Memory { max_keys: 9 });
}

#[test]
fn names_match_whatever_their_case() {
    let config = load(&[("TOLLGATE__rules__Sender__OVERRIDES__a@b.EXAMPLE", "9/hour")]).unwrap();
    assert_eq!(config.policies.rule("sender").unwrap().plan_at("a@b.example").to_string(), "9/hour");
}

#[test]
fn elements_of_a_list_are_numbered() {
    let config = load(&[("TOLLGATE__KEYS__0__ROLE", "admin")]).unwrap();
    assert_eq!(config.keys[0].role, config::Role::Admin);
}

#[test]
fn a_whole_rule_can_be_added() {
    let config =
        load(&[("TOLLGATE__RULES__EXTRA", "{ limits: 1/s }"), ("TOLLGATE__POLICIES__MAIL", "[extra]")])
            .unwrap();
    assert_eq!(&*config.policies.find("mail").unwrap().rules[0].name, "extra");
}

#[test]
fn other_variables_are_left_alone() {
    assert!(load(&[("TOLLGATE_CONFIG", "{"), ("TOLLGATE", "["), ("PATH", "/bin")]).is_ok());
}

#[test]
fn a_variable_that_lacks_an_underscore_is_warned_of() {
    let env_typos = |variables: &[(&str, &str)]| -> Vec<(String, String)> {
        let env_typos = load(variables).unwrap().env_typos.into_iter();
        env_typos.map(|stray| (stray.name, stray.meant)).collect()
    };
    let found = env_typos(&[
        ("TOLLGATE_STORE", "memory"),
        ("TOLLGATE_LISTEN_HTTP", "0.0.0.0:80"),
        ("TOLLGATE_RULES_SENDER_LIMITS", "1/s"),
        ("TOLLGATE_STORE_FLUSH_INTERVAL", "1s"),
        ("TOLLGATE_LISTEN__HTTP", "0.0.0.0:80"),
    ]);
    let found: Vec<(&str, &str)> =
        found.iter().map(|(name, meant)| (name.as_str(), meant.as_str())).collect();
    assert_eq!(
        found,
        [
            ("TOLLGATE_LISTEN_HTTP", "TOLLGATE__LISTEN__HTTP"),
            ("TOLLGATE_LISTEN__HTTP", "TOLLGATE__LISTEN__HTTP"),
            ("TOLLGATE_RULES_SENDER_LIMITS", "TOLLGATE__RULES__SENDER__LIMITS"),
            ("TOLLGATE_STORE", "TOLLGATE__STORE"),
            ("TOLLGATE_STORE_FLUSH_INTERVAL", "TOLLGATE__STORE__FLUSH_INTERVAL"),
        ]
    );
    for section in config::schema()["properties"].as_object().unwrap().keys() {
        let name = format!("TOLLGATE_{}", section.to_uppercase());
        assert_eq!(env_typos(&[(&name, "x")]).len(), 1, "{name}");
    }
    let other = [
        ("TOLLGATE_CONFIG", "x"),
        ("TOLLGATE_SERVER", "x"),
        ("TOLLGATE_TOKEN", "x"),
        ("TOLLGATE_ADMIN_TOKEN", "x"),
        ("TOLLGATE_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("TOLLGATE_GATEWAY_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("TOLLGATE_STORED", "x"),
        ("TOLLGATE__STORE", "memory"),
    ];
    assert_eq!(env_typos(&other), []);
    let named = [
        ("TOLLGATE_KEYS_OPS", "0123456789abcdef"),
        ("TOLLGATE__KEYS__0", "{ name: ops, role: admin, token_env: TOLLGATE_KEYS_OPS }"),
    ];
    assert_eq!(env_typos(&named), [], "the configuration names it");
}

#[test]
fn the_starter_can_be_changed_by_variables() {
    let variables = [("TOLLGATE__RULES__CLIENT__LIMITS".to_owned(), "1/s burst 2".to_owned())];
    let config = config::load(None, variables.into_iter()).unwrap();
    assert_eq!(config.policies.rule("client").unwrap().plan.to_string(), "1/s burst 2");
}

#[test]
fn a_mistake_in_an_environment_variable_names_the_variable() {
    let table: [(&[(&str, &str)], &str); 11] = [
        (
            &[("TOLLGATE__LISTN__HTTP", "127.0.0.1:1")],
            "environment variable TOLLGATE__LISTN__HTTP: listn: unknown key `listn`; did you mean `listen`?",
        ),
        (
            &[("TOLLGATE__LISTEN__PORT", "1")],
            "environment variable TOLLGATE__LISTEN__PORT: listen.port: unknown key `port`; the keys here are `http`, `unencrypted`, `postfix`",
        ),
        (
            &[("TOLLGATE__RULES__SENDR__LIMITS", "5/hour")],
            "environment variable TOLLGATE__RULES__SENDR__LIMITS: rules: there is no rule `sendr` to change; did you mean `sender`?",
        ),
        (
            &[("TOLLGATE__RULES__SENDER__LIMITS", "[5/hour, 5/fortnight]")],
            "environment variable TOLLGATE__RULES__SENDER__LIMITS: rules.sender.limits[1]: a period is `s`, `min`, `hour`, `day`, `week`, `month` or a duration such as `15m`
    5/fortnight
      ^",
        ),
        (
            &[("TOLLGATE__STORE", "{ file")],
            "environment variable TOLLGATE__STORE: not valid YAML: unclosed bracket '{'",
        ),
        (
            &[("TOLLGATE__ENABLED__NOW", "true"), ("TOLLGATE__ENABLED", "true")],
            "environment variable TOLLGATE__ENABLED__NOW: enabled: this is true or false: there is nothing below it",
        ),
        (
            &[("TOLLGATE__KEYS__1__ROLE", "admin")],
            "environment variable TOLLGATE__KEYS__1__ROLE: keys: this list has 1 elements, numbered from 0: there is no `1`",
        ),
        (
            &[("TOLLGATE__RULES____LIMITS", "5/s")],
            "environment variable TOLLGATE__RULES____LIMITS: rules: a name is missing between the underscores",
        ),
        (
            &[("TOLLGATE__STORE", "memory"), ("TOLLGATE__store", "memory")],
            "environment variable TOLLGATE__store: this is the same setting as TOLLGATE__STORE: keep one of them",
        ),
        (
            &[("TOLLGATE__KEYS", "[]"), ("TOLLGATE__LISTEN__HTTP", "'[::]:80'")],
            "environment variable TOLLGATE__LISTEN__HTTP: listen.http: `[::]:80` can be reached from other machines, and there are no access keys: add one under `keys`, as in `{ name: ops, role: admin, token_env: TOLLGATE_ADMIN_TOKEN }`, or listen on `127.0.0.1:80`",
        ),
        (
            &[("TOLLGATE__LOG__LEVEL", "loud"), ("TOLLGATE__LOG__FORMAT", "3")],
            "environment variable TOLLGATE__LOG__FORMAT: log.format: expected one of `pretty`, `json`, found a number
environment variable TOLLGATE__LOG__LEVEL: log.level: `loud` is none of `error`, `warn`, `info`, `debug`, `trace`",
        ),
    ];
    for (variables, expected) in table {
        assert_eq!(refusal(variables), expected);
    }
}
