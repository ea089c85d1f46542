//! From a correlation id to the log line and the decision, at every door of the real program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Reply, Server, text};
use crate::upstream::Upstream;
use serde_json::{Value, json};

fn home(upstream: &Upstream) -> Home {
    Home::with(&format!(
        "store: memory
log: {{ format: json }}
clients: {{ trusted_proxies: [127.0.0.1] }}
fields: {{ domain: {{ of: sender }} }}
rules:
  sender: {{ by: sender, limits: 1/min }}
  domain: {{ by: domain, limits: 2/day }}
  client: {{ by: ip, limits: 1/hour }}
  secret: {{ by: api_key, limits: 100/hour, secret: true }}
  logins: {{ by: user, limits: ladder 1 lock 15m, secret: false }}
policies:
  mail: [sender, domain, secret]
  web: [client]
  logins: [logins]
guards: {{ login: {{ policy: logins }} }}
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ shop: {0} }}
  routes:
    limited: {{ path: /limited, upstream: shop, policy: web }}
    open: {{ path: /open, upstream: shop }}
",
        upstream.address
    ))
}

fn check(server: &Server, fields: &Value, id: Option<&str>) -> Reply {
    let headers: Vec<(&str, &str)> = id.map(|id| ("x-correlation-id", id)).into_iter().collect();
    let body = json!({ "policy": "mail", "fields": fields });
    server.connect().ask("POST", "/api/v1/check", &headers, Some(&body))
}

/// The only decision with an id.
fn found(server: &Server, id: &str) -> Value {
    let decisions = server.get(&format!("/api/v1/decisions?id={id}")).ok()["decisions"].clone();
    assert_eq!(decisions.as_array().unwrap().len(), 1, "{id}: {decisions}");
    assert_eq!(decisions[0]["id"], id);
    decisions[0].clone()
}

/// The log line with an id.
fn line(server: &Server, id: &str) -> Value {
    server.wait_for_log(&format!("\"correlation\":\"{id}\""));
    let log = server.log();
    let line = log.lines().find(|line| line.contains(&format!("\"correlation\":\"{id}\""))).unwrap();
    serde_json::from_str(line).unwrap()
}

#[test]
fn the_id_of_a_refusal_leads_to_the_log_and_to_the_decision() {
    let upstream = Upstream::start();
    let home = home(&upstream);
    let server = home.start();
    let sender = json!({ "sender": "a@example.com", "api_key": "hush-hush" });
    assert_eq!(check(&server, &sender, Some("first")).status, 200);
    assert_eq!(found(&server, "first")["verdict"], "allow");
    assert_eq!(check(&server, &sender, Some("my-id")).status, 429);
    let refused = check(&server, &sender, None);
    let made_up = refused.header("x-correlation-id").unwrap().to_owned();
    assert_eq!(refused.json()["correlationId"], made_up);
    for id in ["my-id", &made_up] {
        let decision = found(&server, id);
        assert_eq!((&decision["verdict"], &decision["rule"]), (&json!("deny"), &json!("sender")));
        let line = line(&server, id);
        assert_eq!((&line["msg"], &line["denied_by"]), (&json!("rate limit exceeded"), &json!("sender")));
        let run = home.run(&server, &["decisions", "--id", id]);
        let said = text(&run.stdout);
        assert!(said.contains("key of sender: a@example.com\nkey of domain: example.com\n"), "{said}");
        assert!(!said.contains("hush"), "{said}");
    }
    let none = home.run(&server, &["decisions", "--id", "other"]);
    assert_eq!(none.status.code(), Some(1));
    let said = "no decision has the id other: the journal of this node has 3 decisions, the oldest of 20";
    assert!(text(&none.stdout).starts_with(said), "{}", text(&none.stdout));
    // Several attempts of one request share its id.
    let two = json!({ "attempts": [{ "policy": "mail", "fields": sender }, { "policy": "mail", "fields": sender }] });
    let batch = server.post("/api/v1/check", &two).ok();
    let id = batch["decisions"][0]["correlationId"].as_str().unwrap();
    let both = server.get(&format!("/api/v1/decisions?id={id}")).ok()["decisions"].clone();
    assert_eq!(both.as_array().unwrap().len(), 2, "{batch}");
}

#[test]
fn the_other_doors_tell_their_ids_too() {
    let upstream = Upstream::start();
    let home = home(&upstream);
    let server = home.start();
    let web = |id: &str| server.gateway().ask("GET", "/limited", &[("x-correlation-id", id)], None);
    assert_eq!(web("allowed").status, 200);
    assert_eq!(web("at-the-gateway").status, 429);
    let made_up = server.gateway().ask("GET", "/limited", &[], None);
    let made_up = made_up.header("x-correlation-id").unwrap().to_owned();
    let told = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/"), ("x-correlation-id", "forwarded")];
    assert_eq!(server.connect().ask("GET", "/api/v1/forward-auth/web", &told, None).status, 429);
    let acquire = json!({ "policy": "web", "fields": { "ip": "127.0.0.1" } });
    let headers = [("x-correlation-id", "acquired")];
    assert_eq!(server.connect().ask("POST", "/api/v1/acquire", &headers, Some(&acquire)).status, 429);
    for id in ["at-the-gateway", &made_up, "forwarded", "acquired"] {
        assert_eq!(found(&server, id)["rule"], "client", "{id}");
        assert_eq!(line(&server, id)["key"], "127.0.0.1", "{id}");
    }
    let begin = json!({ "fields": { "user": "ada" } });
    let login = |id: &str| {
        server.connect().ask("POST", "/api/v1/guards/login/begin", &[("x-correlation-id", id)], Some(&begin))
    };
    assert_eq!((login("one").status, login("two").status), (200, 429));
    assert_eq!(found(&server, "two")["rule"], "logins");
    assert_eq!(line(&server, "two")["denied_by"], "logins");
}

#[test]
fn a_blocked_caller_is_found_with_the_entry_that_blocks_it() {
    let upstream = Upstream::start();
    let home = home(&upstream);
    let server = home.start();
    let ban = json!({ "target": "127.0.0.0/8", "reason": "too many probes", "for": "1h" });
    let set = server.post("/api/v1/bans", &ban);
    assert!(set.status < 300, "{}", set.text());
    for (path, id) in [("/limited", "with-a-policy"), ("/open", "without-one")] {
        let blocked = server.gateway().ask("GET", path, &[("x-correlation-id", id)], None);
        assert_eq!((blocked.status, blocked.header("x-correlation-id")), (403, Some(id)));
        assert!(!blocked.text().contains("probes"), "the reason is not public: {}", blocked.text());
        let decision = found(&server, id);
        let listing = &decision["listing"];
        assert_eq!(
            (&listing["target"], &listing["reason"]),
            (&json!("127.0.0.0/8"), &json!("too many probes"))
        );
        assert!(listing["until"].is_string() && listing["author"].is_string(), "{listing}");
        let line = line(&server, id);
        assert_eq!((&line["msg"], &line["target"]), (&json!("blocked"), &json!("127.0.0.0/8")));
        assert_eq!((&line["reason"], &line["ends_in"]), (&json!("too many probes"), &json!("1h")));
    }
    let run = home.run(&server, &["decisions", "--id", "with-a-policy"]);
    let said = text(&run.stdout);
    assert!(said.contains("blocked by the entry 127.0.0.0/8, set by "), "{said}");
    assert!(said.contains(": too many probes\nkey of client: 127.0.0.1\n"), "{said}");
    // The caller's own address finds it too.
    let run = home.run(&server, &["decisions", "--key", "127.0.0.1", "--json"]);
    assert!(text(&run.stdout).contains("with-a-policy"), "{}", text(&run.stdout));
}

#[test]
fn every_key_of_an_attempt_is_searched_and_the_rule_behind_the_time_is_named() {
    let upstream = Upstream::start();
    let home = home(&upstream);
    let server = home.start();
    let send = |sender: &str| check(&server, &json!({ "sender": sender }), None);
    assert_eq!((send("a@example.com").status, send("b@example.com").status), (200, 200));
    let refused = send("a@example.com").json();
    assert_eq!(refused["denied_by"], "sender");
    let (detail, wait) = (refused["detail"].as_str().unwrap(), refused["retry_after"].as_u64().unwrap());
    let expected = format!(
        "sender a@example.com exceeded 1/min; retry after {wait} s, because of domain example.com (2/day)"
    );
    assert_eq!(detail, expected);
    assert!(wait > 80_000, "{wait}");
    let only = send("c@example.com").json();
    assert!(only["detail"].as_str().unwrap().ends_with(" s"), "the named rule needs no other: {only}");
    let count = |query: &str| {
        server.get(&format!("/api/v1/decisions?{query}")).ok()["decisions"].as_array().unwrap().len()
    };
    assert_eq!([count("key=example.com"), count("key=a@example.com"), count("key=b@example.com")], [4, 2, 1]);
    assert_eq!(count("key=example.com&rule=sender"), 1);
    let id = refused["correlationId"].as_str().unwrap();
    assert_eq!(line(&server, id)["retry_by"], "domain");
}
