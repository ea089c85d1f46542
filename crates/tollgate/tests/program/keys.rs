//! Access keys: the three sources of a token, what each role may do, and that a server without keys listens only
//! on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{self, Home, Server, text};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const CHECK: &str = "check-token-0123456789";
const READ: &str = "read-token-0123456789";
const ADMIN: &str = "admin-token-0123456789";

fn home() -> Home {
    let hash = data_encoding::HEXLOWER.encode(&Sha256::digest(ADMIN));
    let home = Home::with(&format!(
        "store: memory
keys:
  - {{ name: app, role: check, token_env: APP_TOKEN }}
  - {{ name: eye, role: read, token_file: ./eye.token }}
  - {{ name: ops, role: admin, token_sha256: {hash} }}
rules: {{ one: {{ by: user, limits: [10/hour, 5 at once] }} }}
policies: {{ p: [one] }}
"
    ))
    .variable("APP_TOKEN", CHECK);
    std::fs::write(home.path("eye.token"), format!("{READ}\n")).unwrap();
    home
}

/// Requests, and the role that each needs.
fn questions() -> [(&'static str, &'static str, Option<Value>, usize); 9] {
    let attempt = json!({ "policy": "p", "fields": { "user": "ada" }, "cost": 0 });
    [
        ("POST", "/api/v1/check", Some(attempt), 0),
        ("DELETE", "/api/v1/holds/one/ada/1", None, 0),
        ("GET", "/api/v1/counters", None, 1),
        ("GET", "/api/v1/decisions", None, 1),
        ("GET", "/metrics", None, 1),
        ("PUT", "/api/v1/counters/one/bob", Some(json!({ "limits": ["5/hour"] })), 2),
        ("DELETE", "/api/v1/counters/one/ada", None, 2),
        ("PUT", "/api/v1/holds/one/ada", Some(json!({ "ids": [] })), 2),
        ("POST", "/api/v1/reload", None, 2),
    ]
}

fn is_problem(reply: &program::Reply, status: u16) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["status"], status);
}

fn works(server: &Server) {
    for (method, path, body, needed) in questions() {
        for (role, token) in [CHECK, READ, ADMIN].into_iter().enumerate() {
            let reply = server.ask_as(token, method, path, body.as_ref());
            if role >= needed {
                assert_eq!(reply.status, 200, "{method} {path} as {token}: {}", reply.text());
            } else {
                is_problem(&reply, 403);
            }
        }
        is_problem(&server.ask(method, path, body.as_ref()), 401);
        is_problem(&server.ask_as("check-token-012345678", method, path, body.as_ref()), 401);
        is_problem(&server.ask_as("", method, path, body.as_ref()), 401);
    }
}

#[test]
fn each_token_permits_the_actions_of_its_role() {
    let home = home();
    let server = home.start();
    works(&server);
}

#[test]
fn a_key_with_a_tenant_reaches_only_what_carries_that_tenant() {
    let home = Home::with(
        "store: memory
keys:
  - { name: ops, role: admin, token_env: OPS }
  - { name: globex-app, role: check, tenant: globex, token_env: GLOBEX_APP }
  - { name: globex-boss, role: admin, tenant: globex, token_env: GLOBEX_BOSS }
rules:
  account: { by: [tenant, account], limits: [100/hour] }
  sender: { by: sender, limits: [100/hour] }
policies: { deliver: [account], accept: [sender] }
",
    );
    let home = home.variable("OPS", ADMIN).variable("GLOBEX_APP", CHECK).variable("GLOBEX_BOSS", READ);
    let server = home.start();
    let attempt = |tenant: &str| {
        let fields = json!({ "tenant": tenant, "account": "main" });
        json!({ "policy": "deliver", "fields": fields, "cost": 99 })
    };
    let sender = json!({ "policy": "accept", "fields": { "sender": "a@acme.example" } });
    let unlimited = json!({ "limits": "unlimited" });
    for path in ["/api/v1/check", "/api/v1/acquire"] {
        is_problem(&server.ask_as(CHECK, "POST", path, Some(&attempt("acme"))), 403);
        is_problem(&server.ask_as(CHECK, "POST", path, Some(&sender)), 403);
    }
    let others: [(&str, &str, Option<&Value>); 8] = [
        ("GET", "/api/v1/counters/account/acme,main", None),
        ("GET", "/api/v1/status", None),
        ("GET", "/metrics", None),
        ("PUT", "/api/v1/counters/account/globex,main", Some(&unlimited)),
        ("DELETE", "/api/v1/counters", None),
        ("DELETE", "/api/v1/counters/account/globex,main", None),
        ("GET", "/api/v1/bans", None),
        ("POST", "/api/v1/reload", None),
    ];
    for (method, path, body) in others {
        is_problem(&server.ask_as(READ, method, path, body), 403);
    }
    // Its own account works, and the other's is untouched.
    assert_eq!(server.ask_as(CHECK, "POST", "/api/v1/check", Some(&attempt("globex"))).status, 200);
    let own = server.ask_as(READ, "GET", "/api/v1/counters/account/globex,main", None).json();
    assert_eq!(own["limits"][0]["used"], 99, "{own}");
    assert_eq!(server.ask_as(ADMIN, "POST", "/api/v1/check", Some(&attempt("acme"))).status, 200);
    let seen = server.ask_as(READ, "GET", "/api/v1/decisions", None).json().to_string();
    assert!(seen.contains("globex,main") && !seen.contains("acme"), "{seen}");
}

#[test]
fn a_token_may_come_in_three_headers_and_nowhere_else() {
    let home = home();
    let server = home.start();
    let ask = |headers: &[(&str, &str)], path: &str| server.connect().ask("GET", path, headers, None).status;
    let bearer = format!("Bearer {READ}");
    for header in [("authorization", bearer.as_str()), ("x-api-key", READ), ("x-api-token", READ)] {
        assert_eq!(ask(&[header], "/metrics"), 200, "{header:?}");
    }
    assert_eq!(ask(&[("authorization", READ)], "/metrics"), 401);
    assert_eq!(ask(&[], &format!("/metrics?token={READ}")), 401);
}

#[test]
fn health_checks_and_the_openapi_document_need_no_token() {
    let home = home();
    let server = home.start();
    for path in ["/livez", "/readyz", "/api/v1/openapi.json"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

#[test]
fn keys_are_reloaded_all_or_none() {
    let home = home();
    let server = home.start();
    let config = std::fs::read_to_string(home.path("tollgate.yaml")).unwrap();
    let reload = |status: u16| {
        let reply = server.ask_as(ADMIN, "POST", "/api/v1/reload", None);
        assert_eq!(reply.status, status, "{}", reply.text());
    };
    let status = |token: &str| server.ask_as(token, "GET", "/api/v1/counters", None).status;
    let mut kept = server.connect();
    let mut ask = |token: &str| kept.ask("GET", "/metrics", &[("x-api-key", token)], None).status;
    assert_eq!([status(READ), ask(READ)], [200, 200]);

    let changed = "another-token-0123456789";
    std::fs::write(home.path("eye.token"), changed).unwrap();
    reload(200);
    assert_eq!([status(READ), ask(READ)], [401, 401], "also on a connection that was open before");
    assert_eq!([status(changed), ask(changed)], [200, 200]);

    // The policies are invalid, so the keys stay unchanged too.
    let without = config.replace("  - { name: eye, role: read, token_file: ./eye.token }\n", "");
    home.configure(&without.replace("p: [one]", "p: [two]"));
    reload(422);
    assert_eq!(status(changed), 200);
    home.configure(&without);
    reload(200);
    assert_eq!([status(changed), status(ADMIN)], [401, 200]);

    let start = config.find("keys:").unwrap();
    let none = format!("{}{}", &config[..start], &config[config.find("rules:").unwrap()..]);
    home.configure(&none);
    reload(422);
    assert_eq!(server.get("/metrics").status, 401, "what is half-written opens nothing");
    let log = server.stop();
    assert!(log.contains("there are no access keys left") && !log.contains("needs a restart"), "{log}");
}

#[test]
fn without_keys_the_server_listens_on_loopback_only() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let home = Home::empty().variable("TOLLGATE__LISTEN__HTTP", &format!("'{address}'"));
        let refused = home.refused();
        assert_eq!(refused.status.code(), Some(2));
        let said = text(&refused.stderr);
        assert!(said.contains("no access keys") && said.contains("keys"), "{said}");
        assert_eq!(text(&refused.stdout), "");
        assert!(!home.path("tollgate.redb").exists(), "nothing was begun");
    }
}

#[test]
fn a_token_that_is_not_there_is_refused_by_name() {
    let absent = home();
    std::fs::remove_file(absent.path("eye.token")).unwrap();
    let short = home().variable("APP_TOKEN", "t00-short");
    for (home, named) in [(absent, "eye.token"), (short, "APP_TOKEN")] {
        let refused = home.refused();
        assert_eq!(refused.status.code(), Some(2));
        let said = text(&refused.stderr);
        assert!(said.contains(named), "{said}");
        assert!(!said.contains(CHECK) && !said.contains("t00-short"), "{said}");
    }
}

#[test]
fn wrong_tokens_are_logged_with_their_address_and_slow_down_only_sign_ins_of_it() {
    let home = Home::with(
        "store: memory
log: { format: json }
keys: [{ name: ops, role: admin, token_env: OPS }]
clients: { trusted_proxies: [127.0.0.1] }
rules: { one: { by: user, limits: 10/hour } }
policies: { p: [one] }
",
    )
    .variable("OPS", ADMIN);
    let server = home.start();
    let wrong = "a-wrong-token-0123456789";
    let ask = |client: &str, token: &str, method: &str, path: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("x-forwarded-for", client)];
        server.connect().ask(method, path, &headers, None)
    };
    let sign_in = |client: &str, token: &str| ask(client, token, "POST", "/api/v1/session");
    for _ in 0..5 {
        is_problem(&sign_in("203.0.113.1", wrong), 401);
    }
    let refused = sign_in("203.0.113.1", wrong);
    is_problem(&refused, 429);
    let waits: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&waits), "{waits}");
    assert_eq!(sign_in("203.0.113.2", ADMIN).status, 200);
    for _ in 0..100 {
        is_problem(&ask("203.0.113.3", wrong, "GET", "/metrics"), 401);
    }
    assert_eq!(ask("203.0.113.3", ADMIN, "GET", "/metrics").status, 200);
    let log = server.stop();
    assert!(!log.contains(wrong) && !log.contains(ADMIN), "{log}");
    let lines = |what: &str| -> Vec<Value> {
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["msg"] == what).collect()
    };
    let failed = lines("sign-in failed: wrong token");
    assert_eq!(failed.len(), 5, "{log}");
    assert_eq!([&failed[0]["level"], &failed[0]["client"]], ["warn", "203.0.113.1"]);
    let requests = lines("a request has a wrong token");
    assert!(requests.iter().all(|line| line["client"] == "203.0.113.3"), "{log}");
    // The limiter of the log lets fifty through at once, and ten a second.
    assert!((50..100).contains(&requests.len()), "{} lines", requests.len());
}
