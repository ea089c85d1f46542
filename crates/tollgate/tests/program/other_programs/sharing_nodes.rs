//! `tollgate top --all-nodes`: what all nodes of a shared store do, asked of one of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes::{PATIENT, attempt};
use crate::program::{Home, Server, text, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::{Postgres, Server as Redis};

fn home(store: &str) -> Home {
    Home::with(&format!(
        "store: {store}
rules: {{ user: {{ by: user, limits: 2/30d }}, key: {{ by: api_key, limits: 1/30d, secret: true }} }}
policies: {{ user: [user], key: [key] }}
"
    ))
}

fn top(server: &Server) -> Value {
    server.get("/api/v1/top?nodes=all").ok()
}

/// The sum of the decisions with an outcome.
fn total(top: &Value, outcome: &str) -> u64 {
    let totals = top["totals"].as_array().unwrap().iter();
    totals.filter(|total| total["outcome"] == outcome).map(|total| total["count"].as_u64().unwrap()).sum()
}

/// Two nodes on one store; each denies some attempts, and the first one shows the sums.
fn check_two_nodes(store: &str) {
    let homes = [home(store), home(store)];
    let (one, two) = (homes[0].start(), homes[1].start());
    for (server, times) in [(&one, 5), (&two, 4)] {
        for _ in 0..times {
            server.check(&attempt("user", "ada"));
        }
    }
    for _ in 0..3 {
        two.check(&json!({ "policy": "key", "fields": { "api_key": "hush-hush" } }));
    }
    wait_until("the other node has reported", || {
        let top = top(&one);
        top["nodes"].as_array().unwrap().len() == 2 && total(&top, "deny") == 7 + 2
    });
    let shown = top(&one);
    assert_eq!(total(&shown, "allow"), 2 + 1);
    let offender = &shown["offenders"][0];
    assert_eq!((&offender["key"], &offender["denied"]), (&json!("ada"), &json!(7)));
    assert!(shown["offenders"][1]["key"].as_str().unwrap().starts_with('#'), "secret keys stay hidden");
    let [own, other] = [&shown["nodes"][0], &shown["nodes"][1]];
    assert_eq!((&own["decisions"], &own["age_ms"]), (&json!(5), &json!(0)));
    assert_eq!(other["decisions"], 7);
    assert!(other["age_ms"].as_u64().unwrap() < 15_000, "{other}");
    assert!(other["node"].as_str().unwrap().contains(':') && other["id"] != own["id"], "{shown}");
    assert_eq!(total(&one.get("/api/v1/top").ok(), "deny"), 3, "by default it is about one node");

    let said = homes[0].run(&one, &["top", "--all-nodes", "--once"]);
    let said = text(&said.stdout);
    assert!(said.contains("2 nodes, 12 decisions since they started"), "{said}");
    assert!(said.contains("user  ada") && said.contains("  7  "), "{said}");
    let json = homes[0].run(&one, &["top", "--all-nodes", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 2);

    two.stop();
    wait_until("the node that has ended is gone", || top(&one)["nodes"].as_array().unwrap().len() == 1);
}

#[test]
fn nodes_on_redis_are_shown_together_and_leave_nothing_behind() {
    let redis = Redis::redis().start();
    check_two_nodes(&format!("{{ redis: '{}', {PATIENT} }}", redis.url()));
    for key in ["tollgate/{nodes}", "tollgate/{nodes}:ends"] {
        let expires = redis.command(&["PTTL", key]).number();
        assert!(expires > 0 && expires <= 3_600_000, "{key}: {expires}");
    }
}

#[test]
fn nodes_on_postgresql_are_shown_together() {
    let postgres = Postgres::start();
    check_two_nodes(&format!("{{ postgres: '{}', command_timeout: 5s }}", postgres.url()));
    let kept = "SELECT count(*), max(length(bytes)) < 16500 FROM tollgate.record \
                WHERE space = 'nodes' AND bytes IS NOT NULL";
    assert!(["0|", "1|t"].contains(&postgres.sql(kept).as_str()), "{}", postgres.sql(kept));
}

#[test]
fn a_node_on_a_file_shows_itself() {
    let home = home("{ file: ./state.redb }");
    let server = home.start();
    server.check(&attempt("user", "ada"));
    let shown = top(&server);
    assert_eq!((shown["nodes"].as_array().unwrap().len(), total(&shown, "allow")), (1, 1));
    let said = home.run(&server, &["top", "--all-nodes", "--once"]);
    assert!(text(&said.stdout).contains("1 node, 1 decision since it started"), "{}", text(&said.stdout));
}
