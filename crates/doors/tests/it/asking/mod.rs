//! A door with forward-auth, and the questions of proxies in both dialects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(unreachable_pub, reason = "a module of tests is seen by its file alone")]

use std::sync::Arc;

use axum::http::Method;
use sha2::{Digest, Sha256};
use tollgate_core::{Policies, Policy, Rule};
use tollgate_doors::ForwardAuthSettings;
use tollgate_web::address::X_FORWARDED_FOR;
use tollgate_web::identity::{ApiKey, ApiKeys};
use tollgate_web::{Aliases, Answers, Credentials, TrustedProxies};

use crate::door::{Door, PEER, Reply, StoreKind, rule};

/// The path of forward-auth.
pub const PATH: &str = "/api/v1/forward-auth/";

pub fn policies() -> Policies {
    let rules: Vec<Arc<Rule>> = [
        rule("orders", &["route", "ip"], &["2/hour"]),
        rule("ip", &["ip"], &["2/hour"]),
        rule("page", &["method", "host", "path"], &["2/hour"]),
        rule("search", &["query.q"], &["2/hour"]),
        rule("tenant", &["tenant"], &["2/hour"]),
        rule("secret", &["header.x-tollgate-token"], &["2/hour"]),
        rule("consumer", &["consumer"], &["2/hour"]),
        rule("jobs", &["ip"], &["2 at once for 30s"]),
        rule("strange", &["colour"], &["2/hour"]),
        Rule { on_outage: "deny".parse().unwrap(), ..rule("denying", &["ip"], &["2/hour"]) },
    ]
    .map(Arc::new)
    .into();
    let alone = rules.iter().map(|rule| Policy::new(Arc::clone(&rule.name), vec![Arc::clone(rule)], true));
    Policies::new(true, rules.clone(), alone.collect())
}

pub fn door() -> Door {
    Door::with(policies(), Vec::new(), StoreKind::Memory)
}

pub fn settings() -> ForwardAuthSettings {
    let nets = vec![format!("{PEER}/32").parse().unwrap()];
    let key = |name: &str| ApiKey {
        name: name.into(),
        consumer: Some(name.to_uppercase().into()),
        hash: Sha256::digest(format!("{name}-key")).into(),
    };
    let api_keys = ApiKeys::new("x-api-key".parse().unwrap(), vec![key("ada"), key("bob")]).unwrap();
    ForwardAuthSettings {
        trusted_proxies: TrustedProxies::new(nets, X_FORWARDED_FOR),
        credentials: Credentials::new(Some(api_keys), None).into(),
        aliases: Aliases::new([("tenant", "header.x-tenant")]).unwrap(),
        answers: Answers::default(),
    }
}

/// A door that trusts its peer and has keys.
pub fn trusting() -> Door {
    let door = door();
    door.forward_auth.replace(settings());
    door
}

/// The headers of a proxy in the plain dialect for `GET /`.
pub const TOLD: [(&str, &str); 2] = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];

/// Asks as a proxy does.
pub async fn ask(door: &Door, question: &str, more: &[(&str, &str)]) -> Reply {
    let known = |name: &str| more.iter().any(|(one, _)| *one == name);
    let mut headers: Vec<_> = TOLD.into_iter().filter(|(name, _)| !known(name)).collect();
    headers.extend(more);
    door.send(Method::GET, &format!("{PATH}{question}"), &headers, Vec::new()).await
}

/// As [`ask`], in the dialect of nginx.
pub async fn ask_nginx(door: &Door, question: &str, more: &[(&str, &str)]) -> Reply {
    let known = |name: &str| more.iter().any(|(one, _)| *one == name);
    let told = [("x-original-method", "GET"), ("x-original-uri", "/")];
    let mut headers: Vec<_> = told.into_iter().filter(|(name, _)| !known(name)).collect();
    headers.extend(more);
    let separator = if question.contains('?') { '&' } else { '?' };
    let path = format!("{PATH}{question}{separator}dialect=nginx");
    door.send(Method::GET, &path, &headers, Vec::new()).await
}

/// The count of a key.
pub async fn used(door: &Door, rule: &str, key: &str) -> u64 {
    let key = key.replace('/', "%2F").replace(' ', "%20");
    door.get(&format!("/api/v1/counters/{rule}/{key}")).await.json()["limits"][0]["used"].as_u64().unwrap()
}
