//! A store in PostgreSQL, from its written form to its meaning, and every error.

use std::time::Duration;

use tollgate::config::{self, Config, ConfigError, Format, StoreConfig};
use tollgate_postgres::{Settings, Tls};

fn load(text: &str) -> Result<Config, ConfigError> {
    let variables = [("PASS", "hunter2"), ("EMPTY", "")];
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config::load_str(text, Format::Yaml, "t.yaml", environment)
}

fn settings(text: &str) -> Settings {
    match load(text).unwrap_or_else(|error| panic!("{error}")).store {
        StoreConfig::Postgres(settings) => *settings,
        other => panic!("not in PostgreSQL: {other:?}"),
    }
}

fn refusal(text: &str) -> String {
    load(text).expect_err("this must be refused").to_string()
}

#[test]
fn an_address_alone_leaves_the_rest_to_the_defaults() {
    for text in ["store: postgres://u@localhost/d", "store: { postgres: postgresql://u@localhost/d }"] {
        let settings = settings(text);
        assert_eq!((settings.address().as_str(), settings.user()), ("localhost:5432/d", Some("u")));
        assert_eq!((settings.schema.as_str(), settings.connections), ("tollgate", 8));
        assert_eq!(settings.command_timeout, Duration::from_millis(250));
        assert_eq!(settings.tls, None, "loopback needs no encryption");
    }
    assert_eq!(settings("store: postgres://u@db.example/d").tls, Some(Tls::default()));
}

#[test]
fn settings_beside_the_address_are_used() {
    let settings = settings(
        "store: { postgres: 'postgres://db.example/d', user: u, password_env: PASS, schema: mail, \
         command_timeout: 1s, connect_timeout: 2s, connections: 3, health_check_interval: 4s, tls_insecure: true }",
    );
    assert_eq!(settings.user(), Some("u"));
    assert_eq!(settings.server.get_password(), Some(&b"hunter2"[..]));
    assert_eq!((settings.schema.as_str(), settings.connections), ("mail", 3));
    let times = [settings.command_timeout, settings.connect_timeout, settings.health_check_interval];
    assert_eq!(times, [1, 2, 4].map(Duration::from_secs));
    assert!(settings.tls.is_some_and(|tls| tls.unverified));
}

#[test]
fn mistakes_are_explained_without_repeating_a_password() {
    for (text, expected) in [
        ("store: postgres://localhost/d", "the user is missing"),
        ("store: 'postgres:secret@localhost'", "an address begins with"),
        ("store: { postgres: 'postgres://u:secret@h:x/d' }", "cannot be read"),
        ("store: { postgres: 'postgres://u:secret@h/d?sslmode=prefer' }", "`sslmode` is"),
        ("store: { postgres: 'postgres://u:secret@h/d', user: v }", "names a user already"),
        ("store: { postgres: 'postgres://u:secret@h/d', password_env: PASS }", "has a password already"),
        ("store: { postgres: 'postgres://u@h/d', password_env: EMPTY }", "is empty"),
        ("store: { postgres: 'postgres://u@h/d', schema: 'A B' }", "cannot be the name of a schema"),
        ("store: { postgres: 'postgres://u@h/d', key_prefix: a }", "write `schema`"),
        ("store: { postgres: 'postgres://u@h/d', max_keys: 5 }", "as many keys"),
        ("store: { postgres: 'postgres://u@h/d', redis: 'redis://h' }", "keep one of"),
        ("store: { postgres: 'postgres://u@h/d', connections: 0 }", "too few or too many"),
        ("store: { postgres: 'postgres://u@localhost/d', tls_insecure: true }", "sslmode=require"),
        ("store: { redis: 'redis://h', schema: a }", "stores in PostgreSQL"),
    ] {
        let error = refusal(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("secret"), "{text}: {error}");
    }
}
