//! Servers that accept only clients with a certificate: Redis, as by default, PostgreSQL, and an upstream.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use crate::nodes::{comes_back, readiness};
use crate::program::{Home, Server, text, wait_until};
use tollgate_testbed::{Front, Postgres, Server as Redis};

const RULES: &str =
    "log: { format: json }\nrules: { a: { by: user, limits: 100/hour } }\npolicies: { a: [a] }\n";

/// A node whose store is reached with these settings.
fn node(store: &str) -> (Home, Server) {
    let home = Home::with(&format!("store: {{ {store} }}\n{RULES}"));
    let server = home.start();
    (home, server)
}

/// With its certificate the store decides.
fn works_with(store: &str, [certificate, key]: [&Path; 2]) {
    let shown = format!("tls_certificate: {}, tls_key: {}", certificate.display(), key.display());
    let (_home, server) = node(&format!("{store}, {shown}"));
    comes_back(&server, "a");
    assert_eq!(readiness(&server), "ready");
    assert!(!server.log().contains("PRIVATE KEY"), "the key is a secret");
}

#[test]
fn redis_gets_the_certificate_that_it_asks_for() {
    let redis = Redis::redis().tls_with_client_certificates().start();
    let store = format!(
        "redis: '{}', tls_ca: {}, command_timeout: 500ms, connect_timeout: 2s",
        redis.url(),
        redis.authority().display()
    );
    let (_home, refused) = node(&store);
    wait_until("the cause is the certificate", || {
        let ready = refused.get("/readyz").ok();
        ready["cause"].as_str().is_some_and(|cause| cause.contains("CertificateRequired"))
    });
    works_with(&store, redis.identity());
}

#[test]
fn postgres_gets_the_certificate_that_it_asks_for() {
    let postgres = Postgres::start_with_client_certificates();
    let store = format!(
        "postgres: '{}?sslmode=require', tls_ca: {}, command_timeout: 500ms, connect_timeout: 2s",
        postgres.url(),
        postgres.authority().display()
    );
    let refused = Home::with(&format!("store: {{ {store} }}\n{RULES}")).refused();
    assert!(text(&refused.stderr).contains("requires a valid client certificate"), "{refused:?}");
    works_with(&store, postgres.identity());
}

#[test]
fn an_upstream_gets_the_certificate_that_it_asks_for() {
    // Its certificates are by the authority that nginx trusts.
    let redis = Redis::redis().tls().start();
    let [certificate, key] = redis.identity().map(|file| file.display().to_string());
    let authority = redis.authority().display();
    let front = Front::nginx().start(|port, _| {
        format!(
            "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key}; \
             ssl_client_certificate {authority}; ssl_verify_client on; \
             location / {{ return 200 $ssl_client_verify; }} }}"
        )
    });
    let served = |shown: &str| {
        let home = Home::with(&format!(
            "store: memory\ngateway:\n  listen: 127.0.0.1:0\n  upstreams:\n    app: {{ addresses: ['127.0.0.1:{}'], \
             tls: {{ ca: {authority}{shown} }} }}\n  routes: {{ all: {{ upstream: app }} }}\n",
            front.port()
        ));
        let server = home.start();
        let reply = server.gateway().ask("GET", "/", &[], None);
        (reply.status, reply.text().to_owned())
    };
    assert_eq!(served("").0, 400, "nginx wants one");
    assert_eq!(served(&format!(", certificate: {certificate}, key: {key}")), (200, "SUCCESS".to_owned()));
}

#[test]
fn half_a_pair_and_a_pair_that_does_not_fit_are_refused_where_they_stand() {
    let (one, other) = (Redis::redis().tls().start(), Redis::redis().tls().start());
    let [certificate, key] = one.identity().map(|file| file.display().to_string());
    let foreign = other.identity()[1].display().to_string();
    for (written, path, words) in [
        (format!("tls_certificate: {certificate}"), "store.tls_certificate", "Add `tls_key`"),
        (format!("tls_key: {key}"), "store.tls_key", "Add `tls_certificate`"),
        (
            format!("tls_certificate: {certificate}, tls_key: {foreign}"),
            "store.tls_certificate",
            "not the one",
        ),
        (
            format!("tls_certificate: {key}, tls_key: {key}"),
            "store.tls_certificate",
            "has no `-----BEGIN CERT",
        ),
    ] {
        let home = Home::with(&format!("store: {{ redis: 'rediss://127.0.0.1', {written} }}\n{RULES}"));
        let refused = home.refused();
        let said = text(&refused.stderr);
        assert!(said.contains(path) && said.contains(words), "{written}: {said}");
        assert!(!said.contains("PRIVATE KEY-----\nM"), "{said}");
    }
}
