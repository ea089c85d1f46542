//! The gateway's section: its meaning, and the exact messages for errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use tollgate::config::{self, Format};
use tollgate_gateway::settings::{AccessLog, HostHeader, Protocol, Settings};

const RULES: &str = "
rules: { api: { by: ip, limits: 10/s burst 50 }, open: { by: ip, limits: 50 at once for 30s } }
policies: { api: [api], open: [open] }
";

fn load(gateway: &str) -> Result<Settings, String> {
    let text = format!("{RULES}gateway: {gateway}\n");
    match config::load_str(&text, Format::Yaml, "t.yaml", std::iter::empty()) {
        Ok(config) => Ok(config.gateway.expect("there is a gateway")),
        Err(error) => Err(error.to_string()),
    }
}

fn check(table: &[(&str, &str)]) {
    for (gateway, expected) in table {
        assert_eq!(load(gateway).unwrap_err(), *expected, "for:\n{gateway}");
    }
}

#[test]
fn the_shortest_section_names_a_listener_an_upstream_and_a_route() {
    let settings = load(
        "{ listen: 127.0.0.1:0, upstreams: { shop: localhost:9000 }, routes: { all: { upstream: shop } } }",
    )
    .unwrap();
    assert_eq!((settings.listeners.len(), settings.listeners[0].http2), (1, true));
    assert_eq!(settings.upstreams[0].addresses[0].to_string(), "localhost:9000");
    let route = &settings.routes[0];
    assert_eq!((&*route.name, &*route.upstream, &route.policy), ("all", "shop", &None));
    assert!(route.paths.is_empty() && route.hosts.is_empty() && route.methods.is_empty());
    assert_eq!(settings.access_log, AccessLog::Off);
}

#[test]
fn holds_without_an_expiry_in_a_gateway_give_a_warning() {
    let warned = |store: &str, rules: &str, policies: &str, gateway: &str| {
        let text = format!(
            "store: {store}\nrules: {{ {rules} }}\npolicies: {{ {policies} }}\ngateway: {{ listen: 127.0.0.1:0, upstreams: {{ s: a:1 }}, {gateway} }}\n"
        );
        let config = config::load_str(&text, Format::Yaml, "t.yaml", std::iter::empty()).unwrap();
        config.warnings().into_iter().map(|warning| (warning.message, warning.remedy)).collect::<Vec<_>>()
    };
    let (p, by_route) = ("p: [a]", "routes: { r: { upstream: s, policy: p } }");
    let [(message, remedy)] = &warned("{ file: x.redb }", "a: { limits: 2 at once }", p, by_route)[..] else {
        panic!("it is warned of once");
    };
    assert_eq!(message, "the rule a holds `2 at once`, and the holds of a killed gateway are never released");
    assert!(remedy.starts_with("write `2 at once for 30s`"), "{remedy}");
    let key = "a: { by: ip, limits: 1/s, overrides: { 192.0.2.1: 2 at once } }";
    assert_eq!(warned("{ redis: 'redis://127.0.0.1' }", key, p, by_route).len(), 1);
    let connections = "connections: p, routes: { r: { upstream: s } }";
    assert_eq!(warned("{ file: x.redb }", "a: { limits: 2 at once }", p, connections).len(), 1);
    let guarded = "a: { by: user, limits: ladder 4 +2s }, b: { limits: 2 at once }";
    let login = "routes: { r: { path: /in, upstream: s, guard: { name: g, fields: { user: form.user }, success: 303 } } }, bounds: {} }\nguards: { g: { policy: p }";
    assert_eq!(warned("{ file: x.redb }", guarded, "p: [a, b]", login).len(), 1);
    assert_eq!(warned("memory", "a: { limits: 2 at once }", p, by_route), [], "it ends with the process");
    assert_eq!(warned("{ file: x.redb }", "a: { limits: 2 at once for 30s }", p, by_route), []);
    assert_eq!(warned("{ file: x.redb }", "a: { enabled: false, limits: 2 at once }", p, by_route), []);
    let elsewhere = "routes: { r: { upstream: s } }";
    assert_eq!(
        warned("{ file: x.redb }", "a: { limits: 2 at once }", p, elsewhere),
        [],
        "not at the gateway"
    );
}

#[test]
fn everything_that_can_be_said_is_understood() {
    let settings = load(
        "
  listen: [127.0.0.1:8000, { address: '[::1]:8001', http2: false }]
  workers: 3
  connections: open
  access_log: 1/100
  bounds: { head_timeout: 5s, streams: 7, body_bytes: 1000, tunnels: 0 }
  upstreams:
    shop:
      addresses: [10.0.0.1:80, 10.0.0.2:80]
      tls: { server_name: shop.internal }
      http2: true
      host: address
      fails: 5
      out_for: 1m
      most_idle: 0
      connect_timeout: 250ms
      retry: false
    plain: [a:1, b:2]
  routes:
    orders:
      host: [api.example.com, '*.shop.example']
      path: [/orders/*, '/order/{id}']
      method: [GET, POST]
      headers: { x-version: '2', x-any: true }
      upstream: shop
      policy: api
      strip_prefix: /orders/
      add_prefix: /v1
      response_timeout: 3s
      body_bytes: 0
",
    )
    .unwrap();
    assert_eq!(settings.workers.get(), 3);
    assert_eq!(settings.connections.as_deref(), Some("open"));
    assert!(matches!(settings.access_log, AccessLog::OneIn(many) if many.get() == 100));
    let bounds = &settings.bounds;
    assert_eq!((bounds.streams, bounds.tunnels, bounds.body_bytes), (7, 0, Some(1000)));
    assert_eq!((bounds.head_timeout, bounds.idle_timeout), (Duration::from_secs(5), Duration::from_secs(75)));
    let shop = &settings.upstreams[0];
    assert_eq!((shop.addresses.len(), shop.most_idle, shop.retry), (2, 0, false));
    assert_eq!((shop.protocol, &shop.host), (Protocol::Http2, &HostHeader::Address));
    assert_eq!((shop.health.fails.get(), shop.health.out_for), (5, Duration::from_secs(60)));
    assert_eq!(shop.connect_timeout, Duration::from_millis(250));
    assert_eq!(shop.tls.as_ref().unwrap().server_name.as_deref(), Some("shop.internal"));
    let orders = &settings.routes[0];
    assert_eq!(
        (orders.hosts.len(), orders.paths.len(), orders.methods.len(), orders.headers.len()),
        (2, 2, 2, 2)
    );
    let rewrite = orders.rewrite.as_ref().unwrap();
    assert_eq!((&*rewrite.prefix, &*rewrite.replacement), ("/orders", "/v1"));
    assert_eq!((orders.response_timeout, orders.body_bytes), (Some(Duration::from_secs(3)), Some(0)));
}

#[test]
fn missing_and_misspelled_keys_are_named() {
    check(&[
        ("{ upstreams: {}, routes: {} }", "t.yaml:4:10: gateway: the key `listen` is missing"),
        (
            "{ listen: 127.0.0.1:0, upstreams: { shop: a:1 }, routes: { all: { upstream: shp } } }",
            "t.yaml:4:86: gateway.routes.all.upstream: there is no upstream `shp`; did you mean `shop`?",
        ),
        (
            "{ listen: 127.0.0.1:0, upstreams: { shop: a:1 }, routes: { all: { upstream: shop, policy: apo } } }",
            "t.yaml:4:100: gateway.routes.all.policy: there is no policy `apo`; did you mean `api`?",
        ),
        (
            "{ listen: 127.0.0.1:0, upstreams: {}, routes: {} }",
            "t.yaml:4:44: gateway.upstreams: there is no upstream: name one, as in `{ shop: 127.0.0.1:9000 }`
t.yaml:4:56: gateway.routes: there is no route: name one, as in `{ all: { path: /*, upstream: shop } }`",
        ),
    ]);
}

#[test]
fn a_mistake_in_a_rule_does_not_make_its_policy_or_guard_missing() {
    let text = "
rules: { api: { by: ip, limits: 10 per second }, own: { by: user, limits: ladder 3 lok 15m } }
policies: { api: [api], login: [own] }
guards: { login: { policy: login } }
gateway:
  listen: 127.0.0.1:0
  connections: api
  upstreams: { shop: a:1 }
  routes: { api: { path: /in, upstream: shop, policy: api, guard: { name: login, fields: { user: form.user }, success: 303 } } }
";
    let error = config::load_str(text, Format::Yaml, "t.yaml", std::iter::empty()).unwrap_err();
    let places: Vec<&str> = error.problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(places, ["rules.api.limits", "rules.own.limits"], "{error}");
}

#[test]
fn values_that_cannot_be_are_refused_where_they_stand() {
    let with = |route: &str| {
        format!(
            "{{ listen: 127.0.0.1:0, upstreams: {{ s: a:1 }}, routes: {{ r: {{ upstream: s, {route} }} }} }}"
        )
    };
    for (route, expected) in [
        ("path: orders", "gateway.routes.r.path: `orders` is not a pattern: a path begins with `/`"),
        (
            "path: [/a, '/b*']",
            "gateway.routes.r.path[1]: `/b*` is not a pattern: `*` stands alone, after the last `/`",
        ),
        ("host: 'a:80'", "gateway.routes.r.host: `a:80` is not a pattern: a host is written without port"),
        ("method: get", "gateway.routes.r.method: methods are written in capitals: `GET`"),
        (
            "method: []",
            "gateway.routes.r.method: this list is empty, so nothing would match: leave it out to match everything",
        ),
        ("headers: { 'x y': '1' }", "gateway.routes.r.headers.\"x y\": `x y` cannot name a header"),
        (
            "headers: { x: false }",
            "gateway.routes.r.headers.x: write the value that the header must have, or `true` for any",
        ),
        ("strip_prefix: api", "gateway.routes.r.strip_prefix: `api` is not a path, as in `/api`"),
        (
            "response_timeout: 9w",
            "gateway.routes.r.response_timeout: `9w` is too long: at most `1d` is allowed",
        ),
    ] {
        let error = load(&with(route)).unwrap_err();
        let (_, message) = error.split_once(": ").unwrap();
        assert_eq!(message, expected);
    }
}

#[test]
fn addresses_files_and_numbers_that_cannot_be_are_refused() {
    for (gateway, expected) in [
        (
            "listen: nowhere",
            "gateway.listen: `nowhere` is not an address and a port, as in `0.0.0.0:8000` or `[::]:8000`",
        ),
        (
            "listen: []",
            "gateway.listen: there is no listener in this list: write an address and a port, as in `0.0.0.0:8000`",
        ),
        ("listen: [127.0.0.1:1, 127.0.0.1:1]", "gateway.listen[1]: `127.0.0.1:1` is listened on already"),
        (
            "listen: { address: 127.0.0.1:1, tls: { certificate: ./none.pem, key: ./Cargo.toml } }",
            "gateway.listen.tls.certificate: the file `./none.pem` cannot be read: No such file or directory (os error 2)",
        ),
        (
            "workers: 0",
            "gateway.workers: `0` workers are too few or too many: write a number from 1 to 256, or leave it out for one on each core",
        ),
        ("connections: none", "gateway.connections: there is no policy `none`"),
        ("access_log: 2/3", "gateway.access_log: `2/3` is none of `all`, `off`, `1/100`"),
        (
            "bounds: { head_bytes: 10 }",
            "gateway.bounds.head_bytes: `10` is too little or too much: write a number from 8192 to 65535",
        ),
        ("upstreams: { s: http://a:1/ }", "gateway.upstreams.s: write only the host and the port: `a:1`"),
        (
            "upstreams: { s: 'https://a:1' }",
            "gateway.upstreams.s: write only the host and the port: `a:1`, and `tls: {}` beside the `addresses`",
        ),
        (
            "upstreams: { s: a }",
            "gateway.upstreams.s: `a` is not a host and a port, as in `10.0.0.1:80`, `[::1]:80` or `app.internal:80`",
        ),
        (
            "upstreams: { s: { addresses: [] } }",
            "gateway.upstreams.s.addresses: there is no address in this list: write one, as in `127.0.0.1:9000`",
        ),
        (
            "upstreams: { s: { addresses: [a:1], fails: 0 } }",
            "gateway.upstreams.s.fails: write a number of failures from 1 on",
        ),
        (
            "upstreams: { s: { addresses: [a:1], host: 'a b' } }",
            "gateway.upstreams.s.host: `a b` is not a host",
        ),
    ] {
        let mut whole = format!("{{ {gateway}, routes: {{ r: {{ upstream: s }} }}");
        for (name, value) in [("listen", "127.0.0.1:0"), ("upstreams", "{ s: a:1 }")] {
            if !gateway.starts_with(name) {
                whole.push_str(&format!(", {name}: {value}"));
            }
        }
        let error = load(&format!("{whole} }}")).unwrap_err();
        let first = error.lines().next().unwrap();
        let (_, message) = first.split_once(": ").unwrap();
        assert_eq!(message, expected);
    }
}

#[test]
fn settings_that_the_gateway_refuses_are_reported_at_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certificate = file("c.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
    let key = file("k.pem", "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n");
    let routes = "{ one: { path: /a, upstream: s }, two: { upstream: s, path: /a } }";
    for (gateway, place, expected) in [
        (
            format!("{{ listen: 127.0.0.1:0, upstreams: {{ s: a:1 }}, routes: {routes} }}"),
            "gateway.routes.two",
            "route `two` can never be taken: `one` fits the same requests".to_owned(),
        ),
        (
            format!(
                "{{ upstreams: {{ s: a:1 }}, routes: {{ r: {{ upstream: s }} }}, listen: [127.0.0.1:0, {{ address: 127.0.0.1:1, tls: {{ certificate: '{certificate}', key: '{key}' }} }}] }}"
            ),
            "gateway.listen[1].tls",
            format!("certificate `{certificate}` and key `{key}`: the certificates cannot be read"),
        ),
    ] {
        let error = load(&gateway).unwrap_err();
        let (_, told) = error.split_once(": ").unwrap();
        assert!(told.starts_with(&format!("{place}: {expected}")), "{error}");
    }
}

#[test]
fn the_gateway_and_the_api_cannot_share_a_port() {
    let load = |api: &str, gateway: &str| {
        let keys = "keys: [{ name: a, role: admin, token_sha256: 3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b }]";
        let text = format!(
            "listen: {{ http: '{api}' }}\n{keys}\ngateway: {{ listen: '{gateway}', upstreams: {{ s: a:1 }}, routes: {{ r: {{ upstream: s }} }} }}"
        );
        config::load_str(&text, Format::Yaml, "t.yaml", std::iter::empty()).map_err(|error| error.to_string())
    };
    for (api, gateway) in
        [("127.0.0.1:80", "127.0.0.1:80"), ("127.0.0.1:80", "0.0.0.0:80"), ("[::]:80", "[::1]:80")]
    {
        let error = load(api, gateway).unwrap_err();
        let expected = format!(
            "t.yaml:3:20: gateway.listen: `{gateway}` is where the HTTP interface listens (`listen.http`, {api}): give one of them another port"
        );
        assert_eq!(error, expected);
    }
    for (api, gateway) in [
        ("127.0.0.1:80", "127.0.0.1:81"),
        ("127.0.0.1:80", "127.0.0.2:80"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.0.0.1:80", "[::1]:80"),
    ] {
        assert!(load(api, gateway).is_ok(), "{api} and {gateway}");
    }
}
