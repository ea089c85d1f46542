//! Derived fields at every door of the real program: a missing field is derived from its source.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Server};
use crate::upstream::Upstream;
use serde_json::{Value, json};

const CONFIG: &str = "
store: memory
log: { format: json }
fields:
  domain: { of: sender }
  network: { of: ip, ip: { v4: 24, v6: 48 } }
rules:
  domain: { by: domain, limits: 2/hour }
  sender: { by: sender, limits: 100/hour }
  network: { by: network, limits: 2/hour }
  logins: { by: domain, limits: ladder 2 lock 15m, secret: false }
policies:
  mail: [domain, sender]
  web: [network]
guards:
  login: { policy: logins }
";

fn config(upstream: &Upstream) -> String {
    let config = CONFIG.replace("  web: [network]\n", "  web: [network]\n  logins: [logins]\n");
    format!(
        "{config}
clients:
  trusted_proxies: [127.0.0.1]
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ shop: {} }}
  routes: {{ all: {{ upstream: shop, policy: web }} }}
",
        upstream.address
    )
}

fn check(server: &Server, policy: &str, fields: &Value) -> (u16, Value) {
    let reply = server.post("/api/v1/check", &json!({ "policy": policy, "fields": fields }));
    (reply.status, reply.json())
}

#[test]
fn a_check_with_a_sender_alone_counts_at_its_domain() {
    let upstream = Upstream::start();
    let home = Home::with(&config(&upstream));
    let server = home.start();
    for sender in ["a@example.com", "<B@Example.COM.>"] {
        assert_eq!(check(&server, "mail", &json!({ "sender": sender })).0, 200);
    }
    let (status, denied) = check(&server, "mail", &json!({ "sender": "c@example.com" }));
    assert_eq!(
        (status, &denied["denied_by"], &denied["denied_key"]),
        (429, &json!("domain"), &json!("example.com"))
    );
    let run = home.run(&server, &["check", "mail", "sender=c@example.com"]);
    assert!(String::from_utf8_lossy(&run.stdout).starts_with("denied by domain example.com"), "{run:?}");
    // A value that contradicts its source is an error; one that agrees is not.
    let (status, problem) =
        check(&server, "mail", &json!({ "sender": "d@a.example", "domain": "b.example" }));
    let detail = "the value of `domain` is not the one of `sender`, from which it is derived; leave it out";
    assert_eq!((status, &problem["detail"]), (400, &json!(detail)));
    assert_eq!(check(&server, "mail", &json!({ "sender": "d@a.example", "domain": "A.example." })).0, 200);
    assert_eq!(check(&server, "mail", &json!({ "domain": "b.example" })).0, 200);
    assert_eq!(check(&server, "mail", &json!({ "sender": "<>" })).0, 200);
}

#[test]
fn the_gateway_and_forward_auth_derive_alike() {
    let upstream = Upstream::start();
    let home = Home::with(&config(&upstream));
    let server = home.start();
    let ask = |ip: &str| server.gateway().ask("GET", "/", &[("x-forwarded-for", ip)], None);
    assert_eq!(ask("192.0.2.1").status, 200);
    assert_eq!(ask("192.0.2.2").status, 200);
    let denied = ask("192.0.2.3");
    assert_eq!((denied.status, &denied.json()["denied_key"]), (429, &json!("192.0.2.0/24")));
    let told = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/"), ("x-forwarded-for", "192.0.2.4")];
    let denied = server.connect().ask("GET", "/api/v1/forward-auth/web", &told, None);
    assert_eq!((denied.status, &denied.json()["denied_key"]), (429, &json!("192.0.2.0/24")));
    assert_eq!(ask("198.51.100.1").status, 200);
}

#[test]
fn lists_guards_and_policies_made_over_the_api_derive_too() {
    let upstream = Upstream::start();
    let home = Home::with(&config(&upstream));
    let server = home.start();
    assert!(server.post("/api/v1/bans", &json!({ "target": "domain=evil.example" })).status < 300);
    let (status, blocked) = check(&server, "mail", &json!({ "sender": "x@EVIL.example" }));
    assert_eq!((status, &blocked["type"]), (403, &json!("/problems/banned")));
    let begin = json!({ "fields": { "sender": "a@example.com" } });
    for _ in 0..2 {
        assert_eq!(server.post("/api/v1/guards/login/begin", &begin).status, 200);
    }
    let locked =
        server.post("/api/v1/guards/login/begin", &json!({ "fields": { "sender": "b@example.com" } }));
    assert_eq!(locked.status, 429, "{}", locked.text());
    let missing = server.post("/api/v1/guards/login/begin", &json!({ "fields": {} }));
    assert!(missing.status == 400 && missing.text().contains("sender"), "{}", missing.text());
    let made = json!({ "name": "made", "by": ["domain"], "limits": ["1/hour"] });
    let made = server.post("/api/v1/policies", &made);
    assert!(made.status < 300, "{}", made.text());
    assert_eq!(check(&server, "made", &json!({ "sender": "a@c.example" })).0, 200);
    let (status, denied) = check(&server, "made", &json!({ "sender": "b@c.example" }));
    assert_eq!((status, &denied["denied_key"]), (429, &json!("c.example")));
}

#[test]
fn check_config_explains_derived_fields_and_refuses_impossible_ones() {
    let upstream = Upstream::start();
    let home = Home::with(&config(&upstream));
    let run = home.program().args(["check-config"]).arg(home.path("tollgate.yaml")).output().unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(said.contains("for each domain (derived from `sender`)"), "{said}");
    for (fields, problem) in [
        ("{ domain: { of: ip } }", "`ip` holds IP addresses: write `{ of: ip, ip: { v4: 24, v6: 48 } }`"),
        (
            "{ domain: { of: user } }",
            "a domain is derived from a mail address, and a network from an IP address",
        ),
        ("{ domain: { of: domain } }", "`domain` cannot be derived from itself"),
        ("{ domain: {} }", "an empty table has no effect: write `ip` or `of`"),
        ("{ domain: { of: 'a b' } }", "cannot name a field"),
    ] {
        let bad = Home::with(&format!(
            "fields: {fields}\nrules: {{ a: {{ limits: 1/s }} }}\npolicies: {{ a: [a] }}\n"
        ));
        let said = String::from_utf8(bad.refused().stderr).unwrap();
        assert!(said.contains(problem), "{fields}: {said}");
    }
}
