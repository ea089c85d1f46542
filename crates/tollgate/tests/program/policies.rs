//! Policies over the API through the real program: created on the command line, enforced, kept across
//! restarts and reloads, and each change logged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::net::TcpStream;

use crate::program::{self, Home, Server, Signal, request, text, wait_until};
use serde_json::{Value, json};

const CONFIG: &str = "
store: { file: ./state.redb }
log: { format: json }
rules: { own: { by: ip, limits: 5/hour } }
policies: { filed: [own] }
";

fn attempt(policy: &str, route: &str, consumer: &str) -> Value {
    json!({ "policy": policy, "fields": { "route": route, "ip": "192.0.2.1", "consumer": consumer } })
}

fn done(home: &Home, server: &Server, arguments: &[&str]) -> String {
    let output = home.run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn failed(home: &Home, server: &Server, arguments: &[&str], piece: &str) {
    let output = home.run(server, arguments);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains(piece), "{arguments:?}: {said}");
}

/// Every audit line of the log, without values that differ from run to run.
fn audit(log: &str) -> Vec<Value> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut lines: Vec<Value> = lines.filter(|line| line["component"] == "audit").collect();
    for line in &mut lines {
        let members = line.as_object_mut().unwrap();
        assert_eq!(members.remove("msg").unwrap(), "changed over the API");
        assert_eq!(members.remove("level").unwrap(), "info");
        members.retain(|name, _| name != "time" && name != "component");
    }
    lines
}

#[test]
fn a_policy_made_on_the_command_line_is_enforced_and_survives_a_restart_and_a_reload() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let shown =
        done(&home, &server, &["policies", "create", "partners", "2/hour", "--description", "for partners"]);
    assert!(shown.contains("limits             2/hour\n"), "{shown}");
    done(&home, &server, &["consumers", "set", "acme", "3/hour"]);
    let status = |server: &Server, route: &str, consumer: &str| {
        let reply = server.check(&attempt("partners", route, consumer));
        (reply.status, reply.json()["denied_by"].as_str().map(str::to_owned))
    };
    assert_eq!(status(&server, "a", "acme"), (200, None));
    server.stop();

    let server = home.start();
    assert_eq!(status(&server, "a", "acme"), (200, None));
    assert_eq!(status(&server, "a", "acme"), (429, Some("partners".into())));
    assert_eq!(status(&server, "b", "acme"), (200, None), "the refused one cost the consumer nothing");
    assert_eq!(status(&server, "b", "acme"), (429, Some("consumer".into())));
    assert_eq!(server.remaining("partners", "b,192.0.2.1"), 1, "and this one cost the client nothing");

    home.configure(&CONFIG.replace("5/hour", "6/hour"));
    wait_until("the reload", || server.remaining("own", "192.0.2.1") == 6);
    assert_eq!(status(&server, "b", "acme"), (429, Some("consumer".into())));
    done(&home, &server, &["policies", "set", "partners", "4/hour"]);
    let shown = server.get("/api/v1/policies/partners").ok();
    assert_eq!((&shown["description"], &shown["version"]), (&json!("for partners"), &json!(2)));
    assert_eq!(server.remaining("partners", "a,192.0.2.1"), 2, "two were taken of what are four now");
    done(&home, &server, &["policies", "delete", "partners"]);
    assert_eq!(server.check(&attempt("partners", "a", "acme")).status, 400);
    server.stop();
    let server = home.start();
    assert_eq!(server.get("/api/v1/policies").ok()["policies"], json!([]));
    assert_eq!(server.get("/api/v1/consumers").ok()["consumers"][0]["id"], "acme");
}

#[test]
fn a_policy_that_was_made_counts_fields_as_the_configuration_says() {
    let home = Home::with(&format!("{CONFIG}fields: {{ net: {{ ip: {{ v4: 24 }} }} }}\n"));
    let server = home.start();
    done(&home, &server, &["policies", "create", "partners", "1/hour", "--by", "net"]);
    let status =
        |address: &str| server.check(&json!({ "policy": "partners", "fields": { "net": address } })).status;
    assert_eq!([status("192.0.2.1"), status("192.0.2.200"), status("192.0.3.1")], [200, 429, 200]);
}

#[test]
fn routes_of_the_gateway_are_assigned_on_the_command_line_until_they_are_unassigned() {
    let gateway = "
gateway:
  listen: 127.0.0.1:0
  upstreams: { shop: 127.0.0.1:9 }
  routes:
    cart: { path: /cart, upstream: shop, policy: filed }
    free: { path: /free/*, upstream: shop }
";
    let home = Home::with(&format!("{CONFIG}{gateway}"));
    let server = home.start();
    done(&home, &server, &["policies", "create", "partners", "2/hour"]);
    assert_eq!(done(&home, &server, &["routes", "assign", "free", "partners"]), "free passes partners\n");
    assert_eq!(done(&home, &server, &["routes", "assign", "cart", "partners"]), "cart passes partners\n");
    failed(&home, &server, &["policies", "delete", "partners"], "in use by the routes `cart`, `free`");
    failed(&home, &server, &["routes", "assign", "fre", "partners"], "did you mean `free`?");
    server.stop();

    let server = home.start();
    let list = "\
route  path     policy    because
cart   /cart    partners  assigned
free   /free/*  partners  assigned
";
    assert_eq!(done(&home, &server, &["routes", "list"]), list);
    assert_eq!(done(&home, &server, &["routes", "unassign", "cart"]), "cart uses its configured policy\n");
    done(&home, &server, &["routes", "unassign", "free"]);
    let list = "\
route  path     policy  because
cart   /cart    filed   configured
free   /free/*  -       -
";
    assert_eq!(done(&home, &server, &["routes", "list"]), list);
    done(&home, &server, &["policies", "delete", "partners"]);
    let told = audit(&server.stop());
    let actions: Vec<(&str, &str)> =
        told.iter().map(|line| (line["action"].as_str().unwrap(), line["what"].as_str().unwrap())).collect();
    assert_eq!(
        actions,
        [("route.unassign", "cart"), ("route.unassign", "free"), ("policy.delete", "partners")]
    );
    assert_eq!(told[0]["before"], "partners");
}

#[test]
fn policies_survive_a_killed_server() {
    let home = Home::with(CONFIG);
    let server = home.start();
    done(&home, &server, &["policies", "create", "partners", "2/hour"]);
    server.end_by(Signal::KILL);
    let server = home.start();
    assert_eq!(server.get("/api/v1/policies/partners").ok()["limits"], json!(["2/hour"]));
}

#[test]
fn the_command_line_says_why_something_cannot_be() {
    let home = Home::with(CONFIG);
    let server = home.start();
    done(&home, &server, &["policies", "create", "partners", "2/hour"]);
    failed(&home, &server, &["policies", "create", "partners", "2/hour"], "`partners` is taken");
    failed(&home, &server, &["policies", "create", "own", "2/hour"], "the configuration has a rule");
    failed(&home, &server, &["policies", "show", "partner"], "did you mean `partners`?");
    failed(&home, &server, &["policies", "set", "filed", "2/hour"], "made over the API");
    failed(&home, &server, &["routes", "assign", "checkout", "partners"], "there is no route `checkout`");
    failed(&home, &server, &["consumers", "show", "acme"], "no limits of its own");
    assert_eq!(done(&home, &server, &["routes", "list"]), "this server has no routes\n");
}

#[test]
fn a_configuration_that_takes_a_name_goes_before_and_a_server_of_nothing_else_can_be_reloaded() {
    let home = Home::with("store: memory\nlog: { format: json }\n");
    let server = home.start();
    done(&home, &server, &["policies", "create", "partners", "2/hour"]);
    assert_eq!(done(&home, &server, &["reload"]), "reloaded\n");
    assert_eq!(server.check(&attempt("partners", "a", "acme")).status, 200);
    home.configure("store: memory\nlog: { format: json }\nrules: { partners: { by: ip, limits: 9/hour } }\npolicies: { partners: [partners] }\n");
    server.wait_for_log("a run-time change conflicts with the configuration and is not in force");
    assert_eq!(server.check(&json!({ "policy": "partners", "fields": { "ip": "192.0.2.1" } })).status, 200);
    assert_eq!(server.remaining("partners", "192.0.2.1"), 8);
    assert_eq!(server.get("/api/v1/policies/partners").ok()["in_force"], false);
    home.configure("store: memory\n");
    assert!(!home.run(&server, &["reload"]).status.success(), "all configured policies are lost");
}

#[test]
fn every_change_is_one_log_line_with_its_author_and_both_values() {
    let config = format!(
        "{CONFIG}keys:\n  - {{ name: boss, role: admin, token_env: BOSS }}\n  - {{ name: eye, role: read, token_env: EYE }}\n"
    );
    let config = config.replace(
        "rules: {",
        "rules: { hush: { by: token, limits: 9/hour, secret: true }, jobs: { by: ip, limits: 2 at once },",
    );
    let home =
        Home::with(&config).variable("BOSS", "a-token-of-the-boss").variable("EYE", "a-token-of-the-eye");
    let server = home.start();
    let ask = |method: &str, path: &str, body: Option<Value>| {
        let reply = server.ask_as("a-token-of-the-boss", method, &format!("/api/v1/{path}"), body.as_ref());
        assert!((200..300).contains(&reply.status), "{method} {path}: {}", reply.text());
    };
    ask("POST", "policies", Some(json!({ "name": "p", "requestsPerSecond": 10, "burstSize": 50 })));
    ask("PUT", "policies/p", Some(json!({ "limits": "9/hour", "by": "ip", "description": "for \"p\"" })));
    ask("PUT", "consumers/acme/rate-limit", Some(json!({ "limits": ["9/hour", "99/day"] })));
    ask("PUT", "consumers/acme/rate-limit", Some(json!({ "limits": "unlimited" })));
    ask("DELETE", "consumers/acme/rate-limit", None);
    ask("DELETE", "consumers/acme/rate-limit", None);
    ask("DELETE", "policies/p", None);
    ask("PUT", "counters/own/192.0.2.1", Some(json!({ "limits": "7/hour" })));
    ask("PUT", "counters/own/192.0.2.1", Some(json!({ "limits": ["8/hour", "9/day"] })));
    ask("DELETE", "counters/own/192.0.2.1/override", None);
    ask("DELETE", "counters/own/192.0.2.1", None);
    ask("DELETE", "counters/own", None);
    ask("DELETE", "counters", None);
    ask("PUT", "counters/hush/a-secret-token", Some(json!({ "limits": "7/hour" })));
    ask("PUT", "holds/jobs/192.0.2.1", Some(json!({ "ids": ["a", "b"] })));
    ask("POST", "reload", None);
    for (method, path) in [("GET", "policies"), ("GET", "consumers"), ("GET", "routes")] {
        ask(method, path, None);
    }
    let body = json!({ "name": "q", "limits": "9/hour" });
    assert_eq!(server.ask_as("a-token-of-the-eye", "POST", "/api/v1/policies", Some(&body)).status, 403);
    assert_eq!(server.ask_as("a-token-of-the-eye", "GET", "/api/v1/policies", None).status, 200);
    let log = server.stop();
    assert!(!log.contains("a-token-of") && !log.contains("a-secret-token"), "{log}");
    let mut told = audit(&log);
    for line in &mut told {
        assert_eq!(line.as_object_mut().unwrap().remove("actor").unwrap(), "boss");
    }
    let veiled = told.iter_mut().find(|line| line["what"].as_str().unwrap().starts_with("hush/#")).unwrap();
    veiled["what"] = json!("hush/#");
    let first = "10/s burst 50 by route,ip; reject; local 50%";
    let second = "9/hour by ip; reject; local 50%; \"for \\\"p\\\"\"";
    let expected = json!([
        { "action": "policy.create", "what": "p", "after": first },
        { "action": "policy.change", "what": "p", "before": first, "after": second },
        { "action": "consumer.limit", "what": "acme", "after": "9/hour, 99/day" },
        { "action": "consumer.limit", "what": "acme", "before": "9/hour, 99/day", "after": "unlimited" },
        { "action": "consumer.unlimit", "what": "acme", "before": "unlimited" },
        { "action": "policy.delete", "what": "p", "before": second },
        { "action": "override.set", "what": "own/192.0.2.1", "after": "7/hour" },
        { "action": "override.set", "what": "own/192.0.2.1", "before": "7/hour", "after": "8/hour, 9/day" },
        { "action": "override.remove", "what": "own/192.0.2.1", "before": "8/hour, 9/day" },
        { "action": "counts.reset", "what": "own/192.0.2.1" },
        { "action": "counts.reset", "what": "own" },
        { "action": "counts.reset", "what": "everything" },
        { "action": "override.set", "what": "hush/#", "after": "7/hour" },
        { "action": "holds.replace", "what": "jobs/192.0.2.1", "after": "2 ids" },
        { "action": "configuration.reload", "what": "configuration" },
    ]);
    assert_eq!(json!(told), expected, "{told:#?}");
}

#[test]
fn a_change_takes_effect_even_if_its_client_disconnects() {
    let home = Home::with(CONFIG);
    let server = home.start();
    for number in 0..20 {
        let body = json!({ "name": format!("p{number}"), "limits": "2/hour" });
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(&request("POST", "/api/v1/policies", &[], Some(&body))).unwrap();
        // The server may or may not have started: it applies all of it or nothing.
        drop(stream);
    }
    let names = || {
        let page = server.get("/api/v1/policies").ok();
        let page = page["policies"].as_array().unwrap().clone();
        page.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut last = names();
    wait_until("nothing more to happen", || {
        program::pause(std::time::Duration::from_millis(100));
        let now = names();
        std::mem::replace(&mut last, now) == last
    });
    for name in &last {
        assert_eq!(server.check(&attempt(name, "a", "b")).status, 200);
    }
    assert_eq!(audit(&server.stop()).len(), last.len(), "and all of it was told");
    let server = home.start();
    let page = server.get("/api/v1/policies").ok();
    assert_eq!(page["policies"].as_array().unwrap().len(), last.len(), "what holds is what is kept");
}
