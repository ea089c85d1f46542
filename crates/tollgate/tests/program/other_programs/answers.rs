//! "Why was I limited?": from a denial's body to what every rule read then and reads now, what an observed rule
//! would have denied, and which keys are near their limits.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes::PATIENT;
use crate::program::{Home, Reply, Server, text};
use crate::upstream::Upstream;
use serde_json::{Value, json};
use tollgate_testbed::{Postgres, Server as Redis};

fn home(store: &str, denials: &str, upstream: &Upstream) -> Home {
    Home::with(&format!(
        "store: {store}
{denials}
clients: {{ trusted_proxies: [127.0.0.1] }}
keys:
  - {{ name: app, token_env: APP, role: check }}
  - {{ name: ops, token_env: OPS, role: read }}
  - {{ name: boss, token_env: BOSS, role: admin }}
rules:
  user: {{ by: user, limits: [2/hour, 10/30d] }}
  key: {{ by: api_key, limits: 100/hour, secret: true }}
  new: {{ by: user, limits: 1/hour, on_exceed: observe }}
  client: {{ by: ip, limits: 1/hour }}
policies: {{ api: [user, key, new], web: [client] }}
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ shop: {0} }}
  routes: {{ limited: {{ path: /limited, upstream: shop, policy: web }} }}
",
        upstream.address
    ))
    .variable("APP", "app-token-0123456789")
    .variable("OPS", "ops-token-0123456789")
    .variable("BOSS", "boss-token-0123456789")
}

const APP: &str = "app-token-0123456789";
const OPS: &str = "ops-token-0123456789";

fn check(server: &Server) -> Reply {
    let body = json!({ "policy": "api", "fields": { "user": "ada", "api_key": "hush-hush" } });
    server.ask_as(APP, "POST", "/api/v1/check", Some(&body))
}

fn get(server: &Server, path: &str) -> Reply {
    server.ask_as(OPS, "GET", path, None)
}

fn run(home: &Home, server: &Server, arguments: &[&str]) -> String {
    let mut command = home.program();
    command.env("TOLLGATE_SERVER", server.url()).env("TOLLGATE_TOKEN", OPS).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// What the API says about the rule `user` in a decision.
fn rule_of(decision: &Value, name: &str) -> Value {
    let rules = decision["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["rule"] == name).unwrap_or_else(|| panic!("{decision}")).clone()
}

#[test]
fn a_token_in_the_body_leads_to_every_rule_then_and_now() {
    let upstream = Upstream::start();
    let home = home("memory", "denials: { token: true }", &upstream);
    let server = home.start();
    let first = check(&server);
    assert!(first.status == 200 && first.json()["decision"].is_null(), "only denials have one");
    check(&server);
    let denied = check(&server).json();
    let token = denied["decision"].as_str().unwrap().to_owned();
    assert!(token.len() <= 3_072 && !token.contains("hush"), "{token}");
    let lift = json!({ "limits": "9/hour" });
    server.ask_as("boss-token-0123456789", "PUT", "/api/v1/counters/user/ada", Some(&lift)).ok();
    let decision = get(&server, &format!("/api/v1/decisions/{token}")).ok();
    assert_eq!((&decision["verdict"], &decision["rule"]), (&json!("deny"), &json!("user")));
    assert_eq!((&decision["id"], &decision["complete"]), (&denied["correlationId"], &json!(true)));
    let user = rule_of(&decision, "user");
    assert_eq!((&user["key"], &user["exceeded"]), (&json!("ada"), &json!(true)));
    assert_eq!((&user["then"][0]["limit"], &user["then"][0]["remaining"]), (&json!("2/hour"), &json!(0)));
    assert_eq!((&user["then"][1]["remaining"], &user["now"][0]["remaining"]), (&json!(8), &json!(7)));
    let key = rule_of(&decision, "key");
    assert!(key["key"].as_str().unwrap().starts_with('#') && !decision.to_string().contains("hush"), "{key}");
    assert_eq!(rule_of(&decision, "new")["observed"], true);

    let said = run(&home, &server, &["decisions", "--id", &token]);
    assert!(said.contains("key of user: ada\n"), "{said}");
    assert!(said.contains("user            2/hour") && said.contains("0 of 2"), "{said}");
    let id = denied["correlationId"].as_str().unwrap();
    let said = run(&home, &server, &["decisions", "--id", id]);
    assert!(said.contains("key of user: ada\n") && said.contains("left then"), "{said}");

    let long = "A".repeat(4_000);
    for (token, why) in [("x", "short"), (&token[1..], "cut"), (long.as_str(), "long")] {
        let reply = get(&server, &format!("/api/v1/decisions/{token}"));
        assert!(
            reply.status == 400 && reply.text().contains("not the token of a decision"),
            "{why}: {}",
            reply.text()
        );
    }
    let receipt = first.json()["receipt"].as_str().unwrap().to_owned();
    assert_eq!(get(&server, &format!("/api/v1/decisions/{receipt}")).status, 400, "a receipt is no token");
    let reply = server.ask_as(APP, "GET", &format!("/api/v1/decisions/{token}"), None);
    assert_eq!(reply.status, 403, "a caller that only checks may not look");
    assert_eq!(server.get(&format!("/api/v1/decisions/{token}")).status, 401);
}

#[test]
fn a_link_is_in_the_denials_of_every_http_door_and_a_reload_ends_it() {
    let upstream = Upstream::start();
    let link = "denials: { link: 'https://ops.example.com/decisions/{token}' }";
    let home = home("memory", link, &upstream);
    let server = home.start();
    let url = |reply: Reply| {
        assert_eq!(reply.status, 429, "{}", reply.text());
        reply.json()["decision_url"].as_str().unwrap_or_else(|| panic!("{}", reply.text())).to_owned()
    };
    let at_gateway = || server.gateway().ask("GET", "/limited", &[], None);
    assert_eq!(at_gateway().status, 200);
    let told = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/"), ("x-tollgate-token", APP)];
    let forwarded = server.connect().ask("GET", "/api/v1/forward-auth/web", &told, None);
    let web = json!({ "policy": "web", "fields": { "ip": "127.0.0.1" } });
    let post = |path: &str| server.ask_as(APP, "POST", path, Some(&web));
    for link in [url(at_gateway()), url(forwarded), url(post("/api/v1/check")), url(post("/api/v1/acquire"))]
    {
        let token = link.strip_prefix("https://ops.example.com/decisions/").unwrap();
        let decision = get(&server, &format!("/api/v1/decisions/{token}")).ok();
        assert_eq!(rule_of(&decision, "client")["key"], "127.0.0.1");
        assert!(run(&home, &server, &["decisions", "--id", &link]).contains("key of client: 127.0.0.1\n"));
    }
    let config = std::fs::read_to_string(home.path("tollgate.yaml")).unwrap();
    home.configure(&config.replace(link, ""));
    server.ask_as("boss-token-0123456789", "POST", "/api/v1/reload", None).ok();
    assert!(post("/api/v1/check").json()["decision_url"].is_null());
}

#[test]
fn a_token_of_one_node_is_opened_by_another_and_by_no_other_store() {
    let upstream = Upstream::start();
    let (redis, postgres) = (Redis::redis().start(), Postgres::start());
    let stores = [
        format!("{{ redis: '{}', {PATIENT} }}", redis.url()),
        format!("{{ postgres: '{}', command_timeout: 5s }}", postgres.url()),
    ];
    let mut tokens = Vec::new();
    for store in &stores {
        let homes = [0, 1].map(|_| home(store, "denials: { token: true }", &upstream));
        let (one, two) = (homes[0].start(), homes[1].start());
        assert_eq!((check(&one).status, check(&one).status), (200, 200));
        let denied = check(&one).json();
        let token = denied["decision"].as_str().unwrap().to_owned();
        let decision = get(&two, &format!("/api/v1/decisions/{token}")).ok();
        assert_eq!(rule_of(&decision, "user")["now"][0]["remaining"], 0, "{decision}");
        for other in &tokens {
            assert_eq!(get(&two, &format!("/api/v1/decisions/{other}")).status, 400, "of another store");
        }
        tokens.push(token);
    }
}

#[test]
fn observed_rules_and_near_keys_are_named() {
    let upstream = Upstream::start();
    let home = home("memory", "", &upstream);
    let server = home.start();
    (0..3).for_each(|_| drop(check(&server)));
    let top = get(&server, "/api/v1/top").ok();
    let observed = &top["observed"][0];
    assert_eq!((&observed["rule"], &observed["key"]), (&json!("new"), &json!("ada")));
    assert_eq!(observed["would_deny"], 2);
    let near = &top["nearest"][0];
    assert_eq!(
        (&near["rule"], &near["key"], &near["limit"]),
        (&json!("user"), &json!("ada"), &json!("2/hour"))
    );
    assert_eq!((&near["used"], &near["capacity"], &near["share"]), (&json!(2), &json!(2), &json!(1.0)));
    let found = get(&server, "/api/v1/decisions?observed=new").ok();
    assert_eq!(found["decisions"].as_array().unwrap().len(), 2);
    assert_eq!(found["decisions"][1]["verdict"], "allow");
    assert_eq!(found["decisions"][1]["observed"], json!(["new"]));
    let said = run(&home, &server, &["decisions", "--observed", "new"]);
    assert!(said.contains("new (observed)"), "{said}");
    let said = run(&home, &server, &["top", "--once"]);
    assert!(said.contains("observed rule") && said.contains("would deny"), "{said}");
    let said = run(&home, &server, &["top", "--near", "--once"]);
    assert!(said.contains("user  ada  2/hour  2 of 2  100 %"), "{said}");
    server.ask_as("boss-token-0123456789", "DELETE", "/api/v1/counters/user/ada", None).ok();
    assert_eq!(get(&server, "/api/v1/top").ok()["nearest"], json!([]), "it was reset");
}
