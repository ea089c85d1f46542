//! The sections `clients` and `answers`, and tokens: their meaning, and the messages for errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use tollgate::config::{self, Config, Format};

const GATEWAY: &str = "
gateway: { listen: 127.0.0.1:0, upstreams: { s: a:1 }, routes: { r: { upstream: s, policy: p } } }
";

fn load(text: &str) -> Result<Config, String> {
    let environment = [("KEY", "0123456789abcdef"), ("SECRET", "0123456789abcdef0123456789abcdef")];
    let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    config::load_str(text, Format::Yaml, "t.yaml", environment).map_err(|error| error.to_string())
}

fn check(table: &[(&str, &str)]) {
    for (text, expected) in table {
        let error = load(text).unwrap_err();
        let (_, message) = error.split_once(": ").unwrap();
        assert_eq!(message, *expected, "for:\n{text}");
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
    pairs.collect()
}

#[test]
fn only_a_trusted_proxy_names_the_client_address() {
    let config =
        load("clients: { trusted_proxies: [10.0.0.0/8, '::1'], address_header: x-real-ip }").unwrap();
    let told = headers(&[("x-real-ip", "192.0.2.7")]);
    let proxies = &config.clients.proxies;
    assert_eq!(proxies.client("10.1.2.3".parse().unwrap(), &told).to_string(), "192.0.2.7");
    assert_eq!(proxies.client("::1".parse().unwrap(), &told).to_string(), "192.0.2.7");
    assert_eq!(proxies.client("198.51.100.1".parse().unwrap(), &told).to_string(), "198.51.100.1");
}

#[test]
fn an_api_key_is_recognised_and_gives_its_name() {
    let config =
        load("clients: { api_keys: { keys: [{ name: laptop, consumer: ada, token_env: KEY }] } }").unwrap();
    let known = config.clients.credentials.recognise(&headers(&[("x-api-key", "0123456789abcdef")])).unwrap();
    assert_eq!((known.api_key.as_deref(), known.consumer.as_deref()), (Some("laptop"), Some("ada")));
    assert!(config.clients.credentials.recognise(&headers(&[("x-api-key", "another")])).is_err());
}

#[test]
fn every_field_of_a_route_s_policy_must_be_part_of_a_request() {
    let with = |by: &str, clients: &str| {
        format!("rules: {{ a: {{ by: {by}, limits: 1/s }} }}\npolicies: {{ p: [a] }}\n{clients}{GATEWAY}")
    };
    for by in [
        "ip",
        "[route, ip]",
        "header.x-tenant",
        "cookie.sid",
        "query.page",
        "claim.plan",
        "[subject, consumer]",
    ] {
        load(&with(by, "")).unwrap();
    }
    load(&with("user", "clients: { fields: { user: subject } }\n")).unwrap();
    let error = load(&with("user", "")).unwrap_err();
    assert!(error.contains("gateway.routes.r.policy: ") && error.contains("`user`"), "{error}");
    assert!(error.contains("clients.fields"), "{error}");
}

#[test]
fn mistakes_about_clients_are_named() {
    check(&[
        (
            "clients: { trusted_proxies: [10.0.0.1/8] }",
            "clients.trusted_proxies[0]: `10.0.0.1/8` names a machine inside of a network: write `10.0.0.0/8` or `10.0.0.1`",
        ),
        (
            "clients: { trusted_proxies: localhost }",
            "clients.trusted_proxies: `localhost` is not an address or a network, as in `10.0.0.1` or `10.0.0.0/8`",
        ),
        (
            "clients: { address_header: x-real-ip }",
            "clients.address_header: this header is used only with `trusted_proxies`: add them, as in `[10.0.0.0/8]`",
        ),
        (
            "clients: { api_keys: { keys: [{ name: a, token_env: KEY }, { name: b, token_env: KEY }] } }",
            "clients.api_keys.keys: `a` and `b` are the same key: give each its own",
        ),
        (
            "clients: { tokens: { issuer: me } }",
            "clients.tokens: what are tokens verified with? Add `secret_env`, `secret_file`, `key_file` or `jwks_file`",
        ),
        (
            "clients: { tokens: { secret_env: NONE } }",
            "clients.tokens.secret_env: the environment variable `NONE` is not set",
        ),
        (
            "clients: { tokens: { secret_env: SECRET, leeway: 2h } }",
            "clients.tokens.leeway: `2h` is too long: at most `1h` is allowed",
        ),
        ("answers: { headers: x }", "answers.headers: `x` is none of `x-ratelimit`, `ietf`, `none`"),
    ]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json").display().to_string();
    std::fs::write(&file, r#"{"keys":[]}"#).unwrap();
    let empty = load(&format!("clients: {{ tokens: {{ jwks_file: '{file}' }} }}")).unwrap_err();
    let (_, told) = empty.split_once(": ").unwrap();
    let wanted = format!("clients.tokens.jwks_file: the file `{file}`: there is no key in this set");
    assert_eq!(told, wanted);
    let short = load("clients: { tokens: { secret_env: KEY } }").unwrap_err();
    assert!(short.contains("clients.tokens.secret_env: ") && !short.contains("0123456789"), "{short}");
    let unknown = load("answers: { detail: 'wait {retry} s' }").unwrap_err();
    assert!(
        unknown.contains("answers.detail: at character ") && unknown.contains("retry_after"),
        "{unknown}"
    );
}

#[test]
fn the_hash_of_a_word_that_is_guessed_first_is_no_token() {
    for word in ["", "admin", "changeme", "password", "secret", "test", "token", "tollgate"] {
        let hash = data_encoding::HEXUPPER.encode(&Sha256::digest(word));
        for keys in ["keys: [{ name: a, role: admin,", "clients: { api_keys: { keys: [{ name: a,"] {
            let closed = if keys.starts_with("keys") { "}]" } else { "}] } }" };
            let error = load(&format!("{keys} token_sha256: {hash} {closed}")).unwrap_err();
            assert!(error.contains("keys[0].token_sha256: "), "{error}");
            assert!(error.contains(&format!("the hash of `{word}`, which is guessed first")), "{error}");
        }
    }
    let good = data_encoding::HEXLOWER.encode(&Sha256::digest("0123456789abcdef"));
    load(&format!("keys: [{{ name: a, role: admin, token_sha256: {good} }}]")).unwrap();
}

#[test]
fn a_rule_keyed_on_client_supplied_values_gives_a_warning() {
    let with = |by: &str| {
        let rules = format!("rules: {{ a: {{ by: {by}, limits: 1/s }} }}\npolicies: {{ p: [a] }}\n");
        let proofs = "tokens: { secret_env: SECRET }, api_keys: { keys: [{ name: a, token_env: KEY }] }";
        let clients = format!("clients: {{ fields: {{ tenant: header.x-tenant }}, {proofs} }}");
        load(&format!("{rules}{clients}\n{GATEWAY}")).unwrap().warnings()
    };
    for by in ["ip", "route", "[route, subject]", "claim.plan", "consumer", "api_key"] {
        assert_eq!(with(by), [], "{by}");
    }
    for by in ["header.x-tenant", "cookie.sid", "query.page", "[ip, path]", "tenant", "host", "method"] {
        let warnings = with(by);
        assert_eq!(warnings.len(), 1, "{by}");
        assert!(warnings[0].message.contains("which the client chooses"), "{by}: {}", warnings[0].message);
    }
}

#[test]
fn a_rule_keyed_on_an_unprovable_field_gives_a_warning() {
    const TOKENS: &str = "tokens: { secret_env: SECRET }";
    const KEYS: &str = "api_keys: { keys: [{ name: a, consumer: ada, token_env: KEY }] }";
    const PROXIES: &str = "trusted_proxies: 10.0.0.0/8";
    let warned = |by: &str, clients: &str, gateway: &str| {
        let rules = format!("rules: {{ a: {{ by: {by}, limits: 1/s }} }}\npolicies: {{ p: [a] }}\n");
        let fields = "fields: { user: subject }";
        let config = load(&format!("{rules}clients: {{ {fields}, {clients} }}\n{gateway}")).unwrap();
        let warnings = config.warnings();
        assert!(warnings.iter().all(|warning| warning.message.contains("no client can prove")), "{by}");
        warnings.len() == 1
    };
    for (by, clients, unproved) in [
        ("subject", "", true),
        ("user", KEYS, true),
        ("claim.plan", KEYS, true),
        ("claim.plan", TOKENS, false),
        ("[route, api_key]", TOKENS, true),
        ("api_key", KEYS, false),
        ("consumer", "", true),
        ("consumer", KEYS, false),
        ("consumer", TOKENS, false),
        ("ip", "", false),
    ] {
        assert_eq!(warned(by, clients, GATEWAY), unproved, "{by} with {clients}");
    }
    assert!(!warned("consumer", "", ""), "a caller of the API names the consumer itself");
    assert!(warned("consumer", PROXIES, ""), "proxies ask at forward-auth");
    let other = GATEWAY.replace("policy: p", "path: /*");
    assert!(!warned("consumer", PROXIES, &other), "no route has the policy");
}
