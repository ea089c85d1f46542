//! A store in Redis or Valkey, from its written form to its meaning: in a file and in the environment, and
//! every error.

use std::path::Path;
use std::time::Duration;

use tollgate::config::valkey::Effect;
use tollgate::config::{self, Config, ConfigError, Format, StoreConfig};
use tollgate_redis::{Address, Password, Settings, Tls, Topology};

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config::load_str(text, Format::Yaml, "t.yaml", environment)
}

fn settings_of(config: Config) -> Settings {
    match config.store {
        StoreConfig::Redis(settings) => *settings,
        other => panic!("not in Redis: {other:?}"),
    }
}

fn settings(text: &str) -> Settings {
    settings_of(load(text, &[("PASS", "hunter2"), ("EMPTY", "")]).unwrap_or_else(|error| panic!("{error}")))
}

fn refusal(text: &str) -> String {
    load(text, &[("PASS", "hunter2"), ("EMPTY", "")]).expect_err("this must be refused").to_string()
}

fn at(host: &str, port: u16) -> Topology {
    Topology::Single(Address::Tcp { host: host.to_owned(), port })
}

#[test]
fn an_address_alone_leaves_the_rest_to_the_defaults() {
    for text in ["store: redis://localhost:6380/2", "store: { redis: redis://localhost:6380/2 }"] {
        let settings = settings(text);
        assert_eq!((&settings.topology, settings.database), (&at("localhost", 6380), 2));
        assert_eq!((settings.prefix.as_str(), settings.connections), ("tollgate", 2));
        assert_eq!(settings.command_timeout, Duration::from_millis(50));
        assert_eq!(settings.connect_timeout, Duration::from_secs(1));
        assert_eq!(settings.health_check_interval, Duration::from_secs(10));
        assert!(settings.tags.is_empty() && settings.tls.is_none() && settings.password.is_none());
    }
}

#[test]
fn every_setting_can_be_written() {
    let text = "
store:
  redis: rediss://cache.example:6380
  key_prefix: 'mail:'
  command_timeout: 20ms
  connect_timeout: 2s
  connections: 8
  health_check_interval: 5s
  user: limiter
  password_env: PASS
  tls_insecure: true
";
    let settings = settings(text);
    assert_eq!(settings.prefix, "mail");
    assert_eq!(settings.command_timeout, Duration::from_millis(20));
    assert_eq!(settings.connect_timeout, Duration::from_secs(2));
    assert_eq!((settings.connections, settings.health_check_interval), (8, Duration::from_secs(5)));
    assert_eq!(settings.user.as_deref(), Some("limiter"));
    assert_eq!(settings.password, Some(Password("hunter2".to_owned())));
    assert_eq!(settings.tls, Some(Tls { authorities: None, unverified: true, identity: None }));
}

#[test]
fn a_password_and_an_authority_can_be_files() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let password = write("password", "pass word \n");
    let authority = write("ca.pem", "-----BEGIN CERTIFICATE-----\n");
    let settings = settings(&format!(
        "store: {{ redis: 'valkeys://a', password_file: '{password}', tls_ca: '{authority}' }}"
    ));
    assert_eq!(settings.password.as_ref().map(|password| password.0.as_str()), Some("pass word "));
    assert_eq!(settings.tls.unwrap().authorities.as_deref(), Some(Path::new(&authority)));
    let empty = write("empty", "\n");
    let error =
        refusal(&format!("store: {{ redis: 'rediss://a', password_file: '{empty}', tls_ca: '{password}' }}"));
    assert!(error.contains("store.password_file: the file `") && error.contains("` is empty"), "{error}");
    assert!(error.contains("store.tls_ca: ") && error.contains("has no certificate in it"), "{error}");
    assert!(!error.contains("pass word"), "{error}");
}

#[test]
fn the_key_secret_can_be_configured_and_must_be_long_enough() {
    assert_eq!(settings("store: redis://a").key_secret, None);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let file = file.to_str().unwrap();
    let said = settings(&format!("store: {{ redis: 'redis://a', key_secret_file: '{file}' }}")).key_secret;
    assert_eq!(said, Some(Password("0123456789abcdef".to_owned())));
    check(&[
        (
            "store: { redis: redis://a, key_secret_env: PASS }",
            "t.yaml:1:44: store.key_secret_env: the secret has 7 characters: at least 16 are needed",
        ),
        (
            "store: { redis: redis://a, key_secret_env: NONE }",
            "t.yaml:1:44: store.key_secret_env: the environment variable `NONE` is not set",
        ),
        (
            "store: { redis: redis://a, key_secret_env: PASS, key_secret_file: f }",
            "t.yaml:1:50: store.key_secret_file: keep one of `key_secret_env` and `key_secret_file`",
        ),
        (
            "store: { file: f, key_secret_env: PASS }",
            "t.yaml:1:19: store.key_secret_env: this is a setting of stores in Redis: add `redis` with its address",
        ),
    ]);
}

fn check(table: &[(&str, &str)]) {
    for (text, expected) in table {
        let refusal = refusal(text);
        assert_eq!(refusal, *expected, "for:\n{text}");
        assert!(!refusal.contains("hunter2"));
    }
}

#[test]
fn a_wrong_address_or_login_is_explained_with_a_remedy() {
    check(&[
        (
            "store: reddis://:hunter2@h",
            "t.yaml:1:8: store: `reddis` is not a known scheme: write `redis`, `valkey` or `unix`, `rediss` or `valkeys` for TLS, and `+sentinel` or `+cluster` after it, as in `redis+cluster://…`",
        ),
        (
            "log: {}\nstore: { redis: 'redis://:hunter2@h:99999' }",
            "t.yaml:2:17: store.redis: the port `99999` is none: write a number from 1 to 65535, as in `redis://localhost:6379`",
        ),
        (
            "store: { redis: 'redis+sentinel://:hunter2@h' }",
            "t.yaml:1:17: store.redis: what do the Sentinels call the master? Write it at the end, as in `redis+sentinel://host:26379/main`",
        ),
        (
            "store: redis://hunter2@h",
            "t.yaml:1:8: store: there is a user without a password: add `password_env` or `password_file`, or write `user:password@` in the address; a password alone is `:password@`",
        ),
        (
            "store: { redis: redis://a, password_env: PASS, password_file: f }",
            "t.yaml:1:48: store.password_file: keep one of `password_env` and `password_file`",
        ),
        (
            "store: { redis: 'redis://u:hunter2@a', user: v, password_env: PASS }",
            "t.yaml:1:40: store.user: the address names a user already: keep one of them
t.yaml:1:49: store.password_env: the address has a password already: keep one of them",
        ),
        (
            "store: { redis: redis://a, password_env: NONE }",
            "t.yaml:1:42: store.password_env: the environment variable `NONE` is not set",
        ),
        (
            "store: { redis: redis://a, password_env: EMPTY }",
            "t.yaml:1:42: store.password_env: the environment variable `EMPTY` is empty",
        ),
    ]);
}

#[test]
fn a_wrong_setting_is_explained_with_a_remedy() {
    check(&[
        (
            "store: { redis: redis://a, tls_ca: f, tls_insecure: true }",
            "t.yaml:1:28: store.tls_ca: this is a setting of TLS: write `rediss://` in the address
t.yaml:1:39: store.tls_insecure: this is a setting of TLS: write `rediss://` in the address",
        ),
        (
            "store: { redis: rediss://a, tls_ca: f, tls_insecure: true }",
            "t.yaml:1:40: store.tls_insecure: keep one of `tls_ca` and `tls_insecure`: the latter checks no certificate",
        ),
        (
            "store: { redis: redis://a, key_prefix: '{a}', connections: 65, command_timeout: 61s }",
            "t.yaml:1:40: store.key_prefix: `{` cannot be part of a prefix: prefixes are made of `a-z A-Z 0-9 _ . : / -`
t.yaml:1:81: store.command_timeout: `1m1s` is too long: at most `1m` is allowed
t.yaml:1:60: store.connections: `65` connections are too few or too many: write a number from 1 to 64",
        ),
        (
            "store: { redis: redis://a, key_prefix: ':' }",
            "t.yaml:1:40: store.key_prefix: the prefix is empty: write one, as in `tollgate`, or leave it out",
        ),
        (
            "store: { redis: redis://a, sync: always, max_keys: 5 }",
            "t.yaml:1:28: store.sync: this is a setting of file stores: Redis saves by itself
t.yaml:1:42: store.max_keys: Redis keeps as many keys as it has memory for: set its `maxmemory`",
        ),
        (
            "store: { file: a, user: b }",
            "t.yaml:1:19: store.user: this is a setting of stores in Redis: add `redis` with its address",
        ),
        (
            "store: { memory: {}, key_prefix: b }",
            "t.yaml:1:22: store.key_prefix: this is a setting of stores in Redis: add `redis` with its address",
        ),
        ("store: { redis: redis://a, file: b }", "t.yaml:1:8: store: keep one of `memory`, `file`, `redis` and `postgres`"),
    ]);
}

#[test]
fn the_environment_names_the_store_where_nothing_else_does() {
    let valkey = [("VALKEY_URL", "valkey://:hunter2@v:6380"), ("VALKEY_KEY_PREFIX", "elemta:ratelimit:")];
    for text in ["", "store:", "log: {}"] {
        let settings = settings_of(load(text, &valkey).unwrap());
        assert_eq!((settings.topology, settings.prefix.as_str()), (at("v", 6380), "elemta:ratelimit"));
        assert_eq!(settings.password.as_ref().map(|password| password.0.as_str()), Some("hunter2"));
    }
    let starter = valkey.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = config::load(None, starter.into_iter()).unwrap();
    assert!(config.policies.find("api").is_ok());
    assert_eq!(settings_of(config).topology, at("v", 6380));
}

/// The effect of the `VALKEY_…` variables.
fn effects(config: &Config) -> Vec<(&'static str, Effect)> {
    config.valkey.iter().map(|variable| (variable.name, variable.effect)).collect()
}

#[test]
fn the_shared_variables_go_before_the_file() {
    let (url, prefix) = (("VALKEY_URL", "valkey://v"), ("VALKEY_KEY_PREFIX", "p"));
    for store in ["memory", "{ file: ./t.redb, sync: always }", "redis://r", "redis+cluster://r,s"] {
        let config = load(&format!("store: {store}"), &[url, prefix]).unwrap();
        assert_eq!(effects(&config)[0], ("VALKEY_URL", Effect::OverridesFile), "{store}");
        let settings = settings_of(config);
        assert_eq!((settings.topology, settings.prefix.as_str()), (at("v", 6379), "p"), "{store}");
    }
    let file = "store: { redis: 'redis://r', user: u, password_env: P, key_prefix: f, connections: 3 }";
    let login = ("VALKEY_URL", "valkey://:hunter2@v");
    let settings = settings_of(load(file, &[login, ("P", "secret")]).unwrap());
    let password = settings.password.as_ref().map(|password| password.0.as_str());
    assert_eq!((settings.user, password), (None, Some("hunter2")), "the address says who logs in");
    assert_eq!((settings.prefix.as_str(), settings.connections), ("f", 3), "the rest stays");
    let settings = settings_of(load(file, &[url, ("P", "secret")]).unwrap());
    assert_eq!((settings.topology, settings.user.as_deref()), (at("v", 6379), Some("u")));
    let config = load(file, &[prefix, ("P", "secret")]).unwrap();
    assert_eq!(effects(&config), [("VALKEY_KEY_PREFIX", Effect::OverridesFile)]);
    let settings = settings_of(config);
    assert_eq!((settings.topology, settings.prefix.as_str()), (at("r", 6379), "p"));
    let config = load("store: redis://r", &[prefix]).unwrap();
    assert_eq!(effects(&config), [("VALKEY_KEY_PREFIX", Effect::Used)]);
    assert_eq!(settings_of(config).prefix, "p");
    let below = ("TOLLGATE__STORE__KEY_PREFIX", "own");
    let settings = settings_of(load("store: memory", &[url, prefix, below]).unwrap());
    assert_eq!((settings.topology, settings.prefix.as_str()), (at("v", 6379), "own"), "it changes the store");
}

#[test]
fn variables_of_tollgate_take_precedence_over_the_shared_variables() {
    let (valkey, prefix) = (("VALKEY_URL", "valkey://v"), ("VALKEY_KEY_PREFIX", "p"));
    for own in [("TOLLGATE__STORE", "redis://t"), ("TOLLGATE__store__REDIS", "redis://t")] {
        let config = load("", &[valkey, prefix, own]).unwrap();
        let ignored = ["VALKEY_URL", "VALKEY_KEY_PREFIX"].map(|name| (name, Effect::Overridden));
        assert_eq!(effects(&config), ignored);
        let ignored = config.warnings().into_iter().filter(|warning| warning.message.contains("is ignored"));
        assert_eq!(ignored.count(), 2, "{:?}", config.warnings());
        let settings = settings_of(config);
        assert_eq!((settings.topology, settings.prefix.as_str()), (at("t", 6379), "tollgate"));
    }
    for url in [("VALKEY_URL", ""), ("VALKEY_KEY_PREFIX", "p")] {
        assert!(matches!(load("", &[url]).unwrap().store, StoreConfig::File { .. }));
    }
    assert_eq!(effects(&load("store: memory", &[prefix]).unwrap()), [(prefix.0, Effect::NotRedis)]);
    let starter = [("TOLLGATE__STORE", "memory"), valkey].map(|(n, v)| (n.to_owned(), v.to_owned()));
    let config = config::load(None, starter.into_iter()).unwrap();
    assert!(matches!(config.store, StoreConfig::Memory { .. }));
}

#[test]
fn a_mistake_in_a_shared_variable_names_the_variable() {
    let variables = [("VALKEY_URL", "valkey://:hunter2@:1"), ("VALKEY_KEY_PREFIX", "*")];
    assert_eq!(
        load("", &variables).unwrap_err().to_string(),
        "environment variable VALKEY_URL: store.redis: the host is missing: write it, as in `redis://localhost:6379`"
    );
    let variables = [("VALKEY_URL", "valkey://a"), ("VALKEY_KEY_PREFIX", "*")];
    let error = load("", &variables).unwrap_err().to_string();
    assert!(error.starts_with("environment variable VALKEY_KEY_PREFIX: store.key_prefix: `*`"), "{error}");
}

const RULES: &str = "store: redis+cluster://a\nrules: { a: { limits: 1/s }, b: { limits: 1/s } }\n";

#[test]
fn the_rules_of_a_tagged_policy_are_tagged() {
    let policies = "policies: { p: { rules: [a], hash_tag: t }, q: { rules: [a], hash_tag: t }, r: [b] }";
    let tags = settings(&format!("{RULES}{policies}")).tags;
    assert_eq!(tags.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "t".to_owned())]);
    let memory = load(&format!("{RULES}{policies}").replace("redis+cluster://a", "memory"), &[]);
    assert!(memory.is_ok(), "a tag does no harm where there is no cluster");
}

#[test]
fn a_rule_has_one_tag_or_none() {
    let table = [
        (
            "policies: { p: { rules: [b, a], hash_tag: t }, q: { rules: [a], hash_tag: u } }",
            "t.yaml:3:75: policies.q.hash_tag: the rule `a` is tagged `t` in the policy `p` and tagged `u` here, but its counters have one name: give both policies the same `hash_tag`, or each a rule of its own",
        ),
        (
            "policies: { p: [a], q: { rules: [b, a], hash_tag: u } }",
            "t.yaml:3:51: policies.q.hash_tag: the rule `a` is not tagged in the policy `p` and tagged `u` here, but its counters have one name: give both policies the same `hash_tag`, or each a rule of its own",
        ),
        (
            "policies: { p: { rules: [a], hash_tag: t }, q: [a] }",
            "t.yaml:3:45: policies.q: the rule `a` is tagged `t` in the policy `p` and not tagged here, but its counters have one name: give both policies the same `hash_tag`, or each a rule of its own",
        ),
        (
            "policies: { p: { rules: [a], hash_tag: '{t}' } }",
            "t.yaml:3:40: policies.p.hash_tag: `{` cannot be part of a name: names are made of `a-z 0-9 _ . -`",
        ),
    ];
    for (policies, expected) in table {
        assert_eq!(refusal(&format!("{RULES}{policies}")), expected);
    }
}
