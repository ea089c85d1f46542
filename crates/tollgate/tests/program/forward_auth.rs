//! A proxy asks the real program: the connection identifies the proxy, and keys protect this door too.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Reply, Server};
use serde_json::Value;

const CONFIG: &str = "store: memory
rules: { ip: { by: ip, limits: [2/hour] } }
policies: { p: [ip] }
";

fn ask(server: &Server, query: &str, headers: &[(&str, &str)]) -> Reply {
    let told = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/"),
        ("x-original-method", "GET"),
        ("x-original-uri", "/"),
    ];
    let headers: Vec<_> = told.into_iter().chain(headers.iter().copied()).collect();
    let path = format!("/api/v1/forward-auth/p{query}");
    server.connect().ask("GET", &path, &headers, None)
}

#[test]
fn an_untrusted_proxy_counts_as_the_client_on_loopback_too() {
    let server = Home::with(CONFIG).start();
    for (query, address) in [("", "198.51.100.1"), ("?dialect=nginx", "198.51.100.2")] {
        let passed = ask(&server, query, &[("x-forwarded-for", address)]);
        assert_eq!((passed.status, passed.header("x-ratelimit-limit")), (200, Some("2")));
    }
    let denied = ask(&server, "", &[("x-forwarded-for", "198.51.100.3")]);
    assert_eq!((denied.status, &denied.json()["denied_key"]), (429, &"127.0.0.1".into()));
    assert!(denied.header("retry-after").is_some());
    let denied = ask(&server, "?dialect=nginx", &[]);
    assert_eq!((denied.status, denied.header("x-tollgate-status")), (403, Some("429")));
}

#[test]
fn a_head_that_cannot_be_read_is_refused_in_no_dialect() {
    let server = Home::with(CONFIG).start();
    let names: Vec<String> = (0..100).map(|number| format!("x-{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (&**name, "1")).collect();
    for query in ["", "?dialect=nginx"] {
        let refused = ask(&server, query, &many);
        assert_eq!((refused.status, refused.header("x-tollgate-status")), (431, None));
        assert_eq!(ask(&server, query, &many[..50]).status, 200);
    }
}

#[test]
fn where_there_are_keys_a_proxy_needs_one_of_them() {
    let keys = "keys: [{ name: proxy, role: check, token_env: PROXY_TOKEN }]\n";
    let home = Home::with(&format!("{CONFIG}{keys}")).variable("PROXY_TOKEN", "proxy-token-0123456789");
    let server = home.start();
    assert_eq!(ask(&server, "", &[("authorization", "Bearer proxy-token-0123456789")]).status, 500);
    assert_eq!(ask(&server, "", &[("x-tollgate-token", "proxy-token-0123456789")]).status, 200);
}

#[test]
fn misconfigured_proxies_are_logged_but_not_at_every_request() {
    let server = Home::with(&format!("{CONFIG}log: {{ format: json }}\n")).start();
    for _ in 0..3 {
        assert_eq!(server.connect().ask("GET", "/api/v1/forward-auth/q", &[], None).status, 500);
        ask(&server, "", &[("x-forwarded-for", "198.51.100.1")]);
    }
    let log = server.stop();
    let lines = |message: &str| -> Vec<Value> {
        let lines = log.lines().filter(|line| line.contains(message));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let wrong = lines("a proxy is misconfigured");
    assert_eq!(wrong.len(), 1, "{log}");
    assert_eq!(wrong[0]["asked"], "/api/v1/forward-auth/q");
    assert!(wrong[0]["error"].as_str().unwrap().contains("there is no policy"), "{}", wrong[0]);
    let untrusted = lines("all clients behind it count as one");
    assert_eq!(untrusted.len(), 1, "{log}");
    assert_eq!(untrusted[0]["peer"], "127.0.0.1");
}

#[test]
fn a_proxy_that_is_trusted_is_nothing_to_warn_of() {
    let server = Home::with(&format!("{CONFIG}clients: {{ trusted_proxies: 127.0.0.1 }}\n")).start();
    assert_eq!(ask(&server, "", &[("x-forwarded-for", "198.51.100.1")]).status, 200);
    let log = server.stop();
    assert!(!log.contains("forward-auth"), "{log}");
}
