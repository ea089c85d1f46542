//! The JSON Schema accepts valid configurations and refuses invalid ones.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    fn compile() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("tollgate.json", tollgate::config::schema()).expect("it is a schema");
        let index = compiler.compile("tollgate.json", &mut schemas).expect("it compiles");
        Self { schemas, index }
    }

    fn refusal(&self, value: &Value) -> Option<String> {
        self.schemas.validate(value, self.index).err().map(|error| error.to_string())
    }

    fn accepts_limit(&self, limit: &Value) -> bool {
        self.refusal(&json!({ "rules": { "a": { "limits": limit } } })).is_none()
    }
}

fn from_yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("it is YAML")
}

#[test]
fn the_starter_fits_the_schema() {
    assert_eq!(Schema::compile().refusal(&from_yaml(tollgate::config::STARTER)), None);
}

#[test]
fn every_form_of_every_setting_fits_the_schema() {
    let schema = Schema::compile();
    let texts = [
        "enabled: false\ndrain: 0s\nlisten: { http: 127.0.0.1:1 }\nlog: { format: json, level: warn }\nstore: memory",
        "keys: [{ name: ops, role: admin, token_env: X }, { name: b, role: check, token_file: ./t }]",
        "store: { memory: { max_keys: 5 } }",
        "store: { file: a, flush_interval: 1s, sync: always, max_keys: 5 }",
        "store: redis://:secret@localhost:6379/1",
        "store: unix:/run/redis.sock",
        "store: { redis: 'rediss+cluster://a:1,b:2', key_prefix: 'mail:', command_timeout: 50ms, connect_timeout: 1s }",
        "store: { redis: valkey+sentinel://a/main, connections: 4, health_check_interval: 5s, user: u, password_env: P }",
        "store: { redis: valkeys://a, password_file: f, tls_ca: a.pem, tls_insecure: false }",
        "store: postgres://tollgate:secret@localhost:5432/limits",
        "store: { postgres: 'postgresql://a,b/limits', user: u, password_env: P, schema: mail, connections: 4 }",
        "store: { redis: redis://a, key_secret_env: S }",
        "store: { redis: redis://a, key_secret_file: ./secret }",
        "rules: { a: { code: MAX_ACTIVE_DEALS, limits: 10 at once } }",
        "fields: { a: text, b: ip, c: { ip: { v4: 24, v6: 56 } }, d: address, e: domain }",
        "rules: { a: { by: [b, c], limits: [5/s, 0], overrides: { x: 5/s }, on_exceed: wait 5s, secret: true } }",
        "rules: { a: { limits: 0, on_exceed: { defer: { aligned: true, jitter: 30s } } } }",
        "rules: { a: { limits: 5/s, on_outage: local 50% }, b: { limits: 0, on_outage: local 1/3 } }",
        "rules: { a: { limits: 5/s, on_outage: allow }, b: { limits: 1 in total, on_outage: deny } }",
        "rules: { a: { by: ip, limits: 5/s, ban: after 100 denials in 10m ban 1h up to 24h } }",
        "rules: { a: { by: ip, limits: 5/s, ban: after 1 denial in 1s ban 1d } }",
        "blocklist: [10.0.0.0/8, user=bob, { target: ::1, until: '2027-01-01T00:00:00Z', reason: r, public: true }]",
        "allowlist: [10.0.0.1, { target: user=ann, reason: r }]",
        "rules: { a: { limits: 5/s, count_when: [401, 4xx, '503'] }, b: { limits: 0, count_when: 401 } }",
        "rules: { a: { limits: 5/s, count_when: 4xx }, b: { limits: 0, count_when: 'not [404, 5xx]' } }",
        "databases: { shop: { url_env: U }, other: { url: 'postgres://u@h/d', user: u, connections: 2 } }",
        "rules: { a: { by: b, count_rows: { in: shop, query: 'SELECT $1', at_most: 1, reserve: 1m, cache: 1s, timeout: 1s } } }",
        "policies: { a.b: [c], d: { rules: [e], allow_unmatched: true, hash_tag: t } }",
        "relay: { hostname: a.example, listen: [{ smtp: 127.0.0.1:25 }, { smtps: '[::]:465' }], tls: { certificate: c, key: k } }",
        "relay: { connect: c, accept: a, deliver: d, guard: g, networks: 127.0.0.0/8, network_tenant: t, trusted_proxies: [::1] }",
        "relay: { queue: { dir: q, max_messages: 1_000_000, min_free: 1GiB, lifetime: 5d, history: 1d }, max_size: 1024 }",
        "relay: { users: [{ name: a, tenant: t, password_env: P, senders: [a.example] }], secret_file: s, tls_ca: ca.pem }",
        "relay: { accounts: { a/b: { host: h, port: 25, tls: none, limits: [1/min, 0], on_limit: reject, priority: 1 } } }",
        "relay: { direct: true, max_recipients: 5, max_connections: 10, sending: { connections: 1, retry: [1m] } }",
        "relay: { direct: { name_server: 127.0.0.1:53, port: 25, allow: [10.0.0.0/8] }, accounts: { a/b: { host: h, limits: 5/min } } }",
    ];
    for text in texts {
        assert_eq!(schema.refusal(&from_yaml(text)), None, "{text}");
    }
}

#[test]
fn misspelled_settings_do_not_fit_the_schema() {
    let schema = Schema::compile();
    let texts = [
        "rulez: {}",
        "log: { level: loud }",
        "keys: [{ name: ops }]",
        "keys: [{ name: ops, role: admin, token_sha256: abc }]",
        "store: disk",
        "store: http://localhost",
        "store: { redis: localhost }",
        "databases: { shop: { url: localhost } }",
        "rules: { a: { limits: 1/s, count_rows: { in: shop, query: q, at_most: 1 } } }",
        "rules: { a: { count_rows: { in: shop, query: q } } }",
        "store: { postgres: localhost }",
        "store: { postgres: postgres://a@b/c, schema: A-B }",
        "store: { redis: redis://localhost, key_prefix: '{a}' }",
        "store: { redis: redis://localhost, connections: 0 }",
        "policies: { p: { rules: [a], hash_tag: '{a}' } }",
        "fields: { a: number }",
        "fields: { a: { ip: { v4: 33 } } }",
        "rules: { a: {} }",
        "rules: { A: { limits: 0 } }",
        "rules: { a: { limits: [] } }",
        "rules: { a: { limits: 0, on_exceed: explode } }",
        "rules: { a: { limits: 0, on_outage: local } }",
        "rules: { a: { limits: 0, on_outage: local 50 } }",
        "rules: { a: { limits: 0, count_when: 4x } }",
        "rules: { a: { limits: 0, count_when: 600 } }",
        "rules: { a: { limits: 0, count_when: [] } }",
        "rules: { a: { limits: 0, count_when: [not 5xx] } }",
        "rules: { a: { by: [a, b, c, d, e], limits: 0 } }",
        "policies: { p: a }",
        "blocklist: 10.0.0.0/8",
        "blocklist: [{ reason: r }]",
        "blocklist: [{ target: 10.0.0.1, for: 1h }]",
        "allowlist: [{ target: 10.0.0.1, reason: r, public: true }]",
        "rules: { a: { by: ip, limits: 5/s, ban: 1h } }",
        "relay: { listen: [{ smtp: a, smtps: b }] }",
        "relay: { accounts: { primary: { host: h } } }",
        "relay: { accounts: { a/b: { host: h, tls: maybe } } }",
        "relay: { queue: { min_free: much } }",
        "relay: { users: [{ name: a }] }",
        "rules: { a: { by: ip, limits: 5/s, ban: after five denials in 10m ban 1h } }",
    ];
    for text in texts {
        assert!(schema.refusal(&from_yaml(text)).is_some(), "{text}");
    }
}

#[test]
fn the_examples_of_limits_fit_the_schema_and_the_grammar() {
    let schema = Schema::compile();
    let document = tollgate::config::schema();
    let examples = document["$defs"]["LimitText"]["examples"].as_array().unwrap();
    assert!(examples.len() >= 10);
    for example in examples {
        assert!(schema.accepts_limit(example), "{example}");
        assert!(tollgate_core::grammar::parse(example.as_str().unwrap()).is_ok(), "{example}");
    }
}

#[test]
fn the_schema_and_the_grammar_agree_on_limits() {
    let schema = Schema::compile();
    let texts = [
        "1_000 / hour",
        "3/15m",
        "3/1h30m burst 2",
        "0/s",
        "10 at once for 1m",
        " 5 in total ",
        "unlimited",
        "null",
        "5/min calendar in America/Port-au-Prince",
        "many",
        "5",
        "5/fortnight",
        "5/s bursts 3",
        "5 at all",
        "-5/s",
        "5/s sliding for 3s",
        "",
        "5 per attempt",
        "1.5/s",
        "5/s burst",
        "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m",
        " ladder 3 captcha notify then 1_000 + 2s ",
        "ladder 5 lock 1h",
        "ladder",
        "ladder 4",
        "ladder 4 2s",
        "ladder 4 +2s then",
        "ladder 4 +2s 6 +5s",
        "ladder 4 +2s forget",
        "ladder lock 5s",
        "4 ladder",
    ];
    for text in texts {
        let parses = tollgate_core::grammar::parse(text).is_ok();
        assert_eq!(schema.accepts_limit(&json!(text)), parses, "`{text}`");
    }
}

#[test]
fn the_schema_and_the_core_agree_on_statuses() {
    let schema = Schema::compile();
    let texts = [
        "401",
        " 4xx ",
        "not 5xx",
        "not[404,5xx]",
        "[ 401 , 4xx ]",
        "[401]",
        "4XX",
        "40",
        "6xx",
        "600",
        "[]",
        "[401 403]",
        "401, 403",
        "not",
        "not not 5xx",
        "",
        "[not 5xx]",
        "099",
    ];
    for text in texts {
        let value = json!({ "rules": { "a": { "limits": "5/s", "count_when": text } } });
        let parses = text.parse::<tollgate_web::Statuses>().is_ok();
        assert_eq!(schema.refusal(&value).is_none(), parses, "`{text}`");
    }
}

#[test]
fn every_setting_is_described() {
    let document = tollgate::config::schema();
    let mut tables = vec![("the file", &document)];
    tables.extend(document["$defs"].as_object().unwrap().iter().map(|(name, table)| (name.as_str(), table)));
    for (name, table) in tables {
        let described =
            table["description"].as_str().is_some_and(|text| !text.is_empty() && !text.contains('\n'));
        assert!(described, "{name}");
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{name}: {key}");
        }
    }
}
