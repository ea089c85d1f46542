//! The server around the decisions: roles, the journal, metrics, health, reloads, the OpenAPI document.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::door::{self, Door, documented};
use axum::http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_doors::{AccessKey, Role};

/// Every endpoint, with a valid request and the lowest role that may send it.
const ENDPOINTS: &[(&str, &str, &str, &str)] = &[
    ("POST", "/api/v1/check", r#"{"policy":"mail.accept","fields":{"ip":"10.0.0.1"}}"#, "check"),
    ("POST", "/api/v1/acquire", r#"{"policy":"mail.accept","fields":{"ip":"10.0.0.1"}}"#, "check"),
    ("POST", "/api/v1/paced/pace/retry-after", r#"{"retry_after":7,"fields":{"ip":"10.0.0.1"}}"#, "check"),
    ("GET", "/api/v1/paced/pace", "", "read"),
    ("DELETE", "/api/v1/paced/pace/retry-after", "", "admin"),
    ("POST", "/api/v1/refund", r#"{"receipt":"x"}"#, "check"),
    ("POST", "/api/v1/guards/login/begin", r#"{"fields":{"user":"ada"}}"#, "check"),
    ("POST", "/api/v1/guards/finish", r#"{"ticket":"x","outcome":"failure"}"#, "check"),
    ("GET", "/api/v1/guards", "", "read"),
    ("GET", "/api/v1/guards/login/locks", "", "read"),
    ("POST", "/api/v1/guards/login/inspect", r#"{"fields":{"user":"ada"}}"#, "read"),
    ("POST", "/api/v1/guards/login/unlock", r#"{"fields":{"user":"ada"}}"#, "admin"),
    ("POST", "/api/v1/holds", r#"{"policy":"jobs","fields":{"account":"a"},"id":"1"}"#, "check"),
    ("POST", "/api/v1/holds/jobs/a/1/renew", "", "check"),
    ("DELETE", "/api/v1/holds/jobs/a/1", "", "check"),
    ("GET", "/api/v1/holds/jobs/a", "", "read"),
    ("PUT", "/api/v1/holds/jobs/a", r#"{"ids":[]}"#, "admin"),
    ("GET", "/api/v1/counters", "", "read"),
    ("DELETE", "/api/v1/counters", "", "admin"),
    ("PUT", "/api/v1/counters/example.org", r#"{"limits":["9/hour"]}"#, "admin"),
    ("DELETE", "/api/v1/counters/sender", "", "admin"),
    ("GET", "/api/v1/counters/ip/10.0.0.1", "", "read"),
    ("PUT", "/api/v1/counters/ip/10.0.0.1", r#"{"limits":["9/hour"]}"#, "admin"),
    ("DELETE", "/api/v1/counters/ip/10.0.0.1", "", "admin"),
    ("DELETE", "/api/v1/counters/ip/10.0.0.1/override", "", "admin"),
    ("GET", "/api/v1/bans", "", "read"),
    ("POST", "/api/v1/bans", r#"{"target":"203.0.113.7"}"#, "admin"),
    ("DELETE", "/api/v1/bans/203.0.113.7", "", "admin"),
    ("POST", "/api/v1/policies", r#"{"name":"made","requestsPerSecond":10,"burstSize":50}"#, "admin"),
    ("GET", "/api/v1/policies", "", "read"),
    ("GET", "/api/v1/policies/made", "", "read"),
    ("PUT", "/api/v1/policies/made", r#"{"limits":"9/hour"}"#, "admin"),
    ("GET", "/api/v1/routes", "", "read"),
    ("PUT", "/api/v1/routes/checkout/rate-limit", r#"{"policy":"made"}"#, "admin"),
    ("GET", "/api/v1/routes/checkout/rate-limit", "", "read"),
    ("DELETE", "/api/v1/routes/checkout/rate-limit", "", "admin"),
    ("DELETE", "/api/v1/policies/made", "", "admin"),
    ("GET", "/api/v1/consumers", "", "read"),
    ("PUT", "/api/v1/consumers/acme/rate-limit", r#"{"limits":"9/hour"}"#, "admin"),
    ("GET", "/api/v1/consumers/acme/rate-limit", "", "read"),
    ("DELETE", "/api/v1/consumers/acme/rate-limit", "", "admin"),
    ("POST", "/api/v1/accounts", r#"{"tenant":"acme","host":"smtp.example.com"}"#, "admin"),
    ("GET", "/api/v1/accounts", "", "read"),
    ("GET", "/api/v1/accounts/acme/main", "", "read"),
    ("PUT", "/api/v1/accounts/acme/main", r#"{"host":"smtp.example.com"}"#, "admin"),
    ("DELETE", "/api/v1/accounts/acme/main", "", "admin"),
    ("POST", "/api/v1/accounts/acme/main/pause", "", "admin"),
    ("POST", "/api/v1/accounts/acme/main/resume", "", "admin"),
    ("POST", "/account", r#"{"tenant_id":"acme","host":"smtp.example.com"}"#, "admin"),
    ("POST", "/api/v1/messages", r#"{"from":"a@example.com","to":"b@example.com"}"#, "check"),
    ("GET", "/api/v1/messages", "", "read"),
    ("GET", "/messages", "", "read"),
    ("GET", "/api/v1/messages/00000000000000000000000000000000", "", "check"),
    ("GET", "/api/v1/messages/00000000000000000000000000000000/text", "", "admin"),
    ("GET", "/api/v1/pauses", "", "read"),
    ("POST", "/api/v1/messages/bulk", "{}", "admin"),
    ("POST", "/api/v1/messages/00000000000000000000000000000000/release", "", "admin"),
    ("POST", "/api/v1/messages/00000000000000000000000000000000/delete", "", "admin"),
    ("POST", "/api/v1/messages/00000000000000000000000000000000/retry", "", "admin"),
    ("POST", "/api/v1/messages/00000000000000000000000000000000/cancel", "", "admin"),
    ("GET", "/api/v1/lanes", "", "read"),
    ("POST", "/api/v1/lanes/pause", "{}", "admin"),
    ("POST", "/api/v1/lanes/resume", "{}", "admin"),
    ("GET", "/api/v1/decisions", "", "read"),
    ("GET", "/api/v1/decisions/x", "", "read"),
    ("GET", "/api/v1/top", "", "read"),
    ("GET", "/api/v1/keys/10.0.0.1", "", "read"),
    ("GET", "/api/v1/rules", "", "read"),
    ("GET", "/api/v1/status", "", "read"),
    ("GET", "/api/v1/status/history", "", "read"),
    ("GET", "/api/v1/status/stream", "", "read"),
    ("GET", "/api/v1/changes", "", "read"),
    ("POST", "/api/v1/session", "", "read"),
    ("GET", "/api/v1/session", "", "read"),
    ("DELETE", "/api/v1/session", "", "read"),
    ("POST", "/api/v1/reload", "", "admin"),
    ("GET", "/metrics", "", "read"),
    ("GET", "/livez", "", "open"),
    ("GET", "/readyz", "", "open"),
    ("GET", "/api/v1/openapi.json", "", "open"),
];

const ROLES: [&str; 4] = ["open", "check", "read", "admin"];

async fn ask(
    door: &Door,
    (method, path, body, _): (&str, &str, &str, &str),
    headers: &[(&str, &str)],
) -> door::Reply {
    door.send(method.parse().expect("a method"), path, headers, body.as_bytes().to_vec()).await
}

/// The only endpoint that accepts every method and has a token header of its own.
const FOR_PROXIES: (&str, &str) = ("GET", "/api/v1/forward-auth/{policy}");

#[tokio::test]
async fn keys_are_replaced_while_the_door_is_open() {
    let door = Door::open();
    let status = async |token: &str| {
        let headers = [("x-api-key", token)];
        door.send(Method::GET, "/api/v1/counters", &headers, Vec::new()).await.status
    };
    assert_eq!(status("old").await, 200, "anybody");
    let key = |name: &str| AccessKey {
        name: name.into(),
        role: Role::Read,
        hash: Sha256::digest(name).into(),
        tenant: None,
    };
    door.keys.replace(vec![key("old")]);
    assert_eq!([status("old").await, status("new").await], [200, 401]);
    door.keys.replace(vec![key("new")]);
    assert_eq!([status("old").await, status("new").await], [401, 200]);
}

#[tokio::test]
async fn every_endpoint_opens_to_its_role_and_those_above() {
    let door = Door::guarded();
    // Streams end after their first event.
    door.live.end();
    for endpoint in ENDPOINTS {
        let least = ROLES.iter().position(|role| *role == endpoint.3).unwrap();
        for (rank, token) in ["checker", "reader", "boss"].iter().enumerate() {
            let reply = ask(&door, *endpoint, &[("authorization", &format!("Bearer {token}"))]).await;
            let admitted = rank + 1 >= least;
            assert_eq!(reply.status != 403, admitted, "{endpoint:?} as {token}: {reply:?}");
            assert_ne!(reply.status, 401, "{endpoint:?} as {token}");
            if !admitted {
                let detail =
                    format!("this needs the role `{}`; the token has `{}`", ROLES[least], ROLES[rank + 1]);
                assert_eq!(reply.detail(), detail);
            }
        }
        for headers in [
            &[][..],
            &[("authorization", "Bearer Boss")],
            &[("x-api-key", "")],
            &[("authorization", "Basic boss")],
        ] {
            let reply = ask(&door, *endpoint, headers).await;
            assert_eq!(reply.status == 401, least > 0, "{endpoint:?} {headers:?}: {reply:?}");
            if least > 0 {
                assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            }
        }
    }
}

#[tokio::test]
async fn a_token_is_read_from_any_of_three_headers() {
    let door = Door::guarded();
    let path = ("DELETE", "/api/v1/counters", "", "admin");
    for header in [("authorization", "bearer  boss"), ("X-API-Key", "boss"), ("X-API-Token", "boss")] {
        assert_eq!(ask(&door, path, &[header]).await.status, 200, "{header:?}");
    }
    assert_eq!(ask(&door, path, &[("authorization", "Basic eDp5"), ("x-api-key", "boss")]).await.status, 200);
    assert_eq!(ask(&door, path, &[("authorization", "Bearer no"), ("x-api-key", "boss")]).await.status, 401);
}

#[tokio::test]
async fn without_keys_everything_is_open() {
    let door = Door::open();
    // Streams end after their first event.
    door.live.end();
    for endpoint in ENDPOINTS {
        assert!(!matches!(ask(&door, *endpoint, &[]).await.status, 401 | 403), "{endpoint:?}");
    }
}

#[tokio::test]
async fn the_journal_and_the_offenders_name_the_denied_keys() {
    let door = Door::open();
    for _ in 0..5 {
        door.check("mail.accept", json!({ "sender": "a@example.com" })).await;
        door.advance(1);
    }
    let shown = door.get("/api/v1/decisions").await.json();
    let decisions = shown["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 5);
    let newest = json!({
        "at": "2026-01-15T10:00:04Z", "policy": "mail.accept", "verdict": "deny", "origin": "store",
        "rule": "sender", "key": "a@example.com", "cost": 1, "retry_after_ms": 3_596_000,
        "keys": [{ "rule": "global", "key": "global" }, { "rule": "sender", "key": "a@example.com" }],
        "id": decisions[0]["id"], "token": decisions[0]["token"],
    });
    assert_eq!(decisions[0], newest);
    assert_eq!(decisions[0]["id"].as_str().unwrap().len(), 16);
    let oldest = json!({
        "at": "2026-01-15T10:00:00Z", "policy": "mail.accept", "verdict": "allow", "origin": "store",
        "rule": null, "key": "global", "cost": 1, "retry_after_ms": null, "id": null,
        "keys": [{ "rule": "global", "key": "global" }, { "rule": "sender", "key": "a@example.com" }],
        "token": decisions[4]["token"],
    });
    assert_eq!(decisions[4], oldest);
    for (query, found) in [
        ("limit=2", 2),
        ("verdict=deny", 2),
        ("verdict=allow&limit=2", 2),
        ("policy=mail.accept", 5),
        ("policy=mail", 0),
        ("rule=sender", 2),
        ("rule=sender&verdict=allow", 0),
        ("key=a%40example.com", 5),
        ("key=global", 5),
        ("key=b%40example.com", 0),
        ("id=nothing", 0),
        ("key=", 0),
    ] {
        let shown = door.get(&format!("/api/v1/decisions?{query}")).await.json();
        assert_eq!(shown["decisions"].as_array().unwrap().len(), found, "{query}");
    }

    let top = door.get("/api/v1/top?limit=1").await.json();
    let offender =
        json!({ "rule": "sender", "key": "a@example.com", "denied": 2, "last": "2026-01-15T10:00:04Z" });
    assert_eq!(top["offenders"], json!([offender]));
    let totals = top["totals"].as_array().unwrap();
    let total = |rule: &str, outcome: &str| {
        let found = totals.iter().find(|total| {
            total["policy"] == "mail.accept" && total["rule"] == rule && total["outcome"] == outcome
        });
        found.map(|total| total["count"].clone())
    };
    assert_eq!((total("", "allow"), total("sender", "deny")), (Some(json!(3)), Some(json!(2))));
}

/// The names and labels of all series, without their values.
fn series(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

#[tokio::test]
async fn metrics_tell_of_decisions_requests_and_usage() {
    let door = Door::open();
    let body = json!({ "policy": "mail.accept", "fields": { "sender": "a@example.com" }, "cost": 3 });
    for _ in 0..3 {
        door.post("/api/v1/check", body.clone()).await;
    }
    door.check("pace", json!({})).await;
    door.get("/nowhere/1").await;
    let accept = [("accept", "application/openmetrics-text;q=0.5,text/plain;q=0.3")];
    let reply = door.send(Method::GET, "/metrics", &accept, Vec::new()).await;
    assert_eq!(
        reply.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    for line in [
        r#"tollgate_decisions_total{policy="mail.accept",rule="",outcome="allow"} 1"#,
        r#"tollgate_decisions_total{policy="mail.accept",rule="sender",outcome="deny"} 2"#,
        r#"tollgate_http_requests_total{method="POST",route="/api/v1/check",status="200"} 2"#,
        r#"tollgate_http_requests_total{method="POST",route="/api/v1/check",status="429"} 2"#,
        r#"tollgate_http_requests_total{method="",route="unmatched",status="404"} 1"#,
        r#"tollgate_http_request_duration_seconds_count{method="POST",route="/api/v1/check"} 4"#,
        r#"tollgate_usage_ratio{rule="pace"} 1.0"#,
        "# TYPE tollgate_decision_duration_seconds histogram",
        "# EOF",
    ] {
        assert!(reply.text.lines().any(|shown| shown == line), "{line}\n{}", reply.text);
    }
    assert!(reply.text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_number_of_series_does_not_depend_on_the_number_of_keys() {
    let door = Door::open();
    let traffic = async |from: usize, to: usize| {
        for n in from..to {
            let fields = json!({ "sender": format!("{n}@example.com"), "api_key": format!("key-{n}") });
            let body = json!({ "policy": "mail.accept", "fields": fields, "cost": 2 });
            door.post("/api/v1/check", body.clone()).await;
            door.post("/api/v1/check", body).await;
            door.get(&format!("/api/v1/counters/sender/{n}@example.com")).await;
            door.get(&format!("/nowhere/{n}")).await;
        }
        door.get("/metrics").await;
        series(&door.get("/metrics").await.text)
    };
    let few = traffic(0, 2).await;
    assert!(few.len() > 20);
    assert_eq!(few, traffic(2, 60).await);
}

#[tokio::test]
async fn health_follows_the_store() {
    let door = Door::open();
    assert_eq!(door.get("/livez").await.json(), json!({ "status": "live" }));
    assert_eq!(door.get("/readyz").await.json(), json!({ "status": "ready" }));
    let door = Door::without_store();
    assert_eq!(door.get("/livez").await.status, 200);
    let reply = door.get("/readyz").await;
    assert_eq!((reply.status, &*reply.detail()), (503, "the store cannot be used: no server is there"));
    for path in ["/api/v1/counters/global/global", "/api/v1/holds/jobs/a"] {
        assert_eq!(door.get(path).await.status, 503, "{path}");
    }
    assert_eq!(door.delete("/api/v1/counters").await.status, 503);
    let page = door.get("/metrics").await;
    assert!(
        page.status == 200 && !page.text.contains("tollgate_usage_ratio{"),
        "the page is there without it"
    );
}

#[tokio::test]
async fn a_reload_is_done_or_says_what_is_wrong() {
    let door = Door::open();
    let reply = door.post("/api/v1/reload", json!({})).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "reloaded": true, "needs_restart": ["listen"] })));
    let reply = door.send(Method::POST, "/api/v1/reload", &[], Vec::new()).await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.detail(), "rules.sender.limits: `100/hou`, character 5: a period is …");
    assert_eq!(door.reloads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_document_and_the_router_know_the_same_routes() {
    let door = Door::open();
    // Streams end after their first event.
    door.live.end();
    let document = door.document().await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            described.insert((method.to_uppercase(), path.clone()));
            let named =
                operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "path").count();
            assert_eq!(named, path.matches('{').count(), "{path}");
            assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()));
        }
    }
    let mut tried = BTreeSet::new();
    for endpoint in ENDPOINTS {
        let method: Method = endpoint.0.parse().unwrap();
        let template = documented(&document, &method, endpoint.1).unwrap_or_else(|| panic!("{endpoint:?}"));
        let operation = &document["paths"][&template][endpoint.0.to_lowercase()];
        let role = format!("Needs the role `{}`.", endpoint.3);
        let expected = if endpoint.3 == "open" { Value::Null } else { json!(role) };
        assert_eq!(operation["description"], expected, "{endpoint:?}");
        let reply = ask(&door, *endpoint, &[]).await;
        assert!(
            !reply.text.contains("there is nothing at this path") && reply.status != 405,
            "{endpoint:?}: {reply:?}"
        );
        tried.insert((endpoint.0.to_owned(), template));
    }
    let (method, path) = FOR_PROXIES;
    tried.insert((method.to_owned(), path.to_owned()));
    assert_eq!(tried, described, "every documented route was tried, and every one tried is documented");
    // The router states the methods of a path. Each must be documented there, or at a longer path.
    for (_, path, ..) in ENDPOINTS {
        let reply = door.send(Method::PATCH, path, &[], Vec::new()).await;
        for method in reply.header("allow").unwrap().split(',').filter(|method| *method != "HEAD") {
            let method: Method = method.parse().unwrap();
            let mut longer = ["", "/1", "/renew", "/1/renew"].iter().map(|more| format!("{path}{more}"));
            assert!(longer.any(|path| documented(&document, &method, &path).is_some()), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_documents_schemas_are_all_found_and_described() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    found.insert(reference.clone());
                }
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = Door::open().document().await;
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let known: BTreeSet<String> = schemas.keys().map(|name| format!("#/components/schemas/{name}")).collect();
    assert_eq!(found, known, "nothing is missing and nothing is left over");
    let mut compiled = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("urn:api", document.clone()).unwrap();
    for reference in &found {
        compiler.compile(&format!("urn:api{reference}"), &mut compiled).unwrap();
    }
    let check =
        &document["paths"]["/api/v1/check"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    let root = json!({ "components": document["components"], "allOf": [check] });
    compiler.add_resource("urn:check", root).unwrap();
    let index = compiler.compile("urn:check", &mut compiled).unwrap();
    let attempt = json!({ "policy": "p", "fields": { "a": "x", "b": 1, "c": true }, "cost": 1, "id": "i", "dry_run": false });
    assert!(compiled.validate(&attempt, index).is_ok());
    assert!(compiled.validate(&json!({ "attempts": [attempt] }), index).is_ok());
    for wrong in [
        json!({ "policy": 1 }),
        json!({ "polcy": "p" }),
        json!({ "policy": "p", "cost": -1 }),
        json!({ "attempts": [7] }),
    ] {
        assert!(compiled.validate(&wrong, index).is_err(), "{wrong}");
    }
}
