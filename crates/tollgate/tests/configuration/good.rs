//! Valid configurations and their meaning.

use std::net::SocketAddr;
use std::path::Path;

use tollgate::config::{
    self, Config, Format, Level, LogConfig, LogFormat, Role, StoreConfig, Sync, TokenHash,
};
use tollgate_core::{Deferral, OnExceed, OnOutage, Span};

fn load(text: &str, format: Format) -> Config {
    let environment = [("TOLLGATE_ADMIN_TOKEN".to_owned(), "0123456789abcdef".to_owned())];
    config::load_str(text, format, "test", environment.into_iter()).unwrap_or_else(|error| panic!("{error}"))
}

fn yaml(text: &str) -> Config {
    load(text, Format::Yaml)
}

/// The meaning of policies and rules, as text that can be compared.
fn meaning(config: &Config) -> String {
    let rules: Vec<String> = config
        .policies
        .rules()
        .iter()
        .map(|rule| {
            let mut overrides: Vec<_> =
                rule.overrides.iter().map(|(key, plan)| format!("{key}={plan}")).collect();
            overrides.sort();
            format!(
                "{} {:?} {} {overrides:?} {:?} {} {:?} {:?} {} {}",
                rule.name,
                rule.by,
                rule.plan,
                rule.on_exceed,
                rule.on_outage,
                rule.ban,
                rule.count_when,
                rule.enabled,
                rule.secret
            )
        })
        .collect();
    let policies: Vec<String> = config
        .policies
        .iter()
        .map(|policy| {
            let rules: Vec<&str> = policy.rules.iter().map(|rule| &*rule.name).collect();
            format!("{} {rules:?} {}", policy.name, policy.allow_unmatched)
        })
        .collect();
    format!(
        "{rules:#?}\n{policies:#?}\n{:?} {:?} {:?} {:?}",
        config.listen, config.store, config.log, config.drain
    )
}

const FULL_YAML: &str = r#"
enabled: false
listen: { http: 0.0.0.0:9090 }
keys:
  - { name: ops, role: admin, token_env: TOLLGATE_ADMIN_TOKEN }
  - { name: app, role: check, token_sha256: 3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b }
store: { file: ./counts.redb, flush_interval: 3s, sync: always, max_keys: 5000 }
log: { format: json, level: debug }
drain: 30s
fields: { tenant: text, client: ip, peer: { ip: { v4: 24, v6: 56 } }, to: address, host: domain }
rules:
  global: { limits: [50000/hour, 500000/day] }
  domain:
    by: domain
    limits: [1000/hour, 10000/day]
    overrides: { Example.COM.: [5000/hour, 50000/day, 100 recipients per attempt] }
    on_exceed: { defer: { aligned: true, jitter: 30s } }
    enabled: false
    secret: true
    count_when: [401, 4xx]
  peers: { by: [peer, tenant], limits: 5 at once for 30s, on_exceed: wait 5s, on_outage: local 1/3 }
  free: { by: to, limits: 0, overrides: { A@B.example: 3 in total }, on_exceed: observe, on_outage: allow }
policies:
  mail.accept: [global, domain]
  login: { rules: [peers], allow_unmatched: true }
"#;

const FULL_TOML: &str = r#"
enabled = false
listen.http = "0.0.0.0:9090"
drain = "30s"
policies = { "mail.accept" = ["global", "domain"], login = { rules = ["peers"], allow_unmatched = true } }

[[keys]]
name = "ops"
role = "admin"
token_env = "TOLLGATE_ADMIN_TOKEN"

[[keys]]
name = "app"
role = "check"
token_sha256 = "3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b"

[store]
file = "./counts.redb"
flush_interval = "3s"
sync = "always"
max_keys = 5_000

[log]
format = "json"
level = "debug"

[fields]
tenant = "text"
client = "ip"
peer.ip = { v4 = 24, v6 = 56 }
to = "address"
host = "domain"

[rules]
global = { limits = ["50000/hour", "500000/day"] }

[rules.domain]
by = "domain"
limits = ["1000/hour", "10000/day"]
overrides."Example.COM." = ["5000/hour", "50000/day", "100 recipients per attempt"]
on_exceed.defer = { aligned = true, jitter = "30s" }
enabled = false
secret = true
count_when = [401, "4xx"]

[rules.peers]
by = ["peer", "tenant"]
limits = "5 at once for 30s"
on_exceed = "wait 5s"
on_outage = "local 1/3"

[rules.free]
by = "to"
limits = 0
overrides = { "A@B.example" = "3 in total" }
on_exceed = "observe"
on_outage = "allow"
"#;

#[test]
fn every_setting_means_what_it_says() {
    let config = yaml(FULL_YAML);
    assert!(!config.policies.enabled);
    assert_eq!(config.listen.http, SocketAddr::from(([0, 0, 0, 0], 9090)));
    assert_eq!(config.log, LogConfig { format: LogFormat::Json, level: Level::Debug });
    assert_eq!(config.drain, Span::from_secs(30));
    assert_eq!(
        config.store,
        StoreConfig::File {
            path: "./counts.redb".into(),
            flush_interval: Span::from_secs(3),
            sync: Sync::Always,
            max_keys: 5_000
        }
    );
    let keys: Vec<_> = config.keys.iter().map(|key| (key.name.as_str(), key.role)).collect();
    assert_eq!(keys, [("ops", Role::Admin), ("app", Role::Check)]);

    let domain = config.policies.rule("domain").unwrap();
    assert_eq!(domain.plan_at("example.com").to_string(), "5000/hour, 50000/day, 100 recipients per attempt");
    assert_eq!(domain.plan_at("example.org").to_string(), "1000/hour, 10000/day");
    assert_eq!(domain.on_exceed, OnExceed::Defer(Deferral { aligned: true, jitter: Span::from_secs(30) }));
    assert!(!domain.enabled && domain.secret);
    let peers = config.policies.rule("peers").unwrap();
    assert_eq!(peers.on_exceed, OnExceed::Wait(Span::from_secs(5)));
    assert_eq!(peers.on_outage.to_string(), "local 1/3");
    assert_eq!(peers.key_of("10.1.2.3,acme").as_deref(), Some("10.1.2.0/24,acme"));
    let free = config.policies.rule("free").unwrap();
    assert!(free.plan.limits().is_empty());
    assert_eq!(free.plan_at("a@b.example").to_string(), "3 in total");
    assert_eq!(free.on_exceed, OnExceed::Observe);
    assert_eq!(free.on_outage, OnOutage::Allow);

    let accept = config.policies.find("mail.accept").unwrap();
    assert_eq!(accept.rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["global", "domain"]);
    assert!(!accept.allow_unmatched);
    assert!(config.policies.find("login").unwrap().allow_unmatched);
}

#[test]
fn yaml_and_toml_mean_the_same() {
    let (yaml, toml) = (yaml(FULL_YAML), load(FULL_TOML, Format::Toml));
    assert_eq!(meaning(&yaml), meaning(&toml));
    assert_eq!(yaml.keys, toml.keys);
    assert_eq!(yaml.policies.enabled, toml.policies.enabled);
}

#[test]
fn omitted_settings_have_the_documented_defaults() {
    for (text, format) in [("", Format::Yaml), ("# nothing\n", Format::Yaml), ("", Format::Toml)] {
        let config = load(text, format);
        assert!(config.policies.enabled);
        assert_eq!(config.listen.http, SocketAddr::from(([127, 0, 0, 1], 8080)));
        assert_eq!(config.log, LogConfig { format: LogFormat::Pretty, level: Level::Info });
        assert_eq!(config.drain, Span::from_secs(10));
        assert!(config.keys.is_empty() && config.policies.rules().is_empty());
        assert_eq!(
            config.store,
            StoreConfig::File {
                path: "./tollgate.redb".into(),
                flush_interval: Span::from_secs(10),
                sync: Sync::Interval,
                max_keys: 1_000_000
            }
        );
    }
}

#[test]
fn requests_under_way_may_be_left_no_time_at_the_end() {
    assert_eq!(yaml("drain: 0s").drain, Span::ZERO);
}

#[test]
fn a_rule_that_cannot_be_shared_out_denies_without_its_store() {
    for limits in ["10 in total", "10 at once", "[5/s, 10 at once]", "ladder 4 +2s then 11 lock 15m notify"] {
        let config = yaml(&format!("rules: {{ all: {{ limits: {limits} }} }}"));
        assert_eq!(config.policies.rule("all").unwrap().on_outage, OnOutage::Deny, "{limits}");
    }
}

#[test]
fn a_rule_left_bare_rejects_and_is_on_and_open() {
    let config = yaml("rules: { all: { limits: 5/s } }");
    let rule = config.policies.rule("all").unwrap();
    assert_eq!(rule.on_exceed, OnExceed::Reject);
    assert_eq!(rule.on_outage.to_string(), "local 50%");
    assert!(rule.enabled && !rule.secret && rule.by.is_empty());
}

#[test]
fn stores_are_written_in_three_forms() {
    let memory = |max_keys| StoreConfig::Memory { max_keys };
    assert_eq!(yaml("store: memory").store, memory(1_000_000));
    assert_eq!(yaml("store: { memory: { max_keys: 7 } }").store, memory(7));
    let StoreConfig::File { path, sync, .. } = yaml("store: { file: /var/lib/t.redb }").store else {
        panic!()
    };
    assert_eq!((path.as_path(), sync), (Path::new("/var/lib/t.redb"), Sync::Interval));
}

#[test]
fn every_way_to_write_a_limit_is_read() {
    let table = [
        ("1000/hour", "1000/hour"),
        ("[1_000/h]", "1000/hour"),
        ("[100/60s, 3/15m]", "100/min, 3/15m"),
        ("1000/day calendar", "1000/day calendar"),
        ("1000/day calendar in Europe/Berlin", "1000/day calendar in Europe/Berlin"),
        ("1/month calendar in UTC", "1/month calendar"),
        ("100/hour sliding", "100/hour sliding"),
        ("1000000/day sliding by 5m", "1000000/day sliding by 5m"),
        ("10/s burst 50", "10/s burst 50"),
        ("5/min burst 3", "5/min burst 3"),
        ("10 at once", "10 at once"),
        ("50 at once for 30s", "50 at once for 30s"),
        ("10 in total", "10 in total"),
        ("100 recipients per attempt", "100 recipients per attempt"),
        (
            "[ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify, 100/hour]",
            "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m, 100/hour",
        ),
        ("0", "unlimited"),
        ("null", "unlimited"),
        ("~", "unlimited"),
        ("unlimited", "unlimited"),
        ("[0, 5/s]", "5/s"),
        ("[null]", "unlimited"),
    ];
    for (written, meant) in table {
        let config = yaml(&format!("rules: {{ r: {{ limits: {written} }} }}"));
        assert_eq!(config.policies.rule("r").unwrap().plan.to_string(), meant, "{written}");
    }
}

#[test]
fn on_exceed_is_read_in_every_form() {
    let table = [
        ("reject", OnExceed::Reject),
        ("observe", OnExceed::Observe),
        ("wait 1m30s", OnExceed::Wait(Span::from_secs(90))),
        ("defer", OnExceed::Defer(Deferral::default())),
        ("{ defer: {} }", OnExceed::Defer(Deferral::default())),
    ];
    for (written, meant) in table {
        let config = yaml(&format!("rules: {{ r: {{ limits: 5/s, on_exceed: {written} }} }}"));
        assert_eq!(config.policies.rule("r").unwrap().on_exceed, meant, "{written}");
    }
}

#[test]
fn the_starter_is_what_no_file_means() {
    let config = config::load(None, std::iter::empty()).unwrap();
    assert_eq!(config.listen.http, SocketAddr::from(([127, 0, 0, 1], 8080)));
    let StoreConfig::File { path, flush_interval, sync, max_keys } = &config.store else { panic!() };
    assert_eq!(path, Path::new("./tollgate.redb"));
    assert_eq!((*flush_interval, *sync, *max_keys), (Span::from_secs(10), Sync::Interval, 1_000_000));
    let names: Vec<&str> = config.policies.iter().map(|policy| &*policy.name).collect();
    assert_eq!(names, ["api", "login"]);
    assert_eq!(config.policies.rule("client").unwrap().plan.to_string(), "10/s burst 50");
}

#[test]
fn rules_and_policies_keep_the_order_in_which_they_were_written() {
    let yaml = yaml("rules: { z: { limits: 1/s }, a: { limits: 1/s } }\npolicies: { q: [z], b: [a] }");
    let toml = load(
        "rules.z.limits = '1/s'\nrules.a.limits = '1/s'\npolicies.q = ['z']\npolicies.b = ['a']",
        Format::Toml,
    );
    for config in [yaml, toml] {
        assert_eq!(config.policies.rules().iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["z", "a"]);
        assert_eq!(config.policies.iter().map(|policy| &*policy.name).collect::<Vec<_>>(), ["q", "b"]);
    }
}

#[test]
fn anchors_and_aliases_repeat_what_was_written() {
    let config = yaml("rules:\n  a: { limits: &both [1/s, 9/hour] }\n  b: { by: ip, limits: *both }\n");
    assert_eq!(config.policies.rule("b").unwrap().plan.to_string(), "1/s, 9/hour");
}

#[test]
fn a_token_is_known_again_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "fedcba9876543210\n").unwrap();
    let config = yaml(&format!(
        "keys: [{{ name: a, role: read, token_env: TOLLGATE_ADMIN_TOKEN }}, {{ name: b, role: read, token_file: '{}' }}]",
        file.display()
    ));
    assert!(config.keys[0].token == TokenHash::of("0123456789abcdef"));
    assert!(config.keys[0].token != TokenHash::of("0123456789abcdee"));
    assert!(
        config.keys[1].token == TokenHash::of("fedcba9876543210"),
        "the line's end is no part of the token"
    );
    let shown = format!("{config:?}");
    assert!(shown.contains("***") && !shown.contains("0123456789abcdef"));
}

#[test]
fn roles_include_those_below_them() {
    assert!(Role::Check < Role::Read && Role::Read < Role::Admin);
}
